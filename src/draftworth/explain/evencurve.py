"""The break-even curve, measured: what arms of synthetic acceptance cost by the length at which drafts were accepted.

Each such arm is one point on the user's own server: tokens per drafting step, and how fast it was beside the baseline.
Between the two points that enclose it, the length from which on a step pays for itself is read off, with the interval
that those of the points make; beyond them it is told that it lies there, and never extrapolated. Where more acceptance
made arms slower, nothing is read off.
"""

from collections.abc import Sequence
from itertools import pairwise

from draftworth.engines.base import synthetic_in
from draftworth.explain.base import Account, EvenCurve, EvenPoint
from draftworth.predict.base import Range
from draftworth.predict.trialrows import Measured


def even_curves(trial: Measured, accounts: Sequence[Account]) -> tuple[EvenCurve, ...]:
    """Return the curve of each load and k that has synthetic arms, lowest load first.

    Args:
        trial: which arms are synthetic, and their k.
        accounts: of its arms.
    """
    found: dict[tuple[int, int], list[EvenPoint]] = {}
    for one in accounts:
        place = trial.loads[one.arm, one.point].place
        if not synthetic_in(place.speculation, place.arm.declared.get("env") or {}):
            continue
        length = one.break_even.measured_length
        if length is None:
            continue
        k = round(one.break_even.longest) - 1
        ratio = Range(
            value=one.baseline_ms / one.arm_ms,
            low=one.baseline_ms / max(one.baseline_ms + one.difference.high, 1e-9),
            high=one.baseline_ms / max(one.baseline_ms + one.difference.low, 1e-9),
        )
        found.setdefault((one.concurrency, k), []).append(EvenPoint(arm=one.arm, length=length, speed_up=ratio))
    return tuple(_curve(batch, k, some) for (batch, k), some in sorted(found.items()))


def _curve(batch: int, k: int, points: Sequence[EvenPoint]) -> EvenCurve:
    """Return a load's curve, with where drafts begin to pay and how well that is known."""
    points = sorted(points, key=lambda one: one.length)
    lengths = [one.length for one in points]
    values = [one.speed_up.value for one in points]
    where = f"With k = {k} at {batch} at a time"
    known = any(one.speed_up.low > 1 or one.speed_up.high < 1 for one in points)
    chance = "" if known else " Every interval holds 1: it may be otherwise."
    turns = [(one > 1) is not (other > 1) for one, other in pairwise(values)].count(True)
    if turns == 0 and values[0] > 1:
        text = f"{where} {lengths[0]:.2f} tokens a drafting step pay already, as measured.{chance}"
        return EvenCurve(concurrency=batch, k=k, points=tuple(points), length=None, text=text)
    if turns == 0:
        text = (
            f"{where} even {lengths[-1]:.2f} tokens a drafting step, the longest that was measured, do not pay.{chance}"
        )
        return EvenCurve(concurrency=batch, k=k, points=tuple(points), length=None, text=text)
    if turns > 1 or values[0] > 1:
        pay = ", ".join(f"{length:.2f}" for length, value in zip(lengths, values, strict=True) if value > 1)
        less = ", ".join(f"{length:.2f}" for length, value in zip(lengths, values, strict=True) if value <= 1)
        text = (
            f"{where} {pay} tokens a drafting step paid, and {less} did not: that does not grow with the acceptance, "
            f"so something else than it moved these arms, and no break-even is read off.{chance}"
        )
        return EvenCurve(concurrency=batch, k=k, points=tuple(points), length=None, text=text)
    crossing = _crossing(lengths, values)
    assert crossing is not None, "it turns once, upwards"
    # The curve of the upper ends crosses first, that of the lower ends last; beyond the points neither is followed.
    low = _crossing(lengths, [one.speed_up.high for one in points])
    high = _crossing(lengths, [one.speed_up.low for one in points])
    ends = (
        f"{f'{low:.2f}' if low is not None else f'below {lengths[0]:.2f}'} to "
        f"{f'{high:.2f}' if high is not None else f'above {lengths[-1]:.2f}'}"
    )
    text = f"{where} a drafting step pays from {crossing:.2f} tokens on ({ends}), as measured."
    return EvenCurve(concurrency=batch, k=k, points=tuple(points), length=crossing, low=low, high=high, text=text)


def _crossing(lengths: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the length from which on values stay above 1, between two points; None where that is not among them."""
    last = max((at for at, value in enumerate(values) if value <= 1), default=-1)
    if last in {-1, len(values) - 1}:
        return None
    share = (1 - values[last]) / (values[last + 1] - values[last])
    return lengths[last] + share * (lengths[last + 1] - lengths[last])
