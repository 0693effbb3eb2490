"""The entries of a JSON list of any size, one at a time.

`json` reads whole documents only; public collections are single lists of several hundred megabytes.
"""

import codecs
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from draftworth.errors import UsageError

LARGEST = 64 << 20
"""The largest line or entry that is read, in bytes: a prompt of a million tokens has about 5 MB."""

CHUNK = 1 << 20
"""How much of a text is read at a time, in bytes; twice as much each time an entry goes on."""

# How far before the end of the text the decoder may point at when the text is merely cut off: a literal or an
# escaped pair of surrogates, `\ud83d\ude0`.
_CUT = 13


class _Window:
    """The part of a text that is being read, and how far."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, path: Path, start: bytes, lines_before: int) -> None:
        self._file = file
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._lines_before = lines_before
        self._at_end = False
        self._text = ""
        self._at = 0
        self._append(start)

    def peek(self) -> str:
        """Return the next character that is no white space, or an empty text at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(CHUNK):
                return ""

    def take(self) -> None:
        """Step over the character that `peek` returned."""
        self._at += 1

    def value(self, number: int) -> Any:
        while True:
            try:
                value, self._at = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _CUT
                if cut and len(self._text) - self._at <= LARGEST and self._more(max(CHUNK, len(self._text) - self._at)):
                    continue
                raise self.wrong(f"entry {number} is not JSON: {error.msg}", error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self.wrong(f"entry {number} is not JSON: {error}") from error
            else:
                return value

    def wrong(self, what: str, at: int | None = None) -> UsageError:
        """Return the error with the line it is in."""
        line = self._lines_before + self._text.count("\n", 0, self._at if at is None else at) + 1
        return UsageError(f"{self._path}:{line}: {what}")

    def _more(self, size: int) -> bool:
        if self._at_end:
            return False
        data = self._file.read(size)
        self._append(data)
        return bool(data)

    def _append(self, data: bytes) -> None:
        self._at_end = not data
        try:
            new = self._decoder.decode(data, final=self._at_end)
        except UnicodeDecodeError as error:
            raise self.wrong("not UTF-8 at or after this line; save the file as UTF-8") from error
        self._lines_before += self._text.count("\n", 0, self._at)
        self._text = self._text[self._at :] + new
        self._at = 0


def entries(
    file: IO[bytes] | gzip.GzipFile, path: Path, start: bytes, *, lines_before: int, in_list: bool
) -> Iterator[Any]:
    """Yield the values of a JSON list, or of documents that stand one after the other.

    Args:
        file: the rest of the text, UTF-8.
        path: named in errors.
        start: what was already read of it.
        lines_before: lines before `start`.
        in_list: whether the text is one list, its entries being wanted.

    Raises:
        UsageError: no JSON, not UTF-8, or an entry of more than `LARGEST` bytes; names the file and the line.
    """
    window = _Window(file, path, start, lines_before)
    yield from _list(window) if in_list else _documents(window)


def _documents(window: _Window) -> Iterator[Any]:
    number = 0
    while sign := window.peek():
        if number and sign != "{":
            raise window.wrong("text behind the end of the JSON document")
        number += 1
        yield window.value(number)


def _list(window: _Window) -> Iterator[Any]:
    window.peek()
    window.take()
    number = 0
    more = window.peek() != "]"
    if not more:
        window.take()
    while more:
        number += 1
        if not window.peek():
            raise window.wrong(f"the list ends before entry {number}: the file is cut off")
        yield window.value(number)
        sign = window.peek()
        if sign not in {",", "]"}:
            raise window.wrong(f"no comma behind entry {number}" if sign else f"the file is cut off at entry {number}")
        window.take()
        more = sign == ","
    if window.peek():
        raise window.wrong("text behind the end of the JSON list")
