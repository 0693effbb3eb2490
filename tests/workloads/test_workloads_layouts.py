import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftworth import workloads
from draftworth.bench.base import Prompt, Turn
from draftworth.errors import UsageError
from draftworth.workloads import Skipped

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def one(path: Path, **options: Any) -> Prompt:
    (prompt,) = workloads.load(path, **options).prompts
    return prompt


def test_questions_of_spec_bench_keep_all_their_turns(tmp_path: Path) -> None:
    row = {"question_id": 81, "category": "writing", "turns": ["One", "Two"], "reference": ["a", "b"]}
    path = write(tmp_path / "p.jsonl", row)
    assert workloads.load(path).layout == "spec-bench"
    assert one(path) == Prompt("81", "writing", ({"role": "user", "content": "One"},), turns=(Turn("Two"),))
    mixed = write(tmp_path / "q.jsonl", row, {"prompt": "mine"})
    with pytest.raises(UsageError, match=r'q.jsonl:2: "question_id" is missing, .* give format = "plain"'):
        workloads.load(mixed)
    assert len(workloads.load(mixed, layout="plain").prompts) == 2


def speed(**more: Any) -> dict[str, Any]:
    row = {"question_id": "0" * 32, "category": "qa", "sub_category": None, "source": "s", "src_id": "1"}
    return {**row, "difficulty": None, "multiturn": True, **more}


