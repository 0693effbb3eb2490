"""What requests.parquet holds, what its parts hold while it is measured, and what rows cost in memory."""

import json
import tracemalloc
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from draftworth.bench import rows as stored
from draftworth.bench.base import RequestRow
from draftworth.bench.rows import drop_parts, merge_parts, write_part, write_rows
from draftworth.bench.sse import decode
from draftworth.bench.timing import StreamTimer


def row(number: int, *, block: int = 1, **changes: Any) -> RequestRow:
    return RequestRow("a", block, f"p-{number}", "c", 0, float(number), ok=True, **changes)


def answered(number: int, ids: list[int]) -> RequestRow:
    """Return the row of an answer that a server streamed in one chunk."""
    choice = {"delta": {"content": "x"}, "token_ids": [5, 6, 7], "finish_reason": "stop"}
    timer = StreamTimer()
    timer.add(1.0, decode(json.dumps({"prompt_token_ids": ids, "choices": [choice]}).encode()))
    timer.fill(made := row(number), started=0.0, ended=1.0)
    return made


def test_every_attribute_is_stored_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_ROWS_A_GROUP", 2)
    rows = [
        answered(3, [1, 2, 3]),
        answered(1, []),
        row(2, error="HTTP 500", prompt_token_ids=[4], token_ids=(8, 9)),
        row(4, spec_stats={"drafted": 3}),
        row(0, block=2),
    ]
    table = pq.read_table(write_rows(rows, tmp_path))
    found = table.to_pylist()
    assert [one["prompt_id"] for one in found] == ["p-1", "p-2", "p-3", "p-4", "p-0"]
    assert [one["prompt_token_ids"] for one in found] == [[], [4], [1, 2, 3], [], []]
    assert [one["token_ids"] for one in found] == [[5, 6, 7], [8, 9], [5, 6, 7], [], []]
    assert [one["spec_stats"] for one in found] == [None, None, None, '{"drafted": 3}', None]
    by_id = {one.prompt_id: one for one in rows}
    for one in found:
        for field in fields(RequestRow):
            if "ids" not in field.name and field.name != "spec_stats":
                assert one[field.name] == getattr(by_id[one["prompt_id"]], field.name), field.name
    assert str(table.schema.field("token_ids").type) == "list<element: int32>"
    assert table.schema.metadata == {b"schema_version": b"2"}
    assert len(pq.read_table(write_rows([], tmp_path))) == 0


def test_rows_with_long_prompts_take_four_bytes_a_token(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        rows = [answered(number, list(range(1000, 9000))) for number in range(500)]
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        path = write_rows(rows, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 40e6, f"{held / 500:.0f} bytes a row"
    assert peak < 80e6, "to write them may take as much again, not ten times as much"
    assert pq.read_table(path, columns=["prompt_token_ids"])["prompt_token_ids"][499].as_py() == list(range(1000, 9000))


def test_a_number_that_is_no_token_id_ends_nothing() -> None:
    assert list(answered(1, [1, 2**40]).prompt_token_ids) == []


def test_parts_of_a_killed_process_become_its_rows(tmp_path: Path) -> None:
    write_part([row(5), row(1)], tmp_path, block=2, number=1)
    write_part([row(9, block=1), answered(3, [1, 2])], tmp_path, block=1, number=1)
    write_part([row(4)], tmp_path, block=1, number=2)
    (tmp_path / "rows" / ".1-3.parquet.partial").write_bytes(b"cut")
    assert merge_parts(tmp_path) == 5
    found = pq.read_table(tmp_path / "requests.parquet")
    assert found["started_unix"].to_pylist() == [1.0, 3.0, 4.0, 5.0, 9.0]
    assert found["prompt_token_ids"].to_pylist()[1] == [1, 2]
    assert found.schema.metadata == {b"schema_version": b"2"}
    assert merge_parts(tmp_path) is None, "it is there"


def test_there_may_be_nothing_to_merge_and_a_damaged_part_does_not_hide_the_others(tmp_path: Path) -> None:
    assert merge_parts(tmp_path) is None
    write_part([row(1)], tmp_path, block=1, number=1)
    (tmp_path / "rows" / "1-2.parquet").write_bytes(b"damaged")
    assert merge_parts(tmp_path) == 1
    assert (tmp_path / "rows" / "1-2.parquet").exists(), "what cannot be read is left for a person"
    drop_parts(tmp_path)
    assert not (tmp_path / "rows").exists()
    drop_parts(tmp_path)
