"""Writes a trace: rows in bounded memory, the file whole or not at all.

A Parquet file that was not closed cannot be read. Long recordings therefore go to parts, files of their own in a folder
beside the trace, which become the trace when it is closed: a crash loses what came since the last part. The folder is a
trace too, and is read as one.
"""

import os
import shutil
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isnan
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.columns import NAMES, Row, check, ids_of, schema
from draftworth.traces.places import try_folder

if TYPE_CHECKING:
    import pyarrow as pa

TOKENS_A_GROUP = 1_000_000
"""Tokens after which a row group is written: 4 MB of ids."""
ROWS_A_GROUP = 50_000
_BYTES = 4
PARTS = ".parts"
"""What the folder of parts adds to the trace's name."""
PART_S = 30.0
"""Seconds after which the next row closes a part."""

_OTHERS = frozenset({".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".log", ".gz", ".zst"})

_Ids = Sequence[int] | NDArray[Any]


class TraceWriter:
    """Writes a Parquet trace, zstd, in row groups of bounded size.

    A context manager: leaving it closes the trace; leaving it by an exception removes what was written, except parts.
    A recording without a row leaves no file.

    Args:
        path: the trace to write; an existing one is never written over.
        parts: write parts, for recordings that a crash must not lose.
        vocabulary: ids at or above this are refused; None where it is not known.

    Attributes:
        rows: how many were added.
        tokens: prompt and output tokens of them.

    Raises:
        UsageError: see `refuse_out`.
    """

    def __init__(self, path: Path, *, parts: bool = False, vocabulary: int | None = None) -> None:
        self.path = path
        self.rows = 0
        self.tokens = 0
        self._vocabulary = vocabulary
        self._parts = path.with_name(f"{path.name}{PARTS}") if parts else None
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._writer: Any = None
        self._number = 0
        self._flushed = time.monotonic()
        self._clear()
        refuse_out(path)

    def __enter__(self) -> Self:
        with written(self.path):
            if self._parts is None:
                self._writer = _open(self._partial)
                return self
            try:
                self._parts.mkdir()
            except FileExistsError:
                said = "another recording writes here, or one was cut off before its first part: then remove it"
                raise UsageError(f"{self._parts}: {said}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def add(
        self,
        *,
        request_id: str,
        prompt: _Ids,
        output: _Ids,
        thinking: int | None = None,
        category: str = "",
        temperature: float | None = None,
        model: str | None = None,
        tokenizer_hash: str | None = None,
        exact: bool = True,
    ) -> None:
        """Add a request.

        Args:
            request_id: unique in the trace.
            prompt: token ids.
            output: token ids, at least one.
            thinking: how many of the output are reasoning; None where that is not known.
            category: what kind of work it is; empty where it is not known.
            temperature: None where it is not known.
            model: the served model's name.
            tokenizer_hash: of the tokenizer that made the ids.
            exact: whether the ids came from the server.

        Raises:
            BadRow: it cannot be replayed: an empty output, a wrong id. Nothing was added; count it (`BadRows.add`).
            UsageError: a full row group cannot be written.
        """
        self.add_row(
            Row(
                request_id,
                ids_of(prompt, self._vocabulary),
                ids_of(output, self._vocabulary),
                -1 if thinking is None else thinking,
                category,
                float("nan") if temperature is None else temperature,
                model,
                tokenizer_hash,
                exact,
            )
        )

    def add_row(self, row: Row) -> None:
        """Add a request whose ids are checked; see `add`."""
        check(row)
        for name, ids in (("prompt_token_ids", row.prompt), ("output_token_ids", row.output)):
            offsets, values = self._ids[name]
            values.frombytes(np.ascontiguousarray(ids, np.int32).tobytes())
            offsets.append(len(values))
        columns = self._columns
        columns["request_id"].append(row.request_id)
        columns["thinking_tokens"].append(None if row.thinking < 0 else row.thinking)
        columns["category"].append(row.category)
        columns["temperature"].append(None if isnan(row.temperature) else row.temperature)
        columns["model"].append(row.model)
        columns["tokenizer_hash"].append(row.tokenizer_hash)
        columns["exact"].append(row.exact)
        self.rows += 1
        self.tokens += len(row.prompt) + len(row.output)
        held = sum(len(values) for _, values in self._ids.values())
        old = self._parts is not None and time.monotonic() - self._flushed >= PART_S
        if held >= TOKENS_A_GROUP or len(columns["exact"]) >= ROWS_A_GROUP or old:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a row group, or as a part.

        Raises:
            UsageError: it cannot be written; what is held stays.
        """
        self._flushed = time.monotonic()
        if not self._columns["exact"]:
            return
        table = self._table()
        with written(self.path):
            if self._parts is None:
                self._writer.write_table(table, row_group_size=len(table))
            else:
                self._number += 1
                path = self._parts / f"{self._number:06}.parquet"
                partial = path.with_name(f".{path.name}.partial")
                with _open(partial) as writer:
                    writer.write_table(table, row_group_size=len(table))
                partial.replace(path)
        self._clear()

    def close(self) -> None:
        """Write the rest and put the trace in its place; of a recording without a row, nothing.

        Raises:
            UsageError: it cannot be written; parts stay.
        """
        if self._parts is not None and not self.rows:
            self.abandon()
            return
        try:
            self.flush()
            with written(self.path):
                if self._parts is not None:
                    with _open(self._partial) as writer:
                        copy_groups(sorted(self._parts.glob("*.parquet")), writer)
                else:
                    self._writer.close()
                    self._writer = None
                _put(self._partial, self.path)
        except BaseException:
            self.abandon()
            raise
        if self._parts is not None:
            shutil.rmtree(self._parts, ignore_errors=True)

    def abandon(self) -> None:
        """Remove what was written; parts stay, and what is held is written as one more where that can be."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer = None
        if self._parts is not None:
            with suppress(OSError, UsageError):
                self.flush()
                self._parts.rmdir()  # where nothing was recorded
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _clear(self) -> None:
        self._ids = {name: (array("q", (0,)), array("i")) for name in ("prompt_token_ids", "output_token_ids")}
        self._columns: dict[str, list[Any]] = {name: [] for name in NAMES if name not in self._ids}

    def _table(self) -> "pa.Table":
        import pyarrow as pa  # noqa: PLC0415 - lazy

        columns: dict[str, Any] = dict(self._columns)
        for name, (offsets, values) in self._ids.items():
            flat = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
            starts = pa.array(np.frombuffer(offsets, np.int64).astype(np.int32))
            columns[name] = pa.ListArray.from_arrays(starts, flat)
        kind = schema()
        return pa.table({name: columns[name] for name in kind.names}, schema=kind)


def copy_groups(paths: Iterable[Path], writer: Any) -> None:
    """Copy traces behind each other, small row groups put together up to the usual size."""
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    held: list[pa.Table] = []

    def write() -> None:
        if held:
            table = pa.concat_tables(held)
            writer.write_table(table, row_group_size=max(len(table), 1))
            held.clear()

    for path in paths:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                held.append(file.read_row_group(group))
                size = sum(table.nbytes for table in held)
                if size >= TOKENS_A_GROUP * _BYTES or sum(map(len, held)) >= ROWS_A_GROUP:
                    write()
    write()


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    # Ids do not repeat enough for a dictionary to pay: it would only be built and thrown away.
    return pq.ParquetWriter(path, schema(), compression="zstd", use_dictionary=["category", "model", "tokenizer_hash"])


def _put(partial: Path, path: Path) -> None:
    """Give a whole file its name, unless somebody else took it meanwhile."""
    try:
        os.link(partial, path)  # unlike a rename it never writes over a file
    except FileExistsError:
        raise UsageError(f"{path}: it appeared while this trace was written; choose another --out") from None
    except OSError:  # a file system without links
        if path.exists():
            raise UsageError(f"{path}: it appeared while this trace was written; choose another --out") from None
        partial.replace(path)
    else:
        partial.unlink()


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Say in one line that a trace cannot be written.

    Raises:
        UsageError: for any OSError inside.
    """
    try:
        yield
    except OSError as error:
        # Arrow's own texts repeat the path and the reason.
        said = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise UsageError(f"{path} cannot be written: {said}") from error


def refuse_out(path: Path) -> None:
    """Refuse a place where no trace can be written, before anything is done for it.

    Raises:
        UsageError: the file is there, or parts of a recording that was cut off; there is no such folder, or nothing can
            be written in it; the name is too long, or says another format than Parquet.
    """
    with written(path):
        _refuse_out(path)


def _refuse_out(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} is there already: choose another name, or remove it")
    if path.suffix.lower() in _OTHERS:
        raise UsageError(f"{path}: a trace is written as Parquet; give it a name that ends in .parquet")
    folder = path.with_name(f"{path.name}{PARTS}")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} holds what a recording that was cut off had written; it is read as a trace: keep it under "
            "another name, or remove it"
        )
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder")
    try_folder(path)
