"""Public reports 38 to 45: speculation that is slower, by which load, and why."""

from pathlib import Path

import pytest
from tests.fakes.openai_server import Script, serving
from tests.public_reports.scripted import codes, judged, spec, trial

from draftworth.engines.base import Confounder, StartupFacts
from draftworth.engines.vllm import VLLM
from draftworth.verdicts.base import Verdict


def test_38_and_45_vllm_26504_the_right_action_flips_with_the_load_while_acceptance_does_not(tmp_path: Path) -> None:
    """vllm PR #26504 (acceptance 0.83 to 0.91 flat, +23 % to -16 %), #16258, #8439, #27379, ArcticInference #47.

    Alone: 3 ms against 2 ms a token. Eight at a time each of the other seven costs 0.1 ms, and with speculation 0.8 ms:
    3.7 ms against 7.6 ms. 2 of 3 drafts are accepted at both.
    """
    fast = Script(tokens=25, token_ms=2.0, crowd_ms=0.8, tokens_per_chunk=(3,))
    with (
        serving(Script(tokens=25, token_ms=3.0, crowd_ms=0.1)) as plain,
        serving(fast, speculative_config=spec(3)) as other,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 2\nmax_tokens = 25\nconcurrency = [1, 8]",
            verdict="output_check = false",
        )
    points = {one["category"]: one for one in record["categories"] if one["kind"] == "point"}
    assert {name: one["verdict"] for name, one in points.items()} == {"1 at a time": "faster", "8 at a time": "slower"}
    assert points["1 at a time"]["tpot_ratio"]["estimate"] == pytest.approx(2 / 3, rel=0.15)
    assert points["8 at a time"]["tpot_ratio"]["estimate"] > 1.3
    assert record["arms"][1]["derived"]["acceptance_rate"] == 2 / 3


def test_39_vllm_47277_good_acceptance_and_slower(tmp_path: Path) -> None:
    """vllm-project/vllm #47277: step(k) = 37.7 + 35 + 26 k ms. k = 3 with 2 accepted: 150.7 ms for 3 tokens.

    50.2 ms against 37.7 ms a token, a twentieth of them here: ratio 1.33 at a rate of 2/3.
    """
    with (
        serving(Script(tokens=25, token_ms=37.7 / 20)) as plain,
        serving(Script(tokens=25, token_ms=150.7 / 3 / 20, tokens_per_chunk=(3,)), speculative_config=spec(3)) as other,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"mtp": other.base_url},
            workload="prompts_per_category = 2\nmax_tokens = 25",
            verdict="output_check = false",
        )
    assert record["verdict"] == "slower"
    assert record["comparison"]["tpot_ratio"]["estimate"] == pytest.approx(150.7 / 3 / 37.7, rel=0.15)
    derived = record["arms"][1]["derived"]
    assert (derived["acceptance_rate"], derived["length_per_step"]) == (2 / 3, 3.0)


@pytest.mark.parametrize(
    ("report", "before", "after", "starts", "verdict"),
    [
        ("vllm #19254, an n-gram drafter", 30.0, 24.0, 1, Verdict.SLOWER),
        ("llama.cpp PR #24508, n_max 3", 26.7, 23.5, 1, Verdict.INCONCLUSIVE),
        ("llama.cpp PR #24508, n_max 3", 26.7, 23.5, 3, Verdict.SLOWER),
        ("llama.cpp PR #24508, n_max 2 and p_min 0.6", 26.7, 30.5, 1, Verdict.INCONCLUSIVE),
        ("llama.cpp PR #24508, n_max 2 and p_min 0.6", 26.7, 30.5, 3, Verdict.FASTER),
        ("SpecForge #339, a mixture of experts", 100.0, 100.5, 1, Verdict.INCONCLUSIVE),
        ("SpecForge #339, a mixture of experts", 100.0, 100.5, 3, Verdict.NO_DIFFERENCE),
        ("sglang #6949, one GPU", 21.0, 30.0, 1, Verdict.FASTER),
        ("sglang #6949, four GPUs", 61.0, 59.0, 1, Verdict.INCONCLUSIVE),
        ("sglang #6949, four GPUs", 61.0, 59.0, 3, Verdict.SLOWER),
    ],
)
def test_38_40_41_42_verdicts_are_those_of_the_rates_reported(
    report: str, before: float, after: float, starts: int, verdict: Verdict
) -> None:
    """ggml-org/llama.cpp #25908 and PR #24508, sgl-project/SpecForge #339, sgl-project/sglang #6949: tok/s per user.

    TPOT is 1000 / rate. One start of each leaves about +/- 16 %, three starts that agree within 0.2 % much less.
    """
    spread = (1.0, 1.002, 0.998)[:starts]
    found = judged([1000 / before * one for one in spread], [1000 / after * one for one in spread]).comparison
    assert found.tpot_ratio is not None
    assert found.tpot_ratio.estimate == pytest.approx(before / after, rel=1e-3), report
    assert found.verdict is verdict, report


