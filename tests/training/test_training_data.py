"""The stage `data`, from files to samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.training_making import CHATML, Said, chat, make_target, write_recipe, write_rows
from tests.training.training_server import answering

from draftworth.errors import MeasureError, UsageError
from draftworth.training import data as stage
from draftworth.training.base import StageManifest
from draftworth.training.columns import read_samples
from draftworth.training.recipe_file import load_recipe
from draftworth.training.samples import Sample
from draftworth.training.stages import is_fresh, key_of
from draftworth.training.template import ChatTemplate


def made(recipe: Path) -> tuple[StageManifest, Said]:
    read, said = load_recipe(recipe), Said()
    return stage.run(read, read.folder, said), said


def samples(folder: Path, name: str = "train") -> list[tuple[str, Sample]]:
    return [
        (conversation, one) for conversation, _, _, one in read_samples(folder / "recipe-run/data" / f"{name}.parquet")
    ]


def learned(folder: Path, name: str = "train") -> list[str]:
    template = ChatTemplate(folder / "target", {}, learn_thinking=True)
    return [template.decode(one.ids[one.mask == 1]) for _, one in samples(folder, name)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_target(tmp_path / "target")
    return tmp_path


def test_ten_conversations_become_nine_samples_and_one_held_out(folder: Path) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"question {at}", f"answer {at}") for at in range(10)])
    manifest, said = made(write_recipe(folder))
    assert len(samples(folder)) == 9
    assert len(samples(folder, "held_out")) == 1
    both = [*learned(folder), *learned(folder, "held_out")]
    assert sorted(both) == [f"answer {at}<|im_end|>" for at in range(10)]
    assert manifest.counts["train_loss_tokens"] == 9 * (len("answer 0") + 1)
    assert manifest.counts["held_out_samples"] == 1
    assert manifest.counts["train_inexact_samples"] == 9
    prompt = 1 + len("user\nquestion 0") + 1 + len("\n") + 1 + len("assistant\n")  # a special token is one
    assert manifest.facts["sources"] == {
        "train": {"chat": {"samples": 9, "tokens": 9 * prompt + 90, "loss_tokens": 81}},
        "held_out": {"chat": {"samples": 1, "tokens": prompt + 10, "loss_tokens": 9}},
    }
    assert "9 samples have ids made of text" in said.text
    read = load_recipe(folder / "recipe.toml")
    assert is_fresh(read.folder / "data", key_of(stage.inputs(read, read.folder)))


def test_the_same_recipe_makes_the_same_bytes(folder: Path) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "a") for at in range(10)])
    first, _ = made(write_recipe(folder))
    again, _ = made(write_recipe(folder))
    assert first.facts["files"] == again.facts["files"]
    assert first.key == again.key


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("row", "source.chat"),
        ("template", "chat_template"),
        ("tokenizer", "tokenizer"),
        ("recipe", "recipe.data"),
    ],
)
def test_what_changed_is_named(folder: Path, change: str, named: str) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "a") for at in range(4)])
    read = load_recipe(write_recipe(folder))
    before = stage.inputs(read, read.folder)
    match change:
        case "row":
            write_rows(folder / "chat.jsonl", [chat(f"q{at}", "b") for at in range(4)])
        case "template":
            make_target(folder / "target", CHATML + " ")
        case "tokenizer":
            make_target(folder / "target", merges=[("a", "b")])
        case _:
            read = load_recipe(write_recipe(folder, data="max_tokens = 100"))
    after = stage.inputs(read, read.folder)
    assert named in {name for name in before if before[name] != after[name]}


def test_moving_everything_changes_nothing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "a") for at in range(4)])
    read = load_recipe(write_recipe(folder))
    before = key_of(stage.inputs(read, read.folder))
    moved = folder.rename(tmp_path_factory.mktemp("other") / "place")
    read = load_recipe(moved / "recipe.toml")
    assert key_of(stage.inputs(read, read.folder)) == before


def test_what_is_left_out_is_counted_with_its_reason(folder: Path) -> None:
    long = " ".join(f"w{at}" for at in range(20))
    rows = [
        *(chat(f"q{at}", "a") for at in range(4)),
        chat("q0", "a"),  # the same again
        chat("q1", "other"),  # the same prompt
        chat("nobody answers"),
        chat(long, "a"),
        {"messages": []},
    ]
    write_rows(folder / "chat.jsonl", rows)
    write_rows(folder / "bench.jsonl", [{"prompt": long + " and more"}])
    manifest, said = made(write_recipe(folder, data='exclude = ["bench.jsonl"]'))
    left = {name.removeprefix("left out: "): n for name, n in manifest.counts.items() if name.startswith("left out: ")}
    assert left == {
        "the same conversation again": 1,
        "the same prompt again": 1,
        "no answer of the assistant": 1,
        "shares 13 words in a row with what must stay unseen": 1,
        "no conversation in it": 1,
    }
    assert f"1 left out: the same prompt again (first: {folder}/chat.jsonl:6)" in said.lines
    assert "texts that must stay unseen: 1; conversations with one: 1" in said.lines
    assert len(samples(folder)) + len(samples(folder, "held_out")) == 4


def test_two_answers_to_a_prompt_are_kept_where_the_recipe_says_so_on_one_side(folder: Path) -> None:
    rows = [chat(f"q{at}", answer) for at in range(5) for answer in ("one", "two")]
    write_rows(folder / "chat.jsonl", rows)
    made(write_recipe(folder, data="per_prompt = 2\nheld_out = 0.2"))
    assert learned(folder, "held_out") == ["one<|im_end|>", "two<|im_end|>"]
    assert len(samples(folder)) == 8


def test_long_samples_are_cut_and_never_to_nothing(folder: Path) -> None:
    rows = [chat("q", "a" * 100), chat("q" * 200, "b"), *(chat(f"q{at}", "c") for at in range(4))]
    write_rows(folder / "chat.jsonl", rows)
    manifest, said = made(write_recipe(folder, data="max_tokens = 60\nheld_out = 0.01"))
    counts = manifest.counts
    assert counts["train_cut_samples"] + counts["held_out_cut_samples"] == 1
    assert counts["left out: too long: max_tokens leaves no learned token"] == 1
    assert counts["train_longest"] <= 60
    assert all(one.mask.any() for _, one in samples(folder))
    assert "1 samples cut at max_tokens" in said.text


def test_a_trace_is_chained_by_turns_and_split_by_conversations(folder: Path) -> None:
    template = ChatTemplate(folder / "target", {}, learn_thinking=True)
    rows = []
    for at in range(6):
        asked = f"<|im_start|>user\nq{at}<|im_end|>\n<|im_start|>assistant\n"
        turn = f"{asked}a{at}<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"
        for prompt, output in ((asked, f"a{at}<|im_end|>"), (turn, f"b{at}<|im_end|>")):
            rows.append(
                {
                    "prompt_token_ids": template.output(prompt).tolist(),
                    "output_token_ids": template.output(output).tolist(),
                }
            )
    write_rows(folder / "chat.jsonl", rows)
    manifest, _ = made(write_recipe(folder, data="held_out = 0.5"))
    assert manifest.counts["conversations"] == 12
    assert manifest.counts["groups"] == 6
    both = [*learned(folder), *learned(folder, "held_out")]
    assert sorted(both) == [f"a{at}<|im_end|>b{at}<|im_end|>" for at in range(6)]
    assert len(samples(folder)) == 3
    assert "train_inexact_samples" in manifest.counts
    assert manifest.counts["train_inexact_samples"] == 0


def test_ids_outside_of_the_vocabulary_are_left_out(folder: Path) -> None:
    rows = [{"prompt_token_ids": [1, at], "output_token_ids": [3 if at else 320]} for at in range(4)]
    write_rows(folder / "chat.jsonl", rows)
    manifest, _ = made(write_recipe(folder))
    assert manifest.counts["left out: an id outside of the target's vocabulary"] == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([chat("a"), chat("b")], r"no sample to learn from: 2 left out: no answer of the assistant .*data.regenerate"),
        ([chat("a", "b")], r"no held-out sample: held_out = 0.1 leaves no whole conversation out"),
        ([{"messages": []}, {"messages": []}], "no sample to learn from: 2 left out: no conversation in it"),
    ],
)
def test_nothing_to_learn_from_is_one_line(folder: Path, rows: list[dict[str, Any]], said: str) -> None:
    write_rows(folder / "chat.jsonl", rows)
    with pytest.raises(UsageError, match=said):
        made(write_recipe(folder))
    assert not (folder / "recipe-run/data/manifest.json").exists()


def test_a_target_without_a_template_is_told(folder: Path) -> None:
    make_target(folder / "target", None)
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "a") for at in range(4)])
    with pytest.raises(UsageError, match=r"the tokenizer has no chat template"):
        made(write_recipe(folder))


def test_the_target_writes_the_answers_and_a_second_run_asks_for_none(folder: Path) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "old") for at in range(10)])
    with answering(folder / "target", lambda last: f"new {last}") as server:
        recipe = write_recipe(folder, f'[data.regenerate]\nurl = "{server.url}/v1"\nsamples = 2')
        manifest, _ = made(recipe)
        # Both answers of a prompt are equal here: one sample.
        both = [*learned(folder), *learned(folder, "held_out")]
        assert sorted(both) == [f"new q{at}<|im_end|>" for at in range(10)]
        assert manifest.counts["regenerated"] == 20
        assert manifest.counts["train_inexact_samples"] == 0
        asked = len(server.asked)
        _, said = made(recipe)
        assert len(server.asked) == asked == 20
        assert "20 answers are there already" in said.text


def test_an_interrupted_regeneration_goes_on_and_is_not_trusted_meanwhile(folder: Path) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "old") for at in range(10)])
    with answering(folder / "target", lambda last: f"new {last}") as server:
        server.failures = [200] * 4 + [500] * 6
        recipe = write_recipe(folder, f'[data.regenerate]\nurl = "{server.url}"\nretries = 0\nconcurrency = 1')
        with pytest.raises(MeasureError, match="6 of 10 conversations got no answer"):
            made(recipe)
        assert not (folder / "recipe-run/data/manifest.json").exists()
        made(recipe)
        assert len(server.asked) == 10
    assert len(samples(folder)) == 9


def test_columns_are_the_contracts(folder: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "a", category="c") for at in range(3)])
    made(write_recipe(folder))
    table = pq.read_table(folder / "recipe-run/data/train.parquet")
    assert {one.name: str(one.type) for one in table.schema} == {
        "sample": "int64",
        "conversation": "string",
        "source": "string",
        "category": "string",
        "input_ids": "list<element: int32 not null>",
        "loss_mask": "list<element: uint8 not null>",
        "exact": "bool",
    }
    assert table.column("sample").to_pylist() == [0, 1]
    assert set(table.column("category").to_pylist()) == {"c"}


def test_a_reader_gives_what_was_written_over_many_batches(tmp_path: Path) -> None:
    from draftworth.training.columns import SampleWriter  # noqa: PLC0415

    rng = np.random.default_rng(0)
    wrote = []
    with SampleWriter(tmp_path / "x.parquet") as writer:
        for at in range(1300):
            size = int(rng.integers(1, 40))
            one = Sample(rng.integers(0, 9, size, np.int32), rng.integers(0, 2, size, np.uint8), bool(at % 2))
            wrote.append(one)
            writer.add(f"c{at}", "s", "k", one)
    found = list(read_samples(tmp_path / "x.parquet"))
    assert [name for name, *_ in found] == [f"c{at}" for at in range(1300)]
    for (_, _, _, got), one in zip(found, wrote, strict=True):
        assert np.array_equal(got.ids, one.ids)
        assert np.array_equal(got.mask, one.mask)
        assert got.exact == one.exact


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    from draftworth.training.columns import SampleWriter  # noqa: PLC0415

    with pytest.raises(ValueError, match="no"), SampleWriter(tmp_path / "x.parquet"):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_of_samples_says_which_verb(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run `draftworth train data` first"):
        list(read_samples(tmp_path / "x.parquet"))


def test_digests_are_remembered_by_size_and_time(folder: Path) -> None:
    write_rows(folder / "chat.jsonl", [chat(f"q{at}", "a") for at in range(4)])
    made(write_recipe(folder))
    known = json.loads((folder / "recipe-run/digests.json").read_text(encoding="utf-8"))
    assert [Path(name).name for name in known] == ["chat.jsonl"]
