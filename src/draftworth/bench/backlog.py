"""Work that may wait, done in short turns between two looks at the network.

All bytes the network has are taken and stamped before a turn begins, and a turn is over after a fifth of a
millisecond: that is how late a stamp can be because of another stream's parsing.
"""

import asyncio
from collections import deque
from time import perf_counter

from draftworth.bench.connection import Connection
from draftworth.bench.exchange import GATHER, Exchange

TURN_S = 0.0002
_SLICE = GATHER // 2


class Backlog:
    """Requests to send, responses to finish, pieces to parse; in this order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sends: deque[tuple[Connection, Exchange, bytes]] = deque()
        self._ended: deque[Exchange] = deque()
        self._gathered: deque[Exchange] = deque()
        self._scheduled = False

    def send(self, connection: Connection, exchange: Exchange, request: bytes) -> None:
        """Send a request, soon. Its clock starts when it is sent."""
        self._sends.append((connection, exchange, request))
        self._schedule()

    def finish(self, exchange: Exchange) -> None:
        """Parse what is left of a response that has ended, and wake the one who waits for it."""
        self._ended.append(exchange)
        self._schedule()

    def parse(self, exchange: Exchange) -> None:
        """Parse what has gathered of a response."""
        self._gathered.append(exchange)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        until = perf_counter() + TURN_S
        while self._one():
            if perf_counter() >= until:
                self._loop.call_soon(self._turn)
                return
        self._scheduled = False

    def _one(self) -> bool:
        """Do one short piece of work; whether there was one."""
        if self._sends:
            connection, exchange, request = self._sends.popleft()
            if exchange.future is not None and not exchange.future.done():
                connection.start(exchange, request)
            else:
                connection.abort()  # the caller gave up
        elif self._ended:
            exchange = self._ended[0]
            if exchange.parse(_SLICE):
                self._ended.popleft()
                exchange.resolve()
        elif self._gathered:
            exchange = self._gathered[0]
            if exchange.parse(_SLICE):
                self._gathered.popleft()
                if exchange.error is not None:
                    exchange.resolve()
        else:
            return False
        return True
