"""What a token of context costs a step: read off points at two contexts, else bounded by the model's shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from draftworth.costs.base import REFERENCE, StepCost
from draftworth.costs.paper.config import ModelShape

NEAR_TOKENS = 64
NEAR_SHARE = 0.1
"""A context that differs by less than either is the measured one."""
DOUBLING = 0.1
"""Where nothing is known of context: half width that is added for each doubling of it, as a share of T."""


@dataclass(frozen=True, slots=True)
class KvSlope:
    """Milliseconds a step grows by for each token of context of each request.

    Attributes:
        ms: best value.
        low: lower end.
        high: upper end.
        source: `measured`, `shape`, or `unknown`.
    """

    ms: float
    low: float
    high: float
    source: Literal["measured", "shape", "unknown"]


def kv_slope(points: Sequence[StepCost], shape: ModelShape | None) -> KvSlope:
    """Return the slope.

    Measured: least squares through all pairs of neighbouring contexts of one size. From a shape: the weights of one
    token read in T(1, 1) give the slowest the memory can be, so the KV bytes of a token at that speed are the upper
    end; half of it is the best value, since a step of one token is at best that far from its memory's speed.
    """
    cells: dict[tuple[int, int, str], list[StepCost]] = {}
    for point in points:
        cells.setdefault((point.batch, point.tokens, point.how), []).append(point)
    over = best = low = high = 0.0
    for same in cells.values():
        for near, far in pairwise(sorted(same, key=lambda point: point.context)):
            # A point by prefix stands on twice as many streams.
            caches = REFERENCE * near.batch if near.how == "prefix" and near.tokens >= REFERENCE else near.batch
            run = caches * (far.context - near.context)
            over += run * run
            best += run * (far.ms - near.ms)
            low += run * (far.low - near.high)
            high += run * (far.high - near.low)
    if over > 0:
        return KvSlope(max(0.0, best / over), max(0.0, low / over), max(0.0, high / over), "measured")
    first = min((point for point in points if point.batch * point.tokens == 1), key=lambda one: one.ms, default=None)
    if shape is None or first is None:
        return KvSlope(0.0, 0.0, 0.0, "unknown")
    token = shape.kv_bytes(1.0)
    upper = first.ms * token / (shape.step_bytes + token * first.context)
    return KvSlope(upper / 2, upper / 4, upper, "shape")


def near(context: int, measured: int) -> bool:
    """Whether a context is as good as the measured one."""
    return abs(context - measured) <= max(NEAR_TOKENS, NEAR_SHARE * measured)


def at_context(points: Sequence[StepCost], context: int, slope: KvSlope) -> tuple[float, float, float, bool]:
    """Return T of one size at a context: value, lower end, upper end, whether it was measured there.

    A measured context is taken as it is; between two it is interpolated; else the nearest is moved by the slope.

    Args:
        points: of one size, at least one.
        context: tokens of each request in the KV cache.
        slope: what a token costs.
    """
    same = [point for point in points if point.context == context]
    if same:
        return _pooled(same)
    below = [point for point in points if point.context < context]
    above = [point for point in points if point.context > context]
    if below and above:
        left, right = max(point.context for point in below), min(point.context for point in above)
        one = _pooled([point for point in below if point.context == left])
        other = _pooled([point for point in above if point.context == right])
        share = (context - left) / (right - left)
        ms, low, high = (one[at] + share * (other[at] - one[at]) for at in range(3))
        return ms, low, high, near(context, left) or near(context, right)
    nearest = min((point.context for point in points), key=lambda at: abs(at - context))
    found = [point for point in points if point.context == nearest]
    ms, low, high, _ = _pooled(found)
    run = found[0].batch * (context - nearest)
    ends = sorted((run * slope.low, run * slope.high))
    moved, lower, upper = ms + run * slope.ms, low + ends[0], high + ends[1]
    close = near(context, nearest)
    if slope.source == "unknown" and not close:
        wide = DOUBLING * ms * abs(math.log2(max(context, 1) / max(nearest, 1)))
        lower, upper = lower - wide, upper + wide
    floor = ms / 10  # a slope never takes T to nothing
    return max(moved, floor), max(lower, floor), max(upper, floor), close


def _pooled(points: Sequence[StepCost]) -> tuple[float, float, float, bool]:
    """Return several measurements of one thing as one: their mean, weighed by repeats, and ends that hold them all."""
    weight = sum(max(1, point.repeats) for point in points)
    ms = sum(point.ms * max(1, point.repeats) for point in points) / weight if len(points) > 1 else points[0].ms
    paper = all(point.how == "paper" for point in points)
    return ms, min(point.low for point in points), max(point.high for point in points), not paper
