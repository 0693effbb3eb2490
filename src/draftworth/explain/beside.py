"""What an account takes from beside its arms' times: a profiled drafter, and what starts of a server differ by."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from draftworth.costs.graphs import ON_THE_HOST
from draftworth.predict.base import Range
from draftworth.predict.trialrows import Load, Measured, Row
from draftworth.trials.device import device_of, starts_of
from draftworth.trials.diagnostics import PROFILE
from draftworth.trials.profiling import kept
from draftworth.trials.record import ArmRecord, TrialRecord
from draftworth.verdicts.rules import restart_priors

if TYPE_CHECKING:
    from draftworth.verdicts.restarts import Restarts

_DRAFT = ": draft"
"""End of the name of vLLM's range in which the drafter runs: `gpu_model_runner: draft`."""
_LIKE = 0.25
"""A profile's drafter stands for loads within this share of its own."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard errors of log TPOT over starts of a server.

    Attributes:
        base: of the baseline's mean over its starts.
        arm: of the arm's.
        other: of one start of a server that speculates: an arm that only measures is started once.
        other_base: of one start of a server that does not.
        base_free: degrees of freedom of `base`; infinite where it is a prior, taken as known.
        arm_free: of `arm`.
        other_free: of `other`.
    """

    base: float
    arm: float
    other: float = 0.0
    other_base: float = 0.0
    base_free: float = math.inf
    arm_free: float = math.inf
    other_free: float = math.inf


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


def spread_of(trial: Measured, arm: str) -> Spread:
    """Return what starts differ by, as the verdict takes it (`verdicts.restarts`).

    With fewer than three starts of a server the stated prior of its device, unless two of them contradict it; from
    three on what they show, as well as so few tell it. Over all points, as the verdict: it belongs to the server.
    Servers that ran already are the same in all of a trial, but not those whose modes stand in for theirs.
    """
    from draftworth.verdicts.restarts import STARTS_TO_ESTIMATE, Restarts, arm_restarts  # noqa: PLC0415 - lazy: scipy

    record = trial.record
    priors = _priors(record)
    named = record.arms[0].name, arm
    tables = _tables(trial, *named)
    found: list[tuple[Restarts, int]] = []
    for name, table, prior in zip(named, tables, priors, strict=True):
        starts = next((starts_of(one) for one in record.arms if one.name == name), 1)
        if table is None:
            zero = np.zeros(())
            found.append((Restarts(zero + prior**2 / starts, zero + prior**2 / starts, zero, zero), starts))
        else:
            found.append((arm_restarts(table, prior), len(table)))
    (base, base_free), (mine, mine_free) = (_error(one) for one, _ in found)
    shown = found[1][1]
    of_one, of_one_free = mine * math.sqrt(shown), mine_free
    if shown < STARTS_TO_ESTIMATE:
        of_one, of_one_free = max(of_one, priors[1]), math.inf
    return Spread(base, mine, of_one, max(priors[0], base * math.sqrt(found[0][1])), base_free, mine_free, of_one_free)


def _priors(record: TrialRecord) -> tuple[float, float]:
    """Return the restart priors that the verdict took, without and with speculation."""
    config = record.config.get("verdict")
    stated = config if isinstance(config, Mapping) else {}
    sds = stated.get("restart_sd_baseline"), stated.get("restart_sd_variant")
    base, other = (
        given if isinstance(given, int | float) else default
        for given, default in zip(sds, restart_priors(device_of(record)), strict=True)
    )
    return base, other


def _error(one: "Restarts") -> tuple[float, float]:
    """Return a restart part as a standard error and its degrees of freedom."""
    total, spread = float(one.known + one.plausible), float(one.spread)
    return math.sqrt(float(one.variance)), total**2 / spread if spread > 0 and total > 0 else math.inf


def _tables(trial: Measured, *names: str) -> "list[np.ndarray[tuple[int, int], np.dtype[np.float64]] | None]":
    """Return each arm's table of scaled TPOT, [starts, prompts], as `verdicts.restarts` takes it.

    Of what was measured in every start of both, as the verdict pairs it. None for an arm whose starts the record or
    the rows do not tell apart.
    """
    from draftworth.verdicts.intervals import linear  # noqa: PLC0415 - lazy: scipy

    arms: list[list[dict[tuple[str, str], tuple[float, float]]]] = []
    for name in names:
        rows = [row for row in trial.sent.get(name, ()) if row.timed and row.decode_ms and row.behind]
        known = next((starts_of(one) for one in trial.record.arms if one.name == name), 1)
        numbers = sorted({row.start for row in rows})
        starts = [[row for row in rows if row.start == at] for at in numbers] if len(numbers) == known else [rows]
        arms.append([_cells(some) for some in starts])
    every = [set(start) for one in arms for start in one]
    cells = sorted(set.intersection(*every)) if every else []
    prompts = sorted({prompt for prompt, _ in cells})
    found: list[np.ndarray[tuple[int, int], np.dtype[np.float64]] | None] = []
    for name, one in zip(names, arms, strict=True):
        known = next((starts_of(each) for each in trial.record.arms if each.name == name), 1)
        if not prompts or len(one) != known:
            found.append(None)
            continue
        sums = np.array(
            [
                [np.sum([start[cell] for cell in cells if cell[0] == prompt], axis=0) for prompt in prompts]
                for start in one
            ]
        )
        found.append(linear(sums[..., :1] / sums[..., 1:], (1,)))
    return found


def _cells(rows: Sequence[Row]) -> dict[tuple[str, str], tuple[float, float]]:
    cells: dict[tuple[str, str], tuple[float, float]] = {}
    for row in rows:
        ms, tokens = cells.get((row.prompt, row.label), (0.0, 0.0))
        cells[row.prompt, row.label] = ms + (row.decode_ms or 0.0), tokens + (row.behind or 0.0)
    return cells
