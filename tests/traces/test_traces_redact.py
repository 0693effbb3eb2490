"""A redacted trace tells nothing of whose it is, and a drafter that compares ids does on it what it did before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.traces_kit import read, row, write

from draftworth.traces import redact as module
from draftworth.traces.redact import redact
from draftworth.traces.store import open_trace


def looked_up(prompt: Sequence[int], output: Sequence[int], k: int) -> list[tuple[int, int]]:
    """Replay a naive prompt look-up: at each step, how many tokens were drafted and how many of them accepted."""
    tokens, at, steps = [*prompt, *output], len(prompt) + 1, []
    while at < len(tokens):
        draft: list[int] = []
        for size in (3, 2, 1):
            places = [end for end in range(size, at) if tokens[end - size : end] == tokens[at - size : at]]
            if at >= size and places:
                draft = tokens[places[0] : min(places[0] + k, at)]
                break
        accepted = 0
        while accepted < min(len(draft), len(tokens) - at) and draft[accepted] == tokens[at + accepted]:
            accepted += 1
        steps.append((len(draft), accepted))
        at += accepted + 1
    return steps


TOKENS = st.lists(st.sampled_from([3, 7, 500, 2_000_000_000]), min_size=1, max_size=25)


@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=5), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replay_is_unchanged_by_a_permutation(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[list[int], list[int]]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("r")
    path = write(folder / "t.parquet", [row(n, prompt, output) for n, (prompt, output) in enumerate(made)])
    found = redact(open_trace(path), folder / "u.parquet", seed=seed)
    after = [(one["prompt_token_ids"], one["output_token_ids"]) for one in read(folder / "u.parquet")]
    assert [looked_up(*one, 3) for one in after] == [looked_up(*one, 3) for one in made]
    # One to one over the whole trace, onto 0, 1, 2, …
    pairs = {
        (old, new)
        for before, later in zip(made, after, strict=True)
        for old, new in zip(before[0] + before[1], later[0] + later[1], strict=True)
    }
    assert found.ids == len(pairs)
    assert {new for _, new in pairs} == set(range(len(pairs)))
    assert len({old for old, _ in pairs}) == len(pairs)


def some_rows() -> list[dict[str, Any]]:
    more: dict[str, Any] = {"tokenizer_hash": "sha256:1", "temperature": 0.7, "exact": False}
    return [
        row(1, [5, 6], [7], thinking_tokens=1, category="ACME", **more),
        row(2, [6], [5, 5], category="", **more),
        row(3, [6], [9], category="Other", **more),
        row(4, [6], [9], category="ACME", **more),
    ]


def test_names_go_and_figures_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", some_rows())
    redact(open_trace(path), tmp_path / "u.parquet")
    found = read(tmp_path / "u.parquet")
    assert [one["request_id"] for one in found] == ["request-1", "request-2", "request-3", "request-4"]
    assert [one["category"] for one in found] == ["category-1", "", "category-2", "category-1"]
    for name in ("thinking_tokens", "temperature", "model", "exact"):
        assert [one[name] for one in found] == [one[name] for one in some_rows()]
    assert {one["tokenizer_hash"] for one in found} == {None}, "they are not its ids any more"
    stored = (tmp_path / "u.parquet").read_bytes()
    assert b"ACME" not in stored
    assert b"sha256" not in stored
    assert set(pq.read_schema(tmp_path / "u.parquet").metadata) == {b"draftworth", b"schema_version"}


def test_ids_and_categories_are_kept_where_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", some_rows())
    found = redact(open_trace(path), tmp_path / "u.parquet", keep_ids=True, keep_categories=True)
    assert found.ids is None
    expected = [{**one, "request_id": f"request-{at}"} for at, one in enumerate(some_rows(), start=1)]
    assert read(tmp_path / "u.parquet") == expected


def test_a_seed_makes_the_same_permutation_again_and_none_another(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [row(1, list(range(50)), [1])])
    made = []
    for at, seed in enumerate([5, 5, 6, None, None]):
        redact(open_trace(path), tmp_path / f"{at}.parquet", seed=seed)
        made.append(read(tmp_path / f"{at}.parquet")[0]["prompt_token_ids"])
    assert made[0] == made[1]
    assert len({tuple(one) for one in made}) == 4


def test_large_ids_take_another_way_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.parquet", [row(1, [4, 9, 4, 200], [9])])
    redact(open_trace(path), tmp_path / "a.parquet", seed=1)
    monkeypatch.setattr(module, "_LARGEST_TABLE", 100)
    redact(open_trace(path), tmp_path / "b.parquet", seed=1)
    assert read(tmp_path / "a.parquet") == read(tmp_path / "b.parquet")
