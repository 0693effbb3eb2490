"""How a measurement goes, told while it goes: what is told late costs nothing, a stall would cost times."""

from collections.abc import Callable
from time import monotonic

_NOTE_EVERY_S = 1.0

OnCount = Callable[[int, int, str], None]
"""Takes requests done, requests in all, and how it goes. May raise to end the measurement."""


class Pulse:
    """Counts requests as they end, and tells at the load generator's ticks; the note is made once a second at most.

    Attributes:
        done: requests that ended.
    """

    def __init__(self, on_count: OnCount, total: int, note: Callable[[], str]) -> None:
        """Make one.

        Args:
            on_count: is told.
            total: requests in all.
            note: says how it goes. It is called once here, so that what it imports is there before anything is timed.
        """
        self.done = 0
        self._on_count = on_count
        self._total = total
        self._note = note
        self._text = note()
        self._made = monotonic()

    def row(self, *_: object) -> None:
        """A request ended."""
        self.done += 1

    def tick(self) -> None:
        """Tell how far it is."""
        now = monotonic()
        if now - self._made >= _NOTE_EVERY_S:
            self._text, self._made = self._note(), now
        self._on_count(self.done, self._total, self._text)

    def tell(self) -> None:
        """Tell how far it is with a note made now; between two windows."""
        self._text, self._made = self._note(), monotonic()
        self._on_count(self.done, self._total, self._text)
