import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftworth.verdicts.base import Interval
from draftworth.verdicts.intervals import Table, interval, log_limits, prompt_degrees, restarts
from draftworth.verdicts.restarts import NO_RESTARTS, Restarts, arm_restarts

TIMES = st.lists(st.tuples(st.floats(0.1, 1000.0), st.floats(0.1, 1000.0)), min_size=2, max_size=40)


def table(baseline: list[float], variant: list[float]) -> Table:
    """One start of each arm, one sum."""
    return Table(np.array(baseline)[None, :, None], np.array(variant)[None, :, None])


def known(log_sd: float) -> Restarts:
    """A restart spread of the log ratio that is stated."""
    zero = np.zeros(())
    return Restarts(zero + log_sd**2, zero + log_sd**2, zero, zero)


def found(some: Table, between: Restarts = NO_RESTARTS, confidence: float = 0.95) -> Interval:
    result = interval(some, between, confidence=confidence)
    assert result is not None
    return result


def limits(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


def prompts(n: int, seed: int) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    baseline = np.exp(rng.normal(2.5, 0.4, n))
    variant = 0.75 * baseline * np.exp(rng.normal(0, 0.2, n))
    return baseline.tolist(), variant.tolist()


# --- the prompts' part ----------------------------------------------------------------------------------------------


def test_the_ratio_weighs_prompts_by_their_time() -> None:
    # 10 + 90 ms become 20 + 45 ms: 65 / 100, although the mean of the two ratios is 1.25.
    assert found(table([10.0, 90.0], [20.0, 45.0])).estimate == pytest.approx(0.65)


def test_two_prompts_by_hand() -> None:
    # Left out one at a time: ln(21/20) and ln(9/10), 0.154151 apart; jackknife se = 0.154151 / 2 = 0.0770753.
    # t(1 df) = 12.7062; half-width 0.979334 of the log around a ratio of 1.
    low, high = limits(found(table([10.0, 20.0], [9.0, 21.0])))
    assert low == pytest.approx(math.exp(-0.979334), rel=1e-5)
    assert high == pytest.approx(math.exp(0.979334), rel=1e-5)


def test_two_prompts_with_a_stated_restart_spread_by_hand() -> None:
    # sqrt(0.979334^2 + (1.959964 * 0.2)^2) = 1.054873.
    low, high = limits(found(table([10.0, 20.0], [9.0, 21.0]), known(0.2)))
    assert low == pytest.approx(math.exp(-1.054873), rel=1e-5)
    assert high == pytest.approx(math.exp(1.054873), rel=1e-5)


@pytest.mark.parametrize("n", [2, 7, 8, 30])
def test_identical_prompts_leave_exactly_the_stated_restart_spread(n: int) -> None:
    # exp(+/- 1.959964 * 0.05)
    low, high = limits(found(table([12.0] * n, [12.0] * n), known(0.05)))
    assert low == pytest.approx(0.906651, abs=2e-6)
    assert high == pytest.approx(1.102960, abs=2e-6)


@pytest.mark.parametrize("n", [8, 15, 40])
def test_limits_are_scipys_bootstrap_with_the_jackknifes_scale_and_the_weights_degrees(n: int) -> None:
    baseline, variant = prompts(n, seed=n)
    tail = stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))
    independent = stats.bootstrap(
        (baseline, variant),
        lambda b, v, axis: np.log(v.mean(axis=axis) / b.mean(axis=axis)),
        paired=True,
        n_resamples=40_000,
        confidence_level=1 - 2 * tail,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    b, v = np.array(baseline), np.array(variant)
    ratio = v.sum() / b.sum()
    left = [math.log((v.sum() - v[i]) / (b.sum() - b[i])) for i in range(n)]
    jackknife = math.sqrt((n - 1) / n * sum((one - np.mean(left)) ** 2 for one in left))
    linearised = np.std(v / v.mean() - b / b.mean(), ddof=1) / math.sqrt(n)
    sizes = (v / v.mean() + b / b.mean()) ** 2
    free = (n - 1) / n * sizes.sum() ** 2 / (sizes**2).sum()
    scale = jackknife / linearised * stats.t.ppf(0.975, free) / stats.t.ppf(0.975, n - 1)
    result = found(table(baseline, variant))
    width = independent.high - independent.low
    low, high = (math.log(end) for end in limits(result))
    assert low == pytest.approx(math.log(ratio) - scale * (math.log(ratio) - independent.low), abs=0.05 * width)
    assert high == pytest.approx(math.log(ratio) + scale * (independent.high - math.log(ratio)), abs=0.05 * width)
    assert f"bootstrap over {n} prompts" in result.method


def test_prompts_of_one_size_have_all_their_degrees_of_freedom_and_uneven_ones_fewer() -> None:
    assert prompt_degrees(table([5.0] * 9, [4.0] * 9)) == pytest.approx(8.0)
    # Sizes 1 and 3 (four each): 7/8 * (4 * 1 + 4 * 9)^2 / (4 * 1 + 4 * 81) = 7/8 * 1600 / 328.
    uneven = [1.0, 3.0] * 4
    assert prompt_degrees(table(uneven, uneven)) == pytest.approx(7 / 8 * 1600 / 328)


def test_a_level_too_deep_for_the_resamples_falls_back_to_the_jackknife() -> None:
    some = table(*prompts(9, seed=1))
    usual, strict = found(some), found(some, confidence=0.999)
    assert "bootstrap" in usual.method
    assert "jackknife over 9 prompts" in strict.method
    assert limits(strict)[0] < limits(usual)[0] < limits(usual)[1] < limits(strict)[1]


def test_more_than_a_thousand_prompts_need_no_bootstrap_and_agree_with_it() -> None:
    baseline, variant = prompts(1001, seed=4)
    low, high = limits(found(table(baseline, variant)))
    below, above = limits(found(table(baseline[:-1], variant[:-1])))
    assert "jackknife" in found(table(baseline, variant)).method
    width = math.log(high / low)
    assert math.log(low) == pytest.approx(math.log(below), abs=0.05 * width)
    assert math.log(high) == pytest.approx(math.log(above), abs=0.05 * width)


def test_one_prompt_has_an_estimate_and_no_interval() -> None:
    one = found(table([10.0], [8.0]), known(0.05))
    assert one.estimate == pytest.approx(0.8)
    assert (one.low, one.high) == (None, None)


def test_limits_that_say_nothing_are_missing_not_infinite() -> None:
    wide = found(table([10.0, 10.0], [1.0, 100.0]), confidence=0.9999)
    assert (wide.low, wide.high) == (None, None)
    assert "too wide" in wide.method


def test_a_ratio_with_an_empty_sum_is_not_defined() -> None:
    assert interval(table([0.0, 0.0], [1.0, 2.0])) is None
    assert interval(table([], [])) is None


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_outside_0_and_1_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="confidence level"):
        interval(table([1.0, 2.0], [1.0, 2.0]), confidence=level)


