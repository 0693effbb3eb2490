"""`requests.parquet`: one row a request, failed ones too, in the order they were sent."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from draftworth.bench.base import RequestRow

NAME = "requests.parquet"


def write_rows(rows: Sequence[RequestRow], folder: Path) -> Path:
    """Write the rows whole or not at all, sorted by block and by the time they were sent. Returns the file's path.

    Columns are the attributes of `bench.base.RequestRow`; `spec_stats` is the server's JSON as text.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy: 100 ms to import
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    rows = sorted(rows, key=lambda row: (row.block, row.started_unix))
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
    names = [one.name for one in fields(RequestRow)]
    assert names == list(types), "a column was added to RequestRow and not here"
    columns = {
        name: [
            json.dumps(value) if name == "spec_stats" and value is not None else value
            for value in (getattr(row, name) for row in rows)
        ]
        for name in names
    }
    table = pa.table(columns, schema=pa.schema(list(types.items()), metadata={"schema_version": "2"}))
    path = folder / NAME
    temporary = path.with_name(f".{NAME}.partial")
    pq.write_table(table, temporary, compression="zstd")
    temporary.replace(path)
    return path
