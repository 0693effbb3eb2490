from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.counts import FIELDS, figure
from draftworth.engines.sglang import SGLang
from draftworth.engines.sglang.metrics import (
    counts,
    generated_tokens,
    parse_metrics,
    prefix_cache,
    requests_finished,
    told,
    totals,
)
from draftworth.engines.sglang.releases import RATE_NEW, RATE_OLD, RATE_UNKNOWN
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data" / "sglang"


def text(name: str) -> str:
    return (DATA / f"metrics_{name}.txt").read_text(encoding="utf-8")


OLD, RATED = parse_metrics(text("0.5.3")), parse_metrics(text("0.5.9"))
FRESH, BEFORE, AFTER = (parse_metrics(text(f"0.5.13_{name}")) for name in ("fresh", "before", "after"))
NEWEST = parse_metrics(text("0.5.23"))


def test_a_window_is_counted_from_verify_calls_and_tokens_of_the_requests_that_finished_in_it() -> None:
    # 10 requests got 2320 - 810 = 1510 tokens in 1000 - 400 = 600 verify calls; 10 tokens came from prefill.
    found = counts(BEFORE, AFTER, "0.5.13")
    assert (found.steps, found.drafting_steps, found.emitted) == (600, 600, 1500)
    assert found.accepted == 1500 - 600
    assert found.length_per_step == 2.5
    assert found.length_per_drafting_step == 2.5
    assert found.acceptance_rate is None
    assert found.source == (
        "/metrics of SGLang 0.5.13, 2 data-parallel ranks, requests that finished between two scrapes"
    )
    assert set(found.meaning) == {"steps", "drafting_steps", "accepted", "emitted"}
    coverage = figure(found, "coverage")
    assert coverage.value == 1
    assert "steps: verify calls: plain decode steps are counted nowhere" in coverage.meaning


def test_requests_tokens_and_the_prefix_cache_come_from_counters_that_have_one_series_a_server() -> None:
    assert requests_finished(BEFORE, AFTER) == 10
    assert generated_tokens(BEFORE, AFTER) == 1510  # not the schedulers' realtime_tokens, which every rank has
    # No series of cached tokens before the first hit: 100 on the device and 8 on the host are all of this window.
    assert prefix_cache(BEFORE, AFTER) == (1800, 108)


def test_a_window_may_open_on_a_server_that_has_answered_nobody() -> None:
    found = counts(FRESH, AFTER, "0.5.13")
    assert (found.steps, found.emitted, found.accepted) == (1000, 2300, 1300)
    assert requests_finished(FRESH, AFTER) == 20
    assert counts(FRESH, FRESH, "0.5.13").not_given["steps"] == "no speculating request finished"
    assert counts(FRESH, FRESH, "0.5.13").emitted is None
    assert requests_finished(FRESH, FRESH) is None


def test_totals_are_the_counts_since_the_start() -> None:
    found = totals(AFTER, "0.5.13")
    assert (found.steps, found.emitted, found.accepted) == (1000, 2300, 1300)
    assert found.source.endswith("since the start")


def test_counters_split_by_streaming_add_up_to_the_same() -> None:
    found = totals(NEWEST, "0.5.23")
    assert (found.steps, found.emitted, found.accepted) == (1000, 2300, 1300)
    assert prefix_cache(FRESH, NEWEST) == (3000, 108)


@pytest.mark.parametrize(("page", "version"), [(OLD, "0.5.3"), (RATED, "0.5.9"), (OLD, "0.4.6"), (OLD, "0.5.12")])
def test_a_release_without_the_counter_gives_emitted_tokens_only_and_says_why(page: object, version: str) -> None:
    found = totals(OLD if page is OLD else RATED, version)
    assert found.emitted == 500
    for name in ("steps", "drafting_steps", "drafted", "accepted", "accepted_per_position"):
        assert getattr(found, name) is None
        assert found.not_given[name] == f"SGLang {version} counts no verify calls on its page (0.5.13 and later do)"


def test_without_a_version_the_reason_leaves_both_possible() -> None:
    assert totals(OLD).not_given["steps"] == (
        "no speculating request finished, or the release is older than 0.5.13 and counts no verify calls"
    )


def test_every_count_is_given_or_has_a_reason() -> None:
    for found in (counts(BEFORE, AFTER), totals(OLD), totals(FRESH), totals(NEWEST, "0.5.23"), counts(FRESH, OLD)):
        for name in FIELDS:
            assert (getattr(found, name) is None) == (name in found.not_given), name


def test_gauges_are_told_with_the_formula_of_the_release_and_never_added() -> None:
    (length,) = told(OLD, "0.5.3")
    assert (length.name, length.value) == ("spec_accept_length", 2.4375)
    assert [(one.name, one.formula) for one in told(RATED, "0.5.9")][1] == ("spec_accept_rate", RATE_OLD)
    assert told(RATED)[1].formula == RATE_UNKNOWN
    assert told(RATED, "0.5.10")[1].formula == RATE_OLD
    assert told(RATED, "0.5.11")[1].formula == RATE_NEW


