from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import MetricsSnapshot
from draftworth.engines.vllm import VLLM, generated_tokens, prompt_tokens
from draftworth.engines.vllm.metrics import counts, parse_metrics, requests_finished
from draftworth.errors import MeasureError

DATA = Path(__file__).parent / "data"
BEFORE = parse_metrics((DATA / "vllm_0.32_metrics_before.txt").read_text(encoding="utf-8"))
AFTER = parse_metrics((DATA / "vllm_0.32_metrics_after.txt").read_text(encoding="utf-8"))
BASELINE = parse_metrics((DATA / "vllm_0.32_metrics_baseline.txt").read_text(encoding="utf-8"))


def changed(snapshot: MetricsSnapshot, **updates: object) -> MetricsSnapshot:
    return snapshot.model_copy(update=updates)


def test_the_counts_of_a_real_window_agree_with_the_answers_that_were_streamed_in_it() -> None:
    # Five requests were sent between the scrapes: 224 tokens, 5 of them first tokens. 16 drafted tokens were accepted,
    # 2 of those cut off by an end of text, so 219 emitted tokens took 219 - 16 + 2 = 205 steps.
    found = counts(BEFORE, AFTER, "0.32.0")
    assert found.emitted == 224 - 5
    assert found.steps == 205
    assert (found.drafting_steps, found.drafted, found.accepted) == (44, 213, 16)
    assert found.accepted_per_position == (8, 4, 3, 1, 0)
    assert found.not_given == {}
    assert found.source == "/metrics of vLLM 0.32.0, 1 engine, difference of two scrapes"
    assert requests_finished(BEFORE, AFTER) == 5
    assert prompt_tokens(BEFORE, AFTER) == 251 - 44
    assert generated_tokens(BEFORE, AFTER) == 224


def test_a_real_page_is_read_without_buckets_gauges_and_times_of_creation() -> None:
    assert AFTER.engines == 1
    assert AFTER.per_position == (8.0, 4.0, 3.0, 1.0, 0.0)
    assert AFTER.counters["vllm:generation_tokens_total"] == 244
    assert AFTER.counters["vllm:inter_token_latency_seconds_count"] == 224
    assert not any(name.endswith(("_bucket", "_created")) for name in AFTER.counters)
    assert "vllm:num_requests_running" not in AFTER.counters
    assert "process_cpu_seconds_total" not in AFTER.counters
    assert AFTER.created["vllm:generation_tokens_created"] == BEFORE.created["vllm:generation_tokens_created"] > 1.7e9


def test_a_real_baseline_gives_steps_and_says_why_it_gives_no_acceptance() -> None:
    after = changed(
        BASELINE,
        counters={
            **BASELINE.counters,
            "vllm:generation_tokens_total": BASELINE.counters["vllm:generation_tokens_total"] + 100,
            "vllm:time_to_first_token_seconds_count": BASELINE.counters["vllm:time_to_first_token_seconds_count"] + 4,
            "vllm:inter_token_latency_seconds_count": BASELINE.counters["vllm:inter_token_latency_seconds_count"] + 96,
        },
    )
    found = counts(BASELINE, after)
    assert (found.steps, found.emitted, found.length_per_step) == (96, 96, 1.0)
    assert found.drafting_steps is None
    assert found.accepted_per_position is None
    assert set(found.not_given) == {"drafting_steps", "drafted", "accepted", "accepted_per_position"}
    assert set(found.not_given.values()) == {"the server does not speculate: it exports no spec_decode series"}
    assert found.source.startswith("/metrics of vLLM, 1 engine,")


def page(*samples: str, kinds: dict[str, str]) -> str:
    """Return a page with the samples in order, each family's TYPE line in front of its first sample."""
    lines: list[str] = []
    for sample in samples:
        typed = next(f"# TYPE {name} {kind}" for name, kind in kinds.items() if sample.startswith(name))
        lines += [sample] if typed in lines else [typed, sample]
    return "\n".join([*lines, ""])


def test_an_older_release_counts_its_steps_under_the_older_name() -> None:
    kinds = {"vllm:time_per_output_token_seconds": "histogram", "vllm:spec_decode_num_drafts_total": "counter"}
    pages = [
        parse_metrics(
            page(
                f"vllm:time_per_output_token_seconds_count {steps}",
                f"vllm:time_per_output_token_seconds_sum {steps / 10}",
                f"vllm:spec_decode_num_drafts_total {drafts}",
                kinds=kinds,
            )
        )
        for steps, drafts in ((10, 1), (40, 11))
    ]
    found = counts(pages[0], pages[1])
    assert (found.steps, found.drafting_steps, found.coverage) == (30, 10, 1 / 3)
    assert found.emitted is None
    assert "--disable-log-stats" in found.not_given["emitted"]
    assert requests_finished(pages[0], pages[1]) is None
    assert "by position" in found.not_given["accepted_per_position"]


