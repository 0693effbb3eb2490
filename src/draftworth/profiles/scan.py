"""The events of a Chrome trace, a few megabytes at a time: whatever the file's size, only one piece is held.

A piece is cut behind an event and decoded as one list, which skips every field that is not wanted. A cut at a wrong
place (inside an event's own list, inside a text) leaves unbalanced JSON, which cannot decode: so a piece that decodes
was cut rightly. A piece that does not decode is taken apart by its braces, event by event.

Format: the Trace Event Format of Chromium, as PyTorch's Kineto writes it (libkineto, output_json.cpp).
"""

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from draftworth.errors import UsageError
from draftworth.profiles.gunzip import Readable

PIECE = 4 << 20
"""Bytes read at a time."""
LARGEST = 64 << 20
"""The largest event, and the largest head of a file before its events, in bytes."""
_TRIES = 4
_TAIL = 1 << 20
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|["{}\[\]]', re.DOTALL)
_GAP = re.compile(rb"[\s,]*")
_NO_NUMBER = re.compile(rb"(?<=[:,\[\s])-?(?:nan|inf(?:inity)?)(?=[\s,\]}])", re.IGNORECASE)
"""What Kineto prints for figures that are none, such as an occupancy of nan: no JSON, so it is read as null."""


class Args(msgspec.Struct, gc=False):
    """What is wanted of an event's own arguments."""

    stream: int | str | None = None
    device: int | str | None = None
    correlation: int | None = None
    collective: str | None = msgspec.field(default=None, name="Collective name")
    name: str | None = None


class Event(msgspec.Struct, gc=False):
    """What is wanted of an event; times in µs."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


_MANY = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)


class Scan:
    """One pass over a trace's events.

    Attributes:
        head: the file's own fields, before its events and behind them.
        complete: whether the end of the events was seen.
        read: bytes of text read, after unpacking.
        unread: events that are no JSON.
        broken: why the file ends early, empty where it does not.
    """

    def __init__(self, file: Readable, path: str) -> None:
        self._file = file
        self._path = path
        self.head: dict[str, Any] = {}
        self.complete = False
        self.read = 0
        self.unread = 0
        self.broken = ""

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events, some thousands at a time.

        Raises:
            UsageError: no JSON, or JSON without `traceEvents`.
        """
        rest = self._open()
        while True:
            more = self._more()
            if not more:
                break
            rest += more
            events, rest, ended = self._piece(rest)
            if events:
                yield events
            if ended:
                self._close(rest)
                return
            if len(rest) > LARGEST:
                self.broken = f"an event of more than {LARGEST >> 20} MiB"
                return
        events, rest, ended = _by_braces(rest, self)
        if events:
            yield events
        if ended:
            self._close(rest)
        elif not self.broken:
            self.broken = "the file is cut off"

    def _more(self) -> bytes:
        try:
            data = self._file.read(PIECE)
        except EOFError:
            self.broken = "the gzip file is cut off"
            return b""
        except zlib.error as error:
            self.broken = f"the gzip data is damaged ({error})"
            return b""
        self.read += len(data)
        return data

    def _open(self) -> bytes:
        """Read up to the first event. Returns what was read behind it."""
        data = self._more()
        if self.broken and not data:
            raise UsageError(f"{self._path}: {self.broken}, and nothing could be read")
        start = data.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start:
            raise UsageError(f"{self._path}: empty; was the profiler stopped (POST /stop_profile)?")
        if start[:1] == b"[":
            return start[1:]
        if start[:1] != b"{":
            raise UsageError(f"{self._path}: not a profile: neither a Chrome trace (JSON) nor an nsys export (SQLite)")
        while not (found := _EVENTS.search(data)):
            more = self._more()
            if not more or len(data) > LARGEST:
                raise UsageError(
                    f"{self._path}: not a profile: JSON without `traceEvents`"
                    + (f"; {self.broken}" if self.broken else "")
                )
            data += more
        self._keep(data[: found.start()].lstrip(b"\xef\xbb\xbf \t\r\n") + b'"":0}')
        return data[found.end() :]

    def _piece(self, data: bytes) -> tuple[list[Event], bytes, bool]:
        """Decode what is whole of a piece. Returns the events, what is left, and whether the list has ended."""
        at = len(data)
        for _ in range(_TRIES):
            at = _cut(data, at)
            if at <= 0:
                break
            text = b"[" + data[:at].lstrip(b", \t\r\n") + b"]"
            try:
                return _many(text), data[at:], False
            except msgspec.ValidationError:
                break  # well-formed, with a field of another type
            except RecursionError:
                break  # nested deeper than anything that a profiler writes
            except msgspec.DecodeError:
                continue
        return _by_braces(data, self)

    def _close(self, rest: bytes) -> None:
        while len(rest) < _TAIL and (more := self._more()):
            rest += more
        tail = rest.strip(b", \t\r\n")
        known = tail in {b"", b"}"} or (tail[:1] == b'"' and self._keep(b"{" + tail))
        self.complete = known or len(rest) >= _TAIL
        if not self.complete and not self.broken:
            self.broken = "the file is damaged behind the last of its events"

    def _keep(self, text: bytes) -> bool:
        """Keep the file's own fields. Returns whether they could be read."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if isinstance(found, dict):
            self.head |= {str(name): value for name, value in found.items() if name}
        return True


def _many(text: bytes) -> list[Event]:
    try:
        return _MANY.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not _NO_NUMBER.search(text):
            raise
    return _MANY.decode(_NO_NUMBER.sub(b"null", text))


def _cut(data: bytes, before: int) -> int:
    """Return the end of the last object before a place that another object follows; 0 where there is none."""
    at = before
    while (at := data.rfind(b"}", 0, at)) >= 0:
        gap = _GAP.match(data, at + 1)
        end = gap.end() if gap else at + 1
        if b"," in data[at + 1 : end] and data[end : end + 1] == b"{":
            return at + 1
    return 0


def _by_braces(data: bytes, scan: Scan) -> tuple[list[Event], bytes, bool]:
    """Take a piece apart by its braces. Returns the events, what is left, and whether the list has ended."""
    events: list[Event] = []
    depth, begun, done = 0, 0, 0
    for token in _TOKENS.finditer(data):
        sign = data[token.start() : token.start() + 1]
        if token.end() - token.start() == 1 and sign == b'"':
            break  # a text that goes on behind this piece
        if sign in b"{[":
            begun = token.start() if depth == 0 else begun
            depth += 1
        elif sign in b"}]":
            if depth == 0:
                return events, data[token.end() :], True
            depth -= 1
            if depth == 0:
                done = token.end()
                found = _one(data[begun:done])
                if found is None:
                    scan.unread += 1
                else:
                    events.append(found)
    return events, data[done:], False


def _one(text: bytes) -> Event | None:
    try:
        return _ONE.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        found = json.loads(_NO_NUMBER.sub(b"null", text).decode("utf-8", errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return _loosely(found) if isinstance(found, dict) else None


def _loosely(found: dict[str, Any]) -> Event | None:
    """Return an event whose fields are not all of the usual types."""
    args = found.get("args")
    args = args if isinstance(args, dict) else {}
    try:
        return Event(
            ph=str(found.get("ph", "")),
            cat=_text(found.get("cat")),
            name=_text(found.get("name")),
            pid=_text(found.get("pid")),
            tid=_text(found.get("tid")),
            ts=None if found.get("ts") is None else float(found["ts"]),
            dur=None if found.get("dur") is None else float(found["dur"]),
            args=Args(
                stream=_text(args.get("stream")),
                device=_text(args.get("device")),
                correlation=_whole(args.get("correlation")),
                collective=_text(args.get("Collective name")),
                name=_text(args.get("name")),
            ),
        )
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None
