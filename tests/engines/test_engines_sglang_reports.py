"""Reports of wrong or misread acceptance on SGLang, each with what is said about it here."""

from draftworth.engines.base import Planned, StartupFacts, Window
from draftworth.engines.counts import not_comparable
from draftworth.engines.sglang import SGLang
from draftworth.engines.sglang.per_request import request_counts, request_stats
from draftworth.engines.sglang.releases import RATE_NEW, RATE_OLD
from draftworth.findings import Code, Finding


def line(length: str, rate: str) -> str:
    return (
        f"[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 9, token usage: 0.00, accept len: {length}, "
        f"accept rate: {rate}, cuda graph: True, gen throughput (token/s): 9.00, #queue-req: 0"
    )


def server_args(width: int) -> str:
    return (
        "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE', "
        f"speculative_num_draft_tokens={width})"
    )


def test_a_rate_above_1_is_no_rate() -> None:
    """sgl-project/sglang PR #11572: accept rate printed above 1."""
    found = SGLang("0.5.4").window_reader().take(line("3.20", "1.07"))
    assert isinstance(found, Finding)
    assert found.code == Code.COUNTS_CONTRADICT
    assert "above 1" in found.message


def test_a_rate_without_any_accepted_draft_is_known_for_the_old_formula() -> None:
    """sgl-project/sglang PR #23530: the rate was (accepted + 1) / (proposed + 1), so it was never 0."""
    for reader in (SGLang("0.5.10").window_reader(), SGLang().window_reader()):
        found = reader.take(line("1.00", "0.25"))  # N = 4: 1 / 4 though nothing was accepted
        assert isinstance(found, Window)
        assert found.told[1].value == 0.25
        assert found.told[1].formula.startswith(RATE_OLD)
    reader = SGLang().window_reader()
    assert reader.take(server_args(4)) is None
    found = reader.take(line("1.00", "0.00"))
    assert isinstance(found, Window)
    assert found.told[1].formula.startswith(RATE_NEW)


def test_zeros_of_ngram_in_an_answer_are_not_taken_for_acceptance() -> None:
    """sgl-project/sglang PR #13754: the log shows 4.00 / 0.80, the client gets 0.0 / 0."""
    found = SGLang("0.5.5").window_reader().take(line("4.00", "0.80"))
    assert isinstance(found, Window)
    assert [(one.name, one.value) for one in found.told] == [("accept len", 4.0), ("accept rate", 0.8)]
    answer = {
        "meta_info": {
            "finish_reason": {"type": "length"},
            "completion_tokens": 41,
            "spec_accept_rate": 0.0,
            "spec_accept_length": 0,
            "spec_verify_ct": 10,
        }
    }
    counts = request_counts([request_stats(answer)], "0.5.5")
    assert counts is not None
    assert (counts.steps, counts.emitted, counts.length_per_step) == (10, 40, 4.0)
    assert counts.accepted is None
    assert counts.acceptance_rate is None
    assert counts.not_given["accepted"].startswith("this release tells only verify calls")


def test_an_ngram_histogram_that_is_off_by_one_gives_no_acceptance() -> None:
    """sgl-project/sglang PR #24965: each step was counted with one accepted draft too few."""
    # 10 steps of 3 accepted drafts each give 41 tokens with prefill's; the build told 2 a step.
    shifted = {
        "spec_verify_ct": 10,
        "spec_accepted_drafts": 20,
        "spec_proposed_drafts": 40,
        "spec_accept_histogram": [0, 0, 10],
        "spec_accept_length": 4.1,
    }
    counts = request_counts([shifted], "0.5.11")
    assert counts is not None
    assert (counts.accepted, counts.accepted_per_position) == (None, None)
    assert (counts.steps, counts.emitted, counts.length_per_step) == (10, 40, 4.0)
    assert "PR #24965" in counts.not_given["accepted"]
    right = request_counts([{**shifted, "spec_accepted_drafts": 30, "spec_accept_histogram": [0, 0, 0, 10]}], "0.5.12")
    assert right is not None
    assert (right.accepted, right.accepted_per_position, right.acceptance_rate) == (30, (10, 10, 10), 0.75)


def test_the_same_number_is_not_the_same_number_of_drafts() -> None:
    """sgl-project/sglang #8228, vllm-project/vllm PR #16035: N counts the root, k does not."""
    arm = Planned(name="v", speculation={"algorithm": "EAGLE", "draft_model_path": "d", "num_draft_tokens": 4})
    notes = {one.code: one for one in SGLang("0.5.23").doubts(arm, StartupFacts())}
    assert notes["root_counted"].what == "num_draft_tokens 4 counts the root: a step drafts 3 tokens"
    assert notes["root_counted"].fix == "compare with num_speculative_tokens 3 of vLLM"


def test_a_rank_that_is_silent_is_not_taken_for_all() -> None:
    """sgl-project/sglang PR #34743: internal_states[0] is one data-parallel rank of several."""
    page = {
        "model_path": "m",
        "schedule_policy": "fcfs",
        "mem_fraction_static": 0.8,
        "speculative_algorithm": "EAGLE",
        "internal_states": [{"avg_spec_accept_length": value} for value in (None, None, 2.90, 3.67)],
    }
    found = SGLang().read_page(page)
    assert found is not None
    assert [(one.value, one.scope[-6:]) for one in found.told] == [(2.9, "rank 2"), (3.67, "rank 3")]
    assert Code.PARTIAL_RANKS in {one.code for one in found.findings}
    assert found.counts is None  # two averages cannot be added


def test_an_average_that_is_missing_after_a_flush_is_missing_and_not_zero() -> None:
    """sgl-project/sglang PR #29329: /flush_cache zeroes the counters; no key before 40 decode steps."""
    page = {"model_path": "m", "schedule_policy": "f", "mem_fraction_static": 0.8, "speculative_algorithm": "EAGLE"}
    found = SGLang().read_page({**page, "internal_states": [{"last_gen_throughput": 1.0}]})
    assert found is not None
    assert found.told == ()
    assert [one.code for one in found.findings] == [Code.NO_SPECULATION_SEEN]
    later = SGLang().read_page({**page, "internal_states": [{"avg_spec_accept_length": 2.5}]})
    assert later is not None
    assert [one.scope for one in later.told] == ["since the last reset"]
    assert [one.code for one in later.findings] == [Code.LIFETIME_AVERAGE]


def test_drafts_counted_by_configuration_are_not_compared_with_drafts_that_were_made() -> None:
    """SGLang's proposed tokens are steps x (N - 1), whatever was drafted; vLLM counts what was drafted."""
    ours = request_counts(
        [{"spec_verify_ct": 2, "spec_num_correct_drafts": 1, "spec_num_proposed_drafts": 6, "spec_accept_length": 2.0}],
        "0.5.23",
    )
    assert ours is not None
    theirs = ours.model_copy(update={"meaning": {}})
    assert not_comparable("acceptance_rate", ours, theirs)
    assert not_comparable("length_per_step", ours, theirs) is None
