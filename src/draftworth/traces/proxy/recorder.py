"""The recorder: a process that reads copies of traffic from its standard input's socket and writes a trace.

It is started by `draftworth trace proxy` as `python -m draftworth.traces.proxy.recorder`. What it finds it tells in
lines of JSON on the same socket, once a second and when asked. It ends when the socket does, however that comes about,
and closes the trace whole.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from draftworth.errors import DraftworthError, UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.proxy.answers import Recorded, Tokenizes, UnusableError
from draftworth.traces.proxy.base import FRAME, Kind, Recording, is_sampled
from draftworth.traces.proxy.following import UNANSWERED, Exchange, Following, Held
from draftworth.traces.writing import TraceWriter

_READ = 2**20
_TELL_S = 0.5
_PART_S = 30.0
_NICE = 10


class Setup(msgspec.Struct):
    """What the passing process tells first, as one frame.

    Attributes:
        out: the trace.
        name: begins the ids of its requests.
        sample: share of the requests to record.
        seed: decides which.
        max_requests: how many at most; None for no limit.
        tokenizer: for answers without ids.
    """

    out: str
    name: str
    sample: float = 1.0
    seed: int = 0
    max_requests: int | None = None
    tokenizer: str | None = None


@dataclass(slots=True)
class _Frame:
    connection: int
    kind: int
    data: bytes


class Recorder:
    """Turns frames into a trace.

    Attributes:
        told: how the recording stands.
    """

    def __init__(self, setup: Setup) -> None:
        """Begin a trace.

        Raises:
            DraftworthError: it cannot be begun: the file is there, the tokenizer is none.
            OSError: the folder cannot be written to.
        """
        self.told = Recording()
        self._setup = setup
        self._held = Held()
        self._following: dict[int, Following] = {}
        self._tokenizer, self._hash = _tokenizer(setup.tokenizer)
        self._writer: TraceWriter | None = TraceWriter(Path(setup.out), parts=True)
        self._writer.__enter__()
        self._flushed = time.monotonic()

    def take(self, frame: _Frame) -> list[int] | None:
        """Take a frame. Returns the idle connections where it asks for them."""
        if frame.kind == Kind.WHO_IS_IDLE:
            return [number for number, one in self._following.items() if one.idle]
        if frame.kind == Kind.FINISH:
            self.finish()
            return None
        if frame.kind == Kind.OPEN:
            self._following[frame.connection] = Following(frame.connection, self._is_taken, self._end, self._held)
            return None
        one = self._following.get(frame.connection)
        if one is None:
            return None
        if frame.kind == Kind.REQUEST:
            one.request(frame.data)
        elif frame.kind == Kind.ANSWER:
            one.answer(frame.data)
        elif frame.kind == Kind.LOST:
            self.told.lost += 1
            one.lose()
        elif frame.kind == Kind.AGAIN:
            one.again(int.from_bytes(frame.data, "little") if frame.data else None)
        elif frame.kind == Kind.SERVER_END:
            one.server_end()
            del self._following[frame.connection]
        return None

    def _is_taken(self, connection: int, number: int) -> bool:
        if self._writer is None:
            return False
        if is_sampled(self._setup.sample, self._setup.seed, connection, number):
            return True
        self.told.seen += 1
        self.told.sampled_out += 1
        return False

    def _end(self, exchange: Exchange) -> None:
        """Record a request that has ended."""
        if self._writer is None:
            return
        self.told.seen += 1
        try:
            self._write(exchange, self._rows(exchange))
        except (UnusableError, BadRow) as reason:
            self.told.leave_out(str(reason))
        except UsageError as error:
            self.stop(str(error))
        except Exception as error:  # noqa: BLE001 - one odd answer must not end the recording
            self.told.leave_out(f"a bug in Draftworth: {type(error).__name__}")
        if self._setup.max_requests is not None and self.told.recorded >= self._setup.max_requests:
            self.finish()

    def _rows(self, exchange: Exchange) -> list[Recorded]:
        if exchange.why_not is not None or exchange.answer is None:
            raise UnusableError(exchange.why_not or UNANSWERED)
        return exchange.answer.rows(b"".join(exchange.request), whole=exchange.whole, tokenizer=self._tokenizer)

    def _write(self, exchange: Exchange, rows: Sequence[Recorded]) -> None:
        assert self._writer is not None
        name = f"{self._setup.name}-{exchange.connection}.{exchange.number}"
        for row in rows:
            self._writer.add(
                request_id=name if len(rows) == 1 else f"{name}#{row.choice}",
                prompt=row.prompt,
                output=row.output,
                thinking=row.thinking,
                temperature=row.temperature,
                model=row.model,
                tokenizer_hash=None if row.exact else self._hash,
                exact=row.exact,
            )
            told = self.told
            told.rows += 1
            told.cut += row.cut
            told.inexact += not row.exact
            told.prompt_tokens += len(row.prompt)
            told.output_tokens += len(row.output)
        self.told.recorded += 1

    def rest(self) -> None:
        """Write what has been held for a while; called when there is nothing else to do."""
        if self._writer is None or time.monotonic() - self._flushed < _PART_S:
            return
        self._flushed = time.monotonic()
        try:
            self._writer.flush()
        except UsageError as error:
            self.stop(str(error))

    def stop(self, why: str) -> None:
        """Record no more; what was written stays."""
        self.told.stopped = why
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(UsageError):
                writer.close()

    def finish(self) -> None:
        """Record what is under way as far as it came, and close the trace; of no row there is none."""
        if self._writer is None:
            return
        if self._setup.max_requests is None or self.told.recorded < self._setup.max_requests:
            for one in self._following.values():
                one.over()
        self._close()

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:  # what was under way had the last request that was wanted
            return
        try:
            writer.close()
        except UsageError as error:
            self.told.stopped = str(error)
        self.told.finished = True


def _tokenizer(path: str | None) -> tuple[Tokenizes | None, str | None]:
    if path is None:
        return None, None
    from draftworth.traces.proxy.text import tokenizer  # noqa: PLC0415 - lazy: only where asked for

    return tokenizer(Path(path))


def main() -> int:
    """Run a recorder on standard input's socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the passing process ends this one
    with suppress(OSError):
        os.nice(_NICE)  # passing bytes on comes first
    line = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    line.settimeout(None)
    frames = _Frames(line)
    first = frames.wait()
    if first is None:
        return 1
    try:
        recorder = Recorder(msgspec.json.decode(first.data, type=Setup))
    except (DraftworthError, OSError) as error:
        _tell(line, {"failed": str(error)})
        return 1
    _tell(line, {"ready": True})
    _run(recorder, frames, line)
    recorder.finish()
    _tell(line, recorder.told.document())
    return 0


