"""The account of one arm at one load."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.arms import is_diagnostic
from draftworth.costs.mixed_steps import KindCost
from draftworth.costs.model import FittedModel
from draftworth.costs.prefill import prefill_share
from draftworth.explain.base import Account, BreakEven, Detail, Part
from draftworth.explain.steps import ArmSteps
from draftworth.explain.words import main_cause
from draftworth.predict.base import Range
from draftworth.predict.speedup import Z, break_even, weighted
from draftworth.predict.trialrows import Load

_RESAMPLES = 2000
_KINDS = {
    "idle": "steps that draft nothing",
    "drafting": "steps that verify drafts",
    "mixed": "steps in which some draft",
}
IN_THE_MODE = "the drafter's own time is in it"
_TOLD = 0.01
"""From this share of a step on the prefills of others are told."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard error of log TPOT over starts of a server: of the baseline's mean, and of the arm's."""

    base: float
    arm: float


NO_SPREAD = Spread(0.0, 0.0)


def account(
    load: Load,
    plain: Load,
    prompts: Sequence[str],
    steps: ArmSteps,
    model: FittedModel,
    *,
    itself: bool = False,
    drafter_ms: Range | None = None,
    spread: Spread = NO_SPREAD,
) -> Account:
    """Assign the difference of an arm to its causes.

    Args:
        load: the arm at its point.
        plain: the baseline there.
        prompts: those that both answered.
        steps: of the arm.
        model: T(B, n) and engine modes, of which none was fitted to this arm unless `itself`.
        itself: whether a mode was fitted to this very arm, so that its rest says nothing.
        drafter_ms: the drafter's time a step, where a profile tells it; it is taken out of the engine's mode.
        spread: what starts of a server differ by.

    Raises:
        UsageError: nothing is known of the method's engine mode.
    """
    base, arm = plain.tpot(prompts), load.tpot(prompts)
    whole, total = float(base.mean()), float(arm.mean())
    value, least, most = prefill_share(plain.place, whole, model.costs.points)
    prefill = Range(value=value, low=least, high=most)
    t = whole - prefill.value
    taken = weighted(steps.requests)
    r = taken.per_token
    method = load.place.method, load.arm.runner
    kinds = model.by_kind(taken.shares, taken.pooled, load.place.batch, plain.place.context, method=method)
    difference = _difference(base, arm, spread)
    shared = model.plain(method, load.place.batch)
    scheduling = None if shared is None else Range(value=shared[0], low=shared[1], high=shared[2])
    details = _by_cause(kinds, r, scheduling, graphs=model.in_pieces(method))
    # Another start of the server gave the mode: what starts differ by is in it too.
    step_sd = Z * (total - prefill.value) * spread.arm
    parts = [_mode(kinds, r, drafter_ms, details, 0.0 if itself else step_sd), _verification(kinds, r)]
    if drafter_ms is not None:
        parts.append(Part(cause="drafter", ms=_times(drafter_ms, r), evidence=("a profile of the arm",), measured=True))
    parts.append(_gained(base, t, r, prefill, steps.source))
    parts.append(_rest(difference, parts, itself=itself))
    rest = parts[-1].ms.value
    added = sum(max(0.0, one.ms.value) for one in parts[:-1])
    scale = max(abs(difference.value), added)
    counts = load.counts
    measured_length = (
        1 + counts.accepted / counts.drafting_steps
        if counts is not None and counts.drafting_steps and counts.accepted is not None
        else taken.length_per_drafting_step
    )
    step = (total - prefill.value) / r
    even = BreakEven(
        length=break_even(step / t, taken.coverage),
        measured_length=measured_length if taken.coverage else None,
        longest=steps.k + 1,
    )
    return Account(
        arm=load.arm.name,
        point=load.label,
        concurrency=load.place.batch,
        diagnostic=is_diagnostic(load.place),
        baseline_ms=whole,
        arm_ms=total,
        difference=difference,
        parts=tuple(parts),
        assigned=None if scale == 0 else max(0.0, 1 - abs(rest) / scale),
        of_difference=None if difference.value == 0 else 1 - abs(rest) / abs(difference.value),
        steps_per_token=r,
        baseline_step_ms=t,
        prefill_ms=prefill.value,
        arm_step_ms=step,
        break_even=even,
        main_cause=main_cause(load.arm.name, load.place.batch, whole, difference, parts),
    )


