import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import MetricsSnapshot
from draftworth.engines.counts import FIELDS, figure
from draftworth.engines.llamacpp import LlamaCpp
from draftworth.engines.llamacpp.metrics import counts, parse_metrics, told, totals
from draftworth.engines.llamacpp.rounding import difference, ends
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data" / "llamacpp"


def page(name: str) -> MetricsSnapshot:
    return parse_metrics((DATA / f"{name}.txt").read_text(encoding="utf-8"))


def timings(name: str) -> list[dict[str, Any]]:
    answers = json.loads((DATA / f"{name}_answers.json").read_text(encoding="utf-8"))
    return [(one.get("answer") or one["chunks"][-1])["timings"] for one in answers]


@pytest.mark.parametrize("name", ["ngram_simple", "ngram_mod"])
def test_a_real_servers_counters_are_the_sums_of_its_answers_timings(name: str) -> None:
    answers = timings(name)
    found = counts(page(f"{name}_metrics_before"), page(f"{name}_metrics_after"), "b11434")
    assert found.drafted == sum(one.get("draft_n", 0) for one in answers) > 0
    assert found.accepted == sum(one.get("draft_n_accepted", 0) for one in answers)
    assert found.emitted == sum(one["predicted_n"] for one in answers)
    assert found.accepted_per_position is not None
    assert sum(found.accepted_per_position) == found.accepted
    assert found.not_given == {}
    assert found.source == "/metrics of llama.cpp b11434, difference of two scrapes"


@pytest.mark.parametrize("name", ["baseline", "ngram_simple", "ngram_mod"])
def test_on_a_real_server_tokens_less_accepted_ones_are_its_decode_calls(name: str) -> None:
    # One request at a time and prompts of one batch: each call is one request's prompt or one of its steps.
    before, after = page(f"{name}_metrics_before"), page(f"{name}_metrics_after")
    calls = after.counters["llamacpp:n_decode_total"] - before.counters["llamacpp:n_decode_total"]
    assert counts(before, after).steps == calls


def test_what_is_counted_otherwise_than_defined_is_said() -> None:
    found = totals(page("ngram_simple_metrics_after"))
    assert set(found.meaning) == {"steps", "emitted"}
    assert "first one" in found.meaning["emitted"]
    assert "prompt is one step more" in found.meaning["steps"]
    assert figure(found, "length_per_step").meaning
    assert not figure(found, "acceptance_rate").meaning


def test_a_server_that_does_not_speculate_counts_zero_drafts_and_no_positions() -> None:
    found = totals(page("baseline_metrics_after"), "b11434")
    assert (found.drafted, found.accepted, found.drafting_steps) == (0, 0, 0)
    assert found.accepted_per_position is None
    assert set(found.not_given) == {"accepted_per_position"}
    assert "once a draft was verified" in found.not_given["accepted_per_position"]
    assert found.steps == found.emitted


def test_the_prompt_cache_of_a_real_server() -> None:
    before, after = page("baseline_metrics_before"), page("baseline_metrics_after")
    answers = timings("baseline")
    cached = sum(one["cache_n"] for one in answers)
    looked_up = cached + sum(one["prompt_n"] for one in answers)
    assert LlamaCpp().prefix_cache(before, after) == (looked_up, cached)
    assert LlamaCpp().generated_tokens(before, after) == sum(one["predicted_n"] for one in answers)
    assert LlamaCpp().requests_finished(before, after) is None


def test_a_build_before_10289_counts_tokens_only() -> None:
    found = totals(page("metrics_9093"), "b9093")
    assert found.emitted == 120
    assert set(found.not_given) == set(FIELDS) - {"emitted"}
    assert "b10289" in found.not_given["drafted"]
    assert "how many steps" in found.not_given["steps"]
    assert LlamaCpp().prefix_cache(page("metrics_9093"), page("metrics_9093")) is None


def test_a_build_of_10289_counts_drafts() -> None:
    found = totals(page("metrics_10289"))
    assert (found.drafted, found.accepted, found.drafting_steps) == (900, 700, 300)
    assert found.accepted_per_position == (290, 240, 170)
    assert (found.emitted, found.steps) == (2000, 1300)
    assert found.length_per_drafting_step == pytest.approx(1 + 700 / 300)
    assert found.not_given == {}


def test_counters_above_a_million_are_known_between_two_ends() -> None:
    # 1.5e+06 is 1 499 995 to 1 500 005, 1.65e+06 is 1 649 995 to 1 650 005: between 149 990 and 150 010 were drafted.
    before, after = page("metrics_large_before"), page("metrics_large_after")
    found = counts(before, after)
    assert found.between["drafted"] == (149_990, 150_010)
    assert found.between["emitted"] == (199_990, 200_010)
    assert found.drafting_steps == 50_000
    # By position nothing is rounded: 45 432 + 33 000 + 21 565.
    assert found.accepted == 99_997
    assert found.between["steps"] == (199_990 - 99_997, 200_010 - 99_997)
    assert (found.drafted, found.emitted, found.steps) == (None, None, None)
    assert found.not_given == {}
    rate = figure(found, "acceptance_rate")
    assert (rate.low, rate.high) == (99_997 / 150_010, 99_997 / 149_990)
    assert LlamaCpp().generated_tokens(before, after) is None


