"""Passing bytes on: one connection to the server for each client's connection, nothing in between but a copy.

Bytes are never looked at (but for requests that fields are put into, see `asking`), so whatever the two sides agree on
works: keep-alive, pipelining, chunks and trailers, `Expect: 100-continue`, HEAD, upgrades to websockets. The end of a
connection is passed on as it came: an end as an end, a reset as a reset. Where one side does not read, the other is
not read from.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

from draftworth.traces.proxy.base import Kind
from draftworth.traces.proxy.tap import Tap

CONNECT_S = 30.0
_HIGH_WATER = 2**16
_RESET = struct.pack("ii", 1, 0)
_HEAD_END = b"\r\n\r\n"
_LONGEST_HEAD = 2**16
_LINGER_S = 2.0


class Rewrites(Protocol):
    """Changes the bytes of a client's requests.

    Attributes:
        begun: how many requests have begun.
    """

    begun: int

    def feed(self, data: bytes) -> bytes:
        """Take bytes in any pieces and return what is passed on for them."""


class Switch(Protocol):
    """What connections share.

    Attributes:
        tap: takes copies.
    """

    tap: Tap

    async def connect(self, side: "ServerSide") -> None:
        """Connect to the server; OSError or TimeoutError where that is not possible."""

    def rewriter(self, number: int) -> Rewrites | None:
        """Return what changes a connection's requests, None for nothing."""

    def opened(self, client: "ClientSide") -> int:
        """Take a connection in and return its number."""

    def closed(self, client: "ClientSide") -> None:
        """A connection is over on both sides."""


class _Side(asyncio.Protocol):
    """One of the two ends of a connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self._peer: _Side | None = None
        self._fd = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        if transport.get_extra_info("ssl_object") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    def send(self, data: bytes) -> None:
        """Send bytes now, as far as the network takes them; the rest waits in the transport.

        uvloop's transports send at the end of the loop's turn, behind all that other streams have brought.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._fd >= 0 and not transport.get_write_buffer_size():
            try:
                written = os.write(self._fd, data)
            except OSError:  # it takes nothing now, or is lost: the transport finds out
                written = 0
            if written == len(data):
                return
            data = data[written:]
        transport.write(data)

    def pause_writing(self) -> None:
        """This side does not read: read no more from the other."""
        peer = self._peer
        if peer is not None and peer.transport is not None and not peer.lost:
            peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """This side reads again."""
        peer = self._peer
        if peer is not None and peer.transport is not None and not peer.lost:
            peer.transport.resume_reading()

    def finish(self) -> None:
        """Send what waits to be sent, then close."""
        if self.transport is not None and not self.lost:
            self.transport.close()

    def abort(self, *, reset: bool) -> None:
        """Close at once, where asked with a reset that the other end sees."""
        transport = self.transport
        if transport is None or self.lost:
            return
        if reset and (connection := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):  # it is closed already
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()


class ServerSide(_Side):
    """The connection to the server."""

    def __init__(self, client: "ClientSide", tap: Tap) -> None:
        super().__init__()
        self._client = client
        self._peer = client
        self._tap = tap

    def data_received(self, data: bytes) -> None:
        """Pass on, then copy."""
        self._client.send(data)
        self._tap.answer(self._client.number, data)

    def eof_received(self) -> bool:
        """The server has closed the connection: so do we. What it sent before still reaches the client."""
        self._tap.event(self._client.number, Kind.SERVER_END)
        self._client.finish()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass a reset on as a reset."""
        self.lost = True
        if exc is not None:
            self._tap.event(self._client.number, Kind.SERVER_END)
            self._client.abort(reset=True)
        else:
            self._client.finish()
        self._client.over()


class ClientSide(_Side):
    """The connection of a client.

    Attributes:
        number: its number, from 1.
        reads: how often bytes came from it.
    """

    def __init__(self, switch: Switch, refusal: Callable[[BaseException], bytes]) -> None:
        """Make one.

        Args:
            switch: what connections share.
            refusal: the HTTP answer where the server cannot be reached.
        """
        super().__init__()
        self.number = 0
        self.reads = 0
        self._switch = switch
        self._tap = switch.tap
        self._refusal = refusal
        self._server: ServerSide | None = None
        self._rewriter: Rewrites | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._refusing: bytes | None = None
        self._early = b""
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server."""
        super().connection_made(transport)
        self.number = self._switch.opened(self)
        self._rewriter = self._switch.rewriter(self.number)
        self._tap.event(self.number, Kind.OPEN)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        server = ServerSide(self, self._tap)
        try:
            await self._switch.connect(server)
        except (OSError, TimeoutError) as error:
            self._refusing = self._refusal(error)
        if self.lost:
            server.abort(reset=True)
            return
        if self._refusing is None:
            self._server = self._peer = server
        early, self._early = self._early, b""
        if early:
            self._pass(early)
        if self.lost or self.transport is None:
            return
        self.transport.resume_reading()
        if self._ended:
            self._end()

    def data_received(self, data: bytes) -> None:
        """Pass on, then copy; what comes before the server is connected waits."""
        self.reads += 1
        if self._server is None and self._refusing is None:
            self._early += data
            if self.transport is not None:
                self.transport.pause_reading()  # uvloop starts reading behind connection_made, whatever is asked there
            return
        self._pass(data)

    def _pass(self, data: bytes) -> None:
        server, rewriter = self._server, self._rewriter
        if server is None:
            self._refuse(data)
            return
        begun = None
        if rewriter is None:
            passed = data
        else:
            begun = rewriter.begun
            passed = rewriter.feed(data)
        if passed:
            server.send(passed)
        self._tap.request(self.number, data, begun)

    def _refuse(self, data: bytes) -> None:
        """Answer the first request that the server cannot be reached, and close."""
        if not self._refusing or self.transport is None:
            return
        self._early += data
        if _HEAD_END not in self._early and len(self._early) < _LONGEST_HEAD:
            return
        answer, self._refusing, self._early = self._refusing, b"", b""
        self.send(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # What else the client sends is read for a while: closing over it would reset the answer away.
        asyncio.get_running_loop().call_later(_LINGER_S, self.finish)

    def eof_received(self) -> bool:
        """The client says no more: tell the server, and go on passing its answer as long as it sends one."""
        self._tap.event(self.number, Kind.CLIENT_END)
        if self._server is None and self._refusing is None:
            self._ended = True
            return True
        return self._end()

    def _end(self) -> bool:
        """Pass the end on; whether this side stays open for the rest of the answer."""
        server = self._server
        if server is None or server.lost or server.transport is None:
            self.finish()
            return False
        if server.transport.can_write_eof():
            server.transport.write_eof()
            return True
        server.abort(reset=False)  # TLS has no half of a connection
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass a reset on as a reset, at once: the server must not go on for nobody."""
        self.lost = True
        if exc is not None:
            self._tap.event(self.number, Kind.CLIENT_END)
        if self._server is not None and not self._server.lost:
            self._server.abort(reset=exc is not None)
        self.over()

    def over(self) -> None:
        """Leave where both sides are closed."""
        if self.lost and (self._server is None or self._server.lost):
            self._switch.closed(self)
