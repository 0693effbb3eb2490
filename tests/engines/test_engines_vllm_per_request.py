import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.vllm.per_request import measuring_args, request_counts
from draftworth.errors import MeasureError

DATA = Path(__file__).parent / "data"
ONE: dict[str, Any] = {
    "mean_acceptance_length": 1.0,
    "draft_acceptance_rate": 0.0,
    "acceptance_histogram": [3, 0, 0, 0, 0, 0],
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 0,
    "num_draft_tokens": 15,
    "num_spec_tokens": 5,
}


def test_real_answers_are_summed_and_those_without_figures_are_counted_out() -> None:
    answers = json.loads((DATA / "vllm_0.32_answers.json").read_text(encoding="utf-8"))
    found = request_counts([answer["spec"] for answer in answers], "0.32.0")
    assert found is not None
    # histograms [5,0,0,0,1,0] [0,0,0,2,0,0] none [28,4,1,0,0,0] [1,0,0,0,0,0], added by hand
    assert (found.drafting_steps, found.drafted, found.accepted) == (42, 28 + 10 + 160 + 5, 4 + 6 + 6)
    assert found.accepted_per_position == (8, 4, 3, 1, 0)
    assert found.source == "speculative_decoding of 4 of 5 answers of vLLM 0.32.0"
    assert found.steps is found.emitted is None
    assert set(found.not_given) == {"steps", "emitted"}


def test_no_figures_at_all_is_none_and_figures_without_a_draft_are_zero() -> None:
    assert request_counts([], None) is None
    assert request_counts([None, None], "0.32.0") is None
    none_drafted = {**ONE, "acceptance_histogram": [0] * 6, "num_spec_steps": 0, "num_draft_tokens": 0}
    found = request_counts([none_drafted, None], None)
    assert found is not None
    assert (found.drafting_steps, found.drafted, found.accepted) == (0, 0, 0)
    assert found.accepted_per_position == (0, 0, 0, 0, 0)
    assert found.length_per_drafting_step is None


STEPS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)).map(lambda p: (max(p), min(p))), max_size=12)


@given(st.lists(st.tuples(st.integers(6, 8), STEPS), min_size=1, max_size=6))
def test_sums_agree_with_counting_step_by_step(requests: list[tuple[int, list[tuple[int, int]]]]) -> None:
    stats = []
    for k, steps in requests:
        histogram = [sum(accepted == j for _, accepted in steps) for j in range(k + 1)]
        stats.append(
            {
                "acceptance_histogram": histogram,
                "num_spec_steps": len(steps),
                "num_draft_tokens": sum(drafted for drafted, _ in steps),
                "num_accepted_draft_tokens": sum(accepted for _, accepted in steps),
                "num_spec_tokens": k,
            }
        )
    found = request_counts(stats, None)
    every = [step for _, steps in requests for step in steps]
    assert found is not None
    assert found.drafting_steps == len(every)
    assert found.drafted == sum(drafted for drafted, _ in every)
    assert found.accepted == sum(accepted for _, accepted in every)
    width = max(k for k, _ in requests)
    assert found.accepted_per_position == tuple(sum(accepted > i for _, accepted in every) for i in range(width))


@pytest.mark.parametrize(
    "item",
    [
        {"speculative_decoding_stats": {"acceptance_histogram": {"0": 3}}},
        {**ONE, "acceptance_histogram": {"0": 3, "1": 0}},
        {**ONE, "acceptance_histogram": None},
        {**ONE, "acceptance_histogram": []},
        {**ONE, "num_spec_steps": None},
        {**ONE, "num_spec_steps": 3.5},
        {**ONE, "num_draft_tokens": -1},
        {**ONE, "acceptance_histogram": [True, 0]},
    ],
)
def test_the_form_of_unreleased_builds_is_never_taken_silently(item: dict[str, Any]) -> None:
    with pytest.raises(MeasureError, match=r"answer 1: its speculative figures are not of the form"):
        request_counts([ONE, item], None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_spec_steps": 4},
        {"num_accepted_draft_tokens": 1},
        {"acceptance_histogram": [0, 0, 0, 0, 0, 3], "num_accepted_draft_tokens": 15, "num_draft_tokens": 14},
    ],
)
def test_figures_that_contradict_each_other_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(MeasureError, match=r"answer 0: .* contradict each other"):
        request_counts([{**ONE, **wrong}], None)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0.29.0", True),
        ("0.32.0", True),
        ("0.32.0+cpu", True),
        ("0.32.1.dev3+gabc", True),
        ("1.0", True),
        ("v0.29.0", True),
        ("0.29.0.post1", True),
        ("0.29.0rc2.dev12+g1", False),
        ("0.29.0.dev1", False),
        ("0.28.9", False),
        ("0.9.2", False),
        ("unknown", False),
        ("", False),
        (None, False),
    ],
)
def test_per_request_figures_are_asked_for_from_0_29_on(version: str | None, *, told: bool) -> None:
    assert measuring_args(version) == (("--per-request-spec-decode-metrics", "summary") if told else ())
