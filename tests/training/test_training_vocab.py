"""The draft's vocabulary: the most frequent learned tokens, never of other samples."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.training_making import Said, chat, make_target, write_recipe, write_rows

from draftworth.errors import RefusedError, UsageError
from draftworth.training import data, vocab
from draftworth.training.recipe import Recipe
from draftworth.training.recipe_file import load_recipe
from draftworth.training.vocab import choose


def counts(size: int, **told: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    found = np.zeros(size, np.int64)
    for name, count in told.items():
        found[int(name[1:])] = count
    return found


def test_the_most_frequent_are_taken_ties_by_the_lower_id_and_sorted() -> None:
    found = choose(counts(10, t9=5, t3=2, t7=2, t1=1), 2, pad=False)
    assert found.ids.tolist() == [3, 9]
    assert found.d2t.tolist() == [3, 8]  # draft id 0 is 3, 1 is 9
    assert np.flatnonzero(found.t2d).tolist() == [3, 9]
    assert (str(found.d2t.dtype), str(found.t2d.dtype), len(found.t2d)) == ("int64", "bool", 10)


def test_a_size_is_filled_up_with_the_lowest_ids() -> None:
    found = choose(counts(10, t9=5, t1=1), 5, pad=True)
    assert found.ids.tolist() == [0, 1, 2, 3, 9]
    assert found.padded == 3


def test_sizes_that_do_not_fit_are_refused_with_the_numbers() -> None:
    with pytest.raises(RefusedError, match=r"vocab\.size: 11, and the target's vocabulary has 10"):
        choose(counts(10, t1=1), 11, pad=True)
    with pytest.raises(RefusedError, match=r"vocab\.size: 5, and the answers have only 2 different tokens: 3 rows"):
        choose(counts(10, t9=5, t1=1), 5, pad=False)
    with pytest.raises(RefusedError, match="no token was learned"):
        choose(counts(10), None, pad=True)


@pytest.mark.parametrize(
    ("size", "seen", "expected"), [(100, 3, 64), (100, 70, 100), (50, 3, 50), (50_000, 40_000, 32_000)]
)
def test_the_usual_size_is_smaller_where_there_is_less(size: int, seen: int, expected: int) -> None:
    found = np.zeros(size, np.int64)
    found[:seen] = 1
    assert len(choose(found, None, pad=False).ids) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30).filter(any), st.integers(1, 30))
def test_it_is_what_the_plain_rule_gives(found: list[int], size: int) -> None:
    size = min(size, len(found))
    ranked = sorted(range(len(found)), key=lambda at: (-found[at], at))
    made = choose(np.array(found, np.int64), size, pad=True)
    assert made.ids.tolist() == sorted(ranked[:size])
    assert [draft + int(offset) for draft, offset in enumerate(made.d2t)] == made.ids.tolist()


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    make_target(tmp_path / "target")
    write_rows(tmp_path / "chat.jsonl", [chat(f"question {at}", f"answer {at % 3}") for at in range(10)])
    read = load_recipe(write_recipe(tmp_path))
    data.run(read, read.folder, Said())
    return read


def test_the_stage_counts_learned_tokens_of_training_samples_only(recipe: Recipe) -> None:
    said = Said()
    manifest = vocab.run(
        recipe.model_copy(update={"vocab": recipe.vocab.model_copy(update={"size": 5})}), recipe.folder, said
    )
    d2t = np.load(recipe.folder / "vocab/d2t.npy")
    t2d = np.load(recipe.folder / "vocab/t2d.npy")
    ids = np.arange(5) + d2t
    assert len(t2d) == 320
    assert np.flatnonzero(t2d).tolist() == ids.tolist()
    # "answer N<end>": nine times each letter, space and end token; of those the five lowest ids, and the digits thrice.
    names = sorted("answer ")
    total = 9 * (len("answer 0") + 1)
    counted = Counter(dict.fromkeys(names, 9))
    assert manifest.counts["loss_tokens"] == total
    assert manifest.counts["seen"] == len(counted) + 3 + 1
    assert manifest.facts["coverage_train"] == pytest.approx(5 * 9 / total)
    assert "5 of 320 tokens cover 55.556% of the learned tokens; 11 different ones were written" in said.lines
    assert "  train chat: 55.556%" in said.lines


def test_it_is_old_when_the_samples_are_others(recipe: Recipe) -> None:
    before = vocab.inputs(recipe, recipe.folder)
    write_rows(recipe.data.sources[0].path, [chat(f"question {at}", "other") for at in range(10)])
    data.run(recipe, recipe.folder, Said())
    after = vocab.inputs(recipe, recipe.folder)
    assert {name for name in before if before[name] != after[name]} == {"manifest.data"}


def test_without_samples_it_says_which_verb(tmp_path: Path) -> None:
    make_target(tmp_path / "target")
    write_rows(tmp_path / "chat.jsonl", [chat("a", "b")])
    read = load_recipe(write_recipe(tmp_path))
    with pytest.raises(UsageError, match="run `draftworth train data` first"):
        vocab.run(read, read.folder, Said())