def test_each_rank_is_told_for_itself() -> None:
    found = [(one.name, one.value) for one in told(AFTER)]
    assert found == [
        ("spec_accept_length", 2.5),
        ("spec_accept_rate", 0.5),
        ("spec_num_steps", 3),
        ("spec_num_draft_tokens", 4),
        ("spec_accept_length", 1),
        ("spec_accept_rate", 0),
        ("spec_num_steps", 3),
        ("spec_num_draft_tokens", 4),
    ]
    assert told(AFTER)[4].scope.endswith("series 2 of 2")
    assert told(AFTER)[1].formula == RATE_NEW  # a page with the gauge of N is of 0.5.13 or later


def test_a_gauge_of_zero_says_that_nothing_was_verified_and_is_not_told() -> None:
    assert told(FRESH) == ()
    assert [one.value for one in told(BEFORE) if one.name == "spec_accept_length"] == [2.0]


def test_gauges_of_variable_length_verification_are_told_where_they_are_used() -> None:
    found = [(one.name, one.value) for one in told(NEWEST)]
    assert ("spec_cap_length", 2.75) in found
    assert not any(name == "spec_block_accept_length" for name, _ in found)


def test_an_impossible_gauge_is_left_out_and_said() -> None:
    page = parse_metrics(text("0.5.9").replace("0.609375", "1.22"))
    assert [one.code for one in page.findings] == [Code.COUNTS_CONTRADICT]
    assert [one.name for one in told(page, "0.5.9")] == ["spec_accept_length"]
    assert told(parse_metrics(text("0.5.9").replace("2.4375", "NaN")), "0.5.9")[0].name == "spec_accept_rate"


def test_a_counter_that_fell_or_went_is_a_restart() -> None:
    with pytest.raises(MeasureError, match="fell from"):
        counts(AFTER, BEFORE)
    with pytest.raises(MeasureError, match="went between"):
        requests_finished(AFTER, FRESH)
    with pytest.raises(MeasureError, match="went between"):
        prefix_cache(AFTER, FRESH)


def test_contradicting_counters_give_no_acceptance() -> None:
    wrong = AFTER.model_copy(update={"counters": {**AFTER.counters, "sglang:spec_verify_calls_total": 9000.0}})
    found = totals(wrong, "0.5.13")
    assert (found.accepted, found.steps) == (None, 9000)
    assert found.not_given["accepted"] == "2,300 emitted tokens of 9,000 verify calls contradict each other"
    wrong = AFTER.model_copy(update={"counters": {**AFTER.counters, "sglang:generation_tokens_total": 3.0}})
    assert totals(wrong).not_given["emitted"] == "3 generated tokens of 20 finished requests contradict each other"
    assert totals(wrong).accepted is None


def test_a_page_that_was_cut_off_gives_no_count_that_it_may_have_lost() -> None:
    page = text("0.5.13_after")
    cut = parse_metrics(page[: page.index("sglang:spec_verify_calls_total{") + 45])
    assert Code.METRICS_CUT in {one.code for one in cut.findings}
    found = counts(BEFORE, cut, "0.5.13")
    assert found.steps is None
    assert found.not_given["steps"] == "the page has no readable sglang:spec_verify_calls_total"
    assert requests_finished(BEFORE, cut) is None
    # A window that opens with a damaged page cannot take a counter that is not there for zero.
    assert counts(cut, AFTER, "0.5.13").steps is None


def test_bad_values_spoil_their_counter_only() -> None:
    page = parse_metrics(text("0.5.13_after").replace('calls_total{model_name="llama-8b"} 1000.0', "calls_total{} -5"))
    found = totals(page, "0.5.13")
    assert (found.steps, found.accepted, found.emitted) == (None, None, 2300)
    assert [one.code for one in page.findings] == [Code.METRICS_UNREADABLE]


def test_several_models_are_read_apart() -> None:
    two = text("0.5.13_after") + text("0.5.13_after").replace("llama-8b", "other")
    assert totals(parse_metrics(two)).steps == 2000
    assert totals(SGLang().parse_metrics(two, "other")).steps == 1000
    assert [one.code for one in parse_metrics(two).findings] == [Code.SEVERAL_MODELS]


@pytest.mark.parametrize("page", ["", "<html>no</html>", "vllm:num_requests_running 1.0\n", "\x00\x01\xff", "{}"])
def test_another_programs_page_is_refused(page: str) -> None:
    with pytest.raises(MeasureError):
        parse_metrics(page)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200), st.integers(0, 2000))
def test_a_damaged_page_never_raises_anything_else_and_never_gives_a_count_without_reason(junk: str, at: int) -> None:
    page = text("0.5.13_after")
    try:
        found = totals(parse_metrics(page[:at] + junk + page[at:]), "0.5.13")
    except MeasureError:
        return
    for name in FIELDS:
        assert (getattr(found, name) is None) == (name in found.not_given)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 500), st.integers(1, 10**6), st.integers(0, 10**6))
def test_what_is_written_is_read(requests: int, calls: int, accepted: int) -> None:
    page = (
        f'sglang:num_requests_total{{model_name="m"}} {requests}\n'
        f'sglang:generation_tokens_total{{model_name="m"}} {requests + calls + accepted}\n'
        f'sglang:spec_verify_calls_total{{model_name="m"}} {calls}\n'
    )
    found = totals(parse_metrics(page))
    assert (found.steps, found.accepted, found.emitted) == (calls, accepted, calls + accepted)
