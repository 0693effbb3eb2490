"""Public reports 30 to 37, and sections 2.2, 2.5 and 2.6: comparisons that compare something else."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving
from tests.public_reports.scripted import (
    advice,
    bench,
    bench_rows,
    codes,
    draftworth,
    judged,
    rows,
    spec,
    trial,
)

from draftworth.bench import run
from draftworth.bench.base import Closed, Prompt, RequestRow, Sampling, Target
from draftworth.bench.doubts import client_findings
from draftworth.bench.points import Point
from draftworth.bench.window import Window
from draftworth.engines.base import StartupFacts
from draftworth.engines.vllm import VLLM
from draftworth.findings import Code
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import CommonConfig
from draftworth.trials.judge import ArmInfo, judge_all
from draftworth.trials.record import ArmComparison
from draftworth.verdicts.base import Verdict

RANDOM = Path(__file__).parents[1] / "workloads" / "data" / "random_prompts.json"


# --- 30: the prefix cache


def of_a_warmed_server(folder: Path, more: str = "") -> Any:
    """Return the record of two servers alike in everything but that one was sent the prompts before.

    A cached prompt makes a token a third cheaper, as in the report (TPOT -34 %).
    """
    script = Script(tokens=16, token_ms=3.0, prefix_cache=True, cached_token_ms=2.0)
    with serving(script) as cold, serving(script) as warm:
        bench(warm.base_url, "--max-tokens", "16", "--prompts-per-category", "2", "--concurrency", "10")
        workload = f"prompts_per_category = 2\nmax_tokens = 16\n{more}"
        return trial(folder, cold.base_url, {"again": warm.base_url}, workload=workload)


def test_30_vllm_54227_a_warmer_prefix_cache_is_found(tmp_path: Path) -> None:
    """vllm-project/vllm #54227 and #52884: the same prompts again, a warm cache, TPOT -34 %."""
    record = of_a_warmed_server(tmp_path)
    assert "prefix_cache_warmer" in codes(record)
    assert [arm["cache_share"] for arm in record["arms"]] == [0, pytest.approx(0.98, abs=0.02)]
    assert record["comparison"]["tpot_ratio"]["estimate"] == pytest.approx(2 / 3, rel=0.2)


def test_30_vllm_54227_what_a_warmer_prefix_cache_gained_is_not_faster(tmp_path: Path) -> None:
    """vllm-project/vllm #54227 and #52884: nothing differs but the cache, so no verdict may say faster."""
    assert of_a_warmed_server(tmp_path)["verdict"] != "faster"


def test_30_vllm_54227_a_warmer_prefix_cache_is_found_in_a_sweep(tmp_path: Path) -> None:
    """vllm-project/vllm #54227 and #52884: at the first point one server has all of the prompts, the other none."""
    record = of_a_warmed_server(tmp_path, "concurrency = [1, 2]")
    assert "prefix_cache_warmer" in codes(record)


def test_30_vllm_52884_a_later_point_of_a_sweep_finds_its_prompts_cached() -> None:
    """vllm-project/vllm #52884: the second run with the same seed finds every prompt in the cache (up to +86 %)."""
    script = Script(tokens=8, token_ms=0.5, prefix_cache=True)
    with serving(script) as server:
        record = bench(server.base_url, "--limit", "8", "--max-tokens", "8", "--concurrency", "1,2")
    first, second = (point["cached_share"] for point in record["points"] if point["category"] is None)
    assert first == 0
    assert second > 0.9
    assert "prefix_cache_warmer" in codes(record)


# --- 31 to 33: requests that are no traffic


def test_31_dynamo_12918_forced_answers_are_remarked() -> None:
    """ai-dynamo/dynamo #12918: ignore_eos and synthetic traces reject a drafter that real traffic would keep."""
    with serving(Script(tokens=6, token_ms=0.3)) as server:
        forced = bench(server.base_url, "--limit", "3", "--max-tokens", "12", "--ignore-eos")
        free = bench(server.base_url, "--limit", "3", "--max-tokens", "12")
    assert (forced["points"][0]["tokens"], free["points"][0]["tokens"]) == (36, 18)
    assert "measure without ignore_eos" in advice(forced, "ignore_eos")
    assert "ignore_eos" not in codes(free)


def test_32_vllm_52536_random_prompts_are_remarked() -> None:
    """vllm-project/vllm #52536 and #33497: random tokens understate acceptance."""
    with serving(Script(tokens=4, token_ms=0)) as server:
        record = bench(server.base_url, str(RANDOM), "--limit", "40", "--max-tokens", "4")
        natural = bench(server.base_url, "--max-tokens", "4")
    assert "acceptance is understated" in advice(record, "prompts_random")
    assert {"prompts_random", "prompts_repeat"}.isdisjoint(codes(natural))


