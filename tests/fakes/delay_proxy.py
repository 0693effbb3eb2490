"""A server made slower by a known amount: a proxy that holds the nth piece of a stream back by n times a delay.

Time per piece, and so TPOT where a piece is a token, grows by exactly the delay; the server behind is not slowed.
`/metrics` is not passed on: two proxies in front of one server would count each other's requests.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web


class DelayProxy:
    """The proxy inside this process, on a free port of 127.0.0.1."""

    def __init__(self, behind: str, delay_s: float) -> None:
        self.behind = behind
        self.delay_s = delay_s
        self.base_url = ""
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> web.AppRunner:
        """Listen."""
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def stop(self, runner: web.AppRunner) -> None:
        """Stop listening."""
        await runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        if request.path == "/metrics":
            return web.Response(status=404)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in {"host", "content-length"}}
        body = await request.read()
        url = self.behind + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            kind = answer.headers.get("Content-Type", "")
            if not kind.startswith("text/event-stream"):
                return web.Response(
                    status=answer.status, body=await answer.read(), headers={"Content-Type": kind or "text/plain"}
                )
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": kind})
            await response.prepare(request)
            await self._stream(answer, response)
            await response.write_eof()
            return response

    async def _stream(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()

        async def write() -> None:
            while (piece := await pieces.get()) is not None:
                await asyncio.sleep(max(0.0, piece[0] - loop.time()))
                await response.write(piece[1])

        writer = asyncio.create_task(write())
        number = 0
        async for data in answer.content.iter_any():
            pieces.put_nowait((loop.time() + number * self.delay_s, data))
            number += 1
        pieces.put_nowait(None)
        await writer


@contextmanager
def delayed(behind: str, delay_s: float) -> Iterator[str]:
    """Run a proxy in a thread of its own; yields its URL."""
    proxy = DelayProxy(behind, delay_s)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
    try:
        yield proxy.base_url
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(runner), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