def test_speed_bench_as_the_hub_has_it_and_as_it_is_prepared_are_the_same(tmp_path: Path) -> None:
    table = tmp_path / "test-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist([speed(turns=["One", "Two"])]), table)
    prepared = write(
        tmp_path / "qualitative.jsonl",
        speed(messages=[{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]),
    )
    expected = Prompt("0" * 32, "qa", ({"role": "user", "content": "One"},), turns=(Turn("Two"),))
    assert (one(table), one(prepared)) == (expected, expected)
    assert {workloads.load(path).layout for path in (table, prepared)} == {"speed-bench"}


@pytest.mark.parametrize(
    "content",
    [
        {"turns": [f"{PLACEHOLDER}\n\nTranslate: {{question}}"]},
        {"messages": [{"role": "user", "content": PLACEHOLDER}]},
    ],
)
def test_speed_bench_that_is_not_prepared_is_refused_with_the_way_to_do_it(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    table = tmp_path / "p.parquet"
    pq.write_table(pa.Table.from_pylist([speed(**content)]), table)
    with pytest.raises(UsageError, match=r"p.parquet: row 1: .*placeholder.* has to be prepared .*curl .*prepare.py"):
        workloads.load(table)


def said(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": text} for speaker, text in pairs]


def test_a_recorded_conversation_is_sent_with_its_recorded_answers(tmp_path: Path) -> None:
    pairs = (("system", "S"), ("human", "A"), ("gpt", "B"), ("human", "C"), ("gpt", "D"))
    path = tmp_path / "share.json"
    path.write_text(json.dumps([{"id": "x", "conversations": said(*pairs)}]), encoding="utf-8")
    assert one(path) == Prompt(
        "x",
        "conversation",
        ({"role": "system", "content": "S"}, {"role": "user", "content": "A"}),
        turns=(Turn("C", "B"),),
    )
    messages = [{"role": role, "content": text} for role, text in (("user", "A"), ("assistant", "B"), ("user", "C"))]
    named = one(write(tmp_path / "c.jsonl", {"conversation": messages, "category": "chat"}))
    assert (named.id, named.category, named.turns) == ("conversation-1", "chat", (Turn("C", "B"),))


def test_what_is_no_conversation_is_skipped_and_counted_by_reason(tmp_path: Path) -> None:
    good = said(("human", "A"), ("gpt", "B"))
    bad: list[dict[str, Any]] = [
        {"id": "1", "conversations": said(("gpt", "B"), ("human", "A"))},
        {"id": "2", "conversations": said(("gpt", "B"))},
        {"id": "3", "conversations": []},
        {"id": "4", "conversations": said(("human", "A"), ("human", "A"))},
        {"id": "5", "conversations": said(("human", "A"), ("bard", "B"))},
        {"id": "6", "conversations": said(("human", " "))},
        {"id": "7", "conversations": said(("system", "S"))},
        {"id": "8", "conversations": "broken"},
        {"id": "0", "conversations": good},
    ]
    workload = workloads.load(write(tmp_path / "s.jsonl", {"id": "0", "conversations": good}, *bad))
    assert [p.id for p in workload.prompts] == ["0"]
    where = f"{tmp_path / 's.jsonl'}:"
    assert workload.skipped == (
        Skipped("it starts with the assistant", 2, f"{where}2"),
        Skipped("no conversation in it", 2, f"{where}4"),
        Skipped("the speakers do not take turns", 1, f"{where}5"),
        Skipped("an unknown speaker", 1, f"{where}6"),
        Skipped("a text is missing or empty", 1, f"{where}7"),
        Skipped("no turn of the human", 1, f"{where}8"),
        Skipped("its id was used before", 1, f"{where}10"),
    )
    assert any("2 of the rows skipped: it starts with the assistant" in line for line in workload.remarks)
    with pytest.raises(UsageError, match=r"every row was skipped, 1 because no conversation in it; the first is .*:1"):
        workloads.load(write(tmp_path / "none.jsonl", bad[2]))


def traced(number: int, **more: Any) -> dict[str, Any]:
    row = {"request_id": f"r{number}", "prompt_token_ids": [1, 2, number], "output_token_ids": [7] * number}
    return {**row, "temperature": 0.0, "model": "m", "tokenizer_hash": "h", "exact": True, **more}


def test_a_trace_is_sent_as_token_ids_in_the_order_it_came(tmp_path: Path) -> None:
    rows = [traced(1, category="chat", arrived_unix=1_700_000_005.5), traced(2, arrived_unix=1_700_000_000)]
    lines, table = write(tmp_path / "t.jsonl", *rows), tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist([{"category": None, **row} for row in rows]), table)
    for path in (lines, table):
        second, first = workloads.load(path).prompts
        assert second == Prompt("r2", "recorded", token_ids=(1, 2, 2), arrival_s=0.0)
        assert first == Prompt("r1", "chat", token_ids=(1, 2, 1), arrival_s=5.5)


def test_recorded_lengths_bound_the_answers_below_the_samplings_own_bound(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", traced(0), traced(3), traced(900))
    assert [p.max_tokens for p in workloads.load(path).prompts] == [None, None, None]
    assert [p.max_tokens for p in workloads.load(path, recorded_lengths=True, max_tokens=192).prompts] == [1, 3, 192]
    with pytest.raises(UsageError, match='"output_token_ids" must be a list of token ids, not missing'):
        workloads.load(write(tmp_path / "u.jsonl", {"prompt_token_ids": [1]}), recorded_lengths=True)
    with pytest.raises(UsageError, match=r"only a trace has recorded lengths .* read as 'plain'"):
        workloads.load(write(tmp_path / "v.jsonl", {"prompt": "x"}), recorded_lengths=True)


@pytest.mark.parametrize("first", ["2026-05-01T12:00:00Z", "2026-05-01 14:00:00+02:00", 1777636800])
def test_a_timestamp_is_a_number_or_a_date(tmp_path: Path, first: object) -> None:
    later = "2026-05-01T12:00:01.5+00:00"
    prompts = workloads.load(
        write(tmp_path / "t.jsonl", traced(1, timestamp=first), traced(2, timestamp=later))
    ).prompts
    assert [p.arrival_s for p in prompts] == [0.0, 1.5]


def test_a_timestamp_of_a_table_is_read(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    times = [datetime(2026, 5, 1, 12, 0, second, tzinfo=UTC) for second in (3, 1)]
    pq.write_table(pa.Table.from_pylist([traced(i, timestamp=time) for i, time in enumerate(times)]), table)
    assert [(p.id, p.arrival_s) for p in workloads.load(table).prompts] == [("r1", 0.0), ("r0", 2.0)]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"prompt_token_ids": []}, '"prompt_token_ids" is empty'),
        ({"prompt_token_ids": "1 2"}, '"prompt_token_ids" must be a list of token ids, not text'),
        ({"prompt_token_ids": [1, -2]}, '"prompt_token_ids": entry 2 is no token id: -2'),
        ({"prompt_token_ids": [True]}, "entry 1 is no token id: True"),
        ({"timestamp": "yesterday"}, '"timestamp" must be seconds or a date and time'),
        ({"timestamp": 1777636800000}, '"timestamp" must be in seconds; 1777636800000 looks like milliseconds'),
        ({"arrived_unx": 1}, 'did you mean "arrived_unix"'),
    ],
)
def test_a_wrong_row_of_a_trace_is_named(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        workloads.load(write(tmp_path / "t.jsonl", traced(1, **more)))
    assert "t.jsonl:1: " in str(caught.value)
