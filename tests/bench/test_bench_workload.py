import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.bench import prompts, workload
from draftworth.errors import UsageError


def write(path: Path, *entries: Any) -> Path:
    path.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in entries), encoding="utf-8")
    return path


def test_the_built_in_workload_takes_the_categories_in_turn() -> None:
    ids = [p.id for p in workload.builtin(None, 2)]
    assert ids == [
        *("coding-1", "math-1", "structured-1", "explanation-1", "editing-1"),
        *("coding-2", "math-2", "structured-2", "explanation-2", "editing-2"),
    ]


def test_every_category_has_prompts_of_its_own() -> None:
    all_of_them = workload.builtin()
    assert len({p.id for p in all_of_them}) == len(all_of_them) == 40
    assert len({p.messages[0]["content"] for p in all_of_them}) == 40
    assert {p.category for p in all_of_them} == set(prompts.CATEGORIES)
    for prompt in all_of_them:
        assert prompt.messages[0]["role"] == "user"
        # A token is seldom more than two words' worth apart: 250 words stay far below 2048 - 192 tokens.
        assert len(prompt.messages[0]["content"].split()) <= 250
        assert prompt.messages[0]["content"].isascii()


def test_editing_prompts_carry_the_text_to_edit() -> None:
    assert all(len(p.messages[0]["content"].split()) >= 120 for p in prompts.category("editing"))


def test_the_order_asked_for_does_not_matter() -> None:
    assert workload.builtin(["math", "coding"], 1) == workload.builtin(["coding", "math"], 1)
    assert [p.id for p in workload.builtin(["math", "coding"], 1)] == ["coding-1", "math-1"]


def test_a_misspelt_category_is_named_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"'codng'.*did you mean 'coding'.*coding, math, structured, explanation, editing"
    ):
        workload.builtin(["codng"], None)


@pytest.mark.parametrize(
    ("categories", "number", "text"),
    [(["math"], 99, "'math' has 8"), ([], None, "at least one of coding"), (["math"], 0, "at least 1")],
)
def test_an_impossible_choice_is_refused(categories: list[str], number: int | None, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        workload.builtin(categories, number)


def test_the_three_layouts_of_a_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "One", "id": "a", "category": "chat"},
        "",
        {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Two"}]},
        {"question_id": 81, "category": "writing", "turns": ["Three", "never sent"], "reference": ["x"]},
    )
    one, two, three = workload.from_jsonl(path)
    assert (one.id, one.category, one.messages) == ("a", "chat", ({"role": "user", "content": "One"},))
    assert (two.id, two.category) == ("prompt-3", "custom")
    assert two.messages == ({"role": "system", "content": ""}, {"role": "user", "content": "Two"})
    assert (three.id, three.category, three.messages) == ("81", "writing", ({"role": "user", "content": "Three"},))


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b"}')
    assert [p.messages[0]["content"] for p in workload.from_jsonl(path)] == ["a", "b"]


def test_a_line_separator_inside_a_text_is_no_line_end(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    assert workload.from_jsonl(path)[0].messages[0]["content"] == "a\u2028b"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected a JSON object"),
        ({"text": "x"}, "exactly one of .*it has none"),
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
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, '"content" must be text, not a list'),
        ({"messages": [{"role": "user", "content": ""}]}, '"content" is empty'),
        ({"prompt": "half \ud83d"}, "surrogate"),
    ],
)
def test_a_wrong_line_is_named_with_its_file_and_number(tmp_path: Path, line: Any, text: str) -> None:
    path = write(tmp_path / "mine.jsonl", {"prompt": "fine"}, line)
    with pytest.raises(UsageError, match=text) as caught:
        workload.from_jsonl(path)
    assert f"{path}:2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_used_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "a", "id": "7"}, {"prompt": "b", "question_id": 7})
    with pytest.raises(UsageError, match=r"p.jsonl:2: id '7' is already used in line 1"):
        workload.from_jsonl(path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n')
    with pytest.raises(UsageError, match=r"p.jsonl:2: not UTF-8 \(byte 16"):
        workload.from_jsonl(path)


def test_an_empty_or_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no prompts"):
        workload.from_jsonl(write(tmp_path / "empty.jsonl", "", "  "))
    with pytest.raises(UsageError, match=r"cannot read the prompts in .*No such file"):
        workload.from_jsonl(tmp_path / "missing.jsonl")
    with pytest.raises(UsageError, match="Is a directory"):
        workload.from_jsonl(tmp_path)


@given(st.binary(max_size=60))
def test_any_bytes_give_prompts_or_a_usage_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(data)
    try:
        found = workload.from_jsonl(path)
    except UsageError as error:
        assert "any.jsonl" in str(error)  # noqa: PT017 - either outcome is fine, another exception is not
    else:
        assert found


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() and text.isprintable()), min_size=1, max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = write(tmp_path_factory.getbasetemp() / "round.jsonl", *({"prompt": text} for text in texts))
    assert [p.messages[0]["content"] for p in workload.from_jsonl(path)] == texts
