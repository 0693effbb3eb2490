"""Figures of engines that count in different ways are shown for each and compared for none."""

from draftworth.engines.base import AcceptanceCounts, synthetic_in
from draftworth.findings import Code
from draftworth.trials.unlike import not_compared, other_engines

VLLM = AcceptanceCounts(
    steps=100, drafting_steps=40, drafted=120, accepted=60, emitted=158, source="/metrics of vLLM 0.32.0"
)
SGLANG = AcceptanceCounts(
    steps=100,
    drafting_steps=100,
    accepted=58,
    emitted=158,
    source="/metrics of SGLang 0.5.19",
    not_given={"drafted": "SGLang counts no drafted tokens"},
    meaning={"accepted": "without what a stop cut off"},
)


def test_lengths_over_accepted_tokens_of_two_meanings_are_not_compared_and_the_reason_is_said() -> None:
    (found,) = not_compared([("baseline", None), ("ngram", VLLM), ("eagle", SGLANG)])
    assert found.code is Code.NOT_COMPARED
    assert found.message == (
        "ngram and eagle: acceptance length per drafting step: its counts differ in meaning "
        "(as defined / accepted: without what a stop cut off)"
    )


def test_figures_of_one_meaning_are_compared() -> None:
    assert not_compared([("a", VLLM), ("b", VLLM)]) == []
    assert not_compared([("a", SGLANG), ("b", SGLANG)]) == []


def test_a_figure_only_one_arm_tells_is_no_comparison_to_refuse() -> None:
    silent = AcceptanceCounts(source="none", meaning={"accepted": "another"})
    assert not_compared([("a", VLLM), ("b", silent)]) == []


def test_arms_of_two_engines_differ_in_more_than_speculation() -> None:
    (found,) = other_engines({"baseline": "vllm", "ngram": "vllm", "eagle": "sglang"})
    assert (found.code, found.arm) == (Code.CONFOUNDED, "eagle")
    assert "eagle is served by sglang and baseline by vllm" in found.message
    assert other_engines({"baseline": "vllm", "ngram": "vllm"}) == []


def test_simulated_acceptance_is_seen_in_every_engines_way_to_ask_for_it() -> None:
    assert synthetic_in({"rejection_sample_method": "synthetic"}) == "rejection_sample_method = synthetic"
    assert synthetic_in(None, {"SGLANG_SIMULATE_ACC_LEN": "2.5"}) == "SGLANG_SIMULATE_ACC_LEN = 2.5"
    assert synthetic_in(None, {"SGLANG_SIMULATE_ACC_LEN": "-1"}) is None
    assert synthetic_in(None, {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "3"}) is not None
    assert synthetic_in({"spec-synth-len": 2}) == "spec-synth-len = 2"
    assert synthetic_in({"method": "ngram"}, {}) is None
