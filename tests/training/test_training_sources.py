"""Conversations out of the layouts that people have."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.training_making import chat, make_target, write_rows

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.training.recipe import SourceConfig
from draftworth.training.sources import source_of
from draftworth.training.sources.base import Conversation, message_of
from draftworth.training.sources.dataset import split_of


def read(path: Path, **more: Any) -> list[Conversation | BadRow]:
    config = SourceConfig(path=path, **more)
    return [one for _, one in source_of(config).read(config, "s", path.parent / "target")]


def good(path: Path, **more: Any) -> list[Conversation]:
    return [one for one in read(path, **more) if isinstance(one, Conversation)]


U, A = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": [U, A]}, [U, A]),
        ({"messages": json.dumps([U, A])}, [U, A]),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, [U, A]),
        ({"prompt": "q", "response": "a"}, [U, A]),
        ({"prompt": "q"}, [U]),
        ({"instruction": "q", "input": "", "output": "a"}, [U, A]),
        ({"instruction": "q", "input": "z", "output": "a"}, [{"role": "user", "content": "q\n\nz"}, A]),
        ({"question": "q", "answer": "a"}, [U, A]),
        ({"turns": ["q", "r"]}, [U, {"role": "user", "content": "r"}]),
        ({"prompt": [U], "completion": [A]}, [U, A]),
        ({"messages": [U, A], "system": "s"}, [{"role": "system", "content": "s"}, U, A]),
        (
            {"messages": [U, {"role": "assistant", "content": "a", "reasoning": "r"}]},
            [U, {"role": "assistant", "content": "a", "reasoning_content": "r"}],
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, A]}, [U, A]),
    ],
)
def test_a_layout_is_read(tmp_path: Path, row: dict[str, Any], expected: list[dict[str, str]]) -> None:
    (found,) = good(write_rows(tmp_path / "x.jsonl", [row]))
    assert list(found.messages) == expected
    assert (found.id, found.source, found.category) == ("s/1", "s", "s")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [A, U]}, "it starts with the assistant"),
        ({"messages": [{"role": "system", "content": "s"}]}, "no message of the user"),
        ({"messages": [{"role": "king", "content": "s"}]}, "an unknown speaker"),
        ({"messages": [U, {"role": "assistant"}]}, "a text is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a message has a part that is no text"),
        ({"messages": [3]}, "a message is no object"),
        ({"other": 1}, "no conversation in it"),
    ],
)
def test_a_row_that_is_no_conversation_says_why(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    found = read(write_rows(tmp_path / "x.jsonl", [chat("a", "b"), row]))
    assert isinstance(found[1], BadRow)
    assert reason in str(found[1])


def test_calls_of_tools_have_their_arguments_decoded(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    row: dict[str, Any] = {
        "messages": [U, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "3"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    (found,) = good(write_rows(tmp_path / "x.jsonl", [row]))
    assert found.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert found.messages[1]["content"] == ""
    assert found.tools == (row["tools"][0],)


def test_the_rows_own_id_and_category_are_taken(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "x.jsonl", [chat("a", "b", id="x7", category="code", kind="k")])
    assert [(one.id, one.category) for one in good(path)] == [("s/x7", "code")]
    assert [one.category for one in good(path, category_key="kind")] == ["k"]
    assert [one.category for one in good(path, category_key="none", category="mine")] == ["mine"]


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_an_arrow_folder_is_read_in_batches(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    table = pa.Table.from_pylist([chat(f"q{at}", "a") for at in range(600)])
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(folder / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "dataset_info.json").write_text("{}", encoding="utf-8")
    (folder / "state.json").write_text("{}", encoding="utf-8")
    found = good(folder)
    assert len(found) == 600
    assert found[599].messages[0]["content"] == "q599"
    assert found[599].id == "s/600"


def test_splits_of_a_dataset_folder_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "data").mkdir(parents=True)
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        pq.write_table(pa.Table.from_pylist([chat(name, "a")]), folder / "data" / f"{name}.parquet")
    with pytest.raises(UsageError, match="several splits: test, train; name one"):
        read(folder)
    assert [one.messages[0]["content"] for one in good(folder, split="train")] == [
        "train-00000-of-00002",
        "train-00001-of-00002",
    ]
    with pytest.raises(UsageError, match="no split 'dev'; there are: test, train"):
        read(folder, split="dev")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00002.parquet", "train"),
        ("data/train-00000-of-00002-1a2b3c4d.parquet", "train"),
        ("train/data-00000-of-00001.arrow", "train"),
        ("data-00000-of-00001.arrow", ""),
        ("train.jsonl", "train"),
        ("default/train/0000.parquet", "train"),
        ("data/train_sft-00000-of-00003.parquet", "train_sft"),
    ],
)
def test_the_split_is_told_by_name_or_folder(name: str, split: str) -> None:
    assert split_of(Path(name)) == split


def test_a_broken_arrow_file_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "data-00000-of-00001.arrow").write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match="not a readable Arrow file"):
        read(folder, format="dataset")


def test_a_trace_is_taken_as_it_was_recorded(tmp_path: Path) -> None:
    make_target(tmp_path / "target")
    rows: list[dict[str, Any]] = [
        {"request_id": "r1", "prompt_token_ids": [1, 2], "output_token_ids": [3], "thinking_tokens": 1},
        {"request_id": "r2", "prompt_token_ids": [1, 2], "output_token_ids": [4], "exact": False, "category": "code"},
        {"request_id": "r3", "prompt_token_ids": [], "output_token_ids": [4]},
        {"request_id": "r4", "prompt_token_ids": [5], "output_token_ids": []},
    ]
    found = read(write_rows(tmp_path / "t.jsonl", rows))
    one, two, *bad = found
    assert isinstance(one, Conversation)
    assert isinstance(two, Conversation)
    assert (one.id, one.ids[0].prompt.tolist(), one.ids[0].output.tolist()) == ("s/r1", [1, 2], [3])
    assert (one.ids[0].thinking, one.ids[0].exact, two.ids[0].exact) == (1, True, False)
    assert (one.category, two.category) == ("s", "code")
    assert sorted(map(str, bad)) == ["the output is empty", "the prompt is empty"]
    assert one.ids[0].prompt.dtype == np.int32


def test_a_trace_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    make_target(tmp_path / "target")
    row = {"prompt_token_ids": [1], "output_token_ids": [3], "tokenizer_hash": "sha256:0"}
    with pytest.raises(UsageError, match="of another tokenizer"):
        read(write_rows(tmp_path / "t.jsonl", [row]))


def test_what_is_nothing_of_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a trace nor conversations nor a dataset folder"):
        read(write_rows(tmp_path / "x.jsonl", [{"price": 3}]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="neither a trace"):
        read(tmp_path / "empty")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "from", "value", "tool_calls", "function", "arguments", "text"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_value_is_a_message_or_a_reason(value: Any) -> None:
    with suppress(BadRow):
        found = message_of(value)
        assert isinstance(found["content"], str)
        assert found["role"] in {"user", "assistant", "system", "developer", "tool"}
