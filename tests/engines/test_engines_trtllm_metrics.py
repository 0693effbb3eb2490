from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import MetricsSnapshot
from draftworth.engines.counts import FIELDS, figure
from draftworth.engines.trtllm import TensorRTLLM
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data" / "trtllm"
ENGINE = TensorRTLLM()


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def page(name: str) -> MetricsSnapshot:
    return ENGINE.parse_metrics(text(name))


BEFORE, AFTER = page("metrics_1.3_before.txt"), page("metrics_1.3_after.txt")


def codes(snapshot: MetricsSnapshot) -> list[Code]:
    return [finding.code for finding in snapshot.findings]


def test_a_window_is_counted_by_position_with_position_zero_as_the_drafting_steps() -> None:
    found = ENGINE.counts(BEFORE, AFTER)
    assert found.drafted_per_position == (100 - 20, 100 - 20, 90 - 18)
    assert found.accepted_per_position == (71 - 11, 42 - 6, 14 - 0)
    assert (found.drafting_steps, found.drafted, found.accepted) == (80, 232, 110)
    assert found.emitted == (240 - 40) - (7 - 2)
    assert found.length_per_drafting_step == 1 + 110 / 80
    assert found.acceptance_rate == 110 / 232
    assert found.steps is None
    assert set(found.not_given) == {"steps"}
    assert "counted as requests finish, difference of two scrapes" in found.source


def test_the_other_questions_to_a_window_are_answered() -> None:
    assert ENGINE.requests_finished(BEFORE, AFTER) == 5
    assert ENGINE.generated_tokens(BEFORE, AFTER) == 200
    assert ENGINE.prefix_cache(BEFORE, AFTER) == (260, 64)


def test_totals_are_the_page_itself() -> None:
    found = ENGINE.totals(AFTER)
    assert (found.drafting_steps, found.drafted, found.accepted, found.emitted) == (100, 290, 127, 233)
    assert found.accepted_per_position == (71, 42, 14)
    assert "since the server's start" in found.source


def test_what_an_unfixed_build_counts_is_said_and_a_final_release_counts_as_defined() -> None:
    assert "PR #17082" in ENGINE.counts(BEFORE, AFTER).meaning["drafted"]
    assert "PR #17082" in TensorRTLLM("1.3.0rc13").counts(BEFORE, AFTER).meaning["drafting_steps"]
    assert TensorRTLLM("1.3.0").counts(BEFORE, AFTER).meaning == {}
    assert TensorRTLLM("1.3.0").counts(BEFORE, AFTER).source.startswith("/prometheus/metrics of TensorRT-LLM 1.3.0,")


def test_a_page_without_counts_by_position_gives_the_tokens_of_iterations_only() -> None:
    found = ENGINE.totals(page("metrics_1.3_iterations.txt"))
    assert (found.drafted, found.accepted) == (300, 131)
    assert found.drafting_steps is None
    assert found.accepted_per_position is None
    assert "padding" in found.meaning["drafted"]
    assert "attention data parallelism" in found.meaning["accepted"]
    assert found.acceptance_rate == 131 / 300


def test_an_older_release_gives_no_counts_and_says_why() -> None:
    snapshot = page("metrics_1.2.txt")
    found = ENGINE.totals(snapshot)
    assert snapshot.models == ("undefined",)
    assert all(getattr(found, name) is None for name in FIELDS)
    assert set(found.not_given) == set(FIELDS)
    assert "older than 1.3.0rc" in found.not_given["drafted"]
    assert "releases before 1.3.0rc have none" in found.not_given["emitted"]
    assert ENGINE.requests_finished(snapshot, snapshot) == 0
    assert codes(snapshot) == []


def test_a_server_that_speculates_and_counts_no_drafts_gives_no_zero() -> None:
    # TensorRT-LLM PR #17082: acceptance came out as 0 on the default path while drafting ran.
    snapshot = page("metrics_1.3_not_counted.txt")
    found = ENGINE.totals(snapshot)
    assert codes(snapshot) == [Code.NOT_COUNTED]
    assert (found.drafted, found.accepted, found.drafting_steps) == (None, None, None)
    assert "enable_iter_perf_stats" in found.not_given["accepted"]
    assert figure(found, "acceptance_rate").value is None


def test_a_counter_of_drafts_left_at_zero_is_not_a_zero() -> None:
    name = "trtllm_spec_decode_num_draft_tokens_total"
    zero = text("metrics_1.3_iterations.txt").replace(
        f'{name}{{engine_type="pytorch",model_name="Qwen3-8B"}} 300.0',
        f'{name}{{engine_type="pytorch",model_name="Qwen3-8B"}} 0.0',
    )
    snapshot = ENGINE.parse_metrics(zero)
    assert Code.NOT_COUNTED in codes(snapshot)
    assert ENGINE.totals(snapshot).drafted is None


def test_gauges_are_told_with_their_formula_and_zeros_are_not() -> None:
    (told,) = ENGINE.told(AFTER)
    assert (told.name, told.value, told.scope) == ("spec_decode_acceptance_length", 2.25, "last iteration polled")
    assert "requests that hold a draft" in told.formula
    assert codes(AFTER) == [Code.NOT_COUNTED]  # avg_decoded_tokens_per_iter and draft_overhead are always 0 here
    assert "avg_decoded_tokens_per_iter" in AFTER.findings[0].message


