"""The interval of tokens per step over requests: a bootstrap of a ratio of sums, in bounded memory.

Requests are resampled whole. Up to 1,000 of them each is a unit; beyond, a unit is 2, 4, 8, … requests in a row, so
that there are 500 to 1,000 units whatever the trace's size. Blocks of consecutive requests keep what neighbours have in
common together (Künsch 1989, Annals of Statistics 17:1217); the estimate is the ratio of all sums in any case.
"""

import math

import numpy as np
from numpy.typing import NDArray

from draftworth.verdicts.intervals import BOOTSTRAP_MOST, BOOTSTRAP_PAIRS, RESAMPLES, WIDEST_LOG, Table, log_limits
from draftworth.verdicts.restarts import NO_RESTARTS

CONFIDENCE = 0.95
_FEWEST = 2


class Units:
    """Sums of requests in a row, as many units as a bootstrap takes, in constant memory."""

    def __init__(self, settings: int) -> None:
        self.size = 1
        """Requests a unit has; the last one may have fewer."""
        self.requests = 0
        self._emitted = np.zeros(BOOTSTRAP_MOST, dtype=np.int64)
        self._steps = np.zeros((settings, BOOTSTRAP_MOST), dtype=np.int64)

    def add(self, emitted: NDArray[np.int64], steps: NDArray[np.int32]) -> None:
        """Add requests in their order.

        Args:
            emitted: [R], tokens of each request's steps, at least one each.
            steps: [S, R], its steps by setting.
        """
        if not len(emitted):
            return
        last = self.requests + len(emitted) - 1
        while last // self.size >= BOOTSTRAP_MOST:
            self._halve()
        units = np.arange(self.requests, last + 1) // self.size
        starts = np.flatnonzero(np.diff(units, prepend=-1))
        self._emitted[units[starts]] += np.add.reduceat(emitted, starts)
        self._steps[:, units[starts]] += np.add.reduceat(steps, starts, axis=1, dtype=np.int64)
        self.requests = last + 1

    def _halve(self) -> None:
        half = BOOTSTRAP_MOST // 2
        self._emitted[:half] = self._emitted[0::2] + self._emitted[1::2]
        self._steps[:, :half] = self._steps[:, 0::2] + self._steps[:, 1::2]
        self._emitted[half:] = 0
        self._steps[:, half:] = 0
        self.size *= 2

    @property
    def count(self) -> int:
        """How many units there are."""
        return -(-self.requests // self.size)

    @property
    def method(self) -> str:
        """How the interval is made, for a person."""
        if self.count < _FEWEST:
            return "one request: no interval"
        if self.count < BOOTSTRAP_PAIRS:
            return f"jackknife over {self.count} requests"
        each = "requests" if self.size == 1 else f"blocks of {self.size:,} requests in a row"
        return f"bootstrap over {self.count:,} {each}, {RESAMPLES:,} resamples, expanded percentiles"

    def limits(self, *, seed: int = 0) -> list[tuple[float, float] | None]:
        """Return the 95 % interval of emitted / steps of every setting; see `verdicts.intervals.log_limits`.

        A step emits at least one token, so no limit is below 1. None with a single request, or where the spread gives
        no limit within a factor of 1000. All settings are resampled alike.
        """
        n = self.count
        if n < _FEWEST:
            return [None] * len(self._steps)
        steps = self._steps[:, None, :n, None].astype(np.float64)
        emitted = np.broadcast_to(self._emitted[:n, None].astype(np.float64), steps.shape)
        found = log_limits(Table(steps, emitted), NO_RESTARTS, confidence=CONFIDENCE, seed=seed)
        limits: list[tuple[float, float] | None] = []
        for middle, low, high in zip(found.estimate, found.low, found.high, strict=True):
            wide = max(middle - low, high - middle) > WIDEST_LOG
            limits.append(None if wide else (max(1.0, math.exp(low)), math.exp(high)))
        return limits
