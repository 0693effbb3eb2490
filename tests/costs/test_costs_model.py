"""T of a step from a costs file: measured points stand, the rest lies where measured steps say it must."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.costs.base import Costs, Prefill, StepCost
from draftworth.costs.model import FittedModel
from draftworth.costs.paper.config import read_shape
from draftworth.errors import UsageError

CONFIGS = Path(__file__).parent / "configs"
MOE = read_shape(CONFIGS / "qwen3-30b-a3b.json")
DENSE = read_shape(CONFIGS / "llama-3.1-8b.json")
SIZES = (1, 2, 4, 8, 16, 24, 32)
# One H200, vLLM 0.25, a 30B-A3B-shaped mixture of experts, engine in the same process.
H200 = {1: 3.887, 2: 4.878, 4: 6.320, 6: 8.780, 8: 8.968, 12: 12.205, 16: 12.163}


def point(
    batch: int,
    tokens: int,
    ms: float,
    *,
    context: int = 384,
    how: Literal["concurrency", "prefix", "arm", "paper"] = "concurrency",
) -> StepCost:
    return StepCost(
        batch=batch, tokens=tokens, context=context, ms=ms, low=ms * 0.99, high=ms * 1.01, repeats=5, how=how
    )


def streams(ms: Mapping[int, float], context: int = 384) -> tuple[StepCost, ...]:
    return tuple(point(batch, 1, value, context=context) for batch, value in ms.items())


def prefixes(ms: Mapping[int, float], context: int = 384) -> tuple[StepCost, ...]:
    return tuple(point(1, tokens, value, context=context, how="prefix") for tokens, value in ms.items())


SMALL = 0.3
"""What two new tokens take longer than one where a prefill costs its tokens; ms."""


def costs(
    *points: StepCost,
    sizes: tuple[int, ...] = (),
    engine: str | None = "vllm",
    prefill_ms: float | None = SMALL,
    context: int = 384,
) -> Costs:
    prefills = (
        ()
        if prefill_ms is None
        else (Prefill(batch=1, context=context, ms=prefill_ms, low=prefill_ms, high=prefill_ms, repeats=5),)
    )
    return Costs(created="2026-11-30", engine=engine, graph_sizes=sizes, points=points, prefills=prefills)


@pytest.mark.parametrize("sizes", [(), SIZES])
def test_measured_points_are_what_was_measured(sizes: tuple[int, ...]) -> None:
    model = FittedModel(costs(*streams(H200), *prefixes({2: 4.5, 6: 7.4}), sizes=sizes), MOE)
    for batch, ms in H200.items():
        found = model.base([1] * batch, 384)
        assert (found.ms, found.measured) == (ms, True)
        assert [found.low, found.high] == pytest.approx([ms * 0.99, ms * 1.01])
    for tokens, ms in ((2, 4.5), (6, 7.4)):
        found = model.base([tokens], 384)
        # Less one KV cache of 384 tokens of 96 KiB: at 4.8 TB/s 8 us.
        assert found.ms == pytest.approx(ms - 0.008, abs=0.008)
        assert found.measured
        assert found.low <= ms <= found.high


@pytest.mark.parametrize("how", ["given", "inferred"])
def test_a_step_of_five_costs_what_eight_cost(how: str) -> None:
    kept = {batch: ms for batch, ms in H200.items() if batch != 6 or how == "inferred"}
    model = FittedModel(costs(*streams(kept), sizes=SIZES if how == "given" else ()))
    five = model.base([1] * 5, 384)
    assert five.ms == H200[8]
    assert five.measured is (how == "given")
    assert "run as 8" in " ".join(five.why)
    assert model.base([1] * 9, 384).ms == H200[16]


def test_without_graphs_there_are_no_stairs() -> None:
    model = FittedModel(costs(*streams({1: 10.0, 4: 40.0, 6: 60.0, 8: 80.0})))
    five = model.base([1] * 5, 384)
    assert five.ms == pytest.approx(50)
    assert 40 * 0.99 <= five.low < five.ms < five.high <= 60 * 1.01
    assert not five.measured


def test_where_nobody_knows_of_stairs_the_interval_holds_both_readings() -> None:
    five = FittedModel(costs(*streams({1: 4.0, 4: 6.3, 8: 9.0}))).base([1] * 5, 384)
    assert 6.3 < five.ms < 9.0 <= five.high


@pytest.mark.parametrize("left_out", [2, 4, 8, 16])
def test_a_point_that_was_not_measured_is_told_within_its_interval(left_out: int) -> None:
    same_stair = {8: (6, 8), 16: (12, 16)}.get(left_out, (left_out,))
    kept = {batch: ms for batch, ms in H200.items() if batch not in same_stair}
    found = FittedModel(costs(*streams(kept), sizes=SIZES), MOE).base([1] * left_out, 384)
    assert found.low <= H200[left_out] <= found.high
    assert found.ms == pytest.approx(H200[left_out], rel=0.07)
    assert not found.measured


def test_a_mixed_step_lies_between_the_two_ways_of_measuring() -> None:
    model = FittedModel(costs(*streams(H200), *prefixes({2: 4.4, 4: 5.2, 6: 6.9, 8: 7.0}), sizes=SIZES), MOE)
    one, mixed, all_streams = (model.base(step, 384) for step in ([8], [6, 1, 1], [1] * 8))
    # Two of seven further tokens belong to further requests.
    assert mixed.ms == pytest.approx(one.ms + 2 / 7 * (8.968 - one.ms))
    assert one.ms < mixed.ms < all_streams.ms
    assert mixed.low <= one.ms
    assert mixed.high >= all_streams.ms
    assert not mixed.measured
    assert model.base([1, 6, 1], 384) == mixed


def test_of_a_moe_consecutive_tokens_cost_less_than_streams() -> None:
    model = FittedModel(costs(*streams(H200), sizes=SIZES), MOE)
    verify = model.base([6], 384)
    assert H200[4] < verify.ms < H200[8]
    assert verify.low < verify.ms
    assert verify.high >= 0.99 * H200[6]  # no overlap at all
    assert not verify.measured


def test_random_weights_have_no_overlap() -> None:
    found = FittedModel(costs(*streams(H200), sizes=SIZES), MOE, rho=0).base([6], 384)
    assert found.ms == pytest.approx(H200[6], rel=0.01)


def test_of_a_dense_model_they_cost_the_same() -> None:
    model = FittedModel(costs(*streams({1: 4.77, 2: 4.75, 4: 4.83, 6: 4.88, 8: 4.93}), sizes=SIZES), DENSE)
    # Less the KV caches of five streams of 384 tokens: 0.25 GB at 4.8 TB/s is 0.05 ms.
    assert model.base([6], 384).ms == pytest.approx(4.88, abs=0.06)
    assert model.base([3], 384).ms == pytest.approx(4.83, abs=0.06)


def test_of_an_unknown_model_the_streams_stand_and_the_interval_reaches_down() -> None:
    found = FittedModel(costs(*streams(H200), sizes=SIZES)).base([6], 384)
    assert found.ms == H200[6]
    assert found.low < H200[4] * 1.1
    assert not found.measured


def test_several_requests_of_several_tokens_stand_and_correct_their_neighbours() -> None:
    without = FittedModel(costs(*streams(H200), sizes=SIZES), MOE)
    model = FittedModel(costs(*streams(H200), point(2, 4, 7.0, how="prefix"), sizes=SIZES), MOE)
    found = model.base([4, 4], 384)
    assert found.ms == pytest.approx(7.0 - 2 * 0.008, abs=2 * 0.008), "less two KV caches"
    assert found.measured
    seven = model.base([3, 4], 384)
    assert seven.ms == pytest.approx(found.ms, rel=0.01), "seven run as eight"
    assert seven.ms < without.base([3, 4], 384).ms
    assert model.base([1, 1], 384).ms == H200[2]
    assert model.base([4, 1], 384).ms != 7.0


def test_beyond_the_points_the_interval_is_wide_and_says_so() -> None:
    model = FittedModel(costs(*streams(H200), sizes=SIZES), MOE)
    far = model.base([1] * 64, 384)
    assert "beyond measured points" in " ".join(far.why)
    assert not far.measured
    assert far.low <= H200[16] < far.ms < far.high
    assert far.high - far.low > 5 * 0.02 * far.ms


@pytest.mark.parametrize("shape", [None, MOE, DENSE])
def test_one_point_alone_still_answers(shape: None) -> None:
    model = FittedModel(costs(point(1, 1, 4.0)), shape)
    found = model.base([6], 384)
    assert 4.0 * 0.99 <= found.low <= found.ms <= found.high <= 6 * 4.0 * 1.01
    assert not found.measured


def test_context_between_two_measured_ones_is_interpolated_and_goes_on_beyond() -> None:
    model = FittedModel(costs(*streams({1: 4.0, 8: 9.0}), *streams({1: 4.4, 8: 12.2}, 4480), sizes=SIZES), MOE)
    assert model.base([1] * 8, 384).ms == 9.0
    assert model.base([1] * 8, 4480).ms == 12.2
    assert model.base([1] * 8, 2432).ms == pytest.approx(10.6)
    # 0.4 ms a stream for 4,096 tokens: 8 streams of 8,192 tokens more.
    assert model.base([1] * 8, 12672).ms == pytest.approx(12.2 + 8 * 8192 * 0.4 / 4096, rel=0.01)
    # A verifying step reads one cache, whatever the number of its tokens.
    short, long = (model.base([8], context).ms for context in (384, 4480))
    assert long - short == pytest.approx(0.4, abs=0.2)  # eight streams: 3.2


def test_context_nobody_measured_is_bounded_by_the_shape_or_widened() -> None:
    fitted = FittedModel(costs(*streams(H200), sizes=SIZES), MOE)
    known, unknown = fitted, FittedModel(costs(*streams(H200), sizes=SIZES))
    for model in (known, unknown):
        near, far = model.base([1] * 4, 384), model.base([1] * 4, 32768)
        assert far.high - far.low > near.high - near.low
        assert not far.measured
    assert known.base([1] * 4, 32768).ms > H200[4]
    assert unknown.base([1] * 4, 32768).ms == H200[4]
    # By the data sheet: 4 x 32,384 tokens x 96 KiB at 4.8 TB/s is 2.65 ms.
    assert 2.65 * 0.4 < known.base([1] * 4, 32768).high - H200[4] < 2.65 * 4


def test_points_of_prefixes_alone_serve_too() -> None:
    model = FittedModel(costs(*prefixes({1: 4.0, 2: 4.4, 4: 5.2, 8: 7.0}), sizes=SIZES), MOE)
    assert model.base([8], 384).ms == pytest.approx(7.0, abs=0.016)
    several = model.base([1] * 4, 384)
    assert 5.2 <= several.ms <= several.high


def test_a_file_without_points_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="measure some with `draftworth probe URL`"):
        FittedModel(costs())


@pytest.mark.parametrize("step", [[], [0], [3, 0]])
def test_a_step_without_tokens_is_a_mistake_of_the_caller(step: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        FittedModel(costs(*streams(H200))).base(step, 384)


@settings(max_examples=60, deadline=None)
@given(
    rises=st.lists(st.floats(0, 3), min_size=0, max_size=6),
    step=st.lists(st.integers(1, 20), min_size=1, max_size=12),
    context=st.integers(0, 100_000),
    prefixed=st.booleans(),
    sizes=st.sampled_from([(), SIZES]),
    shape=st.sampled_from([None, MOE, DENSE]),
)
def test_whatever_was_measured_the_answer_is_an_interval_around_a_value(
    *, rises: list[float], step: list[int], context: int, prefixed: bool, sizes: tuple[int, ...], shape: None
) -> None:
    ms = 4.0 + np.concatenate([[0], np.cumsum(rises)])
    measured = {2**at: float(value) for at, value in enumerate(ms)}
    points = streams(measured) + (
        prefixes({size: value * 0.9 + 0.4 for size, value in measured.items()}) if prefixed else ()
    )
    found = FittedModel(costs(*points, sizes=sizes), shape).base(step, context)
    assert 0 < found.low <= found.ms <= found.high < float("inf")
    assert found.why
    assert FittedModel(costs(*points, sizes=sizes), shape).base(step[::-1], context) == found
