"""What a person sees while a trial works: the step, what is happening now, elapsed and remaining time.

On a terminal one status line is redrawn; piped, each change is a plain line. A pipe or terminal that is closed, full or
held (Ctrl-S) never disturbs a trial: a thread of its own writes, and what cannot be shown is dropped.
"""

import contextlib
import io
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.live import Live

_PLAIN_EVERY_S = 10.0
_PAST_S = 10.0
_FLUSH_S = 1.0
_MOST_WAITING = 1000
_GUESS_S = {"stop-original": 5.0, "stop": 4.0, "probe": 45.0}


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


class _Unbuffered(io.TextIOBase):
    """A copy of a stream's descriptor that is written to directly.

    A thread that waits in a stream's own buffer holds the buffer's lock, and Python aborts where it must flush such a
    stream at its end. Here a waiting thread holds nothing.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._descriptor = os.dup(stream.fileno())
        self._coding = getattr(stream, "encoding", None) or "utf-8"

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property there too
        """The stream's encoding."""
        return self._coding

    def fileno(self) -> int:
        """The copied descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Write all of it, however long that takes; dropped where nobody reads any more."""
        data = text.encode(self._coding, "replace")
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
        return len(text)

    def release(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class _Writer:
    """Writes lines in order from a thread of its own, on a terminal with a status line below them.

    Nothing here waits for the stream but that thread. `SimpleQueue.put` may be called by a signal handler that
    interrupted another call of it.
    """

    def __init__(self, stream: IO[str], status: Callable[[], str] | None) -> None:
        """Start writing.

        Args:
            stream: where to; a stream without a descriptor is written to as it is.
            status: gives the status line; None for plain lines.
        """
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._stream = stream
        self._status = status
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def put(self, text: str) -> None:
        """Take a line; dropped where too many wait already. Returns at once."""
        if self._queue.qsize() < _MOST_WAITING:
            self._queue.put(text)

    def close(self) -> None:
        """Write what waits, as far as that takes no longer than a second."""
        self._queue.put(None)
        self._thread.join(_FLUSH_S)

    def _run(self) -> None:
        copy: _Unbuffered | None = None
        with contextlib.suppress(OSError, ValueError):
            copy = _Unbuffered(self._stream)
        out: IO[str] = copy or self._stream  # type: ignore[assignment]  # what is used of IO is there
        live: Live | None = None
        if self._status is not None:
            with contextlib.suppress(OSError, ValueError):
                live = _live(out, self._status)
        while (text := self._queue.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                if live is not None:
                    live.console.print(text, markup=False, highlight=False, soft_wrap=True)
                else:
                    out.write(text + "\n")
                    out.flush()
        with contextlib.suppress(OSError, ValueError):
            if live is not None:
                live.stop()
        if copy is not None:
            copy.release()


def _live(out: IO[str], status: Callable[[], str]) -> "Live":
    """Return a running status line."""
    from rich.console import Console  # noqa: PLC0415 - lazy: only on a terminal
    from rich.live import Live  # noqa: PLC0415 - lazy
    from rich.text import Text  # noqa: PLC0415 - lazy

    live = Live(
        console=Console(file=out),
        refresh_per_second=4,
        transient=True,
        get_renderable=lambda: Text(status()),
        # What others print must not wait for this console.
        redirect_stdout=False,
        redirect_stderr=False,
    )
    live.start()
    return live


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
        self._writer: _Writer | None = None
        self._terminal = False
        self._title = ""
        self._number = 0
        self._now = ""
        self._said_at = 0.0
        self._said = ""

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, ValueError):
            self._terminal = self._stream.isatty()
        self._writer = _Writer(self._stream, self._status if self._terminal else None)
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
        total = f"/{len(self._kinds)}" if self._kinds else ""
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

    def _elapsed(self) -> str:
        return f"{duration(max(0.0, time.monotonic() - self._began - self.ago)):>10}"

    def _left(self) -> str:
        left = None if self.ago > _PAST_S else self.remaining.seconds()
        return "" if left is None else f" - about {duration(left)} left"

    def _status(self) -> str:
        now = f": {self._now}" if self._now else ""
        return f"{self._elapsed()} [{self._number}/{len(self._kinds)}] {self._title.split(':')[0]}{now}{self._left()}"
