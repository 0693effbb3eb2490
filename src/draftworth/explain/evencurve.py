"""The break-even curve, measured: what arms of synthetic acceptance cost by the length at which drafts were accepted.

Each such arm is one point on the user's own server: tokens per drafting step, and how fast it was beside the baseline.
Between the two points that enclose it, the length at which a step pays for itself is read off; beyond them it is told
that it lies there, and never extrapolated.
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
    """Return a load's curve, with where it crosses 1."""
    points = sorted(points, key=lambda one: one.length)
    crossing = None
    for one, other in pairwise(points):
        if (one.speed_up.value - 1) * (other.speed_up.value - 1) <= 0 and one.speed_up.value != other.speed_up.value:
            share = (1 - one.speed_up.value) / (other.speed_up.value - one.speed_up.value)
            crossing = one.length + share * (other.length - one.length)
            break
    values = [one.speed_up.value for one in points]
    if crossing is not None:
        text = f"With k = {k} at {batch} at a time a drafting step pays from {crossing:.2f} tokens on, as measured."
    elif min(values) > 1:
        text = (
            f"With k = {k} at {batch} at a time {points[0].length:.2f} tokens a drafting step pay already, as measured."
        )
    else:
        text = (
            f"With k = {k} at {batch} at a time even {points[-1].length:.2f} tokens a drafting step, the longest that "
            "was measured, do not pay."
        )
    return EvenCurve(concurrency=batch, k=k, points=tuple(points), length=crossing, text=text)