def test_without_positions_accepted_tokens_stay_between_their_ends() -> None:
    text = (DATA / "metrics_large_after.txt").read_text(encoding="utf-8")
    found = totals(parse_metrics("".join(line for line in text.splitlines(keepends=True) if "per_pos" not in line)))
    assert found.between["accepted"] == (1_087_645, 1_087_655)
    assert found.not_given["accepted_per_position"] == "the page has no accepted tokens by position"


def test_the_first_draft_of_a_window_brings_the_positions() -> None:
    found = counts(page("ngram_simple_metrics_before"), page("ngram_simple_metrics_after"))
    assert page("ngram_simple_metrics_before").per_position is None
    assert found.accepted_per_position == totals(page("ngram_simple_metrics_after")).accepted_per_position


def test_a_forks_names_are_read_and_said() -> None:
    found = totals(page("metrics_fork_25327"))
    assert (found.drafted, found.accepted, found.drafting_steps) == (300, 240, 100)
    assert (found.emitted, found.steps) == (500, 260)
    assert found.meaning["drafted"] == "as a fork counts it that has the names of pull requests 25327 and 24850"
    assert "fork's names" in found.not_given["accepted_per_position"]
    rate, length = told(page("metrics_fork_25327"))
    assert (rate.name, rate.value) == ("draft_acceptance_rate", 0.8)
    assert length.value == 3.4
    assert "1 + accepted / verified drafts" in length.formula
    other = totals(page("metrics_fork_23328"))
    assert (other.drafted, other.accepted, other.drafting_steps) == (300, 240, None)
    assert told(page("metrics_10289")) == ()


def test_counters_of_one_name_are_never_mixed_with_anothers() -> None:
    text = (DATA / "metrics_10289.txt").read_text(encoding="utf-8") + "llamacpp:draft_tokens_total 5\n"
    assert totals(parse_metrics(text)).drafted == 900


@pytest.mark.parametrize(
    ("name", "value"),
    [("spec_decode_num_drafts_total", 1), ("tokens_predicted_total", 3), ("spec_decode_num_accepted_tokens_total", 2)],
)
def test_a_counter_that_falls_is_no_window(name: str, value: float) -> None:
    before = page("metrics_10289")
    after = before.model_copy(update={"counters": {**before.counters, f"llamacpp:{name}": value}})
    with pytest.raises(MeasureError, match="fell from"):
        counts(before, after)


def test_counters_that_go_between_two_scrapes_are_another_build() -> None:
    with pytest.raises(MeasureError, match="went between two scrapes"):
        counts(page("metrics_10289"), page("metrics_9093"))


def test_another_number_of_positions_is_another_start() -> None:
    before, after = page("metrics_10289"), page("metrics_10289")
    after = after.model_copy(update={"per_position": (290.0, 240.0)})
    with pytest.raises(MeasureError, match="2 positions after 3"):
        counts(before, after)


def test_a_page_that_was_cut_gives_no_count_of_the_cut_series() -> None:
    text = (DATA / "metrics_10289.txt").read_text(encoding="utf-8")
    whole = text.index("llamacpp:spec_decode_num_drafts_total 300")
    found = totals(parse_metrics(text[: whole + len("llamacpp:spec_decode_num_drafts_total 3")]))
    assert found.drafting_steps is None
    assert "could not be read" in found.not_given["drafting_steps"]
    assert (found.drafted, found.accepted) == (900, 700)


@pytest.mark.parametrize("bad", ["NaN", "-3", "+Inf", "seven"])
def test_a_value_that_is_no_count_is_left_out_and_said(bad: str) -> None:
    text = (DATA / "metrics_10289.txt").read_text(encoding="utf-8")
    snapshot = parse_metrics(text.replace("draft_tokens_total 900", f"draft_tokens_total {bad}"))
    assert [one.code for one in snapshot.findings] == [Code.METRICS_UNREADABLE]
    assert totals(snapshot).drafted is None


@pytest.mark.parametrize(
    "text",
    ["", "<html>not found</html>", '{"error": "This server does not support metrics endpoint"}', "vllm:x_total 1\n"],
)
def test_what_is_no_page_of_llama_cpp_is_refused(text: str) -> None:
    with pytest.raises(MeasureError):
        parse_metrics(text)


def test_another_programs_page_is_named() -> None:
    text = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 5\n"
    with pytest.raises(
        MeasureError, match=r"no llamacpp: counters \(there are vllm:generation_tokens_total\).*--metrics"
    ):
        parse_metrics(text)


@settings(max_examples=100)
@given(st.integers(0, 1 << 45), st.integers(0, 1 << 45))
def test_the_true_growth_lies_between_the_ends(start: int, growth: int) -> None:
    # As `<<` of a C++ stream writes a double: six significant digits.
    before, after = float(f"{start:.6g}"), float(f"{start + growth:.6g}")
    low, high = difference(before, after)
    assert low <= growth <= high
    assert ends(before)[0] <= start <= ends(before)[1]


def test_a_value_with_more_digits_was_not_rounded() -> None:
    assert ends(1_234_567.0) == (1_234_567, 1_234_567)
    assert ends(1_234_570.0) == (1_234_565, 1_234_575)
    assert ends(999_999.0) == (999_999, 999_999)


@settings(max_examples=100)
@given(st.text(max_size=300))
def test_any_text_is_a_page_or_refused(text: str) -> None:
    for candidate in (text, f"llamacpp:{text}", f"# TYPE llamacpp:x counter\nllamacpp:x {text}"):
        try:
            snapshot = parse_metrics(candidate)
        except MeasureError:
            continue
        assert totals(snapshot).drafted is None
