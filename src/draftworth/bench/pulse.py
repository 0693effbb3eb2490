"""How a measurement goes, told while it goes: what is told late costs nothing, a stall would cost times."""

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from draftworth.bench.base import RequestRow

_NOTE_EVERY_S = 1.0

OnCount = Callable[[int, int, str], None]
"""Takes requests done, requests in all, and how it goes. May raise to end the measurement."""


class Notes(Protocol):
    """Keeps figures as rows come. Neither call may look at the rows before: the event loop waits for it."""

    def row(self, row: RequestRow) -> None:
        """Take a row."""

    def note(self) -> str:
        """Say how it goes."""


class Pulse:
    """Counts requests as they end, and tells at the load generator's ticks; the note is made once a second at most.

    Attributes:
        done: requests that ended.
    """

    def __init__(self, on_count: OnCount, total: int, notes: Notes) -> None:
        """Make one.

        Args:
            on_count: is told.
            total: requests in all.
            notes: say how it goes. They are asked once here, so that what they import is there before anything is
                timed.
        """
        self.done = 0
        self._on_count = on_count
        self._total = total
        self._notes = notes
        self._text = notes.note()
        self._made = monotonic()

    def begin(self, notes: Notes) -> None:
        """Go on with other notes, for the next window."""
        self._notes = notes

    def row(self, row: RequestRow, *_: object) -> None:
        """A request ended."""
        self.done += 1
        self._notes.row(row)

    def tick(self) -> None:
        """Tell how far it is."""
        now = monotonic()
        if now - self._made >= _NOTE_EVERY_S:
            self._text, self._made = self._notes.note(), now
        self._on_count(self.done, self._total, self._text)

    def tell(self) -> None:
        """Tell how far it is with a note made now; between two windows."""
        self._text, self._made = self._notes.note(), monotonic()
        self._on_count(self.done, self._total, self._text)
