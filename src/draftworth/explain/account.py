"""The account of one arm at one load."""

import math
from collections.abc import Sequence

import numpy as np

from draftworth.costs.arms import is_diagnostic
from draftworth.costs.mixed_steps import KindCost
from draftworth.costs.model import FittedModel
from draftworth.costs.prefill import prefill_share
from draftworth.explain.base import Account, BreakEven, Part
from draftworth.explain.beside import NO_SPREAD, DrafterTime, Spread
from draftworth.explain.draws import Floats, around, interval, joint
from draftworth.explain.drift import Drift
from draftworth.explain.mode import check_stated, drafter_part, drifted, less_drafter, mode_part, wider
from draftworth.explain.steps import ArmSteps
from draftworth.explain.words import main_cause
from draftworth.predict.base import Range
from draftworth.predict.speedup import Weighted, break_even, weighted
from draftworth.predict.trialrows import Load

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
    fitted_here: bool = False,
    probed_here: bool = False,
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
        fitted_here: whether the modes come from arms of this trial, beside the same baseline.
        probed_here: whether the points are of this trial's own baseline, and not of another start of a server like it.
        drafter: its time a step, where a profile tells it or somebody states it; it is taken out of the engine's mode.
        spread: what starts of a server differ by.
        drift: of the baseline, where it changed during the trial; all of it may be in any part.

    Raises:
        UsageError: nothing is known of the method's engine mode, or a drafter is stated that takes more than its steps.
    """
    base, arm = plain.tpot(prompts), load.tpot(prompts)
    whole, total = float(base.mean()), float(arm.mean())
    value, least, most = prefill_share(
        plain.place, whole, model.costs.points, restart_sd=0.0 if probed_here else spread.other_base
    )
    prefill = Range(value=value, low=least, high=most)
    t = whole - prefill.value
    taken = weighted(steps.requests)
    r = taken.per_token
    method = load.place.method, load.arm.runner
    kinds = model.by_kind(taken.shares, taken.pooled, load.place.batch, plain.place.context, method=method)
    change = 0.0 if drift is None else drift.ms(whole)
    step = (total - prefill.value) / r

    drawn = joint(base, arm, prompts, steps, spread)
    of_prefill = np.clip(around(prefill, 1), 0.0, None)
    own_step = np.maximum(drawn.base - of_prefill, t * 1e-3)
    apart = drawn.arm - drawn.base
    difference = wider(interval(total - whole, apart), change)
    if drafter is not None and drafter.stated:
        check_stated(drafter.ms.value, load, step - t, (difference.high - difference.value) / r)
    shared = model.plain(method, load.place.batch)
    scheduling = None if shared is None else Range(value=shared[0], low=shared[1], high=shared[2])
    mode = mode_part(kinds, r, scheduling, graphs=model.in_pieces(method))
    verification, gained = _verification(kinds, r), _gained(t, r, prefill, steps.source)
    # Another start of the server gave the mode: what starts differ by is in it too. Where arms of this trial told it,
    # it is beside the same baseline.
    starts = (total - prefill.value) * (drawn.arm_start if itself else drawn.other_start)
    starts = starts - (t * r * drawn.base_start if fitted_here else 0.0)
    scales = [
        drawn.scale(steps.requests.hist @ one / steps.requests.tokens, r) for one in _by_own(model, taken, load, plain)
    ]
    points_start = drawn.base_start if probed_here else drawn.other_base
    of_verify = verification.ms.value * (scales[0] - 1 + points_start) + around(verification.ms, 3)
    of_mode = mode.ms.value * (scales[1] - 1) + around(mode.ms, 2) + starts
    of_gained = (drawn.r - 1) * own_step

    # An arm's own time tells the mode, whatever drifted; the other parts scale with a step.
    mode, verification, gained = (
        drifted(one.model_copy(update={"ms": interval(one.ms.value, found)}), by)
        for one, found, by in (
            (mode, of_mode, change),
            (verification, of_verify, change / whole * abs(verification.ms.value)),
            (gained, of_gained, change / whole * abs(gained.ms.value)),
        )
    )
    # What is taken for the drafter is taken out of the mode, so that its error is none of the rest's.
    left = difference.value - sum(one.ms.value for one in (mode, verification, gained))
    moved = math.hypot(change, change, *(change / whole * one.ms.value for one in (verification, gained)))
    rest_part = _rest(wider(interval(left, apart - of_mode - of_verify - of_gained), moved), itself=itself)
    parts = [mode, verification, gained, rest_part]
    if drafter is not None:
        parts = [less_drafter(mode, drafter, r), verification, drafter_part(drafter, r), gained, rest_part]
    rest = parts[-1].ms.value
    added = sum(max(0.0, one.ms.value) for one in parts[:-1])
    scale = max(abs(difference.value), added)
    may_be_all = abs(difference.value) <= change
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
        break_even=_even(
            load,
            steps,
            taken,
            cost=step / t,
            of_cost=(drawn.arm - of_prefill) / drawn.r / own_step,
            of_coverage=drawn.coverage,
        ),
        main_cause=main_cause(load.arm.name, load.place.batch, whole, difference, parts, drift=drift),
    )


def _even(
    load: Load, steps: ArmSteps, taken: Weighted, *, cost: float, of_cost: Floats, of_coverage: Floats
) -> BreakEven:
    """Return what an arm's drafts have to reach.

    Args:
        load: the arm at its point.
        steps: of the arm.
        taken: the same, each request counting alike.
        cost: S / T.
        of_cost: draws of it.
        of_coverage: draws of the coverage.
    """
    counts = load.counts
    measured = (
        1 + counts.accepted / counts.drafting_steps
        if counts is not None and counts.drafting_steps and counts.accepted is not None
        else taken.length_per_drafting_step
    )
    length, ends = break_even(cost, taken.coverage), None
    if length is not None:
        ends = interval(length, 1 + (of_cost - 1) / np.maximum(of_coverage, taken.coverage * 1e-3))
    return BreakEven(
        length=length,
        low=None if ends is None else ends.low,
        high=None if ends is None else ends.high,
        measured_length=measured if taken.coverage else None,
        longest=steps.k + 1,
    )


def _verification(kinds: Sequence[KindCost], r: float) -> Part:
    value, low, high = (r * sum(one.verify[end] for one in kinds) for end in range(3))
    return Part(
        cause="verification",
        ms=Range(value=value, low=low, high=high),
        evidence=("T(B, n) of the baseline's points, at the tokens of the arm's own steps",),
        measured=all(one.verify_measured for one in kinds),
    )


def _gained(t: float, r: float, prefill: Range, source: str) -> Part:
    told = f", {prefill.value:.2f} ms of other requests' prefills taken off" if prefill.value > _TOLD * t else ""
    value = (r - 1) * t
    return Part(
        cause="tokens gained",
        ms=Range(value=value, low=value, high=value),
        evidence=(f"{r:.3f} steps per token ({source}), each saved step at the baseline's {t:.2f} ms{told}",),
        measured=True,
    )


def _rest(ms: Range, *, itself: bool) -> Part:
    why = ("a mode was fitted to this arm, so this rest is no test of it",) if itself else ()
    return Part(cause="rest", ms=ms, evidence=why)


def _by_own(model: FittedModel, taken: Weighted, load: Load, plain: Load) -> tuple[Floats, Floats]:
    """Return what a step that drafts so many tokens adds by verification and by the engine's mode, each [K + 1]."""
    method = load.place.method, load.arm.runner
    where = load.place.batch, plain.place.context
    bare = np.array([one.ms for one in model.by_own(taken.pooled, *where)])
    moded = np.array([one.ms for one in model.by_own(taken.pooled, *where, method=method)])
    alone = model.base([1] * load.place.batch, plain.place.context).ms
    return bare - alone, moded - bare
