"""Writing lines from a thread of its own: what calls it never waits for a stream that is closed, full or held."""

import contextlib
import io
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.live import Live

_FLUSH_S = 1.0
_MOST_WAITING = 1000


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


class Writer:
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
