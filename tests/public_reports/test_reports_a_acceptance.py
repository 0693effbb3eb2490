"""Public reports 1 to 16: acceptance that is wrong, or defined in another way than the reader thinks."""

from pathlib import Path

import pytest
from tests.fakes.openai_server import Script, serving
from tests.public_reports.scripted import Series, acceptance, bench, codes, counted, draftworth, spec, trial

from draftworth.engines.vllm.log import VLLMLogReader
from draftworth.engines.vllm.per_request import request_counts
from draftworth.errors import MeasureError

QUICK = ("--limit", "3", "--max-tokens", "25")
"""Three answers of 25 tokens: 1 from the prefill and 24 of decode steps, so 72 in all."""


def test_1_sglang_11572_every_draft_accepted_is_a_rate_of_one() -> None:
    """sgl-project/sglang PR #11572: a rate above 1 was printed. 6 tokens a step with 5 drafts: 5 of 5, not 6 of 5."""
    with serving(Script(tokens=25, tokens_per_chunk=(6,), token_ms=0.2), speculative_config=spec(5)) as server:
        found = acceptance(bench(server.base_url, *QUICK)["points"][0])
    assert (found.steps, found.drafted, found.accepted) == (12, 60, 60)
    assert found.acceptance_rate == 1.0
    assert found.length_per_step == 6.0


def test_1_sglang_11572_more_accepted_than_drafted_is_no_rate() -> None:
    """sgl-project/sglang PR #11572: a page that accepts more than was drafted contradicts itself; no rate above 1."""
    try:
        rate = counted(Series(drafts=10, drafted=20, accepted=30, steps=10, generated=41, first=1)).acceptance_rate
    except MeasureError:
        rate = None
    assert rate is None or rate <= 1


def test_2_sglang_23530_nothing_accepted_is_a_rate_of_zero() -> None:
    """sgl-project/sglang PR #23530: (accepted + 1) / (proposed + 1) is 1/6 where nothing was accepted."""
    with serving(Script(tokens=25, tokens_per_chunk=(1,), token_ms=0.2), speculative_config=spec(5)) as server:
        found = acceptance(bench(server.base_url, *QUICK)["points"][0])
    assert (found.drafted, found.accepted) == (3 * 24 * 5, 0)
    assert found.acceptance_rate == 0.0
    assert found.survival == (0.0,) * 5
    assert (found.length_per_drafting_step, found.length_per_step) == (1.0, 1.0)


def test_3_and_12_figures_in_answers_that_stay_zero_are_a_finding() -> None:
    """sgl-project/sglang PR #13754 and vllm-project/vime #84: the server counts, its answers say 0.

    4 tokens a step with 4 drafts: length 4, rate 3/4 (the report's 0.80 counts the bonus token on both sides).
    """
    script = Script(tokens=25, tokens_per_chunk=(4,), token_ms=0.2, zero_spec_stats=True)
    with serving(script, speculative_config=spec(4), spec_stats="summary") as server:
        record = bench(server.base_url, *QUICK)
    assert "counts_disagree" in codes(record)
    found = acceptance(record["points"][0])
    assert (found.length_per_step, found.acceptance_rate) == (4.0, 0.75)


def test_4_sglang_24965_a_histogram_off_by_one_is_refused() -> None:
    """sgl-project/sglang PR #24965: 6 steps that accepted 3 each stood one bin too low."""
    right = {
        "acceptance_histogram": [0, 0, 0, 6, 0],
        "num_spec_steps": 6,
        "num_accepted_draft_tokens": 18,
        "num_draft_tokens": 24,
    }
    told = request_counts([right], "0.32.0")
    assert told is not None
    assert told.accepted_per_position == (6, 6, 6, 0)
    with pytest.raises(MeasureError, match="contradict each other"):
        request_counts([{**right, "acceptance_histogram": [0, 0, 6, 0, 0]}], "0.32.0")


def test_6_vllm_42508_both_lengths_are_told_under_their_names() -> None:
    """vllm-project/vllm #42508: two tools, two lengths (2.65, 2.32). Here: every second step drafts 3, 2 accepted.

    4 tokens in 2 steps: 3 a drafting step, 2 a step; 36 steps, 18 of them with 3 drafts.
    """
    script = Script(tokens=25, tokens_per_chunk=(3,), draft_every=2, token_ms=0.2)
    with serving(script, speculative_config=spec(3)) as server:
        found = acceptance(bench(server.base_url, *QUICK)["points"][0])
    assert (found.steps, found.drafting_steps, found.drafted, found.accepted) == (36, 18, 54, 36)
    assert (found.length_per_drafting_step, found.length_per_step, found.coverage) == (3.0, 2.0, 0.5)


