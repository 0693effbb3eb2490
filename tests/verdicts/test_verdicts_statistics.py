import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftworth.verdicts.base import Interval
from draftworth.verdicts.statistics import hodges_lehmann, ratio_of_means, restart_log_sd

TIMES = st.lists(st.tuples(st.floats(0.1, 1000.0), st.floats(0.1, 1000.0)), min_size=1, max_size=40)


def limits(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


def prompts(n: int, seed: int) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    baseline = np.exp(rng.normal(2.5, 0.4, n))
    variant = 0.75 * baseline * np.exp(rng.normal(0, 0.2, n))
    return baseline.tolist(), variant.tolist()


# --- ratio of means -------------------------------------------------------------------------------------------------


def test_the_ratio_weighs_prompts_by_their_time() -> None:
    # 10 + 90 ms become 20 + 45 ms: 65 / 100, although the mean of the two ratios is 1.25.
    assert ratio_of_means([10.0, 90.0], [20.0, 45.0]).estimate == pytest.approx(0.65)


def test_two_prompts_by_hand() -> None:
    # R = 1; residuals -1/15 and 1/15; sd = sqrt(2)/15; se = 1/15; t(1 df) = 12.7062; half-width 0.84708 of the log.
    low, high = limits(ratio_of_means([10.0, 20.0], [9.0, 21.0]))
    assert low == pytest.approx(math.exp(-0.84708), rel=1e-5)
    assert high == pytest.approx(math.exp(0.84708), rel=1e-5)


def test_two_prompts_with_restart_spread_by_hand() -> None:
    # sqrt(0.84708^2 + (1.959964 * 0.2)^2) = 0.933383.
    low, high = limits(ratio_of_means([10.0, 20.0], [9.0, 21.0], log_sd_extra=0.2))
    assert low == pytest.approx(math.exp(-0.933383), rel=1e-5)
    assert high == pytest.approx(math.exp(0.933383), rel=1e-5)


@pytest.mark.parametrize("n", [2, 7, 8, 30])
def test_identical_prompts_leave_exactly_the_restart_spread(n: int) -> None:
    # exp(+/- 1.959964 * 0.05)
    low, high = limits(ratio_of_means([12.0] * n, [12.0] * n, log_sd_extra=0.05))
    assert low == pytest.approx(0.90665, abs=0.001)
    assert high == pytest.approx(1.10296, abs=0.001)


@pytest.mark.parametrize("n", [8, 15, 40])
def test_bootstrap_agrees_with_scipys_at_the_expanded_level(n: int) -> None:
    baseline, variant = prompts(n, seed=n)
    tail = stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))
    independent = stats.bootstrap(
        (baseline, variant),
        lambda b, v, axis: v.mean(axis=axis) / b.mean(axis=axis),
        paired=True,
        n_resamples=40_000,
        confidence_level=1 - 2 * tail,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    interval = ratio_of_means(baseline, variant)
    low, high = limits(interval)
    width = independent.high - independent.low
    assert low == pytest.approx(independent.low, abs=0.05 * width)
    assert high == pytest.approx(independent.high, abs=0.05 * width)
    assert f"bootstrap over {n} prompts" in interval.method


def test_a_level_too_high_for_the_resamples_falls_back_to_t() -> None:
    baseline, variant = prompts(9, seed=1)
    usual = ratio_of_means(baseline, variant, confidence=0.95)
    strict = ratio_of_means(baseline, variant, confidence=0.999)
    assert "bootstrap" in usual.method
    assert "t with 8 degrees of freedom" in strict.method
    assert limits(strict)[0] < limits(usual)[0] < limits(usual)[1] < limits(strict)[1]


def test_one_prompt_has_an_estimate_and_no_interval() -> None:
    interval = ratio_of_means([10.0], [8.0], log_sd_extra=0.05)
    assert (interval.estimate, interval.low, interval.high) == (0.8, None, None)


def test_limits_that_say_nothing_are_missing_not_infinite() -> None:
    interval = ratio_of_means([10.0, 10.0], [1.0, 100.0], confidence=0.9999)
    assert (interval.low, interval.high) == (None, None)
    assert "too wide" in interval.method


@pytest.mark.parametrize(
    ("baseline", "variant", "words"),
    [
        ([], [], "at least one pair"),
        ([1.0], [1.0, 2.0], "pairs need both"),
        ([1.0, 0.0], [1.0, 1.0], "above zero"),
        ([1.0, 2.0], [1.0, -1.0], "above zero"),
        ([1.0, math.nan], [1.0, 1.0], "finite"),
        ([1.0, math.inf], [1.0, 1.0], "finite"),
    ],
)
def test_what_is_no_time_is_refused(baseline: list[float], variant: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ratio_of_means(baseline, variant)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_outside_0_and_1_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="confidence level"):
        ratio_of_means([1.0, 2.0], [1.0, 2.0], confidence=level)
    with pytest.raises(ValueError, match="confidence level"):
        hodges_lehmann([1.0, 2.0], confidence=level)


@pytest.mark.parametrize("spread", [-0.1, math.nan, math.inf])
def test_an_impossible_restart_spread_is_refused(spread: float) -> None:
    with pytest.raises(ValueError, match="restart spread"):
        ratio_of_means([1.0, 2.0], [1.0, 2.0], log_sd_extra=spread)


@settings(deadline=None, max_examples=60)
@given(TIMES, st.integers(-8, 8), st.randoms(use_true_random=False))
def test_unit_and_order_change_nothing_and_arms_swap(
    pairs: list[tuple[float, float]], power: int, random: "object"
) -> None:
    def interval(some: list[tuple[float, float]]) -> Interval:
        return ratio_of_means([b for b, _ in some], [v for _, v in some], log_sd_extra=0.02)

    first = interval(pairs)
    assert interval(pairs) == first
    shuffled = sorted(pairs, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert interval(shuffled) == first
    # Powers of two, so that scaling is exact and no two values become equal by rounding.
    scaled = interval([(b * 2.0**power, v * 2.0**power) for b, v in pairs])
    assert scaled.estimate == pytest.approx(first.estimate)
    assert scaled.low == pytest.approx(first.low)
    assert scaled.high == pytest.approx(first.high)
    swapped = interval([(v, b) for b, v in pairs])
    assert swapped.estimate == pytest.approx(1 / first.estimate)
    if first.low is not None and first.high is not None:
        assert first.low <= first.estimate <= first.high


@pytest.mark.parametrize("n", [5, 30])
def test_swapping_the_arms_inverts_the_interval(n: int) -> None:
    baseline, variant = prompts(n, seed=3)
    low, high = limits(ratio_of_means(baseline, variant, log_sd_extra=0.01))
    back_low, back_high = limits(ratio_of_means(variant, baseline, log_sd_extra=0.01))
    width = math.log(high / low)
    assert math.log(back_low) == pytest.approx(-math.log(high), abs=0.05 * width)
    assert math.log(back_high) == pytest.approx(-math.log(low), abs=0.05 * width)


# --- Hodges-Lehmann -------------------------------------------------------------------------------------------------


def test_hamilton_depression_scores_as_published() -> None:
    # Hollander & Wolfe, table 3.1 (also R's ?wilcox.test): after minus before; published estimate -0.46 and
    # 96 % interval (-0.786, -0.010).
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    shift = hodges_lehmann([a - b for a, b in zip(after, before, strict=True)], confidence=0.95)
    assert shift.estimate == pytest.approx(-0.46)
    assert limits(shift) == pytest.approx((-0.786, -0.010))


def brute_rank(n: int, confidence: float) -> int:
    """Largest C with P(W <= C - 1) <= tail, by writing out every pattern of signs."""
    sums = [sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in itertools.product((0, 1), repeat=n)]
    rank = 0
    while sum(total <= rank for total in sums) / len(sums) <= (1 - confidence) / 2:
        rank += 1
    return rank


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_interval_equals_brute_force_over_sign_flips(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).normal(1, 2, n).tolist()
    walsh = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    shift = hodges_lehmann(values, confidence=confidence)
    assert shift.estimate == pytest.approx(statistics.median(walsh))
    rank = brute_rank(n, confidence)
    if rank == 0:
        assert (shift.low, shift.high) == (None, None)
    else:
        assert limits(shift) == pytest.approx((walsh[rank - 1], walsh[-rank]))


def test_five_differences_are_too_few_at_95_percent_and_six_are_enough() -> None:
    assert hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0]).low is None
    assert limits(hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])) == (1.0, 6.0)