def test_33_omlx_2343_filler_is_remarked(tmp_path: Path) -> None:
    """jundot/omlx PR #2343, #2254: 99 % accepted on repeated filler, 68 % on real code."""
    filler = "The quick brown fox jumps over the lazy dog. " * 40
    lines = [json.dumps({"prompt": f"Question {i}. {filler}"}) for i in range(4)]
    (tmp_path / "filler.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with serving(Script(tokens=4, token_ms=0)) as server:
        record = bench(server.base_url, str(tmp_path / "filler.jsonl"), "--max-tokens", "4")
    assert "acceptance is overstated" in advice(record, "prompts_repeat")


# --- 34: restarts


def test_34_imp_1011_one_start_of_each_does_not_decide_nine_percent() -> None:
    """kekzl/imp PR #1011: restarts with speculation spread by 11 %, so a gain of 9 % may be one lucky start.

    The prior (sd 8 % and 0.6 %) alone makes a factor of exp(1.96 x 0.0802) = 1.17 either way: 0.91 reaches 1.065.
    """
    found = judged([10.0], [9.1])
    assert found.comparison.verdict is Verdict.INCONCLUSIVE
    ratio = found.comparison.tpot_ratio
    assert ratio is not None
    assert ratio.estimate == pytest.approx(0.91)
    assert ratio.high == pytest.approx(1.065, abs=0.002)
    assert Code.FEW_STARTS in {one.code for one in found.findings}


def test_34_imp_1011_three_starts_that_agree_show_nine_percent() -> None:
    """kekzl/imp PR #1011: what restarts spread is measured, and small here."""
    found = judged([10.0, 10.02, 9.98, 10.0], [9.05, 9.1, 9.15])
    assert found.comparison.verdict is Verdict.FASTER
    assert Code.FEW_STARTS not in {one.code for one in found.findings}


def test_34_imp_1011_three_starts_that_spread_as_reported_do_not() -> None:
    """kekzl/imp PR #1011: 8.6 to 9.6 is a spread of 11 % around the same gain."""
    assert judged([10.0, 10.02, 9.98, 10.0], [8.6, 9.1, 9.6]).comparison.verdict is Verdict.INCONCLUSIVE


# --- 35 to 37: counts, data sets, likelihoods


def test_35_spec_bench_29_tokens_that_one_side_counts_otherwise_are_found(tmp_path: Path) -> None:
    """hemingkx/Spec-Bench #29: one side counts tokens otherwise than the other; here its usage says 4 more."""
    with (
        serving(Script(tokens=24, token_ms=0.5)) as plain,
        serving(Script(tokens=24, token_ms=0.5, usage_more=4), speculative_config=spec(3)) as other,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 1\nmax_tokens = 24",
            verdict="output_check = false",
        )
    found = [one for one in record["findings"] if one["code"] == "tokens_disagree"]
    assert [one["arm"] for one in found] == ["spec"]
    assert "24 ids, usage 28" in found[0]["message"]


def test_36_automodel_2966_a_field_that_is_not_known_is_an_error_and_no_empty_prompt(tmp_path: Path) -> None:
    """NVIDIA-NeMo/Automodel PR #2966: Alpaca's `input` was dropped in 23 of 64 rows."""
    alpaca = {"instruction": "Summarise the text.", "input": "Once upon a time", "output": "A tale."}
    (tmp_path / "alpaca.jsonl").write_text(json.dumps(alpaca), encoding="utf-8")
    mixed = [{"prompt": "Hello"}, alpaca]
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, mixed)), encoding="utf-8")
    (tmp_path / "empty.jsonl").write_text(json.dumps({"prompt": ""}), encoding="utf-8")
    with serving(Script(tokens=4)) as server:
        ran = {
            name: draftworth("bench", server.base_url, str(tmp_path / f"{name}.jsonl"))
            for name in ("alpaca", "mixed", "empty")
        }
        assert server.requests == []
    assert {one.code for one in ran.values()} == {1}
    assert "its keys are: 'instruction', 'input', 'output'" in ran["alpaca"].err
    assert "mixed.jsonl:2" in ran["mixed"].err
    assert '"prompt" is empty' in ran["empty"].err


def test_37_minefield_99_likelihoods_are_asked_of_the_baseline_alone(tmp_path: Path) -> None:
    """Blackwellboy/model-serving-minefield #99: a speculative server told likelihoods ten times too high."""
    with (
        serving(Script(tokens=8, token_ms=0.3)) as plain,
        serving(Script(tokens=8, token_ms=0.2), speculative_config=spec(3)) as other,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 1\nmax_tokens = 8",
        )
        asked = [sum("prompt_logprobs" in body for _, body in one.requests) for one in (plain, other)]
    check = record["comparison"]["output_check"]
    assert (check["status"], check["baseline_positions"], check["variant_positions"]) == ("same", 40, 40)
    assert asked[0] >= 10
    assert asked[1] == 0


