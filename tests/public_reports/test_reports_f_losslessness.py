"""Public reports 46 and 47: temperature, and what stays the same of the text."""

from pathlib import Path

import pytest
from tests.fakes.openai_server import Script, serving
from tests.public_reports.scripted import acceptance, bench, codes, spec, trial

from draftworth.engines.base import StartupFacts
from draftworth.engines.vllm import VLLM


def test_46_omlx_3370_acceptance_is_that_of_the_temperature_asked_for() -> None:
    """jundot/omlx #3370, sglang PR #26312, vllm #40551: 100 % at temperature 0, 0 % at 0.3."""
    script = Script(tokens=25, tokens_per_chunk=(4,), token_ms=0.2, greedy_drafts=True)
    found = {}
    with serving(script, speculative_config=spec(3)) as server:
        for temperature in (0.0, 0.3):
            record = bench(server.base_url, "--limit", "2", "--max-tokens", "25", "--temperature", str(temperature))
            assert record["workload"]["temperature"] == temperature
            found[temperature] = acceptance(record["points"][0])
        assert {body["temperature"] for _, body in server.requests} == {0.0, 0.3}
    # 24 tokens in 6 steps with 3 of 3 drafts, or in 24 steps with none of 3.
    assert (found[0.0].drafted, found[0.0].acceptance_rate) == (36, 1.0)
    assert (found[0.3].drafted, found[0.3].acceptance_rate) == (144, 0.0)


def test_46_omlx_3370_a_drafter_good_at_temperature_0_is_judged_at_the_one_that_is_served(tmp_path: Path) -> None:
    """jundot/omlx #3370: at temperature 0.3 nothing is accepted, so it is slower, and the text is still checked."""
    script = Script(tokens=24, token_ms=0.8, tokens_per_chunk=(4,), greedy_drafts=True, rejected_token_ms=3.0)
    with serving(Script(tokens=24, token_ms=1.5)) as plain, serving(script, speculative_config=spec(3)) as other:
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 2\nmax_tokens = 24\ntemperature = 0.3",
        )
    assert record["verdict"] == "slower"
    assert record["comparison"]["output_check"]["status"] == "same"
    assert record["arms"][1]["derived"]["acceptance_rate"] == 0.0


def test_46_vllm_40551_another_runner_is_a_difference_of_its_own() -> None:
    """vllm-project/vllm #40551: acceptance at temperature 0 and 1 depends on the model runner."""
    old, new = (StartupFacts(config={"a": "1"}, runner=runner) for runner in ("V1", "V2"))
    assert [(one.name, one.baseline, one.variant) for one in VLLM().confounders(old, new)] == [("runner", "V1", "V2")]


def test_47_vllm_41758_texts_and_lengths_differ_and_the_time_of_a_token_stays_right(tmp_path: Path) -> None:
    """vllm-project/vllm #41758, #7627, #5313: greedy output differs with speculation (near ties), so lengths do.

    24 tokens at 3 ms against 36 tokens at 1.5 ms: half the time a token, though an answer takes 3/4 of the time.
    """
    ties = Script(tokens=36, token_ms=1.5, tie_every=5, tokens_per_chunk=(3,))
    with (
        serving(Script(tokens=24, token_ms=3.0, corrupt_gap=0.1)) as plain,
        serving(ties, speculative_config=spec(3)) as other,
    ):
        record = trial(
            tmp_path,
            plain.base_url,
            {"spec": other.base_url},
            workload="prompts_per_category = 2\nmax_tokens = 48",
        )
    assert record["verdict"] == "faster"
    assert "lengths_differ" in codes(record)
    comparison = record["comparison"]
    assert comparison["tpot_ratio"]["estimate"] == pytest.approx(0.5, rel=0.15)
    assert [arm["tokens"] for arm in record["arms"]] == [240, 360]
    check = comparison["output_check"]
    assert (check["status"], check["identical_outputs"], check["compared_outputs"]) == ("same", 0, 10)
    assert check["variant_not_top"] > 0
