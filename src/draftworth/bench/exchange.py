"""One request and its response, and who takes part in it."""

import sys
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

GATHER = 64
"""Reads of a stream, or pieces, that wait before they are parsed, so that parsing is done in few, short turns."""
NEVER = sys.maxsize


class HttpError(Exception):
    """A request that got no whole response; the text says why, in one line."""


class Sink(Protocol):
    """Takes the body of a response as it comes.

    Attributes:
        alive_at: when the last thing of worth came, seconds of `perf_counter`; 0 before the first.
        done: whether everything was said: the server need not end the body.
    """

    alive_at: float
    done: bool

    def begin(self, status: int, headers: dict[str, str]) -> bool:
        """Whether this response is to be taken here. If not, its pieces stay in the exchange."""

    def take(self, times: Sequence[float], bodies: Sequence[bytes]) -> None:
        """Take pieces in order, each with its arrival. An exception ends the exchange with it."""


class Line(Protocol):
    """What a response comes over."""

    closed: bool
    idle_since: float

    def abort(self) -> None:
        """Close it at once."""

    def frame(self, most: int) -> bool:
        """Make pieces of at most `most` reads that wait; whether some are left."""


class Exchange:
    """One request and its response.

    Attributes:
        sent: when the request was handed to the network, seconds of `perf_counter`; of the last attempt.
        sent_unix: the same moment, seconds since 1970.
        first_sent: `sent` of the first attempt.
        resent: how often it was sent again because a kept connection turned out to be closed: 0 or 1.
        status: HTTP's status; 0 before the response came.
        headers: names in lower case; values of the same name are joined by commas.
        times: arrival of each piece of the body, seconds of `perf_counter`, read once for each read of the socket.
        bodies: the pieces, HTTP's framing removed.
        reads: what was read of a stream and still has its framing, each time before its bytes.
        ended: when the response was complete.
        error: why there is no whole response.
    """

    __slots__ = (
        "bodies",
        "connection",
        "ended",
        "error",
        "first_sent",
        "future",
        "headers",
        "patience",
        "reads",
        "resent",
        "sent",
        "sent_unix",
        "sink",
        "stale",
        "status",
        "times",
    )

    def __init__(self, sink: Sink | None, patience: float) -> None:
        self.sent = self.sent_unix = self.first_sent = self.ended = 0.0
        self.resent = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.times: list[float] = []
        self.bodies: list[bytes] = []
        self.reads: list[Any] = []
        self.error: Exception | None = None
        self.sink = sink
        self.patience = patience
        self.connection: Line | None = None
        self.future: asyncio.Future[None] | None = None
        self.stale = False

    @property
    def body(self) -> bytes:
        """The whole body of a response that no sink took."""
        return b"".join(self.bodies)

    @property
    def last(self) -> float:
        """Arrival of the last bytes that wait; 0 where none do."""
        return self.reads[-2] if self.reads else self.times[-1] if self.times else 0.0

    def parse(self, most: int) -> bool:
        """Give what waits to the sink, of at most `most` reads and pieces; whether nothing is left.

        What the sink raises becomes the error.
        """
        framed = self.connection is None or not self.connection.frame(most)
        sink, times, bodies = self.sink, self.times, self.bodies
        if sink is None or not times:
            return framed
        if len(times) <= most:
            self.times, self.bodies = [], []
        else:
            self.times, self.bodies = times[most:], bodies[most:]
            times, bodies = times[:most], bodies[:most]
        try:
            sink.take(times, bodies)
        except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it
            self.times, self.bodies = [], []
            self.error = None  # what came says more than how the connection ended
            self.fail(error)
            return True
        return framed and not self.times

    def fail(self, error: Exception) -> None:
        """End it with an error; what was read so far stays. The connection is closed."""
        if self.error is None:
            self.error = error
        self.leave()

    def leave(self) -> None:
        """Part from a connection on which more may come: it is closed."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self.ended = self.ended or perf_counter()
            connection.abort()

    def resolve(self) -> None:
        """Wake the one who waits for it."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)