# --- section 2.2: synthetic acceptance


SYNTHETIC = {**spec(3), "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.8, 0.7]}


def of_synthetic_acceptance(*, output_check: bool) -> tuple[ArmComparison, set[Code]]:
    """Return the comparison and findings where the variant is 40 % faster with a configured acceptance."""
    arms = (ArmInfo("baseline"), ArmInfo("spec", config=SYNTHETIC, speculates=True))
    blocks = [
        Block(
            arm=arm,
            number=number,
            windows=[Window(arm, Point(Closed(), 101), rows=rows(arm, tpot))],
            facts=StartupFacts(version="0.32.0", config={"a": "1"}, speculating=arm == "spec"),
        )
        for number, (arm, tpot) in enumerate((("baseline", 10.0), ("spec", 6.0)), 1)
    ]
    config = CommonConfig.model_validate({"verdict": {"output_check": output_check}})
    (found,), _, findings = judge_all(Outcome(blocks=blocks), arms, config, VLLM())
    return found, {one.code for one in findings}


def test_section_2_2_configured_acceptance_is_found() -> None:
    """Section 2.2, vLLM's `rejection_sample_method: synthetic` left on: the figures look perfect and mean nothing."""
    found, seen = of_synthetic_acceptance(output_check=True)
    assert Code.SYNTHETIC_ACCEPTANCE in seen
    assert found.verdict is Verdict.INCONCLUSIVE, "its text was not checked"
    assert Code.SYNTHETIC_ACCEPTANCE in of_synthetic_acceptance(output_check=False)[1]


def test_section_2_2_configured_acceptance_is_never_faster() -> None:
    """Section 2.2: the advice is never to adopt it, so the verdict must not say faster, checked output or not."""
    assert of_synthetic_acceptance(output_check=False)[0].verdict is not Verdict.FASTER


# --- section 2.5: retries


def of_a_retry(folder: Path, wait_s: str) -> tuple[Any, list[dict[str, Any]]]:
    """Return the record and rows of six answers of 30 ms, two at a time, the first of which was refused once."""
    script = Script(tokens=12, token_ms=2.0, busy=(503,), retry_after=wait_s)
    with serving(script) as server:
        record = bench(server.base_url, "--limit", "6", "--max-tokens", "12", "--warmup", "0", "--concurrency", "2")
    return record, bench_rows(folder)


def test_section_2_5_a_request_sent_again_is_in_no_time(tmp_path: Path) -> None:
    """NVIDIA-NeMo/Automodel's bench (section 2.5): requests are sent again without a word. Here after a second."""
    record, sent = of_a_retry(tmp_path, "1")
    point = record["points"][0]
    assert (point["requests"], point["failed"], point["retried"]) == (6, 0, 1)
    assert [point[name]["n"] for name in ("ttft_ms", "tpot_ms", "e2e_ms")] == [5, 5, 5]
    assert point["e2e_ms"]["p99"] < 200
    assert "requests_retried" in codes(record)
    (again,) = (row for row in sent if row["retries"])
    assert again["e2e_ms"] < 200, "of the attempt that was answered"


def test_section_2_5_the_wait_before_a_request_is_sent_again_is_in_no_rate(tmp_path: Path) -> None:
    """NVIDIA-NeMo/Automodel's bench (section 2.5): a retry inflates the wall clock, and lowers the throughput.

    Six answers of 12 tokens and some 30 ms, two at a time, take about 0.1 s; the client then sleeps until 1 s is over.
    """
    record, _ = of_a_retry(tmp_path, "1")
    assert record["points"][0]["throughput"] > 72 / 0.5


# --- section 2.6: the client


def test_section_2_6_a_client_that_cannot_keep_up_is_told() -> None:
    """SPEED-Bench's README (section 2.6): above about 256 at a time a single-threaded client skews its times.

    Here something in the client's loop takes 50 ms a request.
    """
    prompts = [Prompt(f"p{i}", "c", ({"role": "user", "content": f"question {i}"},)) for i in range(60)]

    def busy(_row: RequestRow, _done: int, _total: int) -> None:
        time.sleep(0.05)

    with serving(Script(tokens=8, token_ms=1.0)) as server:
        done = run.measure_sync(
            Target(server.base_url, "fake/model-1b"),
            prompts,
            Sampling(max_tokens=8),
            arm="a",
            block=1,
            load=Closed(8),
            on_row=busy,
        )
    assert [one.code for one in client_findings("a", "", done.client)] == [Code.CLIENT_SATURATED]
