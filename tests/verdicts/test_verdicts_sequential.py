import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftworth.verdicts.base import Comparison, Verdict
from draftworth.verdicts.sequential import (
    Spending,
    boundaries,
    crossing_probability,
    enough,
    nominal_levels,
    spent,
)

SPENDINGS: tuple[Spending, ...] = ("linear", "obrien-fleming", "pocock")


def test_the_lan_demets_boundaries_of_obrien_fleming_type_are_the_published_ones() -> None:
    # Reboussin, DeMets, Kim and Lan (2000, Controlled Clinical Trials 21:190), five equal looks, two-sided 5 %.
    assert boundaries(5, 0.05, "obrien-fleming") == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=6e-4)


@pytest.mark.parametrize(
    ("looks", "constant"), [(1, 1.960), (2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413), (10, 2.555)]
)
def test_pococks_constants_cross_in_5_percent(looks: int, constant: float) -> None:
    # Jennison and Turnbull (2000), "Group Sequential Methods", table 2.1, alpha = 0.05.
    assert crossing_probability([constant] * looks) == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(("looks", "constant"), [(2, 1.977), (3, 2.004), (5, 2.040), (10, 2.087)])
def test_obrien_flemings_constants_cross_in_5_percent(looks: int, constant: float) -> None:
    # The same book, table 2.3: the boundary at look k is constant sqrt(K / k).
    limits = [constant * math.sqrt(looks / k) for k in range(1, looks + 1)]
    assert crossing_probability(limits) == pytest.approx(0.05, abs=1e-4)


def test_one_look_is_a_plain_interval() -> None:
    assert list(nominal_levels(1, 0.05)) == pytest.approx([0.05])
    assert list(boundaries(1, 0.05)) == pytest.approx([1.959964])


def test_two_looks_agree_with_the_bivariate_normal() -> None:
    first, second = boundaries(2, 0.05)
    assert 2 * stats.norm.sf(first) == pytest.approx(0.025)
    # Z_1 and Z_2 correlate by sqrt(1/2).
    both = stats.multivariate_normal(cov=[[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    inside = both.cdf([first, second], lower_limit=[-first, -second])
    assert 1 - inside == pytest.approx(0.05, abs=2e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.floats(0.001, 0.2), st.sampled_from(SPENDINGS))
def test_all_looks_together_spend_the_error(looks: int, alpha: float, spending: Spending) -> None:
    levels = nominal_levels(looks, alpha, spending)
    assert all(0 <= level <= alpha + 1e-9 for level in levels)
    assert crossing_probability([stats.norm.isf(level / 2) for level in levels]) == pytest.approx(alpha, rel=1e-4)


def test_the_functions_spend_everything_at_the_end_and_differ_on_the_way() -> None:
    assert [spent(1.0, 0.05, one) for one in SPENDINGS] == pytest.approx([0.05] * 3)
    assert spent(0.2, 0.05, "linear") == pytest.approx(0.01)
    assert spent(0.2, 0.05, "pocock") == pytest.approx(0.05 * math.log(1 + 0.2 * (math.e - 1)))
    assert spent(0.2, 0.05, "obrien-fleming") == pytest.approx(2 * 5.4e-7, rel=0.02)  # Phi(-4.877) on each side


def test_drift_gives_the_power_of_a_single_look() -> None:
    # P(|Z| > 1.96) for Z ~ N(2.8, 1): the textbook 80 %.
    assert crossing_probability([1.959964], drift=2.801585) == pytest.approx(0.8, abs=1e-4)


@pytest.mark.parametrize(("looks", "alpha"), [(0, 0.05), (3, 0.0), (3, 1.0)])
def test_impossible_designs_are_refused(looks: int, alpha: float) -> None:
    with pytest.raises(ValueError, match=r"at least one look|alpha in"):
        boundaries(looks, alpha)
    with pytest.raises(ValueError, match="spending is"):
        spent(0.5, 0.05, "hope")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "stop"),
    [
        (Verdict.FASTER, True),
        (Verdict.SLOWER, True),
        (Verdict.NO_DIFFERENCE, True),
        (Verdict.INCONCLUSIVE, False),
        (Verdict.ERROR, False),
    ],
)
def test_a_trial_may_stop_when_its_verdict_is_decided(verdict: Verdict, stop: bool) -> None:  # noqa: FBT001
    assert enough(Comparison(verdict=verdict)) is stop