@pytest.mark.parametrize(("n", "step"), [(20, 1e-9), (50, 1e-9), (51, 0.04), (80, 0.04)])
def test_the_interval_holds_exactly_the_shifts_the_signed_rank_test_accepts(n: int, step: float) -> None:
    # Up to 50 exactly; above, where the rank comes from the normal approximation, to within a few Walsh averages.
    values = np.random.default_rng(n).normal(0.5, 1, n)
    low, high = limits(hodges_lehmann(values.tolist()))
    tried = [low - step, low + step, high - step, high + step]
    accepted = [bool(stats.wilcoxon(values - shift, method="exact").pvalue > 0.05) for shift in tried]
    assert accepted == [False, True, True, False]


@pytest.mark.parametrize("n", [51, 64, 120])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_normal_approximation_is_within_2_percent_of_the_exact_ranks_and_not_narrower(
    n: int, confidence: float
) -> None:
    values = np.random.default_rng(n).normal(0, 1, n)
    walsh = np.sort([(values[i] + values[j]) / 2 for i in range(n) for j in range(i, n)])
    exact = np.ones(1)
    for rank in range(1, n + 1):  # the distribution of the sum of ranks, one fair sign after the other
        exact = np.convolve(exact, np.r_[0.5, np.zeros(rank - 1), 0.5])
    expected = int(np.searchsorted(np.cumsum(exact), (1 - confidence) / 2, side="right"))
    low, high = limits(hodges_lehmann(values.tolist(), confidence=confidence))
    for found in (int(np.searchsorted(walsh, low)) + 1, len(walsh) - int(np.searchsorted(walsh, high))):
        assert 0.98 * expected <= found <= expected + 1


