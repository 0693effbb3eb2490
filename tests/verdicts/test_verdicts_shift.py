import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from draftworth.verdicts import shift as module
from draftworth.verdicts.base import Interval
from draftworth.verdicts.shift import hodges_lehmann


def limits(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


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


@pytest.mark.parametrize("n", [7, 40, 300])
def test_searching_for_a_walsh_average_finds_the_listed_one(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.round(np.random.default_rng(n).normal(0, 3, n), 1).tolist()  # with ties
    listed = hodges_lehmann(values)
    monkeypatch.setattr(module, "LISTED_PAIRS", 0)
    searched = hodges_lehmann(values)
    assert searched.estimate == pytest.approx(listed.estimate, abs=1e-12)
    if listed.low is not None:
        assert limits(searched) == pytest.approx(limits(listed), abs=1e-12)


def test_many_prompts_take_little_memory() -> None:
    # 100,000 differences: listing their five billion Walsh averages would take 40 GB.
    values = np.random.default_rng(1).normal(1.5, 1, 100_000)
    low, high = limits(hodges_lehmann(values.tolist()))
    # For normal values the half-width is 1.96 sd sqrt(pi / 3) / sqrt(n) (asymptotic efficiency 3 / pi).
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(math.pi / 3 / 100_000), rel=0.02)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_outside_0_and_1_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="confidence level"):
        hodges_lehmann([1.0, 2.0], confidence=level)
