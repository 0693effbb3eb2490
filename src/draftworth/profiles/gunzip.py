"""Gzip that gives every byte before the place where a file is cut off; the library's reader drops the last piece."""

import zlib
from typing import IO, Protocol

_TAKEN = 1 << 13
"""Bytes unpacked at a time: what is lost where they are damaged."""
_GZIP = 31
"""A window of 32 KiB with gzip's header and check sum, as zlib numbers it."""


class Readable(Protocol):
    """What has bytes to read, nothing at its end."""

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes; empty at the end."""


class Gunzip:
    """The text of a gzip file, which may consist of several parts."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._part = zlib.decompressobj(_GZIP)
        self._waiting = b""

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes, empty at the end.

        Raises:
            EOFError: the file is cut off here.
            zlib.error: it is damaged here.
        """
        found: list[bytes] = []
        left = size
        while left > 0:
            if self._part.eof:
                self._waiting = (self._part.unused_data + self._waiting).lstrip(b"\0") or self._file.read(_TAKEN)
                if not self._waiting:
                    break
                self._part = zlib.decompressobj(_GZIP)
            data = self._waiting or self._file.read(_TAKEN)
            if not data:
                if found:
                    break
                raise EOFError
            try:
                text = self._part.decompress(data, left)
            except zlib.error:
                if found:
                    self._waiting = data
                    break
                raise
            self._waiting = b"" if self._part.eof else self._part.unconsumed_tail
            found += [text] if text else []
            left -= len(text)
        return b"".join(found)
