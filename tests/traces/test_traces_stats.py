"""What `stats` tells is what a plain count of the rows gives."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traces.traces_kit import jsonl, row, write

from draftworth.traces import stats as module
from draftworth.traces.repeats import continued
from draftworth.traces.stats import lines, stats
from draftworth.traces.store import open_trace


def naive(prompt: Sequence[int], output: Sequence[int]) -> int:
    """Count output tokens that follow three tokens as at the newest earlier place, by looking at every place."""
    tokens, count = [*prompt, *output], 0
    for at in range(max(len(prompt), 3), len(tokens)):
        places = [end for end in range(3, at) if tokens[end - 3 : end] == tokens[at - 3 : at]]
        count += bool(places) and tokens[places[-1]] == tokens[at]
    return count


WORDS = st.lists(st.integers(0, 2), max_size=40)


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
@settings(deadline=None)
def test_repeated_continuations_equal_a_naive_search(made: list[tuple[list[int], list[int]]]) -> None:
    tokens = np.array([one for prompt, output in made for one in (*prompt, *output)], np.int32)
    offsets = np.cumsum([0] + [len(prompt) + len(output) for prompt, output in made]).astype(np.int64)
    lengths = np.array([len(prompt) for prompt, _ in made], np.int32)
    assert continued(tokens, offsets, lengths).tolist() == [naive(prompt, output) for prompt, output in made]


def test_the_figures_of_a_small_trace(tmp_path: Path) -> None:
    made = [
        row(1, [1, 2, 3, 4], [1, 2, 3, 4, 1, 2], thinking_tokens=2, category="x", temperature=0.0),
        row(2, [1, 2, 3, 4], [9], category="y", temperature=0.7, exact=False),
        row(3, [], [5, 6, 7], category="x", temperature=None),
        row(4, [1], []),
    ]
    found = stats(open_trace(jsonl(tmp_path / "t.jsonl", made)))
    # Of the first, in the end 4, 1 and 2 stand behind three tokens that had been there with the same behind them.
    assert naive([1, 2, 3, 4], [1, 2, 3, 4, 1, 2]) == 3
    assert found.continued_share == 3 / 10
    assert (found.requests, found.exact, found.no_prompt, found.one_token, found.largest_id) == (3, 2, 1, 1, 9)
    assert (found.prompt.total, found.prompt.least, found.prompt.median, found.prompt.most) == (8, 0, 4, 4)
    assert (found.output.total, found.output.mean, found.output.p90) == (10, 10 / 3, 6)
    assert (found.thinking_known, found.thinking_share) == (1, 2 / 6)
    assert found.temperatures == {"0": 1, "0.7": 1, "unknown": 1}
    assert {name: one.requests for name, one in found.categories.items()} == {"x": 2, "y": 1}
    assert found.categories["x"].continued_share == 3 / 9
    assert (found.repeated_prompts, found.compared_prompts) == (1, 3)
    assert found.left_out == {"the output is empty": 1}
    text = "\n".join(lines(found))
    for said in (
        "3 requests, m, 2 with ids from the server",
        "30.0% of the output continues three tokens",
        "33.3% of the output of the 1 request that tells is reasoning",
        "1 prompt repeats one before",
        "1 request has no prompt",
        "1 left out: the output is empty (first: ",
    ):
        assert said in text


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
@settings(deadline=None, max_examples=50)
def test_quantiles_are_the_nearest_rank(sizes: list[int]) -> None:
    found = module._lengths({size: sizes.count(size) for size in sizes})
    for name, share in (("median", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert getattr(found, name) == np.quantile(sizes, share, method="inverted_cdf")
    assert (found.total, found.least, found.most) == (sum(sizes), min(sizes), max(sizes))


def test_what_is_compared_and_listed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROMPTS", 3)
    monkeypatch.setattr(module, "_CATEGORIES", 2)
    path = write(tmp_path / "t.parquet", [row(n, [1], [2], category=f"c{n}") for n in range(5)])
    found = stats(open_trace(path))
    assert (found.compared_prompts, found.repeated_prompts) == (3, 2)
    assert {name: one.requests for name, one in found.categories.items()} == {
        "(further categories)": 3,
        "c0": 1,
        "c1": 1,
    }
    assert "2 prompts repeat one before among the first 3" in "\n".join(lines(found))


def test_request_ids_that_come_again_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a", "b", "a", "c", "a", "b"]
    path = write(tmp_path / "t.parquet", [row(n, [n], [2], request_id=name) for n, name in enumerate(names)])
    found = stats(open_trace(path))
    assert found.repeated_ids == len(names) - len(set(names)) == 3
    assert "3 requests have the request_id of one before: ids are not unique" in "\n".join(lines(found))
    assert found.document()["repeated_ids"] == 3
    monkeypatch.setattr(module, "PROMPTS", 3)
    found = stats(open_trace(path))
    assert (found.repeated_ids, found.compared_prompts) == (1, 3)
    assert "1 request has the request_id of one before among the first 3" in "\n".join(lines(found))
    alone = write(tmp_path / "u.parquet", [row(1, [1], [2])])
    text = "\n".join(lines(stats(open_trace(alone))))
    assert "request_id of" not in text
    assert "u.parquet: 1 request, m, all ids from the server" in text


@pytest.mark.parametrize(
    ("made_of", "said"),
    [("sha256:x", ", all ids made from text"), (None, ", no request with all ids from the server")],
)
def test_a_trace_without_exact_ids_says_so(tmp_path: Path, made_of: str | None, said: str) -> None:
    made = [row(n, [1], [2], exact=False, tokenizer_hash=made_of) for n in range(2)]
    assert lines(stats(open_trace(write(tmp_path / "t.parquet", made))))[0].endswith(said)
