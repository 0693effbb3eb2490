"""What the recording proxy adds: the same streams through it and without it, in turns in one run.

    python -m benchmarks.proxy_overhead [--streams 1 8 32] [--rounds 6] [--chunks 200] [--kept] [--json FILE] [--keep]

`--keep` writes benchmarks/results/proxy_overhead.json and the table of docs/recording.md.

A server of its own (a process) writes events with the time at which it wrote them; CLOCK_MONOTONIC is the same in every
process of a machine, so a chunk's time on the way is when it was read less when it was written. Streams go directly
and through the proxy in turns, many short ones, so that both meet the same machine. All streams of a turn begin
together and go in step, as those of an engine do that ends a step for all of them at once. Every request has a
connection of its own (`--kept`: three on each). Reported are p50 and p99 of time to the first chunk (from sending the
request) and of each chunk's time on the way, and what the proxy adds to each.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from benchmarks.pages import write_between

REQUEST = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2000}], "stream": True}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
END = b"0\r\n\r\n"
ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "proxy_overhead.json", ROOT / "docs" / "recording.md"
MARKS = ("<!-- proxy: by benchmarks/proxy_overhead.py -->", "<!-- end of proxy -->")
KEPT = 3
"""Requests on a connection that is kept."""


async def serve_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chunks: int, gap_s: float) -> None:
    """Answer requests on one connection, each with a stream of stamped events."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
            await asyncio.sleep(gap_s)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            prompt: list[int] | None = list(range(500))
            for number in range(chunks):
                event = {
                    "model": "m",
                    "prompt_token_ids": prompt,
                    "at": time.perf_counter_ns(),
                    "choices": [{"index": 0, "delta": {"content": "word "}, "token_ids": [number]}],
                }
                prompt = None
                if number == chunks - 1:
                    event["choices"][0]["finish_reason"] = "length"  # type: ignore[index] # it is there
                data = b"data: " + json.dumps(event).encode() + b"\n\n"
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await asyncio.sleep(gap_s)
            writer.write(END)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def server_main(chunks: int, gap_s: float) -> None:
    """Run the server; says its port on standard output."""
    server = await asyncio.start_server(lambda r, w: serve_stream(r, w, chunks, gap_s), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


class Reader(asyncio.Protocol):
    """One client: sends requests, keeps the time of each chunk."""

    def __init__(self, requests: int) -> None:
        self.first: list[int] = []
        self.way: list[int] = []
        self.done = asyncio.get_running_loop().create_future()
        self._left = requests
        self._sent = 0
        self._fresh = True
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        self._left -= 1
        self._fresh = True
        self._sent = time.perf_counter_ns()
        self._transport.write(HEAD % len(REQUEST) + REQUEST)

    def data_received(self, data: bytes) -> None:
        """Take the time of what came."""
        now = time.perf_counter_ns()
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for event in whole:
            at = event.find(b'"at": ')
            if at < 0:
                continue
            stamp = int(event[at + 6 : event.index(b",", at)])
            self.way.append(now - stamp)
            if self._fresh:
                self._fresh = False
                self.first.append(now - self._sent)
        if self._rest.endswith(END):
            self._rest = b""
            if self._left:
                self._send()
            elif not self.done.done():
                self._transport.close()
                self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """It must not happen before the end."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("closed early"))


async def measure(
    ports: Sequence[int], streams: int, rounds: int, *, kept: bool
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Send streams to one port after the other, in turns, all streams of a turn at once. Returns nanoseconds."""
    loop = asyncio.get_running_loop()
    found: list[list[Reader]] = [[] for _ in ports]

    async def one(number: int) -> None:
        _, reader = await loop.create_connection(lambda: Reader(KEPT if kept else 1), "127.0.0.1", ports[number])
        await reader.done
        found[number].append(reader)

    for turn in range(rounds):
        for number in range(len(ports))[:: 1 if turn % 2 else -1]:
            await asyncio.gather(*(one(number) for _ in range(streams)))
    return [
        {name: np.concatenate([np.array(getattr(reader, name)) for reader in some]) for name in ("first", "way")}
        for some in found
    ]


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process."""
    return subprocess.Popen([sys.executable, *command], **options)


def proxy_main(port: int, out: str) -> None:
    """Run a proxy; says its URL on standard output."""
    from draftworth.bench.address import address_of  # noqa: PLC0415 - only in that process
    from draftworth.traces.proxy.base import ProxyPlan  # noqa: PLC0415 - as above
    from draftworth.traces.proxy.run import run_proxy  # noqa: PLC0415 - as above

    plan = ProxyPlan(address_of(f"http://127.0.0.1:{port}"), "127.0.0.1", 0, Path(out), drain_s=1.0)
    cpu: list[float] = []

    def listening(proxy: Any) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu.append(used.ru_utime + used.ru_stime)
        print(proxy.url.rpartition(":")[2], flush=True)

    ended = run_proxy(plan, on_tick=lambda _: None, on_listening=listening)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({**ended.recording.document(), "cpu_s": used.ru_utime + used.ru_stime - cpu[0]}), flush=True)


def row(streams: int, direct: dict[str, Any], via: dict[str, Any], gap_ms: float) -> dict[str, Any]:
    """Return what one load showed, in milliseconds."""
    made: dict[str, Any] = {"streams": streams, "gap_ms": gap_ms}
    for name, label in (("first", "ttft"), ("way", "chunk")):
        for share in (50, 99):
            before, behind = (float(np.percentile(one[name], share)) / 1e6 for one in (direct, via))
            made[f"{label}_p{share}_direct_ms"] = round(before, 4)
            made[f"{label}_p{share}_proxy_ms"] = round(behind, 4)
            made[f"{label}_p{share}_added_ms"] = round(behind - before, 4)
    made["chunks"] = len(via["way"])
    return made


def table(rows: Sequence[dict[str, Any]], machine: str) -> list[str]:
    """Return the page's table."""
    lines = [
        "| streams | a chunk | time to the first chunk, new connections | processor time a chunk |",
        "|---|---|---|---|",
    ]
    for one in rows:
        cells = [f"{one[f'{name}_p50_added_ms']:.2f} / {one[f'{name}_p99_added_ms']:.2f}" for name in ("chunk", "ttft")]
        lines.append(f"| {one['streams']} | {' | '.join(cells)} | {one['cpu_us_a_chunk']:.0f} µs |")
    return [*lines, "", f"({machine})"]


def main() -> None:
    """Measure every load and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=6, help="turns")
    parser.add_argument("--chunks", type=int, default=200, help="chunks of each answer")
    parser.add_argument("--gap-ms", type=float, default=10.0, help="between two chunks of a stream")
    parser.add_argument("--kept", action="store_true", help="keep connections")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true", help="write the result and the page")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--proxy", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        uvloop.run(server_main(int(args.serve[0]), float(args.serve[1])))
        return
    if args.proxy:
        proxy_main(int(args.proxy[0]), args.proxy[1])
        return
    rows = [load(streams, args) for streams in args.streams]
    head = {"machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores", "kept": args.kept}
    for one in rows:
        print(
            f"{one['streams']:>4} streams, {one['chunks']:,} chunks each way, {one['recorded']} recorded, "
            f"{one['cpu_us_a_chunk']} us of processor time a chunk"
        )
        for name in ("ttft", "chunk"):
            for share in (50, 99):
                key = f"{name}_p{share}"
                print(
                    f"  {name:>5} p{share}: direct {one[key + '_direct_ms']:8.3f} ms, proxy "
                    f"{one[key + '_proxy_ms']:8.3f} ms, added {one[key + '_added_ms']:+.3f} ms"
                )
    if args.keep:
        RESULT.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        write_between(PAGE, MARKS, table(rows, str(head["machine"])))
    if args.json:
        args.json.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def load(streams: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one load with fresh processes."""
    me = ["-m", "benchmarks.proxy_overhead"]
    with tempfile.TemporaryDirectory() as folder:
        server = start([*me, "--serve", str(args.chunks), str(args.gap_ms / 1000)], stdout=subprocess.PIPE)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        proxy = start([*me, "--proxy", str(port), f"{folder}/t.parquet"], stdout=subprocess.PIPE)
        assert proxy.stdout is not None
        try:
            ports = [port, int(proxy.stdout.readline())]
            uvloop.run(measure(ports, streams, 1, kept=args.kept))  # warm-up
            direct, via = uvloop.run(measure(ports, streams, args.rounds, kept=args.kept))
            proxy.terminate()
            told = json.loads(proxy.stdout.readline())
        finally:
            for process in (proxy, server):
                process.terminate()
                process.wait(30)
    passed = streams * (args.rounds + 1) * args.chunks * (KEPT if args.kept else 1)
    return {
        **row(streams, direct, via, args.gap_ms),
        "recorded": told["rows"],
        "lost": told["lost"],
        "cpu_us_a_chunk": round(told["cpu_s"] / passed * 1e6, 1),
    }


if __name__ == "__main__":
    main()
