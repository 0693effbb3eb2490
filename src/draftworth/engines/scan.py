"""Finds the few lines of a huge log that matter, at about the speed of reading it, in constant memory.

A journal of a serving engine is nearly all access lines. So a block is searched for each needle with `bytes.find`, and
only the lines that hold one are cut out and decoded.
"""

import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple, cast

from draftworth.errors import UsageError

BLOCK = 1 << 22  # bytes read at once
LONGEST = 1 << 20  # bytes of one line that are kept
_GZIP = b"\x1f\x8b"
# journald exports a message with colours as an array of bytes, in which no needle is found.
_BYTES_MESSAGE = (b'"MESSAGE":[', b'"MESSAGE": [', b'"MESSAGE" : [')


class Hit(NamedTuple):
    """A line that holds a needle.

    Attributes:
        offset: bytes of the file in front of the line.
        text: the line, bytes that are no UTF-8 replaced.
    """

    offset: int
    text: str


@contextmanager
def opened(path: Path | None) -> Iterator[IO[bytes]]:
    """Open a log, gzipped or not, or standard input.

    Args:
        path: the file; None for standard input.

    Raises:
        UsageError: it is not there, is a folder, or may not be read.
    """
    if path is None:
        stdin = sys.stdin.buffer
        zipped = stdin.peek(2)[:2] == _GZIP if isinstance(stdin, io.BufferedReader) else False
        try:
            if zipped:
                with gzip.open(stdin, "rb") as unzipped:
                    yield cast("IO[bytes]", unzipped)
            else:
                yield stdin
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"standard input: cannot be read: {error}") from None
        return
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP
            file.seek(0)
            if zipped:
                with gzip.open(file, "rb") as unzipped:
                    yield cast("IO[bytes]", unzipped)
            else:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def scan(
    file: IO[bytes], needles: Sequence[bytes], *, on_block: Callable[[int], None] | None = None, block: int = BLOCK
) -> Iterator[Hit]:
    """Yield every line that holds a needle, in the file's order.

    Lines end with a newline, or a carriage return as progress bars write them. Of a line longer than a megabyte the
    beginning is kept. What blocks the file is read in changes nothing.

    Args:
        file: read from where it stands to its end.
        needles: what is looked for; read anew for each block, so that the caller may narrow them.
        on_block: takes the bytes read so far, after each block; may raise to end it.
        block: bytes read at once.
    """
    rest, before = b"", 0
    skipping = False
    while data := file.read(block):
        if skipping:  # the tail of a line whose beginning was already given
            end = _first_end(data, 0)
            if end < 0:
                before += len(data)
                continue
            before += end + 1
            data, skipping = data[end + 1 :], False
        text = rest + data
        end = max(text.rfind(b"\n"), text.rfind(b"\r"))
        whole, rest = text[: end + 1], text[end + 1 :]
        yield from _hits(whole, needles, before)
        before += len(whole)
        if len(rest) > LONGEST:
            yield from _hits(rest[:LONGEST], needles, before)
            before += len(rest)
            rest, skipping = b"", True
        if on_block is not None:
            on_block(before + len(rest))
    yield from _hits(rest, needles, before)


def _first_end(data: bytes, start: int) -> int:
    newline = data.find(b"\n", start)
    carriage = data.find(b"\r", start, newline if newline >= 0 else len(data))
    return carriage if carriage >= 0 else newline


def _hits(text: bytes, needles: Sequence[bytes], before: int) -> Iterator[Hit]:
    lines: dict[int, int] = {}
    spelled = _spelled(text, needles)
    for needle in (*needles, *spelled):
        at = text.find(needle)
        while at >= 0:
            start = text.rfind(b"\n", 0, at) + 1
            start = max(start, text.rfind(b"\r", start, at) + 1)
            end = _first_end(text, at)
            end = len(text) if end < 0 else end
            lines[start] = end
            at = text.find(needle, end)
    for start in sorted(lines):
        line = text[start : min(lines[start], start + LONGEST)]
        if spelled and any(form in line for form in _BYTES_MESSAGE):
            found = _spelled_out(line)
            if found is not None and any(needle.decode() in found for needle in needles):
                yield Hit(before + start, found)
        else:
            yield Hit(before + start, line.decode("utf-8", "replace"))


def _spelled(text: bytes, needles: Sequence[bytes]) -> list[bytes]:
    """Return needles as they stand in messages that are exported as bytes (`83,112,101`); none where there are none."""
    separators = [b","] if _BYTES_MESSAGE[0] in text else []
    if any(form in text for form in _BYTES_MESSAGE[1:]):
        separators = [b",", b", "]
    return [_as_bytes(needle, separator) for separator in separators for needle in needles]


@lru_cache(maxsize=1024)
def _as_bytes(needle: bytes, separator: bytes) -> bytes:
    return separator.join(b"%d" % byte for byte in needle)


def _spelled_out(line: bytes) -> str | None:
    """Return a line of journald's JSON with its message as text, or None where it has none."""
    try:
        record = json.loads(line)
        record["MESSAGE"] = bytes(record["MESSAGE"]).decode("utf-8", "replace")
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return json.dumps(record, ensure_ascii=False)
