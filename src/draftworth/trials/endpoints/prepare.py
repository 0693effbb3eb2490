"""Before a trial between running servers: read the file, ask the servers, make the plan. Changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from draftworth.bench.access import access
from draftworth.bench.address import address_of
from draftworth.bench.base import Access, Closed, Prompt, Replay, Target
from draftworth.bench.points import Point
from draftworth.bench.requests import load_workload, requests_in, sweep_of
from draftworth.engines import engine as engine_named
from draftworth.errors import RefusedError, UsageError
from draftworth.trials.ask import access_of
from draftworth.trials.config import BASELINE
from draftworth.trials.diagnostics import PROBE
from draftworth.trials.endpoints.config import EndpointArm, EndpointsConfig, EndpointsTrial
from draftworth.trials.plan_text import in_words
from draftworth.trials.probing import about_probe, loads_of, sizes_of
from draftworth.trials.steps import Kind, Plan, Step

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

_FEWEST_A_LOOK = 4
_KEPT_UP = 4
"""So many times as many conversations as are under way at a time keep a closed loop full but for its end."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One server.

    Attributes:
        name: the arm's.
        target: where and how it is asked.
        version: what it says its version is, None where it does not tell.
        engine: what runs there.
        speculation: what the file says it was started with.
        args: further arguments that it says.
    """

    name: str
    target: Target
    version: str | None
    engine: str = "vllm"
    speculation: Mapping[str, Any] | None = None
    args: tuple[str, ...] = ()


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
    # Every arm's access before any server is asked.
    allowed = [access_of(config.service), *(access_to(config.service, arm) for arm in config.arms)]
    arms = tuple(_arm(config, arm, access, prompts) for arm, access in zip((None, *config.arms), allowed, strict=True))
    sweep = sweep_of(config.workload)
    segments = parts_of(config, prompts, sweep)
    requests = requests_in(prompts) * config.workload.repeats * len(sweep) * len(arms)
    if requests > config.limits.requests:
        raise RefusedError(
            f"the plan sends {requests} requests and limits.requests is {config.limits.requests}; "
            "raise it, or lower workload.prompts_per_category or workload.repeats"
        )
    made = Plan(
        steps=tuple(_steps(config, segments)),
        requests=requests,
        starts=0,
        downtime_starts=0,
        commands={},
        notes=tuple(_notes(config, prompts, sweep, len(segments))),
    )
    return Prepared(config, engine_named(arms[0].engine), arms, prompts, segments, sweep, made)


def _arm(config: EndpointsTrial, arm: EndpointArm | None, allowed: Access, prompts: Sequence[Prompt]) -> Arm:
    from draftworth.bench.server import check_fits, look_at  # noqa: PLC0415 - lazy: aiohttp

    service = config.service
    url = arm.url if arm else service.baseline
    wanted = (arm.model if arm else None) or service.model
    found = look_at(
        url, access=allowed, model=wanted, token_timeout_s=config.limits.token_timeout_s, engine=service.engine
    )
    check_fits(found, prompts, sweep_of(config.workload))
    if arm is None:
        return Arm(BASELINE, found.target, found.version, found.engine)
    return Arm(arm.name, found.target, found.version, found.engine, arm.speculative_config, arm.args)


def access_to(service: EndpointsConfig, arm: EndpointArm) -> Access:
    """Return what lets the client into a variant's server: its own access, and the baseline's where that may be sent.

    Raises:
        UsageError: the baseline has a key, the arm is elsewhere and does not say whether it may have it; a variable is
            not set, a header is none, or there is no such file.
    """
    stated = arm.model_fields_set
    shared = arm.same_access or ("same_access" not in stated and _place(arm.url) == _place(service.baseline))
    secret = service.api_key_env or service.headers_env
    if secret and not shared and not stated & {"same_access", "api_key_env", "headers_env"}:
        raise UsageError(
            f"arms: {arm.name} is not at the baseline's scheme, host and port, so the baseline's key is not sent "
            "there: write api_key_env or headers_env for its own, same_access = true to send the baseline's, or "
            "same_access = false where it needs none"
        )
    key = ("authorization",) if arm.api_key_env else ()
    own = {name.lower() for name in (*arm.headers, *arm.headers_env, *key)}

    def left(given: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in given.items() if name.lower() not in own}

    return access(
        api_key_env=arm.api_key_env or (service.api_key_env if shared and "authorization" not in own else None),
        headers={**left(service.headers), **arm.headers},
        headers_env={**(left(service.headers_env) if shared else {}), **arm.headers_env},
        ca_file=arm.ca_file or service.ca_file,
        key_name=f"arms: {arm.name}: api_key_env" if arm.api_key_env else "service.api_key_env",
    )


def _place(url: str) -> tuple[bool, str, int]:
    address = address_of(url)
    return address.tls, address.host, address.port


def parts_of(
    config: EndpointsTrial, prompts: Sequence[Prompt], sweep: Sequence[Point]
) -> tuple[tuple[Prompt, ...], ...]:
    """Return the parts in which prompts are sent, one for each look; a replay is one, its times belong together."""
    if _replays(sweep):
        return (tuple(prompts),)
    return split(prompts, config.service.looks, at_once=_most_at_once(sweep), repeats=config.workload.repeats)


def split(
    prompts: Sequence[Prompt], looks: int, *, at_once: int = 1, repeats: int = 1
) -> tuple[tuple[Prompt, ...], ...]:
    """Return prompts in at most `looks` parts, each with like shares of every category, in the order of the list.

    There are fewer parts where a category has not one prompt for each, and where a part would have fewer than four
    prompts, or fewer than keep the load up.

    Args:
        prompts: the workload.
        looks: the most parts.
        at_once: how many conversations are under way at a time, at most.
        repeats: how often each is sent.
    """
    of_category: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        of_category.setdefault(prompt.category, []).append(number)
    rarest = min(map(len, of_category.values()), default=1)
    count = max(1, min(looks, rarest, len(prompts) // _fewest(at_once, repeats)))
    # Dealt like cards, category by category, each beginning where the one before ended: sizes differ by one at most.
    dealt = [number for numbers in of_category.values() for number in numbers]
    return tuple(tuple(prompts[number] for number in sorted(dealt[part::count])) for part in range(count))


def _fewest(at_once: int, repeats: int) -> int:
    """Return the fewest prompts of a part."""
    return max(_FEWEST_A_LOOK, -(-_KEPT_UP * at_once // repeats))


def _most_at_once(sweep: Sequence[Point]) -> int:
    return max((point.load.concurrency for point in sweep if isinstance(point.load, Closed)), default=1)


def _replays(sweep: Sequence[Point]) -> bool:
    return any(isinstance(point.load, Replay) for point in sweep)


def turns(prompts: Sequence[Prompt], point: Point, repeats: int = 1) -> list[Sequence[Prompt]]:
    """Return prompts as the servers take turns with them: one by one, or so many that a closed loop stays full.

    With `concurrency` conversations at a time a turn has at least four times as many, repeats counted, where there are
    so many; an open loop or a replay is one turn, since its arrival times belong together.
    """
    if not isinstance(point.load, Closed):
        return [prompts]
    at_once = point.load.concurrency
    size = 1 if at_once == 1 else -(-_KEPT_UP * at_once // repeats)
    count = max(1, len(prompts) // size)
    return [prompts[begin:end] for begin, end in pairwise(len(prompts) * turn // count for turn in range(count + 1))]


def _notes(config: EndpointsTrial, prompts: Sequence[Prompt], sweep: Sequence[Point], parts: int) -> list[str]:
    """Return what a person should know about the looks and the load."""
    looks, repeats = config.service.looks, config.workload.repeats
    if _replays(sweep):
        about = (
            "a replay is measured whole, on one server after the other, so that its times stay as recorded: there is "
            "one look, and what drifts meanwhile is in the ratio"
        )
        return [about]
    found = []
    at_once = _most_at_once(sweep)
    if parts < looks:
        up = "" if at_once == 1 else f" and enough requests to keep {at_once} at a time up"
        found.append(
            f"looks: {parts}, not the {looks} of service.looks: each has every category, at least {_FEWEST_A_LOOK} "
            f"prompts{up}"
        )
    sent = len(prompts) * repeats
    if at_once > 1 and sent < _KEPT_UP * at_once:
        found.append(
            f"{sent} conversations are fewer than {_KEPT_UP} times {at_once}, so the load does not stay up at "
            f"{at_once} at a time: raise workload.prompts_per_category or workload.repeats, or lower "
            "workload.concurrency"
        )
    return found


def _steps(config: EndpointsTrial, segments: Sequence[Sequence[Prompt]]) -> list[Step]:
    work = config.workload
    names = ", ".join((BASELINE, *(arm.name for arm in config.arms)))
    steps = []
    for number, segment in enumerate(segments, 1):
        count = requests_in(segment) * work.repeats * len(sweep_of(work))
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
    if PROBE in config.verdict.diagnostics:
        # Behind everything that the verdict needs: it is a load of its own on the server.
        sizes = sizes_of(loads_of(sweep_of(work)), [arm.speculative_config for arm in config.arms])
        name = f"{len(steps) + 1:02d}-probe-{BASELINE}"
        steps.append(Step(id=name, kind=Kind.PROBE, arm=BASELINE, about=about_probe(sizes), closing=True))
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
    out += [f"Note: {note}" for note in ready.plan.notes]
    out.append(
        "Note: two servers are two starts; what a restart draws anew is not measured and enters as the stated prior."
    )
    return out
