"""Reads traces from JSON lines, also packed by gzip or zstd: one request a line, a line at a time."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from math import isinf
from pathlib import Path
from typing import IO, Any

import msgspec

from draftworth.errors import UsageError
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch
from draftworth.traces.columns import NO_OUTPUT, NO_PROMPT, BadRow, OneOf, Row, gathered, ids_of

_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_FIELD = re.compile(r"`\$\.(\w+)")
NOT_JSON = "not JSON"
OUT_OF_RANGE = "a number is out of range"


class _Line(msgspec.Struct):
    prompt_token_ids: list[int] | None = None
    output_token_ids: list[int] | None = None
    request_id: str | int | None = None
    thinking_tokens: int | None = None
    category: str | None = None
    temperature: float | None = None
    model: str | None = None
    tokenizer_hash: str | None = None
    exact: bool | None = None


class JsonlTrace:
    """A trace in JSON lines; see `traces.base.Trace`.

    Args:
        path: the file.
        model: the chosen model; None where there is one.
        vocabulary: ids at or above this make a row unusable.
    """

    def __init__(self, path: Path, *, model: str | None = None, vocabulary: int | None = None) -> None:
        self.path = path
        self.bad = BadRows()
        self.requests: int | None = None
        self._model = model
        self._vocabulary = vocabulary

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests; see `Trace.batches`."""
        self.bad = BadRows()
        with closing(self._rows()) as rows:
            yield from gathered(rows, OneOf(str(self.path), self._model), self.bad, tokens=tokens)

    def _rows(self) -> Generator[tuple[int, str, Row], None, None]:
        decoder = msgspec.json.Decoder(_Line)
        for number, line in lines(self.path):
            where = f"{self.path}:{number}"
            try:
                yield number - 1, where, self._row(decoder, line, number)
            except BadRow as reason:
                self.bad.add(str(reason), where)

    def _row(self, decoder: "msgspec.json.Decoder[_Line]", line: bytes, number: int) -> Row:
        try:
            one = decoder.decode(line)
        except msgspec.ValidationError as error:
            if fault_of(line) == OUT_OF_RANGE:
                raise BadRow(OUT_OF_RANGE) from None
            field = _FIELD.search(str(error))
            raise BadRow(f"{field[1]} is of the wrong type" if field else "no JSON object") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadRow(fault_of(line)) from None
        if one.prompt_token_ids is None or one.output_token_ids is None:
            raise BadRow(NO_PROMPT if one.prompt_token_ids is None else NO_OUTPUT)
        return Row(
            request_id=f"request-{number}" if one.request_id is None else str(one.request_id),
            prompt=ids_of(one.prompt_token_ids, self._vocabulary),
            output=ids_of(one.output_token_ids, self._vocabulary),
            thinking=-1 if one.thinking_tokens is None else one.thinking_tokens,
            category=one.category or "",
            temperature=float("nan") if one.temperature is None else one.temperature,
            model=one.model,
            tokenizer_hash=one.tokenizer_hash,
            exact=one.exact is not False,
        )


def fault_of(line: bytes) -> str:
    """Return why a line that could not be decoded is no JSON; NaN and infinities, which Python's json writes, by name.

    Args:
        line: one that a strict decoder refused.
    """
    faults: list[str] = []

    def constant(name: str) -> None:
        faults.append(f"{name} is no JSON (null is)")

    def number(text: str) -> float:
        value = float(text)
        if isinf(value):
            faults.append(OUT_OF_RANGE)
        return value

    try:
        json.loads(line.decode("utf-8"), parse_constant=constant, parse_float=number)
    except (ValueError, RecursionError):
        return NOT_JSON
    return faults[0] if faults else NOT_JSON


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file that are not blank, with their numbers from 1.

    Args:
        path: plain, or packed by gzip or zstd: recognised by its first bytes, not by its name.

    Raises:
        UsageError: it cannot be read; says behind which line.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy: it brings zstd

    number = 0
    try:
        with path.open("rb") as file, _unpacked(file) as text:
            for number, line in enumerate(text, start=1):
                plain = line.removeprefix(_BOM) if number == 1 else line
                if plain.strip():
                    yield number, plain
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise UsageError(f"{path}: a broken packed file behind line {number}: {error}") from error
    except OSError as error:
        said = error.strerror or " ".join(str(error).split())
        raise UsageError(f"{path} cannot be read behind line {number}: {said}") from error


def head(path: Path, size: int) -> bytes:
    """Return the first bytes of a text file, unpacked.

    Raises:
        UsageError: it cannot be read.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy

    try:
        with path.open("rb") as file, _unpacked(file) as text:
            return bytes(text.read(size))
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise UsageError(f"{path}: a broken packed file: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _unpacked(file: IO[bytes]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - lazy

    start = file.read(len(_ZSTD))
    file.seek(0)
    if start.startswith(_GZIP):
        return gzip.open(file)
    if start == _ZSTD:
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file), "zstd"), 1 << 20)
    return io.BufferedReader(file, 1 << 20) if isinstance(file, io.RawIOBase) else file