@settings(deadline=None, max_examples=60)
@given(TIMES, st.integers(-8, 8))
def test_the_unit_changes_nothing_and_swapping_the_arms_inverts_the_interval(
    pairs: list[tuple[float, float]], power: int
) -> None:
    base, other = [b for b, _ in pairs], [v for _, v in pairs]
    first = found(table(base, other), known(0.02))
    scaled = found(table([b * 2.0**power for b in base], [v * 2.0**power for v in other]), known(0.02))
    assert (scaled.estimate, scaled.low, scaled.high) == pytest.approx((first.estimate, first.low, first.high))
    swapped = found(table(other, base), known(0.02))
    assert swapped.estimate == pytest.approx(1 / first.estimate)
    if first.low is None or first.high is None:
        assert swapped.low is None
        return
    assert first.low <= first.estimate <= first.high
    assert limits(swapped) == pytest.approx((1 / first.high, 1 / first.low), rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(TIMES, st.tuples(st.floats(0.5, 0.99), st.floats(0.5, 0.99)))
def test_a_higher_level_is_never_narrower(pairs: list[tuple[float, float]], levels: tuple[float, float]) -> None:
    some = table([b for b, _ in pairs], [v for _, v in pairs])
    loose, strict = (log_limits(some, known(0.01), confidence=level) for level in sorted(levels))
    assert strict.low <= loose.low + 1e-12
    assert loose.high <= strict.high + 1e-12


def test_many_trials_at_once_give_each_its_own_limits() -> None:
    both = [prompts(12, seed) for seed in (1, 2)]
    base, other = (np.array([one[arm] for one in both])[:, None, :, None] for arm in (0, 1))
    stacked = Table(base, other)
    between = restarts(stacked, 0.005, 0.05)
    together = log_limits(stacked, between, confidence=0.95)
    for place, one in enumerate(both):
        alone = limits(found(table(*one), restarts(table(*one), 0.005, 0.05)))
        assert np.exp([together.low[place], together.high[place]]) == pytest.approx(alone)


# --- restarts -------------------------------------------------------------------------------------------------------


def test_single_starts_have_their_priors() -> None:
    between = restarts(table([1.0, 2.0], [1.0, 2.0]), 0.005, 0.05)
    assert float(between.variance) == pytest.approx(0.005**2 + 0.05**2)
    assert float(between.known) == pytest.approx(float(between.variance))


def test_two_starts_that_contradict_the_prior_replace_it_and_closer_ones_do_not() -> None:
    def variance(apart: float) -> float:
        starts = np.array([[1 - apart / 2] * 3, [1 + apart / 2] * 3])
        return float(arm_restarts(starts, 0.01).variance)

    # sd of two values 0.04 apart: 0.0282843; of their mean 0.02.
    assert variance(0.04) == pytest.approx(0.02**2)
    # The prior of 0.01 is contradicted from sqrt(2 * 1.642) * 0.01 = 0.01812 on.
    assert variance(0.0182) == pytest.approx(0.0182**2 / 4)
    assert variance(0.0180) == pytest.approx(0.01**2 / 2)


def test_three_starts_speak_for_themselves() -> None:
    # sd of (0.99, 1.00, 1.01) = 0.01; the variance of their mean is 0.01^2 / 3, with 2 degrees of freedom.
    between = arm_restarts(np.array([[0.99] * 4, [1.0] * 4, [1.01] * 4]), 0.5)
    assert float(between.variance) == pytest.approx(0.01**2 / 3)
    assert float(between.known) == 0.0
    # Its upper third: 2 / (2 ln 1.5) times, since P(chi2(2) > x) = exp(-x / 2).
    assert float(between.plausible) == pytest.approx(0.01**2 / 3 / math.log(1.5))
    assert float(between.spread) == pytest.approx((0.01**2 / 3 / math.log(1.5)) ** 2 / 2)


def test_noise_of_requests_is_taken_off_the_spread_of_starts_as_in_a_two_way_table() -> None:
    rng = np.random.default_rng(8)
    starts, n = 4, 6
    y = 1 + rng.normal(0, 0.1, (starts, 1)) + rng.normal(0, 0.2, (1, n)) + rng.normal(0, 0.05, (starts, n))
    grand = y.mean()
    between = n * sum((y[s].mean() - grand) ** 2 for s in range(starts)) / (starts - 1)
    within = sum(
        (y[s, i] - y[s].mean() - y[:, i].mean() + grand) ** 2 for s, i in itertools.product(range(starts), range(n))
    ) / ((starts - 1) * (n - 1))
    assert float(arm_restarts(y, 0.0).variance) == pytest.approx((between - within) / n / starts)


def test_starts_closer_than_the_noise_of_requests_add_nothing() -> None:
    y = np.array([[0.9, 1.1, 1.0], [1.1, 0.9, 1.0], [1.0, 1.0, 1.0]])
    assert float(arm_restarts(y, 0.05).variance) == 0.0


def test_the_restart_variance_is_found_on_average() -> None:
    # 4,000 tables: sd 0.05 between three starts, noise 0.1 over 16 prompts.
    rng = np.random.default_rng(3)
    y = 1 + 0.05 * rng.standard_normal((4000, 3, 1)) + 0.1 * rng.standard_normal((4000, 3, 16))
    assert float(arm_restarts(y, 0.0).variance.mean()) == pytest.approx(0.05**2 / 3, rel=0.08)
