"""Running a proxy: listen, pass on, record, and end without breaking a stream."""

import asyncio
import contextlib
import gc
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import msgspec

from draftworth.bench.address import tls_context
from draftworth.bench.failures import not_connected
from draftworth.bench.loop import run_on_loop
from draftworth.errors import UsageError
from draftworth.traces.proxy.asking import Asker
from draftworth.traces.proxy.base import FRAME, Kind, ProxyPlan, Recording, is_sampled
from draftworth.traces.proxy.recorder import Setup
from draftworth.traces.proxy.relay import CONNECT_S, ClientSide, ServerSide
from draftworth.traces.proxy.tap import Tap

_BACKLOG = 2048
_TICK_S = 0.25
_START_S = 30.0
_CLOSE_S = 120.0
_IMPATIENT_S = 2.0
_GONE = "the recorder process ended; what it had written is kept"

OnTick = Callable[["Proxy"], None]


class Proxy:
    """A proxy that runs; what `relay` needs of the whole.

    Attributes:
        plan: what it does.
        url: where it listens.
        tap: takes copies.
        recording: how the recording stands, up to half a second ago.
        accepted: connections so far.
        not_asked: reason to how many requests could not be given the fields.
        ending: since when no connection is accepted, in seconds of `monotonic`; None before.
        cut_off: connections that were still under way at the end's deadline.
    """

    def __init__(self, plan: ProxyPlan) -> None:
        self.plan = plan
        self.url = ""
        self.recording = Recording()
        self.accepted = 0
        self.not_asked: dict[str, int] = {}
        self.ending: float | None = None
        self.cut_off = 0
        self._loop = asyncio.get_running_loop()
        self.tap = Tap(self._loop, plan.queue_bytes, self._told)
        self._tls = tls_context(plan.access) if plan.upstream.tls else None
        self._addresses: list[str] = []
        self._open: dict[int, ClientSide] = {}
        self._reads: dict[int, int] = {}
        self._failed: str | None = None
        self._ready = asyncio.Event()
        self._gone = asyncio.Event()
        self._over = asyncio.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._stops = 0

    # What `relay` asks for.

    async def connect(self, side: ServerSide) -> None:
        """Connect to the server."""
        upstream = self.plan.upstream
        async with asyncio.timeout(CONNECT_S):
            if not self._addresses:
                found = await self._loop.getaddrinfo(upstream.host, upstream.port, type=socket.SOCK_STREAM)
                self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            failed: OSError | None = None
            for address in tuple(self._addresses):
                try:
                    await self._loop.create_connection(
                        lambda: side,
                        address,
                        upstream.port,
                        ssl=self._tls,
                        server_hostname=upstream.host if self._tls is not None else None,
                    )
                except OSError as error:
                    failed = failed or error
                    continue
                return
            self._addresses = []  # it may have moved
            raise failed or OSError("the name has no address")

    def rewriter(self, number: int) -> Asker | None:
        """Return what puts fields into a connection's requests."""
        plan = self.plan
        if plan.asked is None and not plan.rewrite_host:
            return None
        host = plan.upstream.authority.encode("latin-1") if plan.rewrite_host else None
        return Asker(plan.asked, lambda at: self._is_asked(number, at), host=host, left=self._not_asked)

    def _is_asked(self, connection: int, number: int) -> bool:
        wanted = self.tap.open and self.recording.stopped is None and not self.recording.finished
        return wanted and is_sampled(self.plan.sample, self.plan.seed, connection, number)

    def _not_asked(self, reason: str) -> None:
        self.not_asked[reason] = self.not_asked.get(reason, 0) + 1

    def opened(self, client: ClientSide) -> int:
        """Take a connection in."""
        self.accepted += 1
        self._open[self.accepted] = client
        return self.accepted

    def closed(self, client: ClientSide) -> None:
        """A connection is over."""
        if self._open.pop(client.number, None) is not None:
            self.tap.event(client.number, Kind.SERVER_END)

    def _refusal(self, error: BaseException) -> bytes:
        upstream = self.plan.upstream
        why = not_connected(error, upstream.host, upstream.port)
        body = {
            "error": {"message": f"draftworth trace proxy: {why}", "type": "BadGateway", "param": None, "code": 502}
        }
        text = json.dumps(body).encode()
        head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nConnection: close\r\n"
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(text), text)

    # The recorder.

    async def _start_recorder(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - its only form
        with theirs:
            self._child = subprocess.Popen(  # noqa: ASYNC220 - before anything is passed on
                [sys.executable, "-m", "draftworth.traces.proxy.recorder"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        plan = self.plan
        setup = Setup(
            out=str(plan.out.absolute()),
            name=f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(2)}",
            sample=plan.sample,
            seed=plan.seed,
            max_requests=plan.max_requests,
            tokenizer=None if plan.tokenizer is None else str(plan.tokenizer.absolute()),
        )
        data = msgspec.json.encode(setup)
        await self._loop.sock_sendall(ours, FRAME.pack(0, Kind.OPEN, len(data)) + data)
        await self.tap.attach(ours)
        try:
            async with asyncio.timeout(_START_S):
                await self._ready.wait()
        except TimeoutError:
            self._failed = f"the recorder did not start within {_START_S:g} s"
        if self._failed is not None:
            raise UsageError(self._failed)

    def _told(self, what: dict[str, Any]) -> None:
        if "failed" in what:
            self._failed = str(what["failed"])
            self._ready.set()
        elif "ready" in what:
            self._ready.set()
        elif "gone" in what:
            if self._failed is None and not self.recording.finished and self.recording.stopped is None:
                self.recording.stopped = _GONE
            self._failed = self._failed or _GONE
            self._ready.set()
            self._gone.set()
        elif "idle" in what:
            for number in what["idle"]:
                client = self._open.get(number)
                if client is not None and client.reads == self._reads.get(number):  # else a request came meanwhile
                    client.finish()
        else:
            known = {one.name for one in fields(Recording)}
            self.recording = Recording(**{name: value for name, value in what.items() if name in known})

    # Its life.

    def stop(self) -> None:
        """Accept no more and end when streams under way have; called again, end at once."""
        self._stops += 1
        if self.ending is None:
            self.ending = time.monotonic()
        if self._stops > 1:
            self._over.set()

    async def run(self, on_tick: OnTick, on_listening: OnTick) -> None:
        """Pass traffic on until it is told to stop, or the recording is complete where that ends it.

        Raises:
            UsageError: the address cannot be listened on, or the trace cannot be begun.
        """
        plan = self.plan
        try:
            listener = socket.create_server(
                (plan.host, plan.port), family=socket.AF_INET6 if ":" in plan.host else socket.AF_INET, backlog=_BACKLOG
            )
        except OSError as error:
            raise UsageError(f"--listen {plan.host}:{plan.port}: {error.strerror or error}") from None
        server: asyncio.Server | None = None
        try:
            await self._start_recorder()
            server = await self._loop.create_server(
                lambda: ClientSide(self, self._refusal), sock=listener, backlog=_BACKLOG
            )
            host = f"[{plan.host}]" if ":" in plan.host else plan.host
            self.url = f"http://{host}:{listener.getsockname()[1]}"
            gc.collect()
            gc.freeze()  # what is there by now need not be looked at again
            on_listening(self)
            await self._serve(on_tick)
            server.close()
            await self._drain(on_tick)
        finally:
            gc.unfreeze()
            if server is not None:
                server.close()
            else:
                listener.close()
            for client in list(self._open.values()):
                client.abort(reset=True)
            await self._end_recorder(on_tick)

    async def _serve(self, on_tick: OnTick) -> None:
        until = None if self.plan.duration_s is None else time.monotonic() + self.plan.duration_s
        while self.ending is None:
            await asyncio.sleep(_TICK_S)
            if until is not None and time.monotonic() >= until:
                until = None
                self.tap.event(0, Kind.FINISH)
            if self.plan.ends and (self.recording.finished or self.recording.stopped is not None):
                self.stop()
            on_tick(self)

    async def _drain(self, on_tick: OnTick) -> None:
        """Let streams under way end; connections that wait for a request are closed."""
        deadline = time.monotonic() + self.plan.drain_s
        while self._open and time.monotonic() < deadline and not self._over.is_set():
            self._reads = {number: client.reads for number, client in self._open.items()}
            self.tap.event(0, Kind.WHO_IS_IDLE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _TICK_S)
            on_tick(self)
        self.cut_off = len(self._open)

    async def _end_recorder(self, on_tick: OnTick) -> None:
        child = self._child
        if child is None:
            return
        await asyncio.sleep(0)  # lets the connections' ends be told
        self.tap.close()
        until = time.monotonic() + _CLOSE_S
        while not self._gone.is_set() and time.monotonic() < until:
            if self._stops > 1:
                until = min(until, time.monotonic() + _IMPATIENT_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _TICK_S)
            on_tick(self)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)  # if it is not done, it goes on: it closes the trace and ends by itself


def run_proxy(plan: ProxyPlan, *, on_tick: OnTick, on_listening: OnTick) -> Proxy:
    """Run a proxy to its end. SIGINT and SIGTERM end it, a second one at once.

    Args:
        plan: what it does.
        on_tick: called about four times a second.
        on_listening: called once it accepts connections.

    Returns:
        The proxy as it ended.

    Raises:
        UsageError: it could not be started.
    """

    async def work() -> Proxy:
        proxy = Proxy(plan)
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        loop = asyncio.get_running_loop()
        try:
            for number in before:
                loop.add_signal_handler(number, proxy.stop)
            await proxy.run(on_tick, on_listening)
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
        return proxy

    return run_on_loop(work)
