import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import MetricsSnapshot
from draftworth.engines.counts import FIELDS
from draftworth.engines.vllm import VLLM
from draftworth.engines.vllm.metrics import counts, generated_tokens, parse_metrics, told, totals
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data"
V0, V1, TWO, DIFFUSION = (
    (DATA / "vllm" / f"metrics_{name}.txt").read_text(encoding="utf-8")
    for name in ("0.8.5_v0", "0.8.5_v1", "0.11_two_engines", "0.24_diffusion")
)
RECORDED = (DATA / "vllm_0.32_metrics_after.txt").read_text(encoding="utf-8")


def codes(snapshot: MetricsSnapshot) -> list[Code]:
    return [finding.code for finding in snapshot.findings]


def test_a_recorded_page_tells_the_counts_since_the_start() -> None:
    found = totals(parse_metrics(RECORDED), "0.32.0")
    assert (found.steps, found.emitted) == (224, 244 - 6)
    assert (found.drafting_steps, found.drafted, found.accepted) == (45, 218, 16)
    assert found.accepted_per_position == (8, 4, 3, 1, 0)
    assert found.source == "/metrics of vLLM 0.32.0, 1 engine, since the server's start"
    assert found.not_given == {}
    assert told(parse_metrics(RECORDED)) == ()


def test_0_8_counts_its_steps_under_another_name_and_drafts_under_the_same() -> None:
    found = totals(parse_metrics(V1))
    assert (found.steps, found.emitted) == (100, 200 - 3)
    assert (found.drafting_steps, found.drafted, found.accepted) == (77, 385, 99)
    assert found.accepted_per_position == (37, 24, 15, 13, 10)


def test_data_parallel_engines_are_added_and_a_series_with_two_names_is_counted_once() -> None:
    snapshot = parse_metrics(TWO)
    found = totals(snapshot)
    assert (found.steps, found.emitted) == (140, 330 - 5)
    assert (found.drafting_steps, found.drafted, found.accepted) == (77 + 38, 385 + 190, 99 + 90)
    assert found.accepted_per_position == (62, 44, 33, 27, 23)
    assert found.source == "/metrics of vLLM, 2 engines, since the server's start"
    assert snapshot.models == ("m",)


def test_v0_counters_are_sums_of_running_totals_and_give_no_counts() -> None:
    snapshot = parse_metrics(V0)
    found = totals(snapshot, "0.8.5")
    assert found.steps == 300
    assert set(found.not_given) == set(FIELDS) - {"steps"}
    assert "running totals" in found.not_given["drafted"]
    assert "one generated token a step" in found.not_given["emitted"]
    assert generated_tokens(snapshot, snapshot) is None
    rate, efficiency = told(snapshot)
    assert (rate.name, rate.value, rate.scope) == ("spec_decode_draft_acceptance_rate", 0.56, "since the start")
    assert rate.formula == "drafts the target agreed with, also behind a refused one / drafted"
    assert efficiency.name == "spec_decode_efficiency"
    assert efficiency.value == pytest.approx(760 / (250 * 6))


def test_a_v0_rate_that_is_no_number_is_not_told() -> None:
    assert len(told(parse_metrics(V0.replace('rate{model_name="m"} 0.56', 'rate{model_name="m"} NaN')))) == 1


def test_a_diffusion_models_canvas_is_told_and_never_counted_as_drafts() -> None:
    snapshot = parse_metrics(DIFFUSION)
    for found in (totals(snapshot), counts(snapshot, snapshot)):
        assert set(found.not_given) == set(FIELDS)
        assert all("canvas positions, which are no drafts" in why for why in found.not_given.values())
        assert all(getattr(found, name) is None for name in FIELDS)
    assert [(one.name, one.value) for one in told(snapshot)] == [
        ("diffusion_num_denoising_steps", 64),
        ("diffusion_num_canvas_positions", 2048),
        ("diffusion_num_committed_tokens", 256),
    ]


def test_one_model_of_several_can_be_read() -> None:
    both = V1 + V1.replace('model_name="m"', 'model_name="other"')
    assert codes(parse_metrics(both)) == [Code.SEVERAL_MODELS]
    assert totals(parse_metrics(both)).drafted == 2 * 385
    one = VLLM().parse_metrics(both, "other")
    assert totals(one).drafted == 385
    assert codes(one) == []
    with pytest.raises(MeasureError, match="no series of the model 'third'; it has those of m, other"):
        parse_metrics(both, "third")


def test_a_page_that_is_cut_off_gives_no_count_that_may_lack_a_part() -> None:
    whole = parse_metrics(V1)
    cut = parse_metrics(V1[: V1.index("num_accepted_tokens_total{") + 40])
    found = totals(cut)
    assert codes(cut) == [Code.METRICS_CUT]
    assert (found.drafting_steps, found.drafted) == (77, 385)
    assert found.accepted is None
    assert "could not be read" in found.not_given["accepted"]
    assert "could not be read" in found.not_given["accepted_per_position"]
    window = counts(whole, cut)
    assert (window.drafted, window.accepted, window.accepted_per_position) == (0, None, None)


def test_a_value_that_is_no_count_is_left_out_with_what_needs_it() -> None:
    for bad in ("NaN", "-385.0", "+Inf"):
        snapshot = parse_metrics(V1.replace("} 385.0", f"}} {bad}"))
        assert codes(snapshot) == [Code.METRICS_UNREADABLE]
        found = totals(snapshot)
        assert (found.drafted, found.accepted) == (None, 99)
        assert "could not be read" in found.not_given["drafted"]
        assert counts(parse_metrics(V1), snapshot).drafted is None


def test_a_series_that_a_proxy_left_out_is_missing_and_not_zero() -> None:
    kept = "".join(line for line in V1.splitlines(keepends=True) if "num_draft_tokens" not in line)
    found = totals(parse_metrics(kept))
    assert found.drafted is None
    assert "other spec_decode series and not this one" in found.not_given["drafted"]


def test_the_adapter_reads_totals_and_told_with_its_version() -> None:
    adapter = VLLM("0.8.5")
    assert adapter.totals(adapter.parse_metrics(V1)).source.startswith("/metrics of vLLM 0.8.5, 1 engine,")
    assert len(adapter.told(adapter.parse_metrics(V0))) == 2
    assert (adapter.title, adapter.metrics_path, adapter.json_pages) == ("vLLM", "/metrics", ("/version",))
    assert adapter.request_fields() == {}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([V0, V1, TWO, DIFFUSION]), st.integers(0, 4000), st.text(max_size=5), st.integers(0, 30))
def test_a_damaged_page_is_read_or_refused_and_never_gives_more(page: str, at: int, put_in: str, left_out: int) -> None:
    try:
        snapshot = parse_metrics(page[:at] + put_in + page[at + left_out :])
    except MeasureError:
        return
    found = totals(snapshot)
    told(snapshot)
    assert all(getattr(found, name) is not None or found.not_given[name] for name in FIELDS)
    with contextlib.suppress(MeasureError):
        counts(parse_metrics(page), snapshot)