def _run(recorder: Recorder, frames: "_Frames", line: socket.socket) -> None:
    """Take frames until there are no more."""
    told = time.monotonic()
    while True:
        for frame in frames.some(_TELL_S):
            finished = recorder.told.finished
            idle = recorder.take(frame)
            if idle is not None:
                _tell(line, {"idle": idle})
            if recorder.told.finished and not finished:
                _tell(line, recorder.told.document())
        if frames.ended:
            return
        recorder.rest()
        if time.monotonic() - told >= _TELL_S:
            told = time.monotonic()
            _tell(line, recorder.told.document())


def _tell(line: socket.socket, what: dict[str, Any]) -> None:
    with suppress(OSError):  # nobody listens any more: the trace is written all the same
        line.sendall(msgspec.json.encode(what) + b"\n")


class _Frames:
    """Reads frames.

    Attributes:
        ended: whether there are no more.
    """

    def __init__(self, line: socket.socket) -> None:
        self.ended = False
        self._line = line
        self._rest = bytearray()

    def wait(self) -> _Frame | None:
        """Return the next frame; None where there is none."""
        while not self.ended:
            for frame in self.some(None):
                return frame
        return None

    def some(self, seconds: float | None) -> list[_Frame]:
        """Return the frames that have come, after waiting for them for so long."""
        if not select.select([self._line], [], [], seconds)[0]:
            return []
        try:
            data = self._line.recv(_READ)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        self._rest += data
        found = []
        at = 0
        while len(self._rest) - at >= FRAME.size:
            connection, kind, size = FRAME.unpack_from(self._rest, at)
            if len(self._rest) - at - FRAME.size < size:
                break
            at += FRAME.size
            found.append(_Frame(connection, kind, bytes(self._rest[at : at + size])))
            at += size
        del self._rest[:at]
        return found


if __name__ == "__main__":
    sys.exit(main())
