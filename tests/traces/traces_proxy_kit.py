"""A proxy in this process with its real recorder, and clients whose every byte is seen."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from draftworth.bench.address import address_of
from draftworth.traces.proxy.base import ProxyPlan
from draftworth.traces.proxy.run import Proxy


@contextlib.asynccontextmanager
async def proxying(base_url: str, out: Path, **options: Any) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a server; it has ended, and its trace is closed, behind the block."""
    plan = ProxyPlan(upstream=address_of(base_url), host="127.0.0.1", port=0, out=out, **{"drain_s": 2.0, **options})
    proxy = Proxy(plan)
    listening = asyncio.Event()
    task = asyncio.create_task(proxy.run(lambda _: None, lambda _: listening.set()))
    waiting = asyncio.create_task(listening.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not listening.is_set():
        waiting.cancel()
        await task
    try:
        yield proxy
    finally:
        proxy.stop()
        await task


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(url), limit=2**24)


async def said(url: str, request: bytes, *, until: float = 10.0) -> bytes:
    """Send bytes and return everything that comes until the connection ends."""
    reader, writer = await connect(url)
    writer.write(request)
    data = await asyncio.wait_for(reader.read(-1), until)
    writer.close()
    return data


def post(path: str, body: bytes, *headers: str, close: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    if not any("content-type" in line.lower() for line in headers):
        lines.append("Content-Type: application/json")
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def rows_of(trace: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(trace).to_pylist()
    return found


async def settle(proxy: Proxy, seen: int, seconds: float = 10.0) -> None:
    """Wait until the recorder has seen so many completion requests."""
    await until(lambda: proxy.recording.seen >= seen, seconds)


async def until(condition: Callable[[], Any], seconds: float) -> None:
    """Wait until something is so; an error where it is not in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.005)


@contextlib.contextmanager
def bare(status: int = 200) -> Iterator[str]:
    """Run an OpenAI-compatible server that shows nothing of itself and tells no ids; yields its URL.

    What generates is answered with the status.
    """

    class Bare(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = self.path == "/v1/models"
            self._send(200 if found else 404, json.dumps({"data": [{"id": "m"}]} if found else {}), "application/json")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if status != 200:
                self._send(status, json.dumps({"error": {"message": "out of memory"}}), "application/json")
                return
            chunks: list[dict[str, Any]] = [
                {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            ]
            lines = [*(json.dumps({"model": "m", **one}) for one in chunks), "[DONE]"]
            self._send(200, "".join(f"data: {line}\n\n" for line in lines), "text/event-stream")

        def _send(self, code: int, text: str, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bare)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