def test_7_vllm_17908_the_length_has_the_bonus_token() -> None:
    """vllm-project/vllm PR #17908: accepted / drafts (1.5) left the bonus token out."""
    found = counted(Series(drafts=20, drafted=60, accepted=30, steps=20, generated=51, first=1))
    assert found.length_per_drafting_step == 2.5
    assert found.length_per_step == 2.5


def test_8_vllm_34734_a_drafter_that_fails_on_long_prompts_is_seen_by_length_of_prompt(tmp_path: Path) -> None:
    """vllm-project/vllm #34734 and sgl-project/sglang #6783: 0 % accepted beyond the drafter's length, and slower."""
    fast = Script(tokens=25, token_ms=1.0, tokens_per_chunk=(3,), draft_limit=300, rejected_token_ms=3.2)
    with serving(Script(tokens=25, token_ms=2.0)) as plain, serving(fast, speculative_config=spec(3)) as other:
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload='categories = ["coding", "math"]\nprompts_per_category = 2\ncontext_tokens = [120, 1200]\n'
            "max_tokens = 25",
        )
        points = bench(other.base_url, "--limit", "2", "--max-tokens", "25", "--context-tokens", "120,1200")["points"]
    verdicts = {one["category"]: one["verdict"] for one in record["categories"] if one["kind"] == "point"}
    assert verdicts == {"120 in": "faster", "1200 in": "slower"}
    short, long = (acceptance(point) for point in points if point["category"] is None)
    # 24 tokens in 8 steps of 3 drafts, 2 accepted; or in 24 steps, none accepted.
    assert (short.drafted, short.accepted, short.length_per_step) == (48, 32, 3.0)
    assert (long.drafted, long.accepted, long.length_per_step) == (144, 0, 1.0)
    assert long.acceptance_rate == 0.0


def test_9_vllm_44054_placeholders_change_the_rate_and_not_what_the_speed_depends_on() -> None:
    """vllm-project/vllm PR #44054: steps without a draft counted as drafts of k tokens; the answers do not count them.

    Every third step drafts 3 tokens and accepts 2: 5 tokens in 3 steps. 25 + 1 tokens: 15 steps, 5 of them drafting.
    """
    lengths, rates = [], []
    for placeholders in (False, True):
        script = Script(tokens=26, tokens_per_chunk=(3,), draft_every=3, token_ms=0.2, placeholders=placeholders)
        with serving(script, speculative_config=spec(3), spec_stats="summary") as server:
            record = bench(server.base_url, "--limit", "2", "--max-tokens", "26")
        found = acceptance(record["points"][0])
        lengths.append(found.length_per_step)
        rates.append(found.acceptance_rate)
        assert ("counts_disagree" in codes(record)) is placeholders
    assert lengths == [50 / 30, 50 / 30]
    assert rates == [20 / 30, 20 / 90]


def test_10_vllm_15958_statistics_of_a_server_that_drafts_nothing_are_no_rate() -> None:
    """vllm-project/vllm #15958: spec metrics (nan) though speculation is off."""
    with serving(Script(tokens=25, draft_every=0, token_ms=0.2), speculative_config=spec(3)) as server:
        found = acceptance(bench(server.base_url, *QUICK)["points"][0])
        printed = draftworth("bench", server.base_url, *QUICK).out
    assert (found.drafting_steps, found.drafted, found.acceptance_rate) == (0, 0, None)
    assert (found.length_per_drafting_step, found.length_per_step) == (None, 1.0)
    assert "nan" not in printed
    assert "accepted" not in printed


def test_10_vllm_15958_statistics_in_the_log_are_not_taken_for_speculation() -> None:
    """vllm-project/vllm #15958: the engine's own configuration line decides, not a line of statistics."""
    reader = VLLMLogReader()
    reader.feed(
        "INFO 04-02 10:00:00 [core.py:61] Initializing a V1 LLM engine (v0.8.3) with config: model='m', "
        "speculative_config=None, dtype=torch.bfloat16, max_seq_len=2048\n"
        "INFO 04-02 10:00:10 [metrics.py:53] SpecDecoding metrics: Draft acceptance rate: nan%, "
        "Accepted: 0 tokens, Drafted: 0 tokens\n"
    )
    assert reader.facts().speculating is False
    assert reader.facts().warnings == ()


def test_10_drafting_steps_without_a_token_are_no_rate() -> None:
    """Section 3.1.2: the log prints nan where a grammar took every drafted token back."""
    found = counted(Series(drafts=5, drafted=0, accepted=0, steps=5, generated=6, first=1))
    assert found.acceptance_rate is None
    assert (found.length_per_drafting_step, found.length_per_step) == (1.0, 1.0)


