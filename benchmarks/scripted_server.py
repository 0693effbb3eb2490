"""An OpenAI-compatible server that streams a script: so many chunks, at such a pace, each with its send time in it.

    python benchmarks/scripted_server.py --rate 20 --chunks 60

Prints one line of JSON with its port, then serves until it is ended. Chunks have the shape of vLLM 0.32's, one HTTP
chunk and one `send` each, and carry one field more: `sent`, the seconds of `time.perf_counter()` right before the
send, which on Linux is one clock for all processes. `GET /stats` tells what was sent since the last time it was asked,
and how late.

One thread and one epoll loop; everything but the stamp is built when the request comes. `select` waits on the epoll
object, because epoll itself waits in whole milliseconds.
"""

import argparse
import heapq
import json
import select
import socket
import sys
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # the repository's root instead of this folder

from benchmarks.overhead_script import Answer, Script

clock = time.perf_counter

GOLDEN = 0.6180339887498949
"""Phases of streams are multiples of it, modulo 1: any number of streams is spread evenly over the period."""
BATCH = 64
"""Most chunks sent between two looks at the network."""


@dataclass(slots=True, eq=False)
class Connection:
    """One client's connection and the answer it is being sent."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    answer: Answer | None = None
    sent: int = 0
    due: float = 0.0
    queued: bool = False

    def __lt__(self, other: "Connection") -> bool:
        return self.due < other.due


class Stats:
    """What was sent, and how late against the script."""

    def __init__(self) -> None:
        self.requests = self.chunks = self.blocked = self.most_at_once = 0
        self.late = array("d")
        self.first_at = self.last_at = self.first_cpu = 0.0

    def sent(self, now: float, late: float) -> None:
        """Count one chunk."""
        if not self.chunks:
            self.first_at, self.first_cpu = now, time.process_time()
        self.chunks += 1
        self.last_at = now
        self.late.append(late)

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON takes them; lateness in milliseconds."""
        late = sorted(self.late) or [0.0]
        span = self.last_at - self.first_at
        at = {"median": len(late) // 2, "p99": len(late) * 99 // 100, "max": -1}
        return {
            "requests": self.requests,
            "chunks": self.chunks,
            "most_at_once": self.most_at_once,
            "blocked_sends": self.blocked,
            "first_at": self.first_at,
            "seconds": span,
            "cpu_share": (time.process_time() - self.first_cpu) / span if span else 0.0,
            "late_ms": {name: late[index] * 1e3 for name, index in at.items()},
        }


class Server:
    """The loop."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self.script = script
        self.stats = Stats()
        self.period = 1 / script.rate if script.rate else 0.0
        self._streams: dict[int, Connection] = {}
        self._under_way = self._number = 0
        self._due: list[Connection] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)  # noqa: FBT003 - the standard library has no name for it
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Serve until the process is ended."""
        while True:
            wait = self._due[0].due - clock() if self._due else None
            if wait is None or wait > 0:
                ready = select.select([self._epoll], [], [], wait)[0]
                if ready:
                    self._network()
            self._send_due()

    def _send_due(self) -> None:
        for number in range(BATCH):
            now = clock()
            if not self._due or self._due[0].due > now:
                return
            stream = self._due[0]
            answer = stream.answer
            if answer is None:  # its client went away
                self._unqueue()
                continue
            self._write(stream, answer.chunk(stream.sent, now))
            self.stats.sent(now, now - stream.due)
            stream.sent += 1
            if stream.sent == answer.chunks:
                self._unqueue()
                stream.answer = None
                self._under_way -= 1
            elif stream.unsent:
                self._unqueue()  # again when its client has made room
            else:
                stream.due = stream.due + self.period if self.period else now
                heapq.heapreplace(self._due, stream)
            if number == BATCH - 1:
                self._network()

    def _queue(self, stream: Connection) -> None:
        stream.queued = True
        heapq.heappush(self._due, stream)

    def _unqueue(self) -> None:
        heapq.heappop(self._due).queued = False

    def _network(self) -> None:
        for handle, event in self._epoll.poll(0):
            if handle == self._listener.fileno():
                self._accept()
                continue
            stream = self._streams[handle]
            if event & select.EPOLLOUT:
                self._flush(stream)
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._read(stream)

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)  # noqa: FBT003 - the standard library has no name for it
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._streams[sock.fileno()] = Connection(sock)
                self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, stream: Connection) -> None:
        try:
            data = stream.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(stream)
            return
        stream.received += data
        head, blank, rest = bytes(stream.received).partition(b"\r\n\r\n")
        lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = lengths[0] if lengths else 0
        if not blank or len(rest) < length:
            return
        del stream.received[: len(head) + 4 + length]
        method, path, *_ = head.split(b" ", 2)
        self._request(stream, method.decode(), path.decode(), rest[:length])

    def _request(self, stream: Connection, method: str, path: str, body: bytes) -> None:
        path = path.partition("?")[0]
        if method == "POST" and path in {"/v1/chat/completions", "/v1/completions"}:
            self._start(stream, json.loads(body), chat="chat" in path)
        elif path == "/v1/models":
            card = {"id": self.script.model, "object": "model", "created": 0, "owned_by": "vllm"}
            self._respond(stream, 200, json.dumps({"object": "list", "data": [card | {"max_model_len": 8192}]}))
        elif path == "/stats":
            self._respond(stream, 200, json.dumps(self.stats.summary()))
            self.stats = Stats()
        elif path in {"/health", "/metrics"}:
            text = f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {self._under_way}\n"
            self._respond(stream, 200, text if path == "/metrics" else "", kind="text/plain")
        else:
            self._respond(stream, 404, '{"error":{"message":"Not Found","type":"NotFound","code":404}}')

    def _start(self, stream: Connection, body: dict[str, Any], *, chat: bool) -> None:
        if not body.get("stream"):
            self._respond(stream, 400, '{"error":{"message":"this server only streams","code":400}}')
            return
        self._number += 1
        self._under_way += 1
        self.stats.requests += 1
        self.stats.most_at_once = max(self.stats.most_at_once, self._under_way)
        stream.answer, stream.sent = Answer(self.script, body, self._number, chat=chat), 0
        now = clock()
        if self.script.steps and self.period:
            stream.due = (now // self.period + 1) * self.period
        else:
            stream.due = now + (self._number * GOLDEN) % 1 * self.period
        self._write(stream, stream.answer.opening)
        self._queue(stream)

    def _respond(self, stream: Connection, status: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        head = f"HTTP/1.1 {status} {'OK' if status < 400 else 'Error'}\r\n"  # noqa: PLR2004 - HTTP's own bound
        head += f"content-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
        self._write(stream, head.encode() + data)

    def _write(self, stream: Connection, data: bytes) -> None:
        taken = 0
        if not stream.unsent:
            with suppress(OSError):  # full: wait for room; broken: the next read tells
                taken = stream.sock.send(data)
        if taken < len(data):
            if not stream.unsent:
                self.stats.blocked += 1
                self._watch(stream, select.EPOLLIN | select.EPOLLOUT)
            stream.unsent += data[taken:]

    def _flush(self, stream: Connection) -> None:
        with suppress(OSError):
            del stream.unsent[: stream.sock.send(stream.unsent)]
        if not stream.unsent:
            self._watch(stream, select.EPOLLIN)
            if stream.answer is not None and not stream.queued:
                stream.due = stream.due + self.period if self.period else clock()
                self._queue(stream)

    def _watch(self, stream: Connection, events: int) -> None:
        with suppress(OSError):
            self._epoll.modify(stream.sock.fileno(), events)

    def _drop(self, stream: Connection) -> None:
        self._under_way -= stream.answer is not None
        stream.answer = None
        del self._streams[stream.sock.fileno()]
        stream.sock.close()


def main() -> None:
    """Serve what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--rate", type=float, default=20.0, help="chunks a second of each stream; 0: no pace")
    parser.add_argument("--chunks", type=int, default=60, help="content chunks of an answer")
    parser.add_argument("--tokens", type=int, default=1, help="tokens of each chunk")
    parser.add_argument("--steps", action="store_true", help="all streams send at the same moments")
    options = parser.parse_args()
    server = Server(Script(options.rate, options.chunks, options.tokens, options.steps), options.port)
    print(json.dumps({"port": server.port}), flush=True)
    server.serve()


if __name__ == "__main__":
    main()
