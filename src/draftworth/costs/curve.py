"""T over the tokens of a step, through measured points: they stand as they are; between them a model's shape leads.

Two curves are drawn through a costs file: by concurrency (n requests of one token) and by prefix (one request of n
tokens). Each keeps the staircase of captured sizes, and widens its interval wherever it leaves the points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import StepCost
from draftworth.costs.kv import KvSlope, at_context
from draftworth.costs.staircase import Staircase

KNEE = 64.0
"""Tokens of a step from which computing may rule over memory: some 200 for 16-bit weights, a quarter for 4 bits."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Band:
    """Milliseconds of many steps, with intervals.

    Attributes:
        ms: best values.
        low: lower ends.
        high: upper ends.
        measured: which lie on measured points.
    """

    ms: Floats
    low: Floats
    high: Floats
    measured: NDArray[np.bool_]

    def take(self, at: NDArray[np.bool_] | Ints) -> "Band":
        """Return some of the steps."""
        return Band(self.ms[at], self.low[at], self.high[at], self.measured[at])

    def plus(self, other: "Band") -> "Band":
        """Return the sum; ends are added, as if both were off to the same side."""
        return Band(self.ms + other.ms, self.low + other.low, self.high + other.high, self.measured & other.measured)


@dataclass(frozen=True, slots=True)
class Growth:
    """How T grows where it was not measured.

    Attributes:
        work: tokens to something T is about linear in: experts touched, or tokens where there are none.
        lone: where only one point is known, the share of its T that grows with `work`.
        knee: tokens from which T is in proportion to them, where it was not measured.
    """

    work: Callable[[Floats], Floats]
    lone: float
    knee: float = math.inf


