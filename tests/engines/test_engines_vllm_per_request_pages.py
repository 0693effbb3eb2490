import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.vllm import VLLM
from draftworth.engines.vllm.pages import read_page
from draftworth.engines.vllm.per_request import request_counts, request_stats
from draftworth.errors import MeasureError

DATA = Path(__file__).parent / "data"
CHUNKS = json.loads((DATA / "vllm" / "answers_0.33_detailed.json").read_text(encoding="utf-8"))
STATS: dict[str, Any] = CHUNKS[1]["metrics"]["speculative_decoding"]


def test_the_steps_of_a_detailed_answer_give_what_was_drafted_at_each_position() -> None:
    # drafted 3, 3, 3, 1 and accepted 2, 0, 3, 1
    found = request_counts([STATS], "0.33.0")
    assert found is not None
    assert (found.drafting_steps, found.drafted, found.accepted) == (4, 10, 6)
    assert found.accepted_per_position == (3, 2, 1)
    assert found.drafted_per_position == (4, 3, 3)


def test_one_answer_without_its_steps_takes_the_sum_by_position_away() -> None:
    summary = {name: value for name, value in STATS.items() if not name.startswith("per_step")}
    found = request_counts([STATS, summary], None)
    assert found is not None
    assert found.drafted == 20
    assert found.drafted_per_position is None
    none_drafted = {**summary, "acceptance_histogram": [0] * 4, "num_spec_steps": 0}
    none_drafted |= {"num_draft_tokens": 0, "num_accepted_draft_tokens": 0}
    found = request_counts([STATS, none_drafted], None)
    assert found is not None
    assert found.drafted_per_position == (4, 3, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"per_step_drafted": [3, 3, 3]}, "lists of steps are not of the form"),
        ({"per_step_drafted": None}, "lists of steps are not of the form"),
        ({"per_step_accepted": None}, "lists of steps are not of the form"),
        ({"per_step_drafted": [3, 3, 3, True]}, "lists of steps are not of the form"),
        ({"per_step_drafted": [3, 3, 3, -1]}, "lists of steps are not of the form"),
        ({"per_step_drafted": "3331"}, "lists of steps are not of the form"),
        ({"per_step_drafted": [3, 3, 3, 2]}, "4 steps contradicts"),
        ({"per_step_drafted": [1, 3, 3, 3]}, "4 steps contradicts"),
        ({"per_step_drafted": [2, 1, 3, 4]}, "4 steps contradicts"),
        ({"per_step_accepted": [2, 1, 3, 0], "acceptance_histogram": [1, 1, 1, 1]}, None),
        ({"per_step_accepted": [2, 1, 2, 1]}, "4 steps contradicts"),
        ({"num_draft_tokens": 10**4000}, "not of the form"),
    ],
)
def test_steps_that_do_not_agree_with_the_sums_are_an_error(wrong: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert request_counts([{**STATS, **wrong}], None) is not None
        return
    with pytest.raises(MeasureError, match=f"answer 0: .*{message}"):
        request_counts([{**STATS, **wrong}], None)


def test_the_figures_are_found_in_a_response_and_in_a_last_chunk() -> None:
    assert [request_stats(chunk) is not None for chunk in CHUNKS] == [False, True, True, False]
    assert VLLM().request_stats(CHUNKS[1]) == STATS
    for odd in ({}, {"metrics": None}, {"metrics": 3}, {"metrics": {"speculative_decoding": [1]}}, {"choices": 3}):
        assert request_stats(odd) is None


def test_the_form_of_builds_before_the_release_is_found_to_be_refused() -> None:
    chunk = {"choices": [{"index": 0, "speculative_decoding_stats": {"acceptance_histogram": {"0": 3}}}]}
    with pytest.raises(MeasureError, match="was this a build from before the release"):
        read_page(chunk)


def test_saved_answers_are_read_with_the_chunks_of_a_stream_as_one() -> None:
    page = VLLM().read_page(CHUNKS)
    assert page is not None
    assert (page.kind, page.model, page.told) == ("3 answers of vLLM", "m", ())
    assert page.counts is not None
    assert (page.counts.drafting_steps, page.counts.drafted, page.counts.accepted) == (6, 15, 8)
    assert page.counts.drafted_per_position == (6, 5, 4)
    assert page.counts.source == "speculative_decoding of 2 of 3 answers of vLLM"


def test_one_answer_tells_its_own_figures_too() -> None:
    page = read_page(CHUNKS[1])
    assert page is not None
    assert page.kind == "an answer of vLLM"
    assert {one.name: one.value for one in page.told} == {"mean_acceptance_length": 2.5, "draft_acceptance_rate": 0.6}
    assert read_page(CHUNKS[3]) is None
    assert read_page([CHUNKS[3]]) is None


def test_the_page_of_the_version_is_read_and_other_documents_are_not() -> None:
    page = read_page({"version": "0.32.0+cpu"})
    assert page is not None
    assert (page.kind, page.version, page.counts) == ("/version of vLLM", "0.32.0+cpu", None)
    for other in (
        None,
        3,
        "x",
        [],
        [3],
        {},
        {"version": 3},
        {"version": "?"},
        {"version": "1.0", "internal_states": []},
        {"version": "0.32.0", "commit": "abc"},
        {"version": "1.2.0"},  # TensorRT-LLM's page is the same but for the number
        {"version": "5.0.1"},
    ):
        assert read_page(other) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*STATS, "x"]), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(sorted(STATS)), JSON, max_size=3), st.booleans())
def test_odd_figures_are_read_or_refused(change: dict[str, Any], many: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    chunk = {"id": "1", "metrics": {"speculative_decoding": {**STATS, **change}}}
    try:
        page = read_page([chunk, chunk] if many else chunk)
    except MeasureError:
        return
    assert page is not None
    assert page.counts is not None
    assert page.counts.accepted is not None
    assert page.counts.drafted is not None
    assert page.counts.accepted <= page.counts.drafted
