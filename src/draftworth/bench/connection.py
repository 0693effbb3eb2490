"""One connection to a server: bytes in, pieces with their times out, nothing else.

What happens when bytes of a stream arrive is all that stands between the network and a time, so it is kept to reading
the clock, two appends and a look at the last bytes. Everything else waits for the `backlog`, HTTP's framing too: it
touches much memory, which is in the processor's caches when the next read of the same stream follows at once, and is
not when hundreds of other streams come in between.
"""

import asyncio
import os
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, cast

from draftworth.bench.exchange import GATHER, NEVER, Exchange, HttpError
from draftworth.bench.failures import CLOSED, one_line
from draftworth.bench.moment import unix

if TYPE_CHECKING:
    from collections.abc import Callable

_INTERIM = range(100, 200)
_NO_BODY = (204, 304)
_FULL = 2 * GATHER
_END = b"\r\n\r\n"
"""What the last read of a chunked body ends with, unless it is shorter. Others may, too."""


class Keeper(Protocol):
    """Who owns connections."""

    def released(self, connection: "Connection") -> None:
        """A connection is free for the next request."""

    def lost(self, connection: "Connection") -> None:
        """A connection is closed."""

    def gathered(self, exchange: Exchange) -> None:
        """Enough pieces of an exchange wait to be parsed."""

    def ended(self, exchange: Exchange) -> None:
        """The response is complete, or will never be."""


class Connection(asyncio.Protocol):
    """A connection to a server, for one exchange after the other."""

    __slots__ = (
        "_at",
        "_began",
        "_complete",
        "_exchange",
        "_fd",
        "_feed",
        "_keep",
        "_keeper",
        "_parser",
        "_reads",
        "_transport",
        "_until_eof",
        "_uses",
        "closed",
        "idle_since",
    )

    def __init__(self, keeper: Keeper) -> None:
        import httptools  # noqa: PLC0415 - lazy: `draftworth --help` must not load it

        self.closed = False
        self.idle_since = 0.0
        self._keeper = keeper
        self._exchange: Exchange | None = None
        self._reads: list[Any] | None = None  # the exchange's, while its reads wait for their framing
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._at = 0.0
        self._uses = 0
        self._began = False
        self._complete = False
        self._keep = False
        self._until_eof = False
        self._parser = httptools.HttpResponseParser(self)
        self._feed: Callable[[bytes], None] = self._parser.feed_data

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and the socket's number where requests can be written to it directly."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        if transport.get_extra_info("ssl_object") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Take what one read of the socket gave."""
        at = perf_counter()
        reads = self._reads
        if reads is None:
            self._take(at, data)
            return
        reads.append(at)
        reads.append(data)
        if data.endswith(_END) or len(data) < len(_END):
            self.frame(NEVER)
        elif len(reads) == _FULL:
            self._keeper.gathered(self._exchange)  # type: ignore[arg-type] # there is one while its reads wait

    def _take(self, at: float, data: bytes) -> None:
        """Remove the framing of one read."""
        self._at = at
        try:
            self._feed(data)
        except Exception as error:  # noqa: BLE001 - whatever the parser finds wrong ends the connection
            self._broken(error)
            return
        if self._complete:
            self._end()

    def eof_received(self) -> None:
        """Know at once that no request can be sent here any more; the transport closes itself."""
        self.closed = True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange, where there is one."""
        self.closed = True
        self.frame(NEVER)
        exchange, self._exchange = self._exchange, None
        self._keeper.lost(self)
        if exchange is None:
            return
        exchange.connection = None
        exchange.ended = perf_counter()
        if not self._began and self._uses > 1:
            exchange.stale = True
        if not (self._until_eof and exc is None):
            exchange.error = HttpError(CLOSED)
        self._keeper.ended(exchange)

    # The parser's calls.

    def on_message_begin(self) -> None:
        """A response, or an interim one, begins. One nobody asked for ends the connection."""
        if self._complete or self._exchange is None:
            self._keep = False
            self._end()
        self._began = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header."""
        if self._exchange is not None:
            headers, key, text = self._exchange.headers, name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Decide where the body goes."""
        exchange, status = self._exchange, self._parser.get_status_code()
        if exchange is None:
            return
        if status in _INTERIM:
            exchange.headers = {}
            return
        exchange.status = status
        headers = exchange.headers
        framed = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
        self._until_eof = not framed and status not in _NO_BODY
        self._keep = self._parser.should_keep_alive()
        if exchange.sink is not None and exchange.sink.begin(status, headers):
            if not self._until_eof and "content-length" not in headers:
                self._reads = exchange.reads
        else:
            exchange.sink = None

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body with the time of the read that brought it."""
        exchange = self._exchange
        times = exchange.times  # type: ignore[union-attr] # bytes nobody asked for end the connection
        times.append(self._at)
        exchange.bodies.append(body)  # type: ignore[union-attr] # same
        if len(times) == GATHER and exchange.sink is not None:  # type: ignore[union-attr] # same
            self._keeper.gathered(exchange)  # type: ignore[arg-type] # same

    def on_message_complete(self) -> None:
        """The response is complete, unless it was an interim one."""
        self._complete = self._exchange is None or self._exchange.status != 0

    # The owner's calls.

    def start(self, exchange: Exchange, request: bytes) -> None:
        """Send a request now and note the time. Where the connection is closed already, it ends with `stale` set."""
        if self.closed or self._transport is None or self._transport.is_closing():
            self._refuse(exchange)
            return
        self._uses += 1
        self._began = self._until_eof = False
        self._exchange, exchange.connection = exchange, self
        exchange.sent = perf_counter()
        exchange.sent_unix = unix(exchange.sent)
        exchange.first_sent = exchange.first_sent or exchange.sent
        written = 0
        if self._fd >= 0 and not self._transport.get_write_buffer_size():
            # Not through the transport: uvloop's sends at the end of the loop's turn, after the clock was read for all.
            try:
                written = os.write(self._fd, request)
            except BlockingIOError:
                pass
            except OSError:
                self._exchange = exchange.connection = None
                self.abort()
                self._refuse(exchange)
                return
        if written < len(request):
            self._transport.write(request[written:])

    def frame(self, most: int) -> bool:
        """Make pieces of at most `most` reads that wait; whether some are left."""
        reads = self._reads
        if not reads:
            return False
        some = reads[: 2 * most]
        del reads[: 2 * most]
        for at, data in zip(some[::2], some[1::2], strict=True):
            self._take(at, data)
            if self.closed and self._exchange is None:
                reads.clear()
                break
        return bool(reads)

    def abort(self) -> None:
        """Close the connection at once; its exchange hears nothing of it."""
        self.closed = True
        self._exchange = self._reads = None
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, exchange: Exchange) -> None:
        """Nothing was sent: another connection will do."""
        exchange.sent = 0.0
        exchange.stale = True
        exchange.error = HttpError(CLOSED)
        self._keeper.ended(exchange)

    def _end(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._complete, self._reads = False, None
        if exchange is None:
            self.abort()
            return
        exchange.connection = None
        exchange.ended = self._at
        if self._keep and not self.closed:
            self._keeper.released(self)
        else:
            self.abort()
        self._keeper.ended(exchange)

    def _broken(self, error: Exception) -> None:
        """What came is no HTTP."""
        exchange, self._exchange = self._exchange, None
        self.abort()
        if exchange is not None:
            exchange.connection = None
            exchange.ended = self._at
            cause = error.__context__ or error
            exchange.error = HttpError(one_line(f"the answer is no HTTP: {cause}"))
            self._keeper.ended(exchange)
