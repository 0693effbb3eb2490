"""What an account takes from beside its arms' times: a profiled drafter, and what starts of a server differ by."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftworth.costs.graphs import ON_THE_HOST
from draftworth.predict.base import Range
from draftworth.predict.trialrows import Load
from draftworth.trials.diagnostics import PROFILE
from draftworth.trials.profiling import kept
from draftworth.trials.record import ArmRecord, TrialRecord
from draftworth.verdicts.rules import restart_priors

_DRAFT = ": draft"
"""End of the name of vLLM's range in which the drafter runs: `gpu_model_runner: draft`."""
_LIKE = 0.25
"""A profile's drafter stands for loads within this share of its own."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard error of log TPOT over starts of a server: of the baseline's mean, and of the arm's."""

    base: float
    arm: float


NO_SPREAD = Spread(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class DrafterTime:
    """What a drafter takes a step.

    Attributes:
        ms: a step.
        requests: requests in a step where it was measured; None holds for every load.
        stated: whether somebody typed it, and nothing measured it.
    """

    ms: Range
    requests: float | None = None
    stated: bool = False


STATED_TIMES = 2.0
"""A drafter's time that was typed is taken to be right within this factor: nothing says how it was measured."""


def stated_ms(ms: float) -> Range:
    """Return a drafter's milliseconds a step as somebody typed them: from half of it to twice."""
    return Range(value=ms, low=ms / STATED_TIMES, high=ms * STATED_TIMES)


def profiled_drafters(folder: Path, arms: Sequence[ArmRecord]) -> dict[str, DrafterTime]:
    """Return what the drafters of arms that the trial profiled took a step, by the engine's own named ranges.

    Of drafters on the host alone: of a head the range is the launch of its kernels, not their time. The profiler slows
    the host by an unknown share, so what it says is the upper end and nothing the lower.
    """
    found = {}
    for arm in arms:
        profile = kept(folder, f"{PROFILE}-{arm.name}")
        config = arm.declared.get("speculative_config")
        host = isinstance(config, Mapping) and str(config.get("method")) in ON_THE_HOST
        if profile is None or not profile.steps or not host:
            continue
        drafting = [scope.ms for scope in profile.scopes if scope.name.endswith(_DRAFT)]
        if drafting:
            each = sum(drafting) / profile.steps
            requests = None if profile.request_steps is None else profile.request_steps / profile.steps
            found[arm.name] = DrafterTime(Range(value=each, low=0.0, high=each), requests)
    return found


def drafter_at(time: DrafterTime | None, load_: Load) -> DrafterTime | None:
    """Return a drafter's time at a load, where it was measured at a like one: it grows with the requests."""
    if time is None:
        return None
    near = time.requests is None or abs(time.requests / load_.place.batch - 1) <= _LIKE
    return time if near else None


def spread_of(record: TrialRecord, arm: str) -> Spread:
    """Return what starts differ by, as the verdict takes it: the priors, over the starts that there were.

    Servers that ran already are the same in all of a trial, but not those whose modes stand in for theirs.
    """
    config = record.config.get("verdict")
    stated = config if isinstance(config, Mapping) else {}
    device = "cpu" if any("cpu" in word for word in record.arms[0].command) else None
    base, other = restart_priors(device)
    starts = {one.name: max(1, len({each.start for each in one.starts})) for one in record.arms}
    sds = stated.get("restart_sd_baseline"), stated.get("restart_sd_variant")
    base, other = (
        given if isinstance(given, int | float) else default for given, default in zip(sds, (base, other), strict=True)
    )
    return Spread(base / math.sqrt(starts.get(record.arms[0].name, 1)), other / math.sqrt(starts.get(arm, 1)))
