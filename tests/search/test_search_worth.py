"""What a start is worth, against integrals and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from tests.search.candidates import candidate, observation

from draftworth.search.belief import Belief, Sizes
from draftworth.search.rules import Rules
from draftworth.search.worth import expected_improvement, worths


@given(st.floats(-0.5, 0.5), st.floats(0.005, 0.5))
def test_expected_improvement_is_the_integral(difference: float, sd: float) -> None:
    top = difference + 12 * sd
    found, _ = integrate.quad(
        lambda x: max(0.0, x) * stats.norm.pdf(x, difference, sd),
        0,
        max(top, 0.0),
        epsabs=1e-12,
        points=[max(difference, 0)],
    )
    assert expected_improvement(difference, sd) == pytest.approx(found, abs=1e-7)


def test_of_what_is_known_it_is_the_difference() -> None:
    assert expected_improvement(0.1, 0.0) == 0.1
    assert expected_improvement(-0.1, 0.0) == 0.0


def test_it_is_the_expected_rise_of_the_best_mean() -> None:
    # Simulated: draw truths from the posterior, let a start of `b` show itself, and condition again.
    # What it will show is normal, and the means of both are linear in it.
    some = [candidate("a", {1: (0.10, 0.10)}), candidate("b", {1: (0.15, 0.20)}, window=(1, 3))]
    seen = [observation("a", at1=(1.12, 0.08))]
    told = worths(some, seen, Rules(loads=(1,), start_sd=0.08), ())[0]
    belief = Belief(some, [1], seen)
    sd = math.hypot(belief.of("b")[1].sd, 0.08)
    shown = np.random.default_rng(1).normal(belief.of("b")[1].value, sd, 400_000)
    at0, at1 = (
        Belief(some, [1], [*seen, observation("b", at1=(math.exp(one), 0.08))]).mean[:, 0] for one in (0.0, 1.0)
    )
    a, b = (at0[which] + (at1[which] - at0[which]) * shown for which in (0, 1))
    assert told.candidate.name == "b"
    assert told.gain == pytest.approx(float(np.mean(np.maximum(a, b) - a)), abs=3e-4)


def test_the_chance_by_hand() -> None:
    # a: predicted 0.1 +- 0.1 and measured 0.1 +- 0.1, so 0.1 with variance 0.005. b: 0.15 +- 0.2 and independent.
    # P(b - a > 0.02) = Phi((0.05 - 0.02) / sqrt(0.04 + 0.005)) = Phi(0.1414) = 0.5562
    plain = Sizes(scale=1, shared=0, mode=0, bend=0, own=0)
    some = [candidate("a", {1: (0.10, 0.10)}), candidate("b", {1: (0.15, 0.20)}, method="suffix")]
    seen = [observation("a", at1=(math.exp(0.10), 0.10))]
    told = worths(some, seen, Rules(loads=(1,), sizes=plain, margin=0.02), ())[0]
    assert told.chance == pytest.approx(0.5562, abs=1e-4)
    assert (told.best, told.load) == ("a", 1)
    assert told.best_value == pytest.approx(0.10)


def test_a_noisy_start_is_worth_less() -> None:
    some = [candidate("a", {1: (0.0, 0.1)})]
    quiet, loud = (worths(some, [], Rules(loads=(1,), start_sd=sd), ())[0] for sd in (0.01, 0.3))
    assert loud.gain < quiet.gain / 2
    assert loud.chance == quiet.chance


def test_gains_are_averaged_over_loads_by_weight() -> None:
    # Without noise or doubt it is the plain difference: +0.2 at 1, nothing at 8, where it is slower.
    some = [candidate("a", {1: (0.2, 0.0), 8: (-0.2, 0.0)})]
    exact = Sizes(scale=1, shared=0, mode=0, bend=0, own=0)
    even = worths(some, [], Rules(loads=(1, 8), sizes=exact), ())[0]
    assert even.gain == pytest.approx(0.1)
    assert (even.load, even.chance) == (1, 1.0)
    mostly = worths(some, [], Rules(loads=(1, 8), weights={1: 1.0, 8: 3.0}, sizes=exact), ())[0]
    assert mostly.gain == pytest.approx(0.05)
    one = worths(some, [], Rules(loads=(1, 8), weights={1: 3.0, 8: 1.0}, sizes=exact, together=True), ())[0]
    assert one.gain == pytest.approx(0.75 * 0.2 - 0.25 * 0.2)
    assert one.load is None


def test_it_is_told_by_the_minute() -> None:
    exact = Sizes(scale=1, shared=0, mode=0, bend=0, own=0)
    some = [candidate("a", {1: (0.2, 0.0)}, reload_s=540.0)]
    assert worths(some, [], Rules(loads=(1,), sizes=exact, measure_s=60.0), ())[0].per_minute == pytest.approx(0.02)


@pytest.mark.parametrize(
    "wrong", [{"loads": ()}, {"loads": (1,), "weights": {2: 1.0}}, {"loads": (1,), "min_gain": math.nan}]
)
def test_rules_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Rules(**wrong)  # type: ignore[arg-type]
