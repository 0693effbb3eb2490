"""Replay against the counts that vLLM 0.32.0 told with each answer of the kept CPU trials."""

import json
from dataclasses import asdict

import pytest
from benchmarks.replay_counts import BEGIN, END, PAGE, RESULT, Cell, cells, table


@pytest.fixture(scope="module")
def found() -> list[Cell]:
    return cells()


def test_the_arms_own_answers_are_counted_as_the_engine_did(found: list[Cell]) -> None:
    assert len(found) == 24
    assert sum(one.requests for one in found) == 24 * 104
    assert [one.own_differ for one in found] == [0] * 24


def test_where_the_texts_are_the_same_the_baselines_count_is_the_engines(found: list[Cell]) -> None:
    assert sum(one.same for one in found) == 1796
    assert [one.same_differ for one in found] == [0] * 24


def test_padded_admissions_are_the_two_prompts_of_whole_blocks_and_a_token(found: list[Cell]) -> None:
    assert {one.padded for one in found} == {0, 2}


def test_the_page_and_the_kept_counts_are_these(found: list[Cell]) -> None:
    assert json.loads(RESULT.read_text("utf-8")) == [asdict(one) for one in found]
    _, mark, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert mark
    assert rest.partition(END)[0] == table(found)