def test_diffusion_twins_are_not_taken_for_drafts() -> None:
    names = [f"vllm:diffusion_num_{n}_total" for n in ("denoising_steps", "canvas_positions", "committed_tokens")]
    names.append("vllm:generation_tokens_total")
    text = page(*(f"{name} 7" for name in names), kinds=dict.fromkeys(names, "counter"))
    assert counts(parse_metrics(text), parse_metrics(text)).drafting_steps is None


def test_a_page_whose_comments_a_proxy_took_out_is_read_too() -> None:
    text = "vllm:generation_tokens_total 5\nvllm:time_to_first_token_seconds_count 2\nvllm:num_requests_running 1\n"
    assert parse_metrics(text).counters == {
        "vllm:generation_tokens_total": 5,
        "vllm:time_to_first_token_seconds_count": 2,
    }


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6), min_size=1, max_size=5), st.integers(0, 3))
def test_series_are_summed_over_engines_and_models_position_by_position(values: list[list[int]], models: int) -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    samples = [
        f'{name}{{engine="{engine}",model_name="m{model}",position="{position}"}} {float(value)}'
        for engine, row in enumerate(values)
        for model in range(models + 1)
        for position, value in enumerate(row)
    ]
    found = parse_metrics(page(*samples, kinds={name: "counter"}))
    width = max(map(len, values))
    assert found.engines == len(values)
    assert found.per_position == tuple(
        (models + 1) * sum(row[i] for row in values if i < len(row)) for i in range(width)
    )
    assert found.counters[name] == (models + 1) * sum(map(sum, values))


def test_the_latest_time_of_creation_of_a_series_is_kept() -> None:
    kinds = {"vllm:generation_tokens_created": "gauge", "vllm:generation_tokens_total": "counter"}
    samples = ['vllm:generation_tokens_total{engine="0"} 1']
    samples += [f'vllm:generation_tokens_created{{engine="{i}"}} {time}' for i, time in enumerate((5.0, 9.0, 7.0))]
    assert parse_metrics(page(*samples, kinds=kinds)).created == {"vllm:generation_tokens_created": 9.0}


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            {"counters": AFTER.counters | {"vllm:generation_tokens_total": 3.0}},
            r"vllm:generation_tokens_total fell from 20 to 3",
        ),
        (
            {"created": AFTER.created | {"vllm:inter_token_latency_seconds_created": 1.9e9}},
            r"vllm:inter_token_latency_seconds_created changed from .* the server was restarted",
        ),
        (
            {"counters": {k: v for k, v in AFTER.counters.items() if "num_drafts" not in k}},
            r"vllm:spec_decode_num_drafts_total went between two scrapes",
        ),
        ({"per_position": (1.0, 0.0)}, r"has 2 positions after 5 before"),
    ],
)
def test_a_restart_between_the_scrapes_is_an_error_that_names_the_counter(
    update: dict[str, object], message: str
) -> None:
    with pytest.raises(MeasureError, match=message):
        counts(BEFORE, changed(AFTER, **update))


def test_speculation_that_appears_between_the_scrapes_is_an_error() -> None:
    plain = changed(BEFORE, counters={k: v for k, v in BEFORE.counters.items() if "spec_decode" not in k})
    with pytest.raises(MeasureError, match="num_drafts_total appeared between"):
        counts(plain, AFTER)
    with pytest.raises(MeasureError, match="request_success_total fell"):
        requests_finished(AFTER, changed(BEFORE, created={}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html><body>404</body></html>",
        '{"detail":"Not Found"}',
        "# TYPE sglang:num_requests counter\nsglang:num_requests_total 1\n",
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n",
        "vllm:x{ 1",
        "vllm:x abc",
    ],
)
def test_a_page_that_is_not_vllms_is_an_error_in_one_line(text: str) -> None:
    with pytest.raises(MeasureError, match="does the URL lead to") as error:
        parse_metrics(text)
    assert "\n" not in str(error.value)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_metrics(text)
    except MeasureError:
        return
    assert "vllm:" in text


def test_the_engine_names_the_version_it_was_told() -> None:
    assert VLLM("0.32.0").counts(BEFORE, AFTER).source.startswith("/metrics of vLLM 0.32.0,")
    assert VLLM().requests_finished(BEFORE, AFTER) == 5


def test_the_adapter_tells_the_generated_tokens_and_refuses_a_reset() -> None:
    assert VLLM().generated_tokens(BEFORE, AFTER) == 224
    with pytest.raises(MeasureError, match="restarted"):
        VLLM().generated_tokens(AFTER, BEFORE)
