"""An HTTP/1.1 client for many streams at once: kept connections, exact times, next to no work per chunk.

    async with Client("http://127.0.0.1:8000") as client:
        exchange = await client.post("/v1/chat/completions", body, patience=60)
        exchange.status, exchange.sent, list(zip(exchange.times, exchange.bodies))

Connecting is over before a request's clock starts. There are as many connections as requests under way, and no timer
for any of them: one look at all streams every quarter of a second finds those that are silent.
"""

import asyncio
import socket
from time import perf_counter
from types import TracebackType
from typing import Self

from draftworth.bench.address import address_of, head_of, tls_context
from draftworth.bench.backlog import Backlog
from draftworth.bench.base import Access
from draftworth.bench.connection import Connection
from draftworth.bench.exchange import NEVER, Exchange, HttpError, Sink
from draftworth.bench.failures import not_connected

_SWEEP_S = 0.25
_CONNECT_AHEAD_S = 0.5
_LONGEST_IDLE_S = 1.5
"""Kept connections older than this are not used again: the server may be about to close them (uvicorn after 5 s)."""
_CLOSED_AT_ONCE_S = 0.25
RESENT = "the connection was closed before an answer"
# Servers that closed a connection they had promised to keep, as llama.cpp's does behind every stream: each of their
# requests gets a connection of its own, made before its clock starts, or all would be sent twice and be in no time.
_closing: dict[tuple[str, int], float] = {}
_REMEMBERED_S = 600.0


