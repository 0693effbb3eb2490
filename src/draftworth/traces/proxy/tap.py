"""The passing process's end of the copies: a bounded queue to the recorder that is never waited for."""

import asyncio
import json
import re
import socket
from collections.abc import Callable
from typing import Any, cast

from draftworth.traces.proxy.base import FRAME, Kind

_FLUSH_S = 0.02
_FLUSH_BYTES = 2**18
_REQUEST_LINE = re.compile(rb"[A-Z]{3,7} \S+ HTTP/1\.[01]\r\n")

Told = dict[str, Any]
"""What the recorder says, from JSON."""


class Tap(asyncio.Protocol):
    """Takes copies of what is passed on.

    Copies wait up to 20 ms and go to the recorder in one piece, so that a chunk of a stream costs two appends. Where
    the recorder cannot keep up and the queue is full, a connection is lost: nothing of it is copied until a read of its
    client begins a request again.

    Attributes:
        lost: how often a connection was lost.
        open: whether anybody takes copies.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, on_told: Callable[[Told], None]) -> None:
        """Make one; `attach` before use.

        Args:
            loop: the event loop.
            limit: most bytes that wait.
            on_told: takes what the recorder says, and `{"gone": True}` where it is no longer there.
        """
        self.lost = 0
        self.open = False
        self._loop = loop
        self._limit = limit
        self._on_told = on_told
        self._transport: asyncio.WriteTransport | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._room = limit  # of the queue, as of the last look at it
        self._due: asyncio.TimerHandle | None = None
        self._missing: set[int] = set()
        self._half = b""

    async def attach(self, end: socket.socket) -> None:
        """Begin on a connected socket."""
        await self._loop.create_unix_connection(lambda: self, sock=end)

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Take lines of JSON."""
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            self._on_told(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the reason
        """The recorder has gone."""
        self.open = False
        self._parts.clear()
        self._size = 0
        self._on_told({"gone": True})

    # What is copied.

    def request(self, connection: int, data: bytes, number: int | None) -> None:
        """Copy bytes of a client.

        Args:
            connection: its number.
            data: the bytes.
            number: how many requests had begun on the connection before these bytes, where that is known.
        """
        if not self.open:
            return
        if connection in self._missing:
            if not _REQUEST_LINE.match(data) or self._is_full(len(data)):
                return
            self._missing.discard(connection)
            self._put(connection, Kind.AGAIN, b"" if number is None else number.to_bytes(4, "little"))
        self._copy(connection, Kind.REQUEST, data)

    def answer(self, connection: int, data: bytes) -> None:
        """Copy bytes of the server."""
        if self.open and connection not in self._missing:
            self._copy(connection, Kind.ANSWER, data)

    def event(self, connection: int, kind: Kind) -> None:
        """Tell what happened to a connection; there is always room for that."""
        if self.open:
            self._put(connection, kind, b"")
            if kind in (Kind.CLIENT_END, Kind.SERVER_END):
                self._missing.discard(connection)

    def _is_full(self, more: int) -> bool:
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._room = self._limit - waiting
        return self._size + more > self._room

    def _copy(self, connection: int, kind: Kind, data: bytes) -> None:
        if self._size + len(data) > self._room and self._is_full(len(data)):
            self.lost += 1
            self._missing.add(connection)
            self._put(connection, Kind.LOST, b"")
            return
        self._put(connection, kind, data)
        if self._size > _FLUSH_BYTES:
            self.flush()

    def _put(self, connection: int, kind: Kind, data: bytes) -> None:
        self._parts.append(FRAME.pack(connection, kind, len(data)))
        self._parts.append(data)
        self._size += FRAME.size + len(data)
        if self._due is None:
            self._due = self._loop.call_later(_FLUSH_S, self.flush)

    def flush(self) -> None:
        """Hand on what waits here."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        parts, self._parts = self._parts, []
        self._size = 0
        if parts and self._transport is not None and self.open:
            self._transport.write(b"".join(parts))
            self._room = self._limit - self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Hand on what waits, and end."""
        self.flush()
        if self._transport is not None and self.open:
            self._transport.write_eof()
        self.open = False
