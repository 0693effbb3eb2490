import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth import workloads
from draftworth.bench.base import Prompt, Turn
from draftworth.errors import UsageError


def write(path: Path, *entries: Any) -> Path:
    path.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in entries), encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> tuple[Prompt, ...]:
    return workloads.load(path, **options).prompts


def test_the_three_layouts_of_a_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "One", "id": "a", "category": "chat"},
        "",
        {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Two"}]},
        {"question_id": 81, "category": "writing", "turns": ["Three", "and this"], "reference": ["x"]},
    )
    one, two, three = read(path)
    assert (one.id, one.category, one.messages) == ("a", "chat", ({"role": "user", "content": "One"},))
    assert (two.id, two.category) == ("prompt-3", "custom")
    assert two.messages == ({"role": "system", "content": ""}, {"role": "user", "content": "Two"})
    assert (three.id, three.category, three.messages) == ("81", "writing", ({"role": "user", "content": "Three"},))
    assert three.turns == (Turn("and this"),)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b"}')
    assert [p.messages[0]["content"] for p in read(path)] == ["a", "b"]


def test_a_line_separator_inside_a_text_is_no_line_end(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    assert read(path)[0].messages[0]["content"] == "a\u2028b"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected a JSON object"),
        ({"text": "x"}, "exactly one of .*it has none"),
        ({"promt": "x"}, 'it has none: did you mean "prompt"'),
        ({"prompt": "x", "categroy": "chat"}, "unknown key 'categroy': did you mean \"category\""),
        ({"prompt": "x", "arrival_ms": 5}, 'did you mean "arrival_s"'),
        ({"prompt": "x", "max_tokens": 0}, '"max_tokens" must be at least 1, not 0'),
        ({"prompt": "x", "max_tokens": 1.5}, '"max_tokens" must be a whole number'),
        ({"prompt": "x", "arrival_s": "soon"}, '"arrival_s" must be a number, not text'),
        ('{"prompt": "x", "arrival_s": NaN}', '"arrival_s" must be a finite number'),
        ({"prompt": "x", "arrival_s": 3}, "an arrival time, but the prompts before it have none"),
        ({"turns": ["x", 3]}, 'entry 2 of "turns" must be text, not a number'),
        ({"prompt": "x", "turns": ["y"]}, 'it has "prompt" and "turns"'),
        ({"prompt": 7}, '"prompt" must be text, not a number'),
        ({"prompt": "  "}, '"prompt" is empty'),
        ({"prompt": "x", "id": True}, '"id" must be text or a whole number, not true or false'),
        ({"prompt": "x", "id": None}, '"id" must be text or a whole number, not missing or null'),
        ({"prompt": "x", "category": ["a"]}, '"category" must be text, not a list'),
        ({"turns": []}, '"turns" must be a list with at least one entry'),
        ({"turns": "x"}, '"turns" must be a list'),
        ({"messages": ["x"]}, "message 1 must be an object"),
        ({"messages": [{"content": "x"}]}, 'message 1: "role" must be text'),
        ({"messages": [{"role": "usr", "content": "x"}]}, "unknown role 'usr': did you mean \"user\""),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
            '"tool_calls" must be a list of objects',
        ),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
            "last of the messages is of the assistant, so there is nothing to answer",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, '"content" must be text, not a list'),
        ({"messages": [{"role": "user", "content": ""}]}, '"content" is empty'),
        ({"prompt": "half \ud83d"}, "surrogate"),
    ],
)
def test_a_wrong_line_is_named_with_its_file_and_number(tmp_path: Path, line: Any, text: str) -> None:
    path = write(tmp_path / "mine.jsonl", {"prompt": "fine"}, line)
    with pytest.raises(UsageError, match=text) as caught:
        read(path)
    assert f"{path}:2" in str(caught.value)
    assert "\n" not in str(caught.value)
    rows = [{"prompt": "fine"}, *([json.loads(line)] if isinstance(line, str) and "NaN" in line else [line])]
    if not isinstance(line, str) or "NaN" in line:
        whole = tmp_path / "mine.json"
        whole.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        with pytest.raises(UsageError, match=text) as caught:
            read(whole)
        assert f"{whole}: entry 2" in str(caught.value)


def test_an_id_used_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "a", "id": "7"}, {"prompt": "b", "question_id": 7})
    with pytest.raises(UsageError, match=r"p.jsonl:2: id '7' is already used in .*p.jsonl:1;"):
        read(path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n')
    with pytest.raises(UsageError, match=r"p.jsonl:2: not UTF-8 \(byte 16"):
        read(path)


def test_an_empty_or_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no prompts"):
        read(write(tmp_path / "empty.jsonl", "", "  "))
    with pytest.raises(UsageError, match=r"cannot read the prompts in .*No such file"):
        read(tmp_path / "missing.jsonl")
    with pytest.raises(UsageError, match="Is a directory"):
        read(tmp_path)


def test_keys_that_only_resemble_are_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "a", "idx": 3, "prompt_id": 7, "sub_category": "x", "source": "y"})
    assert read(path)[0] == Prompt("prompt-1", "custom", ({"role": "user", "content": "a"},))


def test_a_history_with_answers_and_tools_is_one_request(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {}}]},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]
    (prompt,) = read(write(tmp_path / "p.jsonl", {"messages": messages, "max_tokens": 32}))
    assert prompt.messages[2] == {k: v for k, v in messages[2].items() if k != "content"}
    assert (prompt.messages[3], prompt.turns, prompt.max_tokens) == (messages[3], (), 32)


