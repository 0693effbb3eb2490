"""What a person sees while a trial works: the step, what is happening now, elapsed and remaining time.

On a terminal one status line is redrawn; piped, each change is a plain line. A pipe or terminal that is closed, full or
held (Ctrl-S) never disturbs a trial: a thread of its own writes, and what cannot be shown is dropped.
"""

import contextlib
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Protocol, Self

from draftworth.trials.remaining import Remaining
from draftworth.trials.writer import Writer

_PLAIN_EVERY_S = 10.0
_PAST_S = 10.0


def duration(seconds: float) -> str:
    """Return seconds for a person: `48 s`, `3 min 05 s`, `1 h 12 min`."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


class Shows(Protocol):
    """Takes what a trial does; `Progress` shows it, an event log writes it down."""

    def step(self, title: str) -> None:
        """A step begins."""

    def skip(self) -> None:
        """The next step is left out."""

    def now(self, text: str) -> None:
        """What is happening within the step."""

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far the step is."""

    def line(self, text: str) -> None:
        """A line that stays."""

    def ending(self, title: str) -> None:
        """No further step begins; what happens from now on is this."""


class Progress:
    """Shows a trial's progress on a stream; a context manager. No call ever waits for the stream."""

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        kinds: Sequence[str] = (),
        known: dict[str, float] | None = None,
        began_ago: float = 0.0,
    ) -> None:
        """Make one.

        Args:
            stream: where to; standard error by default.
            kinds: the kind of every step, for the remaining time.
            known: seconds a kind took before.
            began_ago: seconds since the trial began, where it did so before.
        """
        self._stream = stream or sys.stderr
        self._kinds = list(kinds)
        self.remaining = Remaining(kinds, known)
        self._began = time.monotonic() - began_ago
        self.ago = 0.0
        """How long ago what is shown now happened, in seconds: of the past no remaining time is told."""
        self._writer: Writer | None = None
        self._terminal = False
        self._title = ""
        self._number = 0
        self._now = ""
        self._said_at = 0.0
        self._said = ""

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, ValueError):
            self._terminal = self._stream.isatty()
        self._writer = Writer(self._stream, self._status if self._terminal else None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def step(self, title: str) -> None:
        """A step begins."""
        self.remaining.next_step()
        self._number += 1
        self._title, self._now = title, ""
        total = f"/{self._total()}" if self._kinds else ""
        self.line(f"{self._elapsed()} [{self._number}{total}] {title}{self._left()}")

    def skip(self) -> None:
        """The next step is left out."""
        self.remaining.skip_step()
        self._number += 1

    def ending(self, title: str) -> None:
        """No further step begins; what happens from now on is this."""
        self._title, self._now = title, ""
        self.line(f"{self._elapsed()} {title}")

    def now(self, text: str) -> None:
        """What is happening within the step."""
        if text == self._now:
            return
        self._now = text
        # What stands behind a semicolon are figures that always change: in plain lines, told now and then.
        head = text.partition(";")[0]
        due = ";" in text and time.monotonic() - self._said_at > _PLAIN_EVERY_S
        if not self._terminal and (head != self._said or due):
            self._said, self._said_at = head, time.monotonic()
            self.line(f"{self._elapsed()}   {text}")

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far the step is."""
        self.remaining.share(done, total)
        self._now = f"{done}/{total} {note}".rstrip()
        if not self._terminal and (done == total or time.monotonic() - self._said_at > _PLAIN_EVERY_S):
            self._said_at = time.monotonic()
            self.line(f"{self._elapsed()}   {self._now}{self._left()}")

    def line(self, text: str) -> None:
        """Print a line that stays; nothing outside of the `with`."""
        if self._writer is not None:
            self._writer.put(text)

    def _total(self) -> int:
        """Return how many steps there are; a search has more where a setting that died had the original put back."""
        return max(len(self._kinds), self._number)

    def _elapsed(self) -> str:
        return f"{duration(max(0.0, time.monotonic() - self._began - self.ago)):>10}"

    def _left(self) -> str:
        left = None if self.ago > _PAST_S else self.remaining.seconds()
        return "" if left is None else f" - about {duration(left)} left"

    def _status(self) -> str:
        now = f": {self._now}" if self._now else ""
        return f"{self._elapsed()} [{self._number}/{self._total()}] {self._title.split(':')[0]}{now}{self._left()}"
