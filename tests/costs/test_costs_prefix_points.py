"""Prefix points as they are read: the streams' further KV caches, and prefills that are bound by the host."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.costs.base import Costs, EngineMode, How, Prefill, StepCost
from draftworth.costs.kv import kv_slope
from draftworth.costs.model import FittedModel
from draftworth.costs.paper.config import read_shape

MOE = read_shape(Path(__file__).parent / "configs" / "qwen3-30b-a3b.json")
SIZES = (1, 2, 4, 8, 16, 24, 32)
# One H200, vLLM 0.25, a mixture of experts: streams of one token.
H200 = {1: 3.89, 2: 4.88, 4: 6.32, 8: 8.97, 16: 12.2, 32: 18.0}
SHORT, LONG = 512, 32768
CACHE = 1e-4
"""Milliseconds for each token of context of each request, of the server below."""


def point(
    batch: int, tokens: int, ms: float, how: How = "concurrency", *, context: int = SHORT, wide: float = 0.0
) -> StepCost:
    return StepCost(
        batch=batch,
        tokens=tokens,
        context=context,
        ms=ms,
        low=ms * (1 - wide),
        high=ms * (1 + wide),
        repeats=6,
        how=how,
    )


def true(batch: int, tokens: int, context: int, cache: float = CACHE, each: float = 0.1) -> float:
    """Return T of a server of which everything is known: 10 ms, a little a token, and B KV caches."""
    return 10 + each * (batch * tokens - 1) + cache * batch * context


def probed(batch: int, tokens: int, context: int, cache: float = CACHE, each: float = 0.1) -> StepCost:
    """Return what a probe writes: T(2 B, 1) and what the further tokens take."""
    ms = true(2 * batch, 1, context, cache, each) + each * batch * (tokens - 2)
    return point(batch, tokens, ms, "prefix", context=context)


def prefill(ms: float, *, batch: int = 1, context: int = SHORT) -> Prefill:
    return Prefill(batch=batch, context=context, ms=ms, low=ms * 0.9, high=ms * 1.1, repeats=6)


def costs(*points: StepCost, prefills: tuple[Prefill, ...] = (), sizes: tuple[int, ...] = ()) -> Costs:
    return Costs(created="", engine="vllm" if sizes else "sglang", graph_sizes=sizes, points=points, prefills=prefills)


def two_contexts() -> list[StepCost]:
    found = [point(b, 1, true(b, 1, at), context=at) for at in (SHORT, LONG) for b in (1, 2, 4, 8)]
    return found + [probed(1, n, at) for at in (SHORT, LONG) for n in (3, 4, 6, 9)]


@pytest.mark.parametrize("tokens", [2, 3, 4, 6, 9])
@pytest.mark.parametrize("context", [SHORT, 4096, LONG])
def test_the_streams_further_cache_is_taken_off(tokens: int, context: int) -> None:
    model = FittedModel(costs(*two_contexts(), prefills=(prefill(0.2), prefill(0.2, context=LONG))))
    found = model.base([tokens], context)
    assert found.ms == pytest.approx(true(1, tokens, context), rel=1e-9)
    assert found.low <= true(1, tokens, context) * (1 + 1e-9)
    assert found.measured is (context != 4096)


def test_the_file_keeps_what_was_measured() -> None:
    written = costs(*two_contexts())
    model = FittedModel(written)
    model.base([4], LONG)
    assert model.costs.points == written.points


@settings(max_examples=40, deadline=None)
@given(
    cache=st.floats(0, 2e-4),
    each=st.floats(0, 1),
    step=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    context=st.sampled_from([SHORT, LONG]),
)
def test_whatever_a_cache_costs_a_known_server_is_recovered(
    *, cache: float, each: float, step: list[int], context: int
) -> None:
    points = [point(b, 1, true(b, 1, at, cache, each), context=at) for at in (SHORT, LONG) for b in range(1, 28)]
    points += [probed(b, n, at, cache, each) for at in (SHORT, LONG) for b in (1, 2) for n in range(3, 28)]
    model = FittedModel(costs(*points, prefills=(prefill(each), prefill(each, context=LONG))))
    # Of tokens that cost the same whoever they belong to, only their sum counts.
    batch, total = len(step), sum(step)
    wanted = 10 + each * (total - 1) + cache * batch * context
    assert model.base(step, context).ms == pytest.approx(wanted, rel=1e-6)


def test_the_slope_of_prefix_points_alone_is_that_of_one_cache_though_they_carry_two() -> None:
    found = kv_slope([probed(1, n, at) for at in (SHORT, LONG) for n in (3, 6)], None)
    assert found.ms == pytest.approx(CACHE)
    assert found.source == "measured"


def test_the_ends_take_off_the_most_and_the_least_a_cache_may_cost() -> None:
    points = [point(b, 1, true(b, 1, at), context=at, wide=0.01) for at in (SHORT, LONG) for b in (1, 2, 4)]
    model = FittedModel(costs(*points, probed(1, 4, SHORT), probed(1, 4, LONG), prefills=(prefill(0.2),)))
    slope = model.steps.slope
    raw = probed(1, 4, LONG).ms
    found = next(one for one in model.steps.points if (one.tokens, one.context) == (4, LONG))
    assert found.low < true(1, 4, LONG) < found.high
    assert slope.low < slope.ms < slope.high
    assert found.high == pytest.approx(raw - LONG * slope.low)
    # A cache cannot cost more than two streams are above one: 3.3768 ms.
    assert found.low == pytest.approx(raw - min(LONG * slope.high, true(2, 1, LONG) - true(1, 1, LONG)))


def test_where_nobody_knows_what_a_cache_costs_the_interval_reaches_down_and_it_is_not_measured() -> None:
    # T(1, 2) is taken for T(2, 1), less a cache, which costs at most what two streams are above one.
    points = [
        *(point(b, 1, ms, wide=0.01) for b, ms in H200.items()),
        point(1, 3, 6.3, "prefix"),
        point(1, 6, 8.9, "prefix"),
    ]
    model = FittedModel(costs(*points, prefills=(prefill(1.0),)))
    two = model.base([2], SHORT)
    assert two.ms == 4.88
    assert two.low <= H200[1] < two.ms <= two.high
    assert not two.measured
    six = model.base([6], SHORT)
    assert six.ms == 8.9
    assert six.low <= 8.9 - (4.88 - 3.89)
    assert not six.measured


def test_with_a_shape_the_cache_is_bounded_and_a_short_one_leaves_it_measured() -> None:
    points = [*(point(b, 1, ms, wide=0.01) for b, ms in H200.items()), point(1, 6, 8.9, "prefix")]
    found = FittedModel(costs(*points, prefills=(prefill(1.0),), sizes=SIZES), MOE).base([6], SHORT)
    # 512 tokens x 96 KiB at 4.8 TB/s: 0.0105 ms.
    assert 0.004 < 8.9 - found.ms < 0.03
    assert found.low < found.ms <= found.high
    assert found.measured


def test_of_several_at_a_time_as_many_caches_are_taken_off() -> None:
    points = [*two_contexts(), probed(2, 4, LONG), probed(2, 4, SHORT)]
    model = FittedModel(costs(*points, prefills=(prefill(0.2), prefill(0.2, batch=2))))
    found = model.base([4, 4], LONG)
    assert found.ms == pytest.approx(true(2, 4, LONG))
    assert found.measured
    assert model.base([2, 2], LONG).ms == pytest.approx(true(2, 2, LONG))


def test_two_tokens_are_told_where_the_probe_has_no_cell_of_them() -> None:
    points = [
        *(point(b, 1, ms) for b, ms in H200.items()),
        *(point(1, n, ms, "prefix") for n, ms in ((3, 6.3), (4, 6.32))),
    ]
    found = FittedModel(costs(*points, prefills=(prefill(1.0),), sizes=SIZES), MOE).base([2], SHORT)
    assert found.ms == pytest.approx(4.88, rel=0.01)
    assert found.measured


# Prefills that are bound by something else than their tokens.


def host_bound(prefills: tuple[Prefill, ...]) -> FittedModel:
    """Return a server whose prefills take the same whatever they read, beside steps that grow."""
    points = [
        *(point(b, 1, ms, wide=0.01) for b, ms in H200.items()),
        *(point(1, n, 4.88, "prefix") for n in (3, 4, 6, 9)),
    ]
    return FittedModel(costs(*points, prefills=prefills, sizes=SIZES), MOE)


def test_of_a_host_bound_prefill_the_growth_is_a_lower_end_and_streams_tell_the_value() -> None:
    found = host_bound((prefill(8.0),)).base([6], SHORT)
    assert 6.32 < found.ms < 8.97, "eight rows whose experts overlap"
    assert found.low == pytest.approx(4.88, rel=0.02)
    assert found.high >= 8.97, "no overlap at all"
    assert not found.measured
    assert "bound by something else than their tokens" in found.why[0]


def test_several_requests_and_two_tokens_of_a_host_bound_server_are_told_by_streams_too() -> None:
    model = host_bound((prefill(8.0),))
    assert 6.0 < model.base([3, 3], SHORT).ms < 8.97
    assert not model.base([2], SHORT).measured
    assert model.base([1, 1], SHORT).ms == 4.88
    assert model.base([1, 1], SHORT).measured


def test_a_decode_step_of_2_6_ms_and_8_ms_more_for_two_tokens_is_host_bound() -> None:
    # SmolLM2-135M, H200, vLLM 0.25: as measured.
    points = [*(point(b, 1, 2.6) for b in (1, 2, 4, 8)), *(point(1, n, 2.6, "prefix") for n in (3, 6))]
    assert not FittedModel(costs(*points, prefills=(prefill(8.0),))).base([6], SHORT).measured
    assert FittedModel(costs(*points, prefills=(prefill(1.2),))).base([6], SHORT).measured


def test_modes_that_were_measured_beside_streams_stay_beside_them() -> None:
    # A trial's M1 was fitted beside T by streams, without overlap of experts: thinning T alone makes steps too cheap.
    drafting = EngineMode(
        kind="drafting",
        method="ngram",
        batch=2,
        tokens=3,
        context=SHORT,
        ms=3.0,
        low=2.5,
        high=3.5,
        step_ms=11.97,
        base_ms=8.97,
        source="trial 1",
    )
    costs_ = host_bound((prefill(8.0),)).costs.model_copy(update={"modes": (drafting,)})
    found = FittedModel(costs_, MOE).speculating([3, 3], SHORT, method="ngram", runner=None)
    assert found.ms == pytest.approx(11.97, rel=0.01)


def test_half_of_a_step_is_where_it_begins() -> None:
    assert host_bound((prefill(1.9),)).base([6], SHORT).ms == pytest.approx(4.88, rel=0.01)
    assert host_bound((prefill(2.0),)).base([6], SHORT).ms > 6.32


def test_a_file_that_does_not_tell_is_not_called_measured_and_its_interval_holds_the_streams() -> None:
    found = host_bound(()).base([6], SHORT)
    assert found.ms == pytest.approx(4.88, rel=0.01)
    assert not found.measured
    assert found.high >= 8.97
    assert "probe it again" in found.why[0]


def test_a_step_of_more_tokens_costs_no_less_than_one_of_as_many_requests() -> None:
    model = FittedModel(costs(*(point(b, 1, ms) for b, ms in H200.items()), sizes=SIZES), MOE)
    sixteen = model.base([1] * 16, SHORT)
    for n in (2, 8, 64):
        found = model.base([n] * 16, SHORT)
        assert found.ms >= sixteen.ms
        assert found.low >= sixteen.low - 1e-9
    many = [model.base([n] * 64, SHORT).ms for n in (1, 2, 4, 8, 16)]
    assert many == sorted(many)
    assert np.isfinite(many).all()
