"""Prefix points as they are read: less the KV caches that their streams read too many, and what they can be trusted in.

A probe's T(B, n) by prefix is T(2 B, 1) + [L(n) - L(2)] (`cells`): its streams read 2 B KV caches where a step of B
requests reads B. B caches are taken off here, by the slope of T over context; the file keeps what was measured. A
cache cannot cost more than two streams differ from one by, T(2 B, 1) - T(B, 1), which bounds it where no slope is
known.

L(n) - L(2) tells what tokens cost only if a prefill is not bound by something else: the host, behind piecewise graphs
where decoding has full ones. That shows in L(2) - L(1), one new token being a decode step. Where it is more than
`BOUND` of T(B, 1), what grows by prefix is a lower end and no more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from draftworth.costs.base import REFERENCE, Costs, Prefill, StepCost
from draftworth.costs.kv import KvSlope

BOUND = 0.5
"""L(2) - L(1) as a share of T(B, 1), above which a prefill counts as bound by something else than its tokens."""

Trust = Literal["measured", "untold", "floor", "none"]
"""`measured`: L(2) - L(1) is small; `untold`: the file does not tell it; `floor`: it is large; `none`: no prefixes."""


@dataclass(frozen=True, slots=True)
class PrefixPoints:
    """What a costs file's points say, read.

    Attributes:
        points: all points; those by prefix less their streams' further caches, T(B, 2) among them.
        trust: what those by prefix can be trusted in.
        slope: what a token of context costs.
    """

    points: tuple[StepCost, ...]
    trust: Trust
    slope: KvSlope

    def doubt(self, batch: int, context: int) -> float:
        """Return by how many milliseconds the caches that are taken off a point of `batch` may be wrong at most."""
        if self.slope.source != "unknown":
            return (self.slope.high - self.slope.low) * batch * context
        there = {one.context for one in self.points if one.how == "prefix"}
        bounds = [bound(self.points, batch, at) for at in sorted(there, key=lambda at: abs(at - context))]
        return next((one for one in bounds if one is not None), 0.0)


def read_prefixes(costs: Costs, slope: KvSlope) -> PrefixPoints:
    """Return the points of a costs file, those by prefix corrected.

    Args:
        costs: as it was written.
        slope: what a token of context costs, from the same points.
    """
    points = (*costs.points, *_pairs(costs.points))
    read = tuple(_less_caches(one, points, slope) if _by_prefix(one) else one for one in points)
    return PrefixPoints(read, _trust(costs), slope)


def bound_by_host(prefill: Prefill, points: Sequence[StepCost]) -> bool:
    """Whether what a prefill takes beyond a decode step is too much to be that of a token."""
    alone = _step(points, prefill.batch, prefill.context)
    return alone is not None and prefill.ms > BOUND * alone.ms


def bound(points: Sequence[StepCost], batch: int, context: int) -> float | None:
    """Return the most that the caches of `batch` requests can cost, T(2 B, 1) - T(B, 1); None where not measured."""
    one, two = _step(points, batch, context), _step(points, REFERENCE * batch, context)
    return None if one is None or two is None else max(0.0, two.ms - one.ms)


def _by_prefix(point: StepCost) -> bool:
    return point.how == "prefix" and point.tokens >= REFERENCE


def _trust(costs: Costs) -> Trust:
    if not any(_by_prefix(one) for one in costs.points):
        return "none"
    if any(bound_by_host(one, costs.points) for one in costs.prefills):
        return "floor"
    return "measured" if costs.prefills else "untold"


def _pairs(points: Sequence[StepCost]) -> Iterator[StepCost]:
    """Return T(B, 2) where there are prefix points: what T(2 B, 1) was measured as, as the probe takes it too."""
    there = {(one.batch, one.context) for one in points if _by_prefix(one)}
    told = {(one.batch, one.context) for one in points if _by_prefix(one) and one.tokens == REFERENCE}
    for batch, context in sorted(there - told):
        streams = _step(points, REFERENCE * batch, context)
        if streams is not None:
            yield streams.model_copy(update={"batch": batch, "tokens": REFERENCE, "how": "prefix"})


def _step(points: Sequence[StepCost], batch: int, context: int) -> StepCost | None:
    """Return T(B, 1) at a context as the probe measured it; else however it was measured there."""
    found = [one for one in points if (one.batch, one.tokens, one.context) == (batch, 1, context)]
    found = [one for one in found if one.how != "paper"]
    return next((one for one in found if one.how == "concurrency"), next(iter(found), None))


def _less_caches(point: StepCost, points: Sequence[StepCost], slope: KvSlope) -> StepCost:
    most = bound(points, point.batch, point.context)
    tokens = point.batch * (REFERENCE - 1) * point.context
    if slope.source == "unknown":
        off, least, largest = 0.0, 0.0, most or 0.0
    else:
        off, least, largest = (one * tokens for one in (slope.ms, slope.low, slope.high))
        if most is not None:
            off, least = min(off, most), min(least, most)
            largest = max(off, min(largest, most))
    ms = max(point.ms - off, point.ms / 10)  # never to nothing
    low, high = max(point.low - largest, ms / 10), max(point.high - least, ms)
    return point.model_copy(update={"ms": ms, "low": min(low, ms), "high": high})