@pytest.mark.parametrize("value", ["NaN", "+Inf", "0.5", "-1.0"])
def test_a_length_that_cannot_be_is_a_finding_and_is_not_told(value: str) -> None:
    wrong = text("metrics_1.3_after.txt").replace('pid="211"} 2.25', f'pid="211"}} {value}')
    snapshot = ENGINE.parse_metrics(wrong)
    assert ENGINE.told(snapshot) == ()
    assert Code.METRICS_UNREADABLE in codes(snapshot)


def test_a_series_that_appears_between_two_pages_was_at_zero_before() -> None:
    # The client library writes a series once it was raised: position 2 was first accepted in the window.
    assert BEFORE.per_position == (11.0, 6.0)
    assert AFTER.per_position == (71.0, 42.0, 14.0)
    young = ENGINE.parse_metrics('trtllm_speculative_config_info{pid="211"} 1.0\ntrtllm_prompt_tokens_total 1.0\n')
    assert ENGINE.counts(young, AFTER).drafted == 290
    assert ENGINE.requests_finished(young, AFTER) == 7


def test_a_configuration_that_changes_between_two_pages_is_a_restart() -> None:
    plain = ENGINE.parse_metrics("trtllm_prompt_tokens_total 1.0\n")
    with pytest.raises(MeasureError, match="restarted with another configuration"):
        ENGINE.counts(plain, AFTER)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('finished_reason="stop"} 4.0', 'finished_reason="stop"} 0.0', "fell from"),
        ('token_position="0"} 71.0', 'token_position="0"} 1.0', "fell"),
        ("trtllm_generation_tokens_total", "trtllm_other_tokens_total", "went between two scrapes"),
    ],
)
def test_a_counter_that_fell_or_went_is_a_restart(old: str, new: str, message: str) -> None:
    after = ENGINE.parse_metrics(
        text("metrics_1.3_after.txt")
        .replace(old, new)
        .replace(
            'finished_reason="length"} 3.0',
            'finished_reason="length"} 0.0' if "stop" in old else 'finished_reason="length"} 3.0',
        )
    )
    with pytest.raises(MeasureError, match=message):
        ENGINE.counts(BEFORE, after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('token_position="1"} 42.0', 'token_position="1"} 142.0'),
        ('token_position="2"} 90.0', 'token_position="2"} 900.0'),
    ],
)
def test_positions_that_contradict_each_other_give_no_counts(old: str, new: str) -> None:
    found = ENGINE.totals(ENGINE.parse_metrics(text("metrics_1.3_after.txt").replace(old, new)))
    assert found.drafted is None
    assert "contradict each other" in found.not_given["accepted"]


def test_a_page_cut_off_gives_no_count_of_speculation() -> None:
    whole = text("metrics_1.3_after.txt")
    cut = ENGINE.parse_metrics(whole[: whole.index('token_position="1"') + 8])
    assert Code.METRICS_CUT in codes(cut)
    found = ENGINE.totals(cut)
    assert found.drafted is None
    assert "cut off" in found.not_given["drafted"]
    assert ENGINE.requests_finished(BEFORE, cut) == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total 5.0\n", "shows no trtllm_ counters"),
        ('[{"iter": 1}]', "no Prometheus text"),
        ("", "return_perf_metrics"),
    ],
)
def test_another_page_is_refused_with_what_to_check(wrong: str, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        ENGINE.parse_metrics(wrong)


def test_one_model_of_several_can_be_asked_for() -> None:
    both = text("metrics_1.3_after.txt") + text("metrics_1.3_before.txt").replace("Qwen3-8B", "other")
    assert Code.SEVERAL_MODELS in codes(ENGINE.parse_metrics(both))
    assert ENGINE.totals(ENGINE.parse_metrics(both, "Qwen3-8B")).drafted == 290
    assert ENGINE.totals(ENGINE.parse_metrics(both, "other")).drafted == 58
    with pytest.raises(MeasureError, match="no series of the model"):
        ENGINE.parse_metrics(both, "third")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200), st.integers(0, 3000), st.integers(0, 200))
def test_no_damaged_page_raises_anything_but_a_measure_error(noise: str, start: int, length: int) -> None:
    whole = text("metrics_1.3_after.txt")
    try:
        snapshot = ENGINE.parse_metrics(whole[:start] + noise + whole[start + length :])
        ENGINE.told(snapshot)
        found = ENGINE.totals(snapshot)
        ENGINE.counts(BEFORE, snapshot)
    except MeasureError:
        return
    assert found.acceptance_rate is None or 0 <= found.acceptance_rate <= 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1, max_size=6))
def test_counts_by_position_come_back_as_they_were_written(rows: list[tuple[int, int]]) -> None:
    drafted = sorted((row[0] for row in rows), reverse=True)
    accepted = sorted((min(row) for row in rows), reverse=True)
    accepted = [min(a, d) for a, d in zip(accepted, drafted, strict=True)]
    names = ("trtllm_spec_decode_drafted_tokens_total", "trtllm_spec_decode_accepted_tokens_total")
    lines = [
        f'{name}{{token_position="{position}"}} {float(value)}'
        for name, row in zip(names, (drafted, accepted), strict=True)
        for position, value in enumerate(row)
        if value or name == names[0]
    ]
    found = ENGINE.totals(ENGINE.parse_metrics("\n".join([*lines, ""])))
    assert found.drafted_per_position == tuple(drafted)
    assert found.accepted_per_position == tuple(accepted)
    assert (found.drafting_steps, found.accepted) == (drafted[0], sum(accepted))
