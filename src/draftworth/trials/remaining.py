"""How long a trial will still take, out of how long its steps took so far."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

_GUESS_S = {"stop-original": 5.0, "stop": 4.0, "probe": 45.0}


class Remaining:
    """Estimates the remaining time from the steps done so far; says nothing before every kind was seen once.

    Args:
        kinds: the kind of every step, in order.
        known: seconds a kind took before, from an earlier trial of the same service.
        clock: monotonic seconds.
    """

    def __init__(
        self, kinds: Sequence[str], known: dict[str, float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kinds = list(kinds)
        self._clock = clock
        self._before = {**_GUESS_S, **(known or {})}
        self._took: dict[str, list[float]] = defaultdict(list)
        self._at = -1
        self._open = False
        self._since = clock()
        self._share = 0.0

    def next_step(self) -> None:
        """The step at hand is done and the next begins."""
        self._end()
        self._open = True

    def skip_step(self) -> None:
        """The step at hand is done and the next is left out: it tells nothing of how long its kind takes."""
        self._end()
        self._open = False

    def _end(self) -> None:
        if self._open and 0 <= self._at < len(self._kinds):
            self._took[self._kinds[self._at]].append(self._clock() - self._since)
        self._at += 1
        self._since = self._clock()
        self._share = 0.0

    def share(self, done: int, total: int) -> None:
        """How far the step at hand is."""
        self._share = done / total if total else 0.0

    def typical(self, kind: str) -> float | None:
        """Seconds a step of this kind takes, or None where none was seen."""
        seen = self._took.get(kind)
        return sum(seen) / len(seen) if seen else self._before.get(kind)

    def seconds(self) -> float | None:
        """Seconds left, or None where a remaining kind was never seen."""
        left = 0.0
        for index in range(max(self._at, 0), len(self._kinds)):
            if index == self._at:
                left += self._rest_of_this() or 0.0
                if self._rest_of_this() is None:
                    return None
                continue
            typical = self.typical(self._kinds[index])
            if typical is None:
                return None
            left += typical
        return left

    def _rest_of_this(self) -> float | None:
        spent = self._clock() - self._since
        if self._share > 0.02:  # noqa: PLR2004 - enough to extrapolate from
            return spent / self._share - spent
        typical = self.typical(self._kinds[self._at]) if self._at < len(self._kinds) else 0.0
        return None if typical is None else max(typical - spent, 0.0)