def facts(config: str, *warnings: str, version: str = "0.32.0") -> StartupFacts:
    """Return what the log of a start told."""
    reader = VLLM().log_reader()
    reader.feed(
        f"INFO 04-02 10:00:00 [core.py:61] Initializing a V1 LLM engine (v{version}) with config: model='m', "
        f"{config}, dtype=torch.bfloat16, max_seq_len=2048\n"
        + "".join(f"WARNING 04-02 10:00:01 [vllm.py:1] {line}\n" for line in warnings)
    )
    return reader.facts()


def differences(baseline: StartupFacts, variant: StartupFacts) -> dict[str, Confounder]:
    """Return the undeclared differences of two starts by name."""
    return {one.name: one for one in VLLM().confounders(baseline, variant)}


SPECULATING = "speculative_config=SpeculativeConfig(method='mtp', model='m', num_spec_tokens=2)"


def test_42_sglang_6949_another_number_of_gpus_is_a_difference_of_its_own() -> None:
    """sgl-project/sglang #6949: faster on one GPU, slower on four; the two are not to be mixed."""
    found = differences(
        facts("speculative_config=None, tensor_parallel_size=1"), facts(f"{SPECULATING}, tensor_parallel_size=4")
    )
    assert (found["tensor_parallel_size"].baseline, found["tensor_parallel_size"].variant) == ("1", "4")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Truncating max_cudagraph_capture_size to 40", "cuda_graph_sizes_changed"),
        (
            (
                "max_num_scheduled_tokens is set to 2048 based on the speculative decoding settings. This may lead to "
                "suboptimal performance."
            ),
            "scheduler_limits_changed",
        ),
    ],
)
def test_43_vllm_54933_what_speculation_did_to_graphs_and_batches_is_named(line: str, name: str) -> None:
    """vllm PR #37865 and #54933 (graphs to 40 instead of 42: 25.3 against 133.3 tok/s), InferenceX PR #2444."""
    old = "0.25.0"  # later the line about scheduled tokens names the batch size itself, and changes nothing
    found = differences(facts("speculative_config=None", version=old), facts(SPECULATING, line, version=old))
    assert found[name].variant == line
    assert found[name].baseline == "not logged"


def test_44_vllm_49548_a_variant_that_never_drafts_is_told_and_is_slower(tmp_path: Path) -> None:
    """vllm-project/vllm #49548, vllm-ascend #16638: with K = 0 speculation still costs a half and more."""
    with (
        serving(Script(tokens=24, token_ms=1.5)) as plain,
        serving(Script(tokens=24, token_ms=2.6, draft_every=0), speculative_config=spec(3)) as other,
    ):
        record = trial(tmp_path, plain.base_url, {"k0": other.base_url}, verdict="output_check = false")
    assert record["verdict"] == "slower"
    assert "nothing_drafted" in codes(record)


def test_44_vllm_49548_a_baseline_with_k_of_zero_is_no_baseline(tmp_path: Path) -> None:
    """vllm-project/vllm #49548, vllm-ascend #16638: "off by schedule" costs ~50 %, so a gain over it may be none.

    Without speculation a token takes 1.5 ms, with K = 0 it takes 2.6 ms, speculating 1.6 ms: a loss told as a gain.
    """
    with (
        serving(Script(tokens=24, token_ms=2.6, draft_every=0), speculative_config=spec(3)) as scheduled_off,
        serving(Script(tokens=24, token_ms=1.6, tokens_per_chunk=(2,)), speculative_config=spec(3)) as other,
    ):
        record = trial(tmp_path, scheduled_off.base_url, {"spec": other.base_url}, verdict="output_check = false")
    assert "baseline_speculates" in codes(record)
    assert record["verdict"] != "faster"
