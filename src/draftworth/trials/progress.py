"""What a person sees while a trial works: the step, what is happening now, elapsed and remaining time.

On a terminal one status line is redrawn; piped, each change is a plain line. A closed pipe or terminal never
disturbs a trial: what cannot be shown is dropped.
"""

import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live

_PLAIN_EVERY_S = 10.0
_GUESS_S = {"stop-original": 5.0, "stop": 4.0}


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
        self._since = clock()
        self._share = 0.0

    def next_step(self) -> None:
        """The step at hand is done and the next begins."""
        if 0 <= self._at < len(self._kinds):
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


class Progress:
    """Shows a trial's progress on a stream; a context manager."""

    def __init__(
        self, stream: IO[str] | None = None, *, kinds: Sequence[str] = (), known: dict[str, float] | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._kinds = list(kinds)
        self.remaining = Remaining(kinds, known)
        self._began = time.monotonic()
        self._live: Live | None = None
        self._title = ""
        self._number = 0
        self._now = ""
        self._said_at = 0.0
        self._said = ""

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, ValueError):
            if self._stream.isatty():
                from rich.console import Console  # noqa: PLC0415 - lazy: only on a terminal
                from rich.live import Live  # noqa: PLC0415 - lazy

                console = Console(file=self._stream)
                self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._status)
                self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):
                live.stop()

    def step(self, title: str) -> None:
        """A step begins."""
        self.remaining.next_step()
        self._number += 1
        self._title, self._now = title, ""
        total = f"/{len(self._kinds)}" if self._kinds else ""
        self.line(f"{self._elapsed()} [{self._number}{total}] {title}{self._left()}")

    def now(self, text: str) -> None:
        """What is happening within the step."""
        if text == self._now:
            return
        self._now = text
        if self._live is None and text != self._said:
            self._said = text
            self.line(f"{self._elapsed()}   {text}")

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far the step is."""
        self.remaining.share(done, total)
        self._now = f"{done}/{total} {note}".rstrip()
        if self._live is None and (done == total or time.monotonic() - self._said_at > _PLAIN_EVERY_S):
            self._said_at = time.monotonic()
            self.line(f"{self._elapsed()}   {self._now}{self._left()}")

    def line(self, text: str) -> None:
        """Print a line that stays."""
        with contextlib.suppress(OSError, ValueError):
            if self._live is not None:
                self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                self._stream.write(text + "\n")
                self._stream.flush()

    def _elapsed(self) -> str:
        return f"{duration(time.monotonic() - self._began):>10}"

    def _left(self) -> str:
        left = self.remaining.seconds()
        return "" if left is None else f" - about {duration(left)} left"

    def _status(self) -> str:
        number = f"[{self._number}/{len(self._kinds)}]".replace("[", "\\[", 1)
        now = f": {self._now}".replace("[", "\\[") if self._now else ""
        return f"{self._elapsed()} {number} {self._title.split(':')[0]}{now}{self._left()}"