def test_a_level_reached_exactly_counts() -> None:
    # Five differences: P(W <= 0) = 1/32, so the two outermost Walsh averages reach 1 - 2/32 and nothing more.
    assert limits(hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0], confidence=0.9375)) == (1.0, 5.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(-100, 100))
def test_a_shift_moves_with_the_differences(values: list[float], by: float) -> None:
    first, moved = hodges_lehmann(values), hodges_lehmann([value + by for value in values])
    mirrored = hodges_lehmann([-value for value in values])
    assert moved.estimate == pytest.approx(first.estimate + by, abs=1e-6)
    assert mirrored.estimate == pytest.approx(-first.estimate)
    if first.low is not None and first.high is not None:
        assert moved.low == pytest.approx(first.low + by, abs=1e-6)
        assert mirrored.low == pytest.approx(-first.high)
        assert first.low <= first.estimate <= first.high


@pytest.mark.parametrize(("values", "words"), [([], "at least one"), ([1.0, math.nan], "finite")])
def test_no_shift_of_nothing(values: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hodges_lehmann(values)


# --- restarts -------------------------------------------------------------------------------------------------------


def test_single_starts_have_their_priors() -> None:
    # The square root of 0.000025 / 2 + 0.0025.
    assert restart_log_sd(2, 1, []) == pytest.approx(0.0501248, abs=1e-7)


def test_two_starts_further_apart_than_the_prior_replace_it_and_closer_ones_do_not() -> None:
    # Two values 0.04 apart: sd = 0.04 / sqrt(2), of their mean 0.02; the variant's one start keeps 0.05.
    assert restart_log_sd(2, 1, [2.50, 2.54]) == pytest.approx(math.hypot(0.02, 0.05))
    assert restart_log_sd(2, 1, [2.50, 2.501]) == pytest.approx(restart_log_sd(2, 1, []))


def test_three_starts_speak_for_themselves() -> None:
    # sd of (0, 0.01, 0.02) = 0.01; t(2 df) / z = 4.302653 / 1.959964; the mean of three starts.
    expected = 0.01 * 4.302653 / 1.959964 / math.sqrt(3)
    logs = [1.0, 1.01, 1.02]
    assert restart_log_sd(3, 3, logs, observed_variant_log_means=[2.0, 2.0, 2.0]) == pytest.approx(expected, rel=1e-6)
    # At a level corrected for several comparisons three starts vouch for less.
    assert restart_log_sd(3, 3, logs, observed_variant_log_means=logs, confidence=0.99) > 1.5 * math.sqrt(2) * expected


def test_three_starts_that_nobody_measured_keep_the_prior() -> None:
    assert restart_log_sd(3, 4, []) == pytest.approx(math.hypot(0.005 / math.sqrt(3), 0.05 / 2))


@pytest.mark.parametrize(
    ("starts", "logs", "prior", "words"),
    [(0, [], 0.005, "at least one start"), (1, [], -1.0, "prior"), (2, [1.0, math.nan], 0.005, "finite")],
)
def test_impossible_restarts_are_refused(starts: int, logs: list[float], prior: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        restart_log_sd(starts, 1, logs, prior_baseline=prior)
