import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.counts import FIELDS
from draftworth.engines.sglang import SGLang
from draftworth.engines.sglang.per_request import request_counts, request_stats
from draftworth.errors import MeasureError

DATA = Path(__file__).parent / "data" / "sglang"
ANSWERS: dict[str, dict[str, Any]] = json.loads((DATA / "answers.json").read_text(encoding="utf-8"))


def figures(**changes: object) -> dict[str, object]:
    told = {
        "spec_verify_ct": 8,
        "spec_num_correct_drafts": 8,
        "spec_num_proposed_drafts": 24,
        "spec_correct_drafts_histogram": [3, 3, 1, 1],
        "spec_accept_length": 2.125,
    }
    return {**told, **changes}


@pytest.mark.parametrize("name", ["0.5.9 /generate", "0.5.11 /generate", "0.5.12 /generate", "0.5.19 chat"])
def test_every_layout_with_a_histogram_gives_the_same_counts(name: str) -> None:
    # 3, 3, 1 and 1 of 8 steps accepted 0, 1, 2 and 3 drafts: 0 + 3 + 2 + 3 = 8; 17 tokens, 1 of them from prefill.
    found = request_counts([request_stats(ANSWERS[name]), None], name.split(maxsplit=1)[0])
    assert found is not None
    assert (found.steps, found.drafting_steps, found.drafted, found.accepted, found.emitted) == (8, 8, 24, 8, 16)
    assert found.accepted_per_position == (5, 2, 1)
    assert found.acceptance_rate == 1 / 3
    assert found.length_per_step == 2
    assert found.source == f"speculative figures of 1 of 2 answers of SGLang {name.split(maxsplit=1)[0]}"
    assert found.not_given == {}


def test_the_first_releases_tell_steps_and_tokens_only() -> None:
    for name in ("0.4.6 /generate", "0.5.5 /generate NGRAM"):
        found = request_counts([request_stats(ANSWERS[name])], None)
        assert found is not None
        assert (found.steps, found.emitted, found.accepted, found.drafted) == (8, 16, None, None)
        assert set(found.not_given) == {"accepted", "drafted", "accepted_per_position"}


def test_a_release_without_a_histogram_gives_no_positions() -> None:
    found = request_counts([request_stats(ANSWERS["0.5.6 /generate"])], "0.5.6")
    assert found is not None
    assert (found.accepted, found.drafted, found.accepted_per_position) == (8, 24, None)
    assert found.not_given == {"accepted_per_position": "this release tells no histogram (0.5.9 and later do)"}


def test_several_choices_of_an_answer_are_added() -> None:
    found = request_counts([request_stats(ANSWERS["0.5.23 chat, two choices"])], "0.5.23")
    assert found is not None
    assert (found.steps, found.accepted, found.drafted, found.emitted) == (12, 11, 36, 16 + 7)
    assert found.accepted_per_position == (5 + 2, 2 + 1, 1)


def test_figures_are_looked_for_where_each_api_puts_them() -> None:
    assert request_stats({"choices": [], "usage": {"completion_tokens": 3}}) is None
    assert request_stats({"sglext": {"cached_tokens_details": {}}}) is None
    assert request_stats({"sglext": None, "meta_info": None}) is None
    running = {"meta_info": {"finish_reason": None, "spec_verify_ct": 3, "completion_tokens": 5}}
    assert request_stats(running) is None
    assert request_stats({"sglext": {"spec_tokens_details": [1, {}]}}) is None
    assert SGLang().request_fields() == {"return_spec_tokens_details": True}


def test_answers_without_figures_give_nothing() -> None:
    assert request_counts([], None) is None
    assert request_counts([None, {}], "0.5.23") is None


def test_an_answer_that_ended_with_its_first_token_counts_as_no_step() -> None:
    zero = {"spec_accept_rate": 0.0, "spec_accept_length": 0, "spec_verify_ct": 0, "completion_tokens": 1}
    found = request_counts([zero, figures()], "0.5.6")
    assert found is not None
    assert (found.steps, found.accepted, found.drafted, found.emitted) == (8, 8, 24, 16)


def test_drafts_that_a_stop_cut_off_count_as_accepted() -> None:
    # The last step accepted 3 and gave 4 tokens, of which the stop left 1: 13 tokens left 8 steps.
    found = request_counts([figures(spec_accept_length=14 / 8)], None)
    assert found is not None
    assert (found.accepted, found.emitted) == (8, 13)


def test_tokens_without_a_verification_leave_the_steps_unknown() -> None:
    # A retracted request reads its prompt again, which gives one more token than 8 steps and 8 drafts can.
    found = request_counts([figures(spec_accept_length=18 / 8), figures()], None)
    assert found is not None
    assert (found.steps, found.emitted, found.drafting_steps, found.accepted) == (None, None, 16, 16)
    assert found.not_given["steps"].startswith("tokens left the request without a verification")


@pytest.mark.parametrize(
    "changes",
    [
        {"spec_correct_drafts_histogram": [3, 3, 1]},
        {"spec_correct_drafts_histogram": [4, 2, 1, 1]},
        {"spec_num_proposed_drafts": 7},
        {"spec_accepted_drafts": 9},
        {"spec_verify_ct": 7},
        {"spec_verify_ct": -8},
        {"spec_verify_ct": None},
        {"spec_verify_ct": True},
        {"spec_num_correct_drafts": "8"},
        {"spec_correct_drafts_histogram": [3, 3, 1, -1]},
        {"spec_correct_drafts_histogram": "3"},
        {"spec_accept_length": 2.13},
        {"spec_accept_length": float("nan")},
        {"spec_accept_length": "2"},
        {"spec_accept_length": 1e308},
        {"spec_accept_length": 10**400},
        {"completion_tokens": 18},
    ],
)
def test_figures_that_contradict_each_other_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(MeasureError, match="answer 1"):
        request_counts([figures(), figures(**changes)], "0.5.19")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=5))
def test_histograms_come_back_as_counts_and_positions(histograms: list[list[int]]) -> None:
    stats = []
    for bins in histograms:
        calls, accepted = sum(bins), sum(i * n for i, n in enumerate(bins))
        stats.append(
            {
                "spec_verify_ct": calls,
                "spec_num_correct_drafts": accepted,
                "spec_num_proposed_drafts": calls * 5,
                "spec_correct_drafts_histogram": bins if calls else [],
                "spec_accept_length": (1 + calls + accepted) / calls if calls else 0.0,
            }
        )
    found = request_counts(stats, None)
    assert found is not None
    assert found.steps == sum(map(sum, histograms))
    assert found.accepted == sum(i * n for bins in histograms for i, n in enumerate(bins))
    assert found.accepted_per_position is None or sum(found.accepted_per_position) == found.accepted


JSON = st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3) | st.lists(st.integers(-1, 3))
NAMES = st.sampled_from(
    [
        "spec_verify_ct",
        "spec_num_correct_drafts",
        "spec_accept_histogram",
        "spec_accept_length",
        "completion_tokens",
        "x",
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(NAMES, JSON), max_size=3))
def test_odd_figures_raise_nothing_else(items: list[dict[str, object]]) -> None:
    try:
        found = request_counts(items, None)
    except MeasureError:
        return
    for name in FIELDS if found else ():
        assert (getattr(found, name) is None) == (name in (found.not_given if found else {}))
    for item in items:
        request_stats({"meta_info": item})
        request_stats({"sglext": {"spec_tokens_details": item}})
