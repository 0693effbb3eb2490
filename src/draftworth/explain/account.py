"""The account of one arm at one load."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.arms import is_diagnostic
from draftworth.costs.mixed_steps import KindCost
from draftworth.costs.model import FittedModel
from draftworth.costs.prefill import prefill_share
from draftworth.explain.base import Account, BreakEven, Part
from draftworth.explain.beside import NO_SPREAD, DrafterTime, Spread
from draftworth.explain.drift import Drift
from draftworth.explain.mode import check_stated, drafter_part, drifted, less_drafter, mode_part, wider
from draftworth.explain.steps import ArmSteps
from draftworth.explain.words import main_cause
from draftworth.predict.base import Range
from draftworth.predict.speedup import Z, break_even, weighted
from draftworth.predict.trialrows import Load

_RESAMPLES = 2000
_TOLD = 0.01
"""From this share of a step on the prefills of others are told."""


def account(
    load: Load,
    plain: Load,
    prompts: Sequence[str],
    steps: ArmSteps,
    model: FittedModel,
    *,
    itself: bool = False,
    drafter: DrafterTime | None = None,
    spread: Spread = NO_SPREAD,
    drift: Drift | None = None,
) -> Account:
    """Assign the difference of an arm to its causes.

    Args:
        load: the arm at its point.
        plain: the baseline there.
        prompts: those that both answered.
        steps: of the arm.
        model: T(B, n) and engine modes, of which none was fitted to this arm unless `itself`.
        itself: whether a mode was fitted to this very arm, so that its rest says nothing.
        drafter: its time a step, where a profile tells it or somebody states it; it is taken out of the engine's mode.
        spread: what starts of a server differ by.
        drift: of the baseline, where it changed during the trial; all of it may be in any part.

    Raises:
        UsageError: nothing is known of the method's engine mode, or a drafter is stated that takes more than its steps.
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
    change = 0.0 if drift is None else drift.ms(whole)
    difference = wider(_difference(base, arm, spread), change)
    step = (total - prefill.value) / r
    if drafter is not None and drafter.stated:
        check_stated(drafter.ms.value, load, step - t, (difference.high - difference.value) / r)
    shared = model.plain(method, load.place.batch)
    scheduling = None if shared is None else Range(value=shared[0], low=shared[1], high=shared[2])
    # Another start of the server gave the mode: what starts differ by is in it too.
    step_sd = Z * (total - prefill.value) * spread.arm
    mode = mode_part(kinds, r, scheduling, 0.0 if itself else step_sd, graphs=model.in_pieces(method))
    # An arm's own time tells the mode, whatever drifted; the other parts scale with a step.
    mode = drifted(mode, change)
    others = [_verification(kinds, r), _gained(base, t, r, prefill, steps.source)]
    others = [drifted(one, change / whole * abs(one.ms.value)) for one in others]
    # What is taken for the drafter is taken out of the mode, so that its error is none of the rest's.
    rest_part = _rest(difference, [mode, *others], itself=itself)
    parts = [mode, others[0]]
    if drafter is not None:
        parts = [less_drafter(mode, drafter, r), others[0], drafter_part(drafter, r)]
    parts += [others[1], rest_part]
    rest = parts[-1].ms.value
    added = sum(max(0.0, one.ms.value) for one in parts[:-1])
    scale = max(abs(difference.value), added)
    may_be_all = abs(difference.value) <= change
    counts = load.counts
    measured_length = (
        1 + counts.accepted / counts.drafting_steps
        if counts is not None and counts.drafting_steps and counts.accepted is not None
        else taken.length_per_drafting_step
    )
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
        assigned=None if scale == 0 or (drift and may_be_all) else max(0.0, 1 - abs(rest) / scale),
        of_difference=None if may_be_all else 1 - abs(rest) / abs(difference.value),
        drift=None if drift is None else drift.ratio,
        drift_ms=change,
        steps_per_token=r,
        baseline_step_ms=t,
        prefill_ms=prefill.value,
        arm_step_ms=step,
        break_even=even,
        main_cause=main_cause(load.arm.name, load.place.batch, whole, difference, parts, drift=drift),
    )


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
    errors = [difference, *(one.ms for one in parts)]
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


def _ordered(value: float, one: float, other: float) -> Range:
    return Range(value=value, low=min(value, one, other), high=max(value, one, other))
