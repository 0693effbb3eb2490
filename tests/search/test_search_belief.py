"""The posterior against hand arithmetic and against conditioning done another way."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.candidates import candidate, observation

from draftworth.search.base import Candidate, LogSpeed, Observation
from draftworth.search.belief import Belief, Sizes, prior

PLAIN = Sizes(scale=1.0, shared=0.0, mode=0.0, bend=0.0, own=0.0, across=0.0)


def test_one_candidate_by_hand() -> None:
    # Prediction 0.10 +- 0.10, measured 0.30 +- 0.10: half-way, with half of the variance.
    one = candidate("a", {1: (0.10, 0.10)})
    told = Belief([one], [1], [observation("a", at1=(math.exp(0.30), 0.10))], sizes=PLAIN).of("a")[1]
    assert told.value == pytest.approx(0.20, abs=1e-6)
    assert told.sd == pytest.approx(0.10 / math.sqrt(2), abs=1e-6)


def test_two_candidates_of_a_group_by_hand() -> None:
    # Only the group's error, of sd 0.2, is uncertain, so both move alike: 0.04 / (0.04 + 0.01) = 0.8 of the surprise.
    both = [candidate("a", {1: (0.0, 0.0)}), candidate("b", {1: (0.5, 0.0)}, window=(1, 3))]
    belief = Belief(both, [1], [observation("a", at1=(math.exp(-0.5), 0.1))], sizes=replace(PLAIN, mode=0.2))
    assert belief.of("a")[1].value == pytest.approx(-0.4, abs=1e-6)
    assert belief.of("b")[1].value == pytest.approx(0.5 - 0.4, abs=1e-6)
    assert belief.of("b")[1].sd == pytest.approx(math.sqrt(0.04 - 0.04 * 0.8), abs=1e-6)


def test_another_method_learns_nothing_from_it() -> None:
    both = [candidate("a", {1: (0.0, 0.1)}), candidate("b", {1: (0.2, 0.1)}, method="suffix")]
    belief = Belief(both, [1], [observation("a", at1=(0.5, 0.01))])
    assert belief.of("b") == Belief(both, [1]).of("b")


def test_the_baselines_start_is_an_error_of_all_observations() -> None:
    # Both arms 0.1 above their predictions, known exactly; the arms' own sd 0.1, the baseline's start 0.1.
    # By hand: y + b = 0.1 for both; by symmetry b = 2 / 3 of what fits: minimise 2 (0.1 - b)^2 + b^2 -> b = 0.2 / 3.
    both = [candidate("a", {1: (0.0, 0.1)}), candidate("b", {1: (0.0, 0.1)}, method="suffix")]
    seen = [observation(name, at1=(math.exp(0.1), 0.0)) for name in ("a", "b")]
    belief = Belief(both, [1], seen, sizes=PLAIN, baseline_sd=0.1)
    assert belief.of("a")[1].value == pytest.approx(0.1 - 0.2 / 3, abs=1e-6)


def test_what_earlier_trials_measured_is_over_other_starts_of_the_baseline() -> None:
    # As above, but each over a start of its own: each error of 0.1 goes half to its arm and half to its start.
    both = [candidate("a", {1: (0.0, 0.1)}), candidate("b", {1: (0.0, 0.1)}, method="suffix")]
    seen = [observation(name, at1=(math.exp(0.1), 0.0)) for name in ("a", "b")]
    apart = [seen[0], seen[1].model_copy(update={"baseline": "20260101-000000"})]
    belief = Belief(both, [1], apart, sizes=PLAIN, baseline_sd=0.1)
    assert belief.of("a")[1].value == pytest.approx(0.05, abs=1e-6)
    assert belief.of("b")[1].value == pytest.approx(0.05, abs=1e-6)


def test_neighbours_in_k_go_together_more_than_others() -> None:
    some = [candidate(f"k{k}", {1: (0.0, 0.0)}, k=k) for k in (1, 3, 4)]
    _, cov = prior(some, (1,), replace(PLAIN, bend=0.1, length=0.5))
    assert cov[1, 2] / 0.01 == pytest.approx(math.exp(-((math.log(5 / 4) / 0.5) ** 2) / 2))
    assert cov[0, 2] / 0.01 == pytest.approx(math.exp(-((math.log(5 / 2) / 0.5) ** 2) / 2))


def test_loads_are_correlated_by_their_distance_in_doublings() -> None:
    _, cov = prior(
        [candidate("a", {1: (0.0, 0.1), 2: (0.0, 0.1), 8: (0.0, 0.1)})], (1, 2, 8), replace(PLAIN, across=0.5)
    )
    assert cov[0, 1] == pytest.approx(0.01 * 0.5)
    assert cov[0, 2] == pytest.approx(0.01 * 0.5**3)


def test_nothing_predicted_is_zero_and_wide_and_smooth_in_k() -> None:
    some = [candidate(f"k{k}", None, k=k, method="eagle3") for k in (3, 4)]
    mean, cov = prior(some, (1,), Sizes())
    assert not mean.any()
    assert math.sqrt(cov[0, 0]) > 0.3
    assert cov[0, 1] / cov[0, 0] > 0.9


@pytest.mark.parametrize(
    ("names", "loads", "seen"), [("aa", [1], ""), ("ab", [], ""), ("ab", [0], ""), ("ab", [1], "c")]
)
def test_what_cannot_be_is_an_error(names: str, loads: list[int], seen: str) -> None:
    some = [candidate(name) for name in names]
    with pytest.raises(ValueError, match=r"."):
        Belief(some, loads, [observation(name, at1=(1.0, 0.1)) for name in seen])


def test_no_candidate_is_called_baseline() -> None:
    with pytest.raises(ValueError, match="baseline"):
        Belief([candidate("baseline")], [1])


speeds = st.floats(0.3, 3.0)
sds = st.floats(0.0, 0.5)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Candidate], list[int], list[Observation]]:
    loads = draw(st.lists(st.sampled_from([1, 2, 4, 8, 32]), min_size=1, max_size=3, unique=True))
    some = []
    for number in range(draw(st.integers(1, 6))):
        told = {load: (math.log(draw(speeds)), draw(sds)) for load in loads} if draw(st.booleans()) else None
        method = draw(st.sampled_from(["ngram", "suffix"]))
        some.append(candidate(f"c{number}", told, k=draw(st.integers(1, 8)), method=method))
    picked = draw(st.lists(st.sampled_from(some), max_size=5))
    seen = [observation(one.name, **{f"at{load}": (draw(speeds), draw(sds)) for load in loads}) for one in picked]
    # Where a search was gone on with, some are over the start of an earlier trial's baseline.
    trials = st.sampled_from([None, "earlier", "first"])
    return some, loads, [one.model_copy(update={"baseline": draw(trials)}) for one in seen]


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_it_is_the_conditional_of_the_joint_normal(scene: tuple[list[Candidate], list[int], list[Observation]]) -> None:
    some, loads, seen = scene
    told = Belief(some, loads, seen, baseline_sd=0.05)
    # The textbook formula with an explicit inverse, every start written out.
    mean, cov = prior(some, tuple(sorted(loads)), Sizes())
    flat, width = mean.reshape(-1), len(loads)
    pick = np.zeros((len(seen) * width, len(flat)))
    values, noise = np.zeros(len(pick)), np.zeros(len(pick))
    for number, one in enumerate(seen):
        for at, load in enumerate(sorted(loads)):
            pick[number * width + at, int(one.candidate[1:]) * width + at] = 1
            values[number * width + at] = one.measured[load].value
            noise[number * width + at] = one.measured[load].sd ** 2
    if len(pick):
        over = np.repeat([str(one.baseline) for one in seen], width)
        shared = 0.05**2 * (over[:, None] == over[None, :])
        between = np.linalg.inv(pick @ cov @ pick.T + shared + np.diag(noise + 1e-10))
        flat = flat + cov @ pick.T @ between @ (values - pick @ flat)
        cov = cov - cov @ pick.T @ between @ pick @ cov
    np.testing.assert_allclose(told.mean.reshape(-1), flat, atol=1e-5)
    np.testing.assert_allclose(told.cov, cov, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_more_evidence_never_raises_a_variance(scene: tuple[list[Candidate], list[int], list[Observation]]) -> None:
    some, loads, seen = scene
    before = np.diag(Belief(some, loads, (), baseline_sd=0.05).cov)
    for count in range(1, len(seen) + 1):
        after = np.diag(Belief(some, loads, seen[:count], baseline_sd=0.05).cov)
        assert (after <= before + 1e-9).all()
        assert (after >= -1e-9).all()
        before = after


@settings(max_examples=30, deadline=None)
@given(scenes())
def test_the_order_of_what_was_measured_does_not_matter(
    scene: tuple[list[Candidate], list[int], list[Observation]],
) -> None:
    some, loads, seen = scene
    np.testing.assert_allclose(Belief(some, loads, seen).mean, Belief(some, loads, seen[::-1]).mean, atol=1e-5)


def test_a_bad_head_tells_nothing_of_another_head() -> None:
    some = [Candidate(name=name, method="eagle3", k=3, more={"model": f"/{name}"}) for name in ("bad", "good")]
    bad = Observation(candidate="bad", measured={1: LogSpeed(value=-0.7, sd=0.02)})
    told = Belief(some, (1,), [bad]).of("good")[1]
    before = Belief(some, (1,)).of("good")[1]
    assert told == before
