"""The rows of a file, whichever way it is written: JSON lines, a JSON list, Parquet; text also packed by gzip.

Held at a time: one line, one entry of a list, or 256 rows of a table (pyarrow holds the page of each column it is in).
"""

import gzip
import json
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any

from draftworth.errors import UsageError
from draftworth.workloads.base import Row
from draftworth.workloads.json_stream import CHUNK, LARGEST, entries

_BATCH = 256
_BOM = b"\xef\xbb\xbf"


def rows(path: Path) -> Generator[Row, None, None]:
    """Yield every row of a file, in its order; empty lines are none.

    Args:
        path: recognised by its first bytes, not by its name.

    Raises:
        UsageError: the file cannot be read, or a row is no JSON object; names the file and the row.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            if start == b"PAR1":
                yield from _table(path)
            elif start.startswith(b"\x1f\x8b"):
                with gzip.open(file) as unpacked:
                    yield from _text(unpacked, path)
            else:
                yield from _text(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: broken gzip file: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read the prompts in {path}: {error.strerror or error}") from error


def _text(file: IO[bytes] | gzip.GzipFile, path: Path) -> Iterator[Row]:
    number = 0
    # The first line may be the whole of a large list, so only its beginning is read before that is known.
    while line := file.readline(CHUNK):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if not line.strip():
            continue
        in_list = line.lstrip().startswith(b"[")
        if not in_list and not line.endswith(b"\n"):
            line += file.readline(LARGEST + 1)
        if in_list or _is_document(line, path):
            for entry, value in enumerate(entries(file, path, line, lines_before=number - 1, in_list=in_list), start=1):
                where = f"{path}: entry {entry}"
                yield Row(entry, where, _object(value, where))
            return
        yield _line(line, number, path)
        break
    while line := file.readline(LARGEST + 1):
        number += 1
        if line.strip():
            yield _line(line, number, path)


def _is_document(line: bytes, path: Path) -> bool:
    """Whether this first line only begins an object that goes on in the next ones, in a file called .json."""
    if not line.lstrip().startswith(b"{") or ".json" not in path.suffixes:
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def _line(line: bytes, number: int, path: Path) -> Row:
    where = f"{path}:{number}"
    if len(line) > LARGEST:
        raise UsageError(f"{where}: a line of more than {LARGEST >> 20} MiB; write one JSON object a line")
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 (byte {error.start + 1} of the line); save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    return Row(number, where, _object(value, where))


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f'{where}: expected a JSON object with "prompt", "messages" or "turns"')
    return value


def _table(path: Path) -> Iterator[Row]:
    import pyarrow as pa  # noqa: PLC0415 - lazy: large, needed for tables only
    import pyarrow.parquet as pq  # noqa: PLC0415 - same

    number = 0
    try:
        with pq.ParquetFile(path, pre_buffer=False) as table:
            for batch in table.iter_batches(batch_size=_BATCH):
                for data in batch.to_pylist():
                    number += 1
                    # A table has every column in every row: an empty cell is what a missing key is in JSON.
                    cells = {key: value for key, value in data.items() if value is not None}
                    yield Row(number, f"{path}: row {number}", cells)
    except (pa.ArrowException, OSError, ValueError, OverflowError, TypeError, KeyError) as error:
        after = f" after row {number}" if number else ""
        raise UsageError(f"{path}: not a readable Parquet file{after}: {' '.join(str(error).split())}") from error