class Client:
    """Connections to one server. To be used in one event loop, as an async context manager."""

    def __init__(self, base_url: str, access: Access | None = None) -> None:
        """Make one; nothing is sent yet.

        Args:
            base_url: the server's URL, with its path but without `/v1`.
            access: headers and certificates.

        Raises:
            UsageError: the URL, a header or the file of certificates cannot be used.
        """
        access = access or Access()
        self.address = address_of(base_url)
        self._head = head_of(self.address, access)
        self._tls = tls_context(access) if self.address.tls else None
        self._loop = asyncio.get_running_loop()
        self._backlog = Backlog(self._loop)
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._active: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._hosts: list[str] = []
        self._looking_up = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await asyncio.sleep(0)  # lets the transports go

    def close(self) -> None:
        """Close every connection; requests under way end with an error."""
        if self._timer is not None:
            self._timer.cancel()
        for exchange in list(self._active):
            exchange.fail(HttpError("the client was closed"))
            exchange.resolve()
        self._idle.clear()  # closed by us, which tells nothing of the server
        for connection in list(self._connections):
            connection.abort()

    async def post(
        self, path: str, body: bytes, *, patience: float, sink: Sink | None = None, due: float | None = None
    ) -> Exchange:
        """POST a JSON body and read the whole response.

        A request on a kept connection that the server closed before any byte of a response is sent once more on a new
        one; the exchange's `resent` says so. From then on that server's connections are not kept.

        Args:
            path: behind the base URL, with its slash.
            body: JSON.
            patience: seconds without anything of worth (see `Sink.alive_at`; without a sink: any bytes), and for
                connecting, after which it has failed.
            sink: takes the body as it comes; None keeps the pieces in the exchange.
            due: when to send, seconds of `perf_counter`; None for at once. Connecting is done ahead of it.

        Returns:
            The exchange; its `error` is set where the response is not whole, to an `HttpError` or to what the sink
            raised.
        """
        target = f"POST {self.address.path}{path} HTTP/1.1\r\n".encode("latin-1", "replace")
        request = b"%s%sContent-Length: %d\r\n\r\n%s" % (target, self._head, len(body), body)
        exchange = Exchange(sink, patience)
        if due is not None:
            await _until(due - _CONNECT_AHEAD_S)
        kept = True
        while True:
            try:
                connection = await self._connection(patience, kept=kept)
            except HttpError as error:
                exchange.error = error
                return exchange
            if due is not None:
                await _until(due)
            await self._exchange(connection, exchange, request)
            if not exchange.stale:
                return exchange
            if exchange.sent:
                if exchange.resent:
                    return exchange
                exchange.resent, kept = 1, False
                self._closes()
            exchange.stale, exchange.error, exchange.ended = False, None, 0.0

    async def _exchange(self, connection: Connection, exchange: Exchange, request: bytes) -> None:
        exchange.future = self._loop.create_future()
        self._active.add(exchange)
        if self._timer is None:
            self._timer = self._loop.call_later(_SWEEP_S, self._sweep)
        self._backlog.send(connection, exchange, request)
        try:
            await exchange.future
        finally:
            self._active.discard(exchange)
            exchange.leave()  # where the caller gave up

    # Connections.

    async def _connection(self, patience: float, *, kept: bool) -> Connection:
        """Return a connection nobody uses, a kept one where allowed."""
        oldest = perf_counter() - _LONGEST_IDLE_S
        kept = kept and not self._closing
        while kept and self._idle:
            connection = self._idle.pop()
            if connection.idle_since < oldest:
                connection.abort()
            elif not connection.closed:
                return connection
        host, port = self.address.host, self.address.port
        try:
            async with asyncio.timeout(patience):
                return await self._connect()
        except (OSError, TimeoutError, UnicodeError) as error:
            self._hosts = []
            raise HttpError(not_connected(error, host, port)) from error

    async def _connect(self) -> Connection:
        host, port = self.address.host, self.address.port
        async with self._looking_up:
            if not self._hosts:
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                self._hosts = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        failed: OSError | None = None
        for numeric in tuple(self._hosts):
            try:
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self),
                    numeric,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls is not None else None,
                )
            except OSError as error:
                failed = failed or error
                continue
            if self._hosts[:1] != [numeric]:
                self._hosts = [numeric]  # the others do not answer
            self._connections.add(connection)
            return connection
        raise failed or OSError("the name has no address")

    @property
    def _closing(self) -> bool:
        """Whether the server is known to close what it promised to keep; another one may be there later."""
        return perf_counter() < _closing.get((self.address.host, self.address.port), 0.0)

    def _closes(self) -> None:
        _closing[self.address.host, self.address.port] = perf_counter() + _REMEMBERED_S

    # What connections tell.

    def released(self, connection: Connection) -> None:
        """Keep a connection for the next request; not one of a server that closes them anyway."""
        if self._closing:
            connection.abort()
            return
        connection.idle_since = perf_counter()
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            if perf_counter() - connection.idle_since < _CLOSED_AT_ONCE_S:
                self._closes()

    def gathered(self, exchange: Exchange) -> None:
        """Have an exchange parsed when there is time."""
        self._backlog.parse(exchange)

    def ended(self, exchange: Exchange) -> None:
        """Have an exchange parsed to its end, and its caller woken."""
        self._backlog.finish(exchange)

    def _sweep(self) -> None:
        """Look for streams that are silent: they have said everything, or have failed."""
        now = perf_counter()
        for exchange in list(self._active):
            self._look_at(exchange, now)
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep) if self._active else None

    def _look_at(self, exchange: Exchange, now: float) -> None:
        sink = exchange.sink
        if not exchange.sent or exchange.connection is None:
            return
        if sink is None:
            alive = exchange.times[-1] if exchange.times else exchange.sent
        else:
            last = exchange.last
            if last and (now - last >= _SWEEP_S / 2 or now - max(sink.alive_at, exchange.sent) > exchange.patience):
                exchange.parse(NEVER)  # few: more would have been parsed
                if exchange.ended and exchange.error is None:
                    return  # its end was among them
            if sink.done and now - sink.alive_at >= _SWEEP_S:
                exchange.leave()  # the server keeps the body open behind its end
                self._backlog.finish(exchange)
                return
            alive = max(sink.alive_at, exchange.sent)
        if exchange.error is None and now - alive > exchange.patience:
            exchange.fail(HttpError(f"no event for {exchange.patience:g} s"))
        if exchange.error is not None:
            exchange.resolve()


async def _until(when: float) -> None:
    """Wait until `perf_counter` says `when`. Loops' timers are a millisecond coarse, and may be early."""
    while (left := when - perf_counter()) > 0:  # noqa: ASYNC110 - a clock sets no event
        await asyncio.sleep(left)