def _mode(
    kinds: Sequence[KindCost], r: float, drafter_ms: Range | None, causes: Sequence[Detail], step_sd: float
) -> Part:
    value, low, high = (r * sum(one.mode[end] for one in kinds) for end in range(3))
    low, high = value - math.hypot(value - low, step_sd), value + math.hypot(high - value, step_sd)
    less = 0.0 if drafter_ms is None else r * drafter_ms.value
    more = () if drafter_ms is not None else (IN_THE_MODE,)
    details = list(causes) or [
        Detail(name=_KINDS[one.kind], ms=_times(Range(value=one.mode[0], low=one.mode[1], high=one.mode[2]), r))
        for one in kinds
        if one.share > 0
    ]
    if drafter_ms is not None:
        taken = _times(drafter_ms, -r)
        details.append(Detail(name="less the drafter", ms=Range(value=taken.value, low=taken.high, high=taken.low)))
    return Part(
        cause="engine mode",
        ms=Range(value=value - less, low=low - less, high=high - less),
        evidence=(*dict.fromkeys(reason for one in kinds for reason in one.why), *more),
        measured=all(one.mode_measured for one in kinds),
        details=tuple(details) if len(details) > 1 else (),
    )


def _by_cause(kinds: Sequence[KindCost], r: float, plain: Range | None, *, graphs: bool) -> list[Detail]:
    """Return the mode by what makes it; nothing where F is not beyond its error, or no step drafts nothing."""
    of = {one.kind: one for one in kinds}
    idle, mixed = of.get("idle"), of.get("mixed")
    if plain is None or plain.low <= 0 <= plain.high or idle is None or idle.share <= 0:
        return []
    total = sum(one.mode[0] for one in kinds)
    width = max(sum(one.mode[2] for one in kinds) - total, total - sum(one.mode[1] for one in kinds))
    f_width = max(plain.high - plain.value, plain.value - plain.low)
    scheduling = Detail(name="no asynchronous scheduling", ms=_times(plain, r))
    if not graphs:
        return [scheduling, _detail("everything else", r * (total - plain.value), r * math.hypot(width, f_width))]
    share = idle.share + (mixed.share if mixed is not None else 0.0)
    outside = share * (idle.mode[0] / idle.share - plain.value)
    apart = share * math.hypot((idle.mode[2] - idle.mode[1]) / 2 / idle.share, f_width)
    return [
        scheduling,
        _detail("outside the full graph", r * outside, r * apart),
        _detail("sampling and drafting", r * (total - plain.value - outside), r * math.hypot(width, f_width, apart)),
    ]


def _detail(name: str, value: float, width: float) -> Detail:
    return Detail(name=name, ms=Range(value=value, low=value - width, high=value + width))


def _verification(kinds: Sequence[KindCost], r: float) -> Part:
    value, low, high = (r * sum(one.verify[end] for one in kinds) for end in range(3))
    return Part(
        cause="verification",
        ms=Range(value=value, low=low, high=high),
        evidence=("T(B, n) of the baseline's points, at the tokens of the arm's own steps",),
        measured=all(one.verify_measured for one in kinds),
    )


def _gained(base: NDArray[np.float64], t: float, r: float, prefill: Range, source: str) -> Part:
    low, high = _mean_interval(base)
    below, above = low - float(base.mean()), high - float(base.mean())
    least = t - math.hypot(below, prefill.high - prefill.value)
    most = t + math.hypot(above, prefill.value - prefill.low)
    told = f", {prefill.value:.2f} ms of other requests' prefills taken off" if prefill.value > _TOLD * t else ""
    return Part(
        cause="tokens gained",
        ms=_ordered((r - 1) * t, (r - 1) * least, (r - 1) * most),
        evidence=(f"{r:.3f} steps per token ({source}), each saved step at the baseline's {t:.2f} ms{told}",),
        measured=True,
    )


def _rest(difference: Range, parts: Sequence[Part], *, itself: bool) -> Part:
    value = difference.value - sum(one.ms.value for one in parts)
    # The drafter's error cancels: it is taken out of the mode.
    errors = [difference, *(one.ms for one in parts if one.cause != "drafter")]
    below = math.hypot(*(one.value - one.low if at == 0 else one.high - one.value for at, one in enumerate(errors)))
    above = math.hypot(*(one.high - one.value if at == 0 else one.value - one.low for at, one in enumerate(errors)))
    why = ("a mode was fitted to this arm, so this rest is no test of it",) if itself else ()
    return Part(cause="rest", ms=Range(value=value, low=value - below, high=value + above), evidence=why)


def _difference(base: NDArray[np.float64], arm: NDArray[np.float64], spread: Spread) -> Range:
    """Return mean(arm) - mean(base): a paired bootstrap over prompts, widened by what starts of a server differ by."""
    apart = arm - base
    value = float(apart.mean())
    low, high = _mean_interval(apart)
    starts = Z * math.hypot(float(base.mean()) * spread.base, float(arm.mean()) * spread.arm)
    return Range(
        value=value,
        low=value - math.hypot(value - min(low, value), starts),
        high=value + math.hypot(max(high, value) - value, starts),
    )


def _mean_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    if len(values) < 2:  # noqa: PLR2004 - no spread of one
        return float(values.mean()), float(values.mean())
    picks = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def _times(one: Range, by: float) -> Range:
    return Range(value=one.value * by, low=one.low * by, high=one.high * by)


def _ordered(value: float, one: float, other: float) -> Range:
    return Range(value=value, low=min(value, one, other), high=max(value, one, other))
