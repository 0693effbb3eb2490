"""`requests.parquet`: one row a request, failed ones too, in the order they were sent.

While it is measured, each window is a part of its own, `rows/<block>-<number>.parquet`, so that a process that is
killed loses the window at hand and no more.
"""

import json
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import RequestRow

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "requests.parquet"
PARTS = "rows"

_ROWS_A_GROUP = 5000
_ORDER = (("block", "ascending"), ("started_unix", "ascending"))


def write_rows(rows: Sequence[RequestRow], folder: Path, name: str = NAME) -> Path:
    """Write the rows whole or not at all, sorted by block and by the time they were sent. Returns the file's path.

    Columns are the attributes of `bench.base.RequestRow`; `spec_stats` is the server's JSON as text.
    """
    schema = _schema()
    rows = sorted(rows, key=lambda row: (row.block, row.started_unix))
    some = (rows[at : at + _ROWS_A_GROUP] for at in range(0, len(rows) or 1, _ROWS_A_GROUP))
    return _write(folder / name, schema, (_batch(part, schema) for part in some))


def write_part(rows: Sequence[RequestRow], folder: Path, *, block: int, number: int) -> None:
    """Write the rows of one window; what cannot be written now is told when `requests.parquet` cannot be."""
    with suppress(OSError):
        (folder / PARTS).mkdir(exist_ok=True)
        write_rows(rows, folder, f"{PARTS}/{block}-{number}.parquet")


def drop_parts(folder: Path) -> None:
    """Remove the parts: their rows are in `requests.parquet`."""
    with suppress(OSError):
        for path in _parts(folder):
            path.unlink()
        (folder / PARTS).rmdir()


def merge_parts(folder: Path) -> int | None:
    """Make `requests.parquet` of the parts that a process left which was killed, and remove them.

    A part that cannot be read stays where it is.

    Returns:
        How many rows it has; None where there is nothing to do: the file is there, or there are no parts.

    Raises:
        OSError: it cannot be written.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy: 100 ms to import
    import pyarrow.compute as pc  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    if (folder / NAME).exists():
        return None
    schema = _schema()
    tables, read = [], []
    for path in _parts(folder):
        with suppress(pa.ArrowException, OSError):
            tables.append(pq.read_table(path).select(schema.names).cast(schema))
            read.append(path)
    if not tables:
        return None
    table = pa.concat_tables(tables)
    table = table.take(pc.sort_indices(table, sort_keys=list(_ORDER)))
    _write(folder / NAME, schema, [table])
    for path in read:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        (folder / PARTS).rmdir()
    return int(table.num_rows)


def _parts(folder: Path) -> list[Path]:
    return sorted((folder / PARTS).glob("*.parquet"))


def _write(path: Path, schema: "pa.Schema", tables: "Sequence[pa.Table] | Any") -> Path:
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    temporary = path.with_name(f".{path.name}.partial")
    with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
    temporary.replace(path)
    return path


def _schema() -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415 - lazy

    types = {
        "arm": pa.string(),
        "block": pa.int32(),
        "prompt_id": pa.string(),
        "category": pa.string(),
        "repeat": pa.int32(),
        "started_unix": pa.float64(),
        "start": pa.int32(),
        "point": pa.string(),
        "turn": pa.int32(),
        "ok": pa.bool_(),
        "error": pa.string(),
        "retries": pa.int32(),
        "retry_reasons": pa.string(),
        "late_ms": pa.float64(),
        "prompt_tokens": pa.int32(),
        "cached_tokens": pa.int32(),
        "tokens": pa.int32(),
        "reasoning_tokens": pa.int32(),
        "first_chunk_tokens": pa.int32(),
        "token_source": pa.string(),
        "chunks": pa.int32(),
        "ttft_ms": pa.float64(),
        "ttfa_ms": pa.float64(),
        "decode_ms": pa.float64(),
        "tpot_ms": pa.float64(),
        "e2e_ms": pa.float64(),
        "finish_reason": pa.string(),
        "tool_calls": pa.int32(),
        "text": pa.string(),
        "reasoning": pa.string(),
        "prompt_token_ids": pa.list_(pa.int32()),
        "token_ids": pa.list_(pa.int32()),
        "spec_stats": pa.string(),
    }
    assert [one.name for one in fields(RequestRow)] == list(types), "a column was added to RequestRow and not here"
    return pa.schema(list(types.items()), metadata={"schema_version": "2"})


def _batch(rows: Sequence[RequestRow], schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - lazy

    made: dict[str, Callable[[str], Any]] = {
        "prompt_token_ids": lambda name: _lists([getattr(row, name) for row in rows]),
        "token_ids": lambda name: _lists([getattr(row, name) for row in rows]),
        "spec_stats": lambda _: [None if row.spec_stats is None else json.dumps(row.spec_stats) for row in rows],
    }
    columns = {
        name: made[name](name) if name in made else [getattr(row, name) for row in rows] for name in schema.names
    }
    return pa.table(columns, schema=schema)


def _lists(columns: Sequence[Sequence[int]]) -> "pa.ListArray":
    """Return token ids as a column, from their bytes: as Python numbers they would take ten times the memory."""
    import pyarrow as pa  # noqa: PLC0415 - lazy

    offsets, values = array("i", (0,)), array("i")
    for ids in columns:
        values.extend(ids)
        offsets.append(len(values))
    flat = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
    return pa.ListArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]), flat
    )