class Curve:
    """T over the tokens of a step at one context."""

    def __init__(
        self,
        points: Sequence[StepCost],
        *,
        tokens: Callable[[StepCost], int],
        stairs: Staircase,
        growth: Growth,
        context: int,
        slope: KvSlope,
    ) -> None:
        """Draw the curve.

        Args:
            points: at least one; several of one size and several contexts are brought to `context`.
            tokens: the tokens of a point's step.
            stairs: captured sizes.
            growth: how T grows between and beyond the points.
            context: tokens of each request in the KV cache.
            slope: what a token of context costs.
        """
        sizes: dict[int, list[StepCost]] = {}
        for point in points:
            sizes.setdefault(tokens(point), []).append(point)
        self._exact = {size: at_context(same, context, slope) for size, same in sizes.items()}
        self._stairs = stairs
        self._growth = growth
        self._padded = stairs.known in {"given", "inferred"}
        stand: dict[int, list[int]] = {}
        for size in self._exact:
            stand.setdefault(stairs.pad(size) if self._padded else size, []).append(size)
        at = sorted(stand)
        # Of several sizes on one stair the size of the graph itself speaks for it, else the nearest below.
        rows = [self._exact[position if position in stand[position] else max(stand[position])] for position in at]
        self._at = np.asarray(at, dtype=np.float64)
        self._ms, self._low, self._high = (np.asarray([row[part] for row in rows]) for part in range(3))
        self._near = np.asarray([row[3] for row in rows], dtype=np.bool_)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Token counts that were measured."""
        return tuple(sorted(self._exact))

    def at(self, tokens: Ints) -> Band:
        """Return T of steps of so many tokens."""
        padded = self._stairs.pad_all(tokens)
        band = self._through(padded if self._padded else tokens)
        if self._stairs.known == "unknown":
            # Nobody knows whether it runs as the next captured size: the interval reaches up to what that costs.
            band = Band(band.ms, band.low, np.maximum(band.high, self._through(padded).high), band.measured)
        if self._stairs.known != "given":
            # That other sizes cost what their stair costs is concluded then, not measured.
            band = replace(band, measured=band.measured & np.isin(tokens, list(self._exact)))
        return self._pinned(tokens, band)

    def at_fractions(self, tokens: Floats) -> Floats:
        """Return the best value between whole token counts, without stairs; for lower bounds."""
        found: Floats = np.interp(self._growth.work(tokens), self._growth.work(self._at), self._ms)
        return found

    def _pinned(self, tokens: Ints, band: Band) -> Band:
        """Put measured sizes in as they are."""
        ms, low, high, measured = band.ms.copy(), band.low.copy(), band.high.copy(), band.measured.copy()
        for size, row in self._exact.items():
            at = tokens == size
            ms[at], low[at], high[at], measured[at] = row
        return Band(ms, low, high, measured)

    def _through(self, positions: Ints) -> Band:
        """Return T at positions on the curve: stairs where they are known, else tokens."""
        x, known = positions.astype(np.float64), self._at
        work, works = self._growth.work(x), self._growth.work(known)
        ms, low, high = (np.interp(work, works, part) for part in (self._ms, self._low, self._high))
        right = np.minimum(np.searchsorted(known, x), known.size - 1)
        left = np.maximum(right - (known[right] > x), 0)
        on = np.isin(x, known)
        # T rises, so between two points it lies between them; half of the rise is given to either side.
        half = np.maximum(self._ms[right] - self._ms[left], 0.0) / 2
        low = np.where(on, low, np.maximum(np.minimum(low, ms - half), np.minimum(self._low[left], ms)))
        high = np.where(on, high, np.minimum(np.maximum(high, ms + half), np.maximum(self._high[right], ms)))
        measured = on & self._near[np.minimum(right, known.size - 1)]
        band = Band(ms, low, high, measured)
        return self._below(x, self._beyond(x, band))

    def _beyond(self, x: Floats, band: Band) -> Band:
        """Beyond the last point the last rise goes on; see `_most` for the upper end, the lower end is no rise."""
        out = x > self._at[-1]
        if not out.any():
            return band
        high = self._most(x)
        knee = max(self._growth.knee, float(self._at[-1]))
        rise = self._rise(self._growth.work)(np.minimum(x, knee))
        ms = np.minimum((self._ms[-1] + rise) * np.maximum(x / knee, 1.0), high)
        return Band(
            np.where(out, ms, band.ms),
            np.where(out, self._low[-1], band.low),
            np.where(out, high, band.high),
            band.measured & ~out,
        )

    def _most(self, x: Floats) -> Floats:
        """Return the upper end beyond the last point: twice the last rise by tokens and a tenth for each doubling.

        Beyond KNEE tokens computing may rule, so it is at least in proportion to the tokens there; and never more than
        in proportion to the last point.
        """
        last, top = self._at[-1], self._high[-1]
        plain, work = self._rise(lambda tokens: tokens), self._rise(self._growth.work)

        def smooth(tokens: Floats) -> Floats:
            up: Floats = top + 2 * np.maximum(plain(tokens), work(tokens))
            for_each_doubling: Floats = 0.1 * top * np.log2(np.maximum(tokens / last, 1.0))
            return up + for_each_doubling

        knee = max(KNEE, float(last))
        ruled = np.where(x > knee, smooth(np.asarray([knee])) * x / knee, 0.0)
        most: Floats = np.minimum(np.maximum(smooth(x), ruled), top * np.maximum(x / last, 1.0))
        return most

    def _rise(self, work: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        """Return what T has grown by since the last point, in proportion to some work."""
        works = work(self._at)
        if self._at.size > 1:
            slope = max(0.0, float((self._ms[-1] - self._ms[-2]) / max(works[-1] - works[-2], 1e-12)))
        else:
            slope = self._growth.lone * float(self._ms[-1]) / float(works[-1])

        def rise(x: Floats) -> Floats:
            grown: Floats = slope * np.maximum(work(x) - works[-1], 0.0)
            return grown

        return rise

    def _below(self, x: Floats, band: Band) -> Band:
        """Below the first point: somewhere between no less and in proportion."""
        out = x < self._at[0]
        if not out.any():
            return band
        share = x / self._at[0]
        ms = self._ms[0] * (1 + share) / 2
        return Band(
            np.where(out, ms, band.ms),
            np.where(out, self._low[0] * share, band.low),
            np.where(out, self._high[0], band.high),
            band.measured & ~out,
        )


def only(points: Sequence[StepCost], keep: Callable[[StepCost], bool]) -> list[StepCost]:
    """Return the points to keep, measured ones alone where there are any of them."""
    kept = [point for point in points if keep(point)]
    return [point for point in kept if point.how != "paper"] or kept
