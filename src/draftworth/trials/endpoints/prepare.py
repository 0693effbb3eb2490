"""Before a trial between running servers: read the file, ask the servers, make the plan. Changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftworth.bench.base import Closed, Prompt, Target
from draftworth.bench.points import Point
from draftworth.bench.requests import load_workload, requests_in, sweep_of
from draftworth.engines import engine as engine_named
from draftworth.errors import RefusedError
from draftworth.trials.ask import access_of
from draftworth.trials.config import BASELINE
from draftworth.trials.endpoints.config import EndpointsConfig, EndpointsTrial
from draftworth.trials.plan import Kind, Plan, Step, in_words

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

_FEWEST_A_LOOK = 4


@dataclass(frozen=True, slots=True)
class Arm:
    """One server.

    Attributes:
        name: the arm's.
        target: where and how it is asked.
        version: what it says its version is, None where it does not tell.
    """

    name: str
    target: Target
    version: str | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trial that could start now.

    Attributes:
        config: its file.
        engine: reads the servers' counters.
        arms: the servers, the baseline first.
        prompts: the workload.
        segments: the prompts in as many parts as there are looks.
        sweep: the points, each measured in each part.
        plan: what will be done, for a person.
    """

    config: EndpointsTrial
    engine: "Engine"
    arms: tuple[Arm, ...]
    prompts: tuple[Prompt, ...]
    segments: tuple[tuple[Prompt, ...], ...]
    sweep: tuple[Point, ...]
    plan: Plan


def prepare(config: EndpointsTrial) -> Prepared:
    """Ask every server what it serves, and plan.

    Raises:
        UsageError: a URL leads to no such server, a model is not served, a key is missing, the workload is wrong.
        RefusedError: more requests than the file allows.
    """
    prompts = load_workload(config.workload).prompts
    arms = tuple(_arm(config, name) for name in (BASELINE, *(arm.name for arm in config.arms)))
    sweep = sweep_of(config.workload)
    segments = split(prompts, config.service.looks)
    requests = requests_in(prompts) * config.workload.repeats * len(sweep) * len(arms)
    if requests > config.limits.requests:
        raise RefusedError(
            f"the plan sends {requests} requests and limits.requests is {config.limits.requests}; "
            "raise it, or lower workload.prompts_per_category or workload.repeats"
        )
    made = Plan(steps=tuple(_steps(config, segments)), requests=requests, starts=0, downtime_starts=0, commands={})
    return Prepared(config, engine_named(config.service.engine), arms, prompts, segments, sweep, made)


def _arm(config: EndpointsTrial, name: str) -> Arm:
    from draftworth.bench.server import look_at  # noqa: PLC0415 - lazy: aiohttp

    service = config.service
    own = next((arm for arm in config.arms if arm.name == name), None)
    url = own.url if own else service.baseline
    wanted = (own.model if own else None) or service.model
    keyed = service if own is None or own.api_key_env is None else _with_key(config, own.api_key_env)
    found = look_at(url, access=access_of(keyed), model=wanted, token_timeout_s=config.limits.token_timeout_s)
    return Arm(name, found.target, found.version)


def _with_key(config: EndpointsTrial, variable: str) -> EndpointsConfig:
    return config.service.model_copy(update={"api_key_env": variable})


def split(prompts: Sequence[Prompt], looks: int) -> tuple[tuple[Prompt, ...], ...]:
    """Return prompts in `looks` parts of about one size, fewer where a part would have less than four.

    Every part has prompts of the whole list, one in so many, so that each look sees every category.
    """
    parts = max(1, min(looks, len(prompts) // _FEWEST_A_LOOK))
    return tuple(tuple(prompts[number::parts]) for number in range(parts))


def turns(prompts: Sequence[Prompt], point: Point) -> list[Sequence[Prompt]]:
    """Return prompts as the servers take turns with them: one by one, or so many that a closed loop stays full.

    With `concurrency` requests at a time a turn has four times as many; an open loop or a replay is one turn, since
    its arrival times belong together.
    """
    if not isinstance(point.load, Closed):
        return [prompts]
    size = 1 if point.load.concurrency == 1 else 4 * point.load.concurrency
    return [prompts[at : at + size] for at in range(0, len(prompts), size)]


def _steps(config: EndpointsTrial, segments: Sequence[Sequence[Prompt]]) -> list[Step]:
    work = config.workload
    names = ", ".join((BASELINE, *(arm.name for arm in config.arms)))
    steps = []
    for number, segment in enumerate(segments, 1):
        count = requests_in(segment) * work.repeats
        about = f"part {number} of {len(segments)}: {count} requests to each of {names} in turns, {in_words(work)}" + (
            "" if number == len(segments) else "; then look whether the evidence is enough"
        )
        steps.append(Step(id=f"{number:02d}-measure", kind=Kind.MEASURE, look=number, about=about))
    if config.verdict.output_check:
        most = config.verdict.output_check_prompts
        about = (
            f"output check: score up to {most} outputs of each server on the baseline, at most "
            f"{config.service.output_check_tokens} tokens of each"
        )
        steps.append(Step(id=f"{len(steps) + 1:02d}-score", kind=Kind.SCORE, about=about, closing=True))
    return steps


def lines(ready: Prepared) -> list[str]:
    """Return the plan for a person."""
    out = []
    for arm in ready.arms:
        version = f", version {arm.version}" if arm.version else ""
        out.append(f"{arm.name}: {arm.target.base_url}, model {arm.target.model}{version}; it runs already")
    out.append("")
    out += [f"{step.id}: {step.about}" for step in ready.plan.steps]
    out += ["", f"At most {ready.plan.requests} measured requests. Nothing is started and nothing is stopped."]
    out.append(
        "Note: two servers are two starts; what a restart draws anew is not measured and enters as the stated prior."
    )
    return out
