"""The account of one arm at one load."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.arms import is_diagnostic
from draftworth.costs.mixed_steps import KindCost
from draftworth.costs.model import FittedModel
from draftworth.explain.base import Account, BreakEven, Detail, Part
from draftworth.explain.steps import ArmSteps
from draftworth.explain.words import main_cause
from draftworth.predict.base import Range
from draftworth.predict.speedup import break_even, weighted
from draftworth.predict.trialrows import Load

_RESAMPLES = 2000
_KINDS = {
    "idle": "steps that draft nothing",
    "drafting": "steps that verify drafts",
    "mixed": "steps in which some draft",
}
IN_THE_MODE = "the drafter's own time is in it"


def account(
    load: Load,
    plain: Load,
    prompts: Sequence[str],
    steps: ArmSteps,
    model: FittedModel,
    *,
    itself: bool = False,
    drafter_ms: Range | None = None,
) -> Account:
    """Assign the difference of an arm to its causes.

    Args:
        load: the arm at its point.
        plain: the baseline there.
        prompts: those that both answered.
        steps: of the arm.
        model: T(B, n) and engine modes, of which none was fitted to this arm unless `itself`.
        itself: whether a mode was fitted to this very arm, so that there is no rest by construction.
        drafter_ms: the drafter's time a step, where a profile tells it; it is taken out of the engine's mode.

    Raises:
        UsageError: nothing is known of the method's engine mode.
    """
    base, arm = plain.tpot(prompts), load.tpot(prompts)
    t, total = float(base.mean()), float(arm.mean())
    taken = weighted(steps.requests)
    r = taken.per_token
    method = load.place.method, load.arm.runner
    kinds = model.by_kind(taken.shares, taken.pooled, load.place.batch, plain.place.context, method=method)
    difference = _difference(base, arm)
    details = _by_cause(kinds, r, model.plain(method, load.place.batch), graphs=model.in_pieces(method))
    parts = [_mode(kinds, r, drafter_ms, details), _verification(kinds, r)]
    if drafter_ms is not None:
        parts.append(Part(cause="drafter", ms=_times(drafter_ms, r), evidence=("a profile of the arm",), measured=True))
    parts.append(_gained(base, t, r, steps.source))
    parts.append(_rest(difference, parts, itself=itself))
    added = sum(max(0.0, one.ms.value) for one in parts[:-1])
    scale = max(abs(difference.value), added)
    counts = load.counts
    longest = steps.k + 1
    measured_length = (
        1 + counts.accepted / counts.drafting_steps
        if counts is not None and counts.drafting_steps and counts.accepted is not None
        else taken.length_per_drafting_step
    )
    even = BreakEven(
        length=break_even(total / r / t, taken.coverage),
        measured_length=measured_length if taken.coverage else None,
        longest=longest,
    )
    return Account(
        arm=load.arm.name,
        point=load.label,
        concurrency=load.place.batch,
        diagnostic=is_diagnostic(load.place),
        baseline_ms=t,
        arm_ms=total,
        difference=difference,
        parts=tuple(parts),
        assigned=None if scale == 0 else max(0.0, 1 - abs(parts[-1].ms.value) / scale),
        steps_per_token=r,
        baseline_step_ms=t,
        arm_step_ms=total / r,
        break_even=even,
        main_cause=main_cause(load.arm.name, load.place.batch, t, difference, parts),
    )


def _mode(kinds: Sequence[KindCost], r: float, drafter_ms: Range | None, causes: Sequence[Detail]) -> Part:
    value, low, high = (r * sum(one.mode[end] for one in kinds) for end in range(3))
    less = 0.0 if drafter_ms is None else r * drafter_ms.value
    more = () if drafter_ms is not None else (IN_THE_MODE,)
    details = list(causes) or [Detail(name=_KINDS[one.kind], ms=r * one.mode[0]) for one in kinds if one.share > 0]
    if drafter_ms is not None:
        details.append(Detail(name="less the drafter", ms=-less))
    return Part(
        cause="engine mode",
        ms=Range(value=value - less, low=low - less, high=high - less),
        evidence=(*dict.fromkeys(reason for one in kinds for reason in one.why), *more),
        measured=all(one.mode_measured for one in kinds),
        details=tuple(details) if len(details) > 1 else (),
    )


def _by_cause(kinds: Sequence[KindCost], r: float, plain: float | None, *, graphs: bool) -> list[Detail]:
    """Return the mode by what makes it; nothing where F was not measured, or no step drafts nothing."""
    of = {one.kind: one for one in kinds}
    idle, mixed = of.get("idle"), of.get("mixed")
    if plain is None or idle is None or idle.share <= 0:
        return []
    total = sum(one.mode[0] for one in kinds)
    scheduling = Detail(name="no asynchronous scheduling", ms=r * plain)
    if not graphs:
        return [scheduling, Detail(name="everything else", ms=r * (total - plain))]
    share = idle.share + (mixed.share if mixed is not None else 0.0)
    outside = share * (idle.mode[0] / idle.share - plain)
    return [
        scheduling,
        Detail(name="outside the full graph", ms=r * outside),
        Detail(name="sampling and drafting", ms=r * (total - plain - outside)),
    ]


def _verification(kinds: Sequence[KindCost], r: float) -> Part:
    value, low, high = (r * sum(one.verify[end] for one in kinds) for end in range(3))
    return Part(
        cause="verification",
        ms=Range(value=value, low=low, high=high),
        evidence=("T(B, n) of the baseline's points, at the tokens of the arm's own steps",),
        measured=all(one.verify_measured for one in kinds),
    )


def _gained(base: NDArray[np.float64], t: float, r: float, source: str) -> Part:
    low, high = _mean_interval(base)
    return Part(
        cause="tokens gained",
        ms=_ordered((r - 1) * t, (r - 1) * low, (r - 1) * high),
        evidence=(f"{r:.3f} steps per token ({source}), each saved step at the baseline's {t:.2f} ms",),
        measured=True,
    )


def _rest(difference: Range, parts: Sequence[Part], *, itself: bool) -> Part:
    value = difference.value - sum(one.ms.value for one in parts)
    # Of the tokens gained only their number is uncertain beside the difference, and that was counted.
    errors = [difference, *(one.ms for one in parts if one.cause != "tokens gained")]
    below = math.hypot(*(one.value - one.low if at == 0 else one.high - one.value for at, one in enumerate(errors)))
    above = math.hypot(*(one.high - one.value if at == 0 else one.value - one.low for at, one in enumerate(errors)))
    why = ("a mode was fitted to this arm, so the rest is nothing by construction",) if itself else ()
    return Part(cause="rest", ms=Range(value=value, low=value - below, high=value + above), evidence=why)


def _difference(base: NDArray[np.float64], arm: NDArray[np.float64]) -> Range:
    """Return mean(arm) - mean(base) with a paired bootstrap interval over prompts."""
    apart = arm - base
    value = float(apart.mean())
    low, high = _mean_interval(apart)
    return Range(value=value, low=min(low, value), high=max(high, value))


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