ROWS: list[dict[str, Any]] = [
    {"prompt": "Eins ä", "id": "a", "category": "x"},
    {"messages": [{"role": "user", "content": "Zwei"}], "id": "b", "category": "y"},
    {"turns": ["Drei", "Vier"], "id": "c", "category": "x", "max_tokens": 7},
]


def test_every_way_to_write_a_file_gives_the_same_prompts(tmp_path: Path) -> None:
    lines = write(tmp_path / "p.jsonl", *ROWS)
    expected = read(lines)
    packed, whole, indented, one = (tmp_path / name for name in ("p.jsonl.gz", "p.json", "i.json", "one.json"))
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    whole.write_text(json.dumps(ROWS), encoding="utf-8")
    indented.write_text("\ufeff\n" + json.dumps(ROWS, indent=2, ensure_ascii=False) + "\n\n", encoding="utf-8")
    table = tmp_path / "p.parquet"
    columns = ("prompt", "messages", "turns", "id", "category", "max_tokens")
    pq.write_table(pa.Table.from_pylist([{**dict.fromkeys(columns), **row} for row in ROWS]), table)
    assert len(expected) == 3
    for path in (packed, whole, indented, table):
        assert read(path) == expected, path
    one.write_text(json.dumps(ROWS[0], indent=2), encoding="utf-8")
    assert read(one) == expected[:1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[\n{"prompt": "a"},\n{"prompt": "b"}\n', r":4: the file is cut off at entry 2"),
        ('[\n{"prompt": "a"},\n{"prompt": "b', r":3: entry 2 is not JSON: Unterminated string"),
        ('[\n{"prompt": "a"}\n{"prompt": "b"}]', r":3: no comma behind entry 1"),
        ('[{"prompt": "a"},]', r"entry 2 is not JSON"),
        ('[{"prompt": "a"}] x', r"text behind the end of the JSON list"),
        ("[]", r"has no prompts"),
        ('[{"prompt": "a"}, 7]', r"entry 2: expected a JSON object"),
        ("[" * 100_000, r"entry 1 is not JSON"),
    ],
)
def test_a_broken_list_is_told_with_its_place(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=error) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_longer_than_a_reading_step_is_read_whole(tmp_path: Path) -> None:
    texts = [f"{i} " + 'ä\\"😀' * (i * 977 % 5000) for i in range(400)]
    path = tmp_path / "p.json"
    path.write_text(json.dumps([{"prompt": text} for text in texts], indent=1), encoding="utf-8")
    assert path.stat().st_size > 4 << 20
    assert [p.messages[0]["content"] for p in read(path)] == texts


def test_a_broken_package_and_a_broken_table_are_one_line(tmp_path: Path) -> None:
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 100)[:-12])
    with pytest.raises(UsageError, match="broken gzip file"):
        read(packed)
    table = tmp_path / "p.parquet"
    table.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UsageError, match="not a readable Parquet file"):
        read(table)


def test_a_row_of_a_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"prompt": ["a", ""], "category": ["x", "x"]}), path)
    with pytest.raises(UsageError, match=r'p.parquet: row 2: "prompt" is empty'):
        read(path)


def test_a_file_of_no_known_layout_tells_its_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'"prompt", "messages", "turns", .* its keys are: \'conversation_s\''):
        read(write(tmp_path / "p.jsonl", {"conversation_s": []}))
    with pytest.raises(UsageError, match=r"unknown format 'sharegtp': did you mean 'sharegpt'\? There are: sharegpt"):
        read(write(tmp_path / "p.jsonl", {"prompt": "x"}), layout="sharegtp")


ANY_START = st.sampled_from(
    [b"", b"PAR1", b"\x1f\x8b\x08", b"[", b'[{"prompt": ', b'{"turns": [', b'{"conversations": ']
)


@settings(deadline=None)
@given(ANY_START, st.binary(max_size=60), st.sampled_from(["any.jsonl", "any.json"]))
def test_any_bytes_give_prompts_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, data: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(start + data)
    try:
        found = read(path)
    except UsageError as error:
        assert name in str(error)  # noqa: PT017 - either outcome is fine, another exception is not
        assert "\n" not in str(error)  # noqa: PT017 - same
    else:
        assert found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    *("prompt", "messages", "turns", "id", "question_id", "category", "max_tokens", "arrival_s", "source", "src_id"),
    *("conversations", "prompt_token_ids", "output_token_ids", "timestamp", "arrived_unix", "from", "value"),
)


@settings(deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5), max_size=3), recorded=st.booleans())
def test_any_json_gives_prompts_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], *, recorded: bool
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "rows.jsonl", *rows)
    for layout in (None, *workloads.LAYOUTS):
        try:
            found = read(path, layout=layout, recorded_lengths=recorded)
        except UsageError as error:
            assert "rows.jsonl" in str(error)  # noqa: PT017 - either outcome is fine, another exception is not
            assert "\n" not in str(error)  # noqa: PT017 - same
        else:
            assert all(p.messages or p.token_ids for p in found)


@settings(deadline=None)
@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() and text.isprintable()), min_size=1, max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.getbasetemp()
    rows = [{"prompt": text} for text in texts]
    lines, whole, table = write(folder / "round.jsonl", *rows), folder / "round.json", folder / "round.parquet"
    whole.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), table)
    for path in (lines, whole, table):
        assert [p.messages[0]["content"] for p in read(path)] == texts