def test_11_vllm_9539_figures_are_shown_with_what_they_are_shares_of(tmp_path: Path) -> None:
    """vllm-project/vllm #9539 and #7301: nobody could find or read the figures in the log."""
    script = Script(tokens=25, tokens_per_chunk=(3,), draft_every=2, token_ms=0.2)
    with serving(script, speculative_config=spec(5)) as server:
        printed = " ".join(draftworth("bench", server.base_url, *QUICK).out.split())
    # 2 of 5 drafts in every second step: 50 % of the steps, 40 % of the drafts, 4 tokens in 2 steps.
    assert "drafted accepted per step" in printed
    assert "50 % 40 % 2.00" in printed
    (folder,) = (tmp_path / "home" / "benches").iterdir()
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "Drafted: share of steps. Accepted: share of drafted tokens. Per step: output tokens." in html


def test_13_tensorrt_14724_drafts_are_counted_not_reckoned_from_the_largest_draft() -> None:
    """NVIDIA/TensorRT-LLM PR #14724, on vLLM's counters: 10 drafts of up to 5 tokens had 23: 9 of 23, not of 50."""
    found = counted(Series(drafts=10, drafted=23, accepted=9, steps=10, generated=20, first=1))
    assert found.acceptance_rate == 9 / 23


def test_12_and_13_counters_that_stay_zero_leave_the_length_per_step_right() -> None:
    """NVIDIA/TensorRT-LLM PR #17082, vllm-project/vime #84: acceptance silently 0. 24 tokens still took 8 steps."""
    script = Script(tokens=25, tokens_per_chunk=(3,), token_ms=0.2, zero_spec_counters=True)
    with serving(script, speculative_config=spec(3)) as server:
        found = acceptance(bench(server.base_url, *QUICK)["points"][0])
    assert (found.drafted, found.acceptance_rate) == (None, None), "0 drafted contradicts 3 tokens a step"
    assert "contradict" in found.not_given["drafted"]
    assert (found.steps, found.emitted, found.length_per_step) == (24, 72, 3.0)


def test_12_and_13_counters_that_stay_zero_are_not_taken_for_no_drafts(tmp_path: Path) -> None:
    """NVIDIA/TensorRT-LLM PR #17082, vllm-project/vime #84: 3 tokens a step cannot come without a draft."""
    script = Script(tokens=25, tokens_per_chunk=(3,), token_ms=0.5, zero_spec_counters=True)
    with serving(Script(tokens=25, token_ms=1.0)) as plain, serving(script, speculative_config=spec(3)) as other:
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 1\nmax_tokens = 25",
            verdict="output_check = false",
        )
    assert record["arms"][1]["derived"]["length_per_step"] == 3.0
    assert "nothing_drafted" not in codes(record)


def test_15_minefield_98_the_longer_draft_wins_although_its_rate_is_lower(tmp_path: Path) -> None:
    """Blackwellboy/model-serving-minefield #98: the rate falls with the budget; ranking by rate picks the wrong one.

    k = 2: 3 tokens a step, 2 of 2 accepted. k = 6: 5 tokens a step, 4 of 6 accepted, and faster.
    """
    with (
        serving(Script(tokens=16, token_ms=3.0)) as plain,
        serving(Script(tokens=16, token_ms=2.1, tokens_per_chunk=(3,)), speculative_config=spec(2)) as two,
        serving(Script(tokens=16, token_ms=1.2, tokens_per_chunk=(5,)), speculative_config=spec(6)) as six,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"k2": two.base_url, "k6": six.base_url},
            workload="prompts_per_category = 2\nmax_tokens = 16",
        )
    _, short, long = (arm["derived"] for arm in record["arms"])
    assert (short["acceptance_rate"], short["length_per_step"]) == (1.0, 3.0)
    assert (long["acceptance_rate"], long["length_per_step"]) == (4 / 6, 5.0)
    assert (record["best"], record["verdict"]) == ("k6", "faster")


def test_16_vllm_ascend_9290_nothing_accepted_is_zero_and_slower(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend #9290: no draft accepted at a larger k. The rate is 0, not unknown."""
    with (
        serving(Script(tokens=24, token_ms=1.5)) as plain,
        serving(Script(tokens=24, token_ms=3.0), speculative_config=spec(8)) as other,
    ):
        record = trial(tmp_path, plain.base_url, {"k8": other.base_url})
    assert record["verdict"] == "slower"
    arm = record["arms"][1]
    assert (arm["acceptance"]["drafted"], arm["acceptance"]["accepted"]) == (10 * 23 * 8, 0)
    assert (arm["derived"]["acceptance_rate"], arm["derived"]["length_per_step"]) == (0.0, 1.0)
