"""Lines that are no JSON, as Python's json writes them: named, counted, and no reason to call a file another thing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import run_cli
from tests.traces.traces_kit import row

from draftworth.traces.jsonl import NOT_JSON, fault_of

NAN = "NaN is no JSON (null is)"
GOOD = row(2, [1, 2], [3, 4])
BAD = json.dumps(row(1, [1, 2], [3, 4], temperature=float("nan")))
ANSWERED = '{"prompt": [1, 2], "response": [3], "temperature": -Infinity}'
CHAT = '{"request": {"messages": []}, "response": {"choices": [], "usage": {"cost": Infinity}}}'


def test_a_trace_whose_lines_all_have_nan_says_so_and_where(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"\n{BAD}\n{BAD}\n")
    for words in (("trace", "stats"), ("replay", "--drafter", "vllm-ngram-v1")):
        done = run_cli(*words, path)
        assert (done.code, done.out) == (1, "")
        assert done.err == f"draftworth: {path}:2: {NAN}; no request could be read\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (BAD, NAN),
        (ANSWERED, "-Infinity is no JSON (null is)"),
        (CHAT, "Infinity is no JSON (null is)"),
        ('{"prompt": "a", "response": "b", "temperature": 1e999}', "a number is out of range"),
        ('{"prompt_token_ids": [1], "output_token_ids": [2], "temperature": 1e999}', "a number is out of range"),
        ('{"prompt_token_ids": [1], "output_tok', NOT_JSON),
    ],
)
def test_an_import_says_so_too(tmp_path: Path, line: str, why: str) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "out.parquet"
    path.write_text(f"{line}\n")
    done = run_cli("trace", "import", path, "--out", out)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"draftworth: {path}:1: {why}; no request could be read\n"
    done = run_cli("trace", "import", path, "--out", out, "--format", "plain")
    assert done.code == 1
    assert f"1 left out: {why} (first: {path}:1)" in done.err
    assert "does not look like" not in done.err
    assert not out.exists()


@pytest.mark.parametrize("order", [(BAD, json.dumps(GOOD)), (json.dumps(GOOD), BAD)])
def test_among_good_lines_it_is_left_out_and_named_wherever_it_is(tmp_path: Path, order: tuple[str, str]) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(order))
    done = run_cli("trace", "stats", path, "--json")
    assert done.code == 0, done.err
    assert done.json["requests"] == 1
    assert done.json["left_out"] == {NAN: 1}
    assert done.json["left_out_first"] == {NAN: f"{path}:{order.index(BAD) + 1}"}


def test_the_input_of_a_batch_names_the_line_that_cannot_be_read(tmp_path: Path) -> None:
    asked, answers = tmp_path / "asked.jsonl", tmp_path / "answers.jsonl"
    body = {"messages": [{"role": "user", "content": "a"}], "temperature": float("nan")}
    asked.write_text(
        "\n".join(
            json.dumps({"custom_id": name, "body": {**body, **more}})
            for name, more in (("1", {"temperature": 0}), ("2", {}))
        )
    )
    answers.write_text(json.dumps({"custom_id": "2", "response": {"status_code": 200, "body": {"choices": [{}]}}}))
    done = run_cli("trace", "import", answers, "--requests", asked, "--out", tmp_path / "out.parquet")
    assert done.code == 1
    assert f"({asked}:2 cannot be read: {NAN})" in done.err


def test_a_log_that_begins_with_a_bracket_is_no_broken_json(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("[2026-01-01 10:00:00] something was started\n")
    done = run_cli("trace", "stats", path)
    assert done.code == 1
    assert "is no trace: it lacks prompt_token_ids" in done.err


_FLOATS = st.floats(allow_nan=True, allow_infinity=True)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | _FLOATS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(_VALUES)
def test_what_python_writes_is_refused_by_name_only_where_it_is_no_json(value: object) -> None:
    text = json.dumps(value)
    names: list[str] = []
    note: Callable[[str], None] = names.append
    json.loads(text, parse_constant=note)
    expected = f"{names[0]} is no JSON (null is)" if names else NOT_JSON
    assert fault_of(text.encode()) == expected


@given(st.binary(max_size=40))
def test_any_bytes_have_one_reason(line: bytes) -> None:
    assert fault_of(line)
