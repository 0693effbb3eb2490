"""The interval of tokens per step: what is a unit, what a resample gives, and how often the interval is right."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from draftworth.drafters.bootstrap import Units
from draftworth.verdicts.intervals import Table, interval


def units(emitted: NDArray[np.int64], steps: NDArray[np.int32], *cuts: int) -> Units:
    made = Units(len(steps))
    ends = [0, *cuts, len(emitted)]
    for begin, end in pairwise(ends):
        made.add(emitted[begin:end], steps[:, begin:end])
    return made


def sample(n: int, seed: int, spread: float = 0.3) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return requests whose own tokens per step vary around 2, so that the ratio of sums is 2 on average."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(20, 200, n)
    rate = np.clip(rng.normal(2.0, spread, n), 1.0, 3.0)
    return np.round(steps * rate).astype(np.int64), steps[None].astype(np.int32)


def test_up_to_a_thousand_requests_the_interval_is_that_of_the_verdicts_over_requests() -> None:
    emitted, steps = sample(200, 0)
    found = units(emitted, steps, 3, 3, 150)
    expected = interval(Table(steps[:, :, None].astype(float), emitted[None, :, None].astype(float)))
    assert expected is not None
    assert found.limits() == [pytest.approx((expected.low, expected.high))]
    assert found.method == "bootstrap over 200 requests, 4,000 resamples, expanded percentiles"


def test_a_plain_bootstrap_gives_nearly_the_same_limits() -> None:
    emitted, steps = sample(300, 1)
    rng = np.random.default_rng(9)
    drawn = rng.integers(0, 300, (5000, 300))
    ratios = emitted[drawn].sum(axis=1) / steps[0][drawn].sum(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    [found] = units(emitted, steps).limits()
    assert found is not None
    assert found == pytest.approx((low, high), abs=0.15 * (high - low))


def test_all_settings_are_resampled_alike() -> None:
    emitted, steps = sample(50, 2)
    found = units(emitted, np.concatenate([steps, steps])).limits()
    assert found[0] == found[1]


@pytest.mark.parametrize("cuts", [(), (1,), (999, 1000, 1001), (500, 1999), tuple(range(100, 4999, 100))])
def test_beyond_a_thousand_a_unit_is_requests_in_a_row_wherever_the_batches_end(cuts: tuple[int, ...]) -> None:
    emitted, steps = sample(5003, 3)
    found = units(emitted, steps, *cuts)
    assert (found.size, found.count, found.requests) == (8, 626, 5003)
    assert found.method.startswith("bootstrap over 626 blocks of 8 requests in a row")
    ends = np.append(np.arange(0, 5003, 8), 5003)
    sums = [np.array([a[i:j].sum() for i, j in pairwise(ends)], float) for a in (emitted, steps[0])]
    expected = interval(Table(sums[1][None, :, None], sums[0][None, :, None]))
    assert expected is not None
    assert found.limits() == [pytest.approx((expected.low, expected.high))]


def test_blocks_are_as_wide_as_single_requests_where_requests_are_independent() -> None:
    emitted, steps = sample(20_000, 4)
    [found] = units(emitted, steps).limits()
    assert found is not None
    rest = emitted - steps[0] * emitted.sum() / steps.sum()
    error = math.sqrt(float(rest @ rest)) / float(steps.sum())
    assert found[1] - found[0] == pytest.approx(2 * 1.96 * error, rel=0.12)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    right = 0
    for seed in range(300):
        [found] = units(*sample(25, 1000 + seed)).limits()
        assert found is not None
        right += found[0] <= 2.0 <= found[1]
    # 285 expected; three standard deviations below.
    assert right >= 273


def test_few_requests_have_a_wide_interval_or_none() -> None:
    one = units(*sample(1, 5))
    assert (one.limits(), one.method) == ([None], "one request: no interval")
    two = units(*sample(2, 5))
    [found] = two.limits()
    assert two.method == "jackknife over 2 requests"
    assert found is None or found[0] >= 1.0
    assert units(np.zeros(0, np.int64), np.zeros((1, 0), np.int32)).limits() == [None]


def test_no_limit_is_below_one_token_a_step() -> None:
    emitted = np.array([10, 10, 10, 12], np.int64)
    [found] = units(emitted, np.array([[10, 10, 10, 10]], np.int32)).limits()
    assert found is not None
    assert found[0] == 1.0
