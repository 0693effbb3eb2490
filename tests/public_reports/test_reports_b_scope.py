"""Public reports 17 to 20: whose counts they are, and what a reset or several ranks do to them."""

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving
from tests.public_reports.scripted import Series, acceptance, bench, codes, counted, spec, trial

from draftworth.engines.vllm import VLLM


def test_18_sglang_29329_counters_set_to_zero_in_the_window_are_dropped_and_the_times_stay() -> None:
    """sgl-project/sglang PR #29329: a flush zeroes the counters, and what is left looks like a short run."""
    script = Script(tokens=25, tokens_per_chunk=(3,), token_ms=1.0, reset_counters_after=4)
    with serving(script, speculative_config=spec(3)) as server:
        record = bench(server.base_url, "--limit", "5", "--max-tokens", "25")
    point = record["points"][0]
    assert "counter_reset" in codes(record)
    assert point["acceptance"] is None
    assert (point["requests"], point["failed"], point["tokens"]) == (5, 0, 125)
    assert point["tpot_ms"]["mean"] == pytest.approx(1.0, rel=0.3)


def test_18_sglang_29329_a_window_of_two_steps_is_counted() -> None:
    """sgl-project/sglang PR #29329: nothing is told of fewer than 40 decode steps. Here: 1 + 3 + 2 tokens, 2 steps."""
    script = Script(tokens_per_chunk=(3,), token_ms=0.5)
    with serving(script, speculative_config=spec(3)) as server:
        found = acceptance(bench(server.base_url, "--limit", "1", "--max-tokens", "6")["points"][0])
    assert (found.steps, found.drafted, found.accepted, found.emitted) == (2, 6, 3, 5)


def test_19_vllm_24049_every_rank_is_counted() -> None:
    """vllm-project/vllm PR #24049: metrics are per engine under data parallelism. 8 answers on 4 ranks of 2."""
    script = Script(tokens=25, tokens_per_chunk=(3,), token_ms=0.2, engines=4)
    with serving(script, speculative_config=spec(3)) as server:
        found = acceptance(bench(server.base_url, "--limit", "8", "--max-tokens", "25")["points"][0])
        ranks = [engine.draft_tokens for engine in server.metrics.engines]
    assert min(ranks) >= 2 * 8 * 3, "no rank was idle"
    assert (found.steps, found.drafted, found.accepted) == (8 * 8, 8 * 8 * 3, 8 * 8 * 2)
    assert "4 engines" in found.source


def test_19_vllm_24049_ranks_are_pooled_not_averaged() -> None:
    """vllm-project/vllm PR #24049, with the lengths of sglang PR #34743: 2.9 on 10 steps and 3.67 on 100.

    Together 1 + (19 + 267) / 110 = 3.6; the mean of the two would be 3.285, and the first alone 2.9.
    """
    found = counted(
        Series(drafts=10, drafted=30, accepted=19, steps=10, generated=30, first=1),
        Series(drafts=100, drafted=300, accepted=267, steps=100, generated=368, first=1),
    )
    assert found.length_per_drafting_step == pytest.approx(3.6)
    assert found.length_per_step == pytest.approx((29 + 367) / 110)


def of_half_a_server(monkeypatch: pytest.MonkeyPatch, spec_stats: str) -> Any:
    """Return the record of a server with two ranks whose page shows one of them: 4 or 5 of 8 answers are counted."""
    monkeypatch.setattr("draftworth.bench.window._SETTLE_S", 0.2)
    script = Script(tokens=25, tokens_per_chunk=(3,), token_ms=0.2, engines=2, engines_shown=1)
    with serving(script, speculative_config=spec(3), spec_stats=spec_stats) as server:
        return bench(server.base_url, "--limit", "8", "--max-tokens", "25")


def test_17_and_19_a_page_of_one_rank_contradicts_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """sgl-project/sglang PR #34743 shows one rank of several; vllm-project/vllm PR #24049: totals are over all."""
    assert "counts_disagree" in codes(of_half_a_server(monkeypatch, "summary"))


def test_17_and_19_a_page_of_one_rank_is_told_without_figures_in_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """sgl-project/sglang PR #34743, on vLLM's counters: half of the steps, shown as all of them."""
    record = of_half_a_server(monkeypatch, "none")
    found = record["points"][0]["acceptance"]
    assert found is None or found["steps"] == 8 * 8 or {"counts_disagree", "metrics_missing"} & codes(record)


def test_20_llama_swap_1032_on_a_shared_server_the_answers_tell_what_is_ours(tmp_path: Path) -> None:
    """mostlygeek/llama-swap #1032, syv-ai/qwen38-27b-rtx3090 #66: acceptance of one's own requests on a shared server.

    Ours: 5 answers of 25 tokens in 8 steps. Somebody else's ten requests without a draft are in the totals alone.
    """
    script = Script(tokens=25, tokens_per_chunk=(3,), token_ms=0.4, foreign_requests=10)
    with (
        serving(Script(tokens=25, token_ms=1.0)) as plain,
        serving(script, speculative_config=spec(3), spec_stats="summary") as other,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 1\nmax_tokens = 25",
            verdict="output_check = false",
        )
    arm = record["arms"][1]
    ours = arm["per_request"]
    assert (ours["drafting_steps"], ours["drafted"], ours["accepted"]) == (40, 120, 80)
    assert arm["acceptance"]["steps"] > 40
    assert "foreign_requests" in codes(record)
    assert record["verdict"] == "inconclusive"


def test_20_figures_of_an_answer_are_asked_for_from_the_release_that_has_them() -> None:
    """syv-ai/qwen38-27b-rtx3090 #66, mostlygeek/llama-swap #1032: the flag is of 0.29; 0.28 does not start with it."""
    assert VLLM().measuring_args("0.28.0") == ()
    assert VLLM().measuring_args("0.29.0") == ("--per-request-spec-decode-metrics", "summary")
