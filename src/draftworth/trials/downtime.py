"""How long the original may still be away, over all of its absences together."""

import time

_NEXT_SHARE = 1.25
"""How much longer than the longest absence so far the next one may take."""


class Downtime:
    """The clock of `limits.downtime_s`: it runs while the original is away, or from the beginning where none ran.

    Attributes:
        deadline: `time.monotonic()` at which the original must be on its way back; infinite while it is there.
        longest_s: the longest absence so far, without what only measured in it.
    """

    def __init__(self, limit_s: float, *, running: bool) -> None:
        """Begin.

        Args:
            limit_s: seconds in all.
            running: whether there is an original that is still there.
        """
        self._limit_s = limit_s
        self._before_s = 0.0
        self._since = 0.0
        self._aside_s = 0.0
        self.longest_s = 0.0
        self.deadline = float("inf") if running else time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """Seconds that are left to future absences."""
        return self._limit_s - self._before_s

    def away(self) -> None:
        """The original is being stopped."""
        self._since = time.monotonic()
        self._aside_s = 0.0
        self.deadline = self._since + self.left_s

    def aside(self, seconds: float) -> None:
        """Part of this absence was spent on what no later one repeats."""
        self._aside_s += seconds

    def back(self) -> None:
        """The original is back: what follows takes nothing from anybody."""
        took = time.monotonic() - self._since
        self._before_s += took
        self.longest_s = max(self.longest_s, took - self._aside_s)
        self.deadline = float("inf")

    def too_short(self) -> str | None:
        """Return why another absence like those before must not begin, or None. Nothing is known before the first."""
        if not self.longest_s or self.left_s >= _NEXT_SHARE * self.longest_s:
            return None
        return f"{self.left_s:.0f} s of limits.downtime_s are left and a round took {self.longest_s:.0f} s"
