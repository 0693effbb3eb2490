"""Which candidate comes next, when it ends, and what is said of those that were never tried."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.candidates import candidate, observation

from draftworth.search.base import Candidate, LogSpeed, Observation
from draftworth.search.policy import cannot_beat, next_candidate, not_tried
from draftworth.search.rules import Rules

RULES = Rules(loads=(1,), measure_s=60.0, start_sd=0.02)


def searched(some: list[Candidate], truth: dict[str, float], rules: Rules = RULES) -> list[str]:
    seen: list[Observation] = []
    while (choice := next_candidate(some, seen, rules)).next is not None:
        seen.append(observation(choice.next, at1=(truth[choice.next], 0.02)))
        assert len(seen) <= len(some)
    return [one.candidate for one in seen]


def test_it_finds_the_winner_of_a_known_table() -> None:
    speeds = {1: 1.05, 2: 1.12, 3: 1.21, 4: 1.19, 5: 1.10, 6: 1.00, 7: 0.92, 8: 0.85}
    off = {1: 0.02, 2: -0.03, 3: -0.02, 4: 0.03, 5: 0.02, 6: -0.02, 7: 0.01, 8: 0.03}
    some = [candidate(f"k{k}", {1: (math.log(speed) + off[k], 0.1)}, k=k) for k, speed in speeds.items()]
    order = searched(some, {f"k{k}": speed for k, speed in speeds.items()})
    assert "k3" in order
    assert len(order) <= 4
    assert not {"k6", "k7", "k8"} & set(order)


def test_where_every_setting_loses_nothing_is_started() -> None:
    some = [candidate(f"k{k}", {1: (-0.8, 0.15)}, k=k) for k in (1, 3, 5)]
    choice = next_candidate(some, [], RULES)
    assert choice.next is None
    assert "no candidate is worth it" in choice.why
    assert "0.45 times as fast" in choice.why
    told = not_tried(some, [], RULES)
    assert [one.name for one in told] == ["k1", "k3", "k5"]
    assert all("chance of 0.00% only, less than 5%" in one.why for one in told)


def test_one_measured_arm_ends_a_group_that_shares_its_mode() -> None:
    # All are predicted 10 % faster, but the mode is not known well: the first shows it to cost half of the speed.
    some = [candidate(f"k{k}", {1: (0.1, 0.4)}, k=k) for k in (1, 3, 5, 8)]
    first = next_candidate(some, [], RULES).next
    assert first == "k1"
    assert next_candidate(some, [observation("k1", at1=(0.5, 0.02))], RULES).next is None


def test_another_method_is_still_tried_then() -> None:
    some = [candidate("k3", {1: (0.1, 0.4)}), candidate("s8", {1: (0.05, 0.2)}, method="suffix", k=8)]
    assert next_candidate(some, [observation("k3", at1=(0.5, 0.02))], RULES).next == "s8"


def test_what_needs_no_reload_comes_first() -> None:
    some = [candidate("good", {1: (0.4, 0.1)}, k=3), candidate("here", {1: (0.05, 0.1)}, k=1, free=True)]
    choice = next_candidate(some, [], RULES)
    assert choice.next == "here"
    assert "nothing has to be started" in choice.why


def test_a_cheap_reload_comes_before_a_dear_one() -> None:
    some = [
        candidate("dear", {1: (0.20, 0.1)}, reload_s=3600.0, method="draft_model"),
        candidate("cheap", {1: (0.15, 0.1)}, reload_s=300.0),
    ]
    assert next_candidate(some, [], RULES).next == "cheap"


def test_ties_go_by_name_whatever_the_order() -> None:
    some = [candidate(name, {1: (0.1, 0.1)}, method=name) for name in ("b", "a", "c")]
    assert next_candidate(some, [], RULES).next == "a"
    assert next_candidate(some[::-1], [], RULES).next == "a"


def test_the_time_is_up() -> None:
    some = [candidate("a", {1: (0.2, 0.1)}, reload_s=600.0), candidate("b", {1: (0.1, 0.1)}, reload_s=100.0)]
    choice = next_candidate(some, [], RULES, time_left_s=300.0)
    assert choice.next == "b"
    assert next_candidate(some, [], RULES, time_left_s=660.0).next is not None
    ended = next_candidate(some, [], RULES, time_left_s=30.0)
    assert ended.next is None
    assert ended.why == "the time is up: a takes 11.0 min and 0.5 are left"
    told = not_tried(some, [], RULES, time_left_s=30.0)
    assert told[0].why.startswith("takes 11.0 min and 0.5 are left; it was expected 1.22 times as fast")


def test_what_could_not_be_measured_is_not_chosen_again_and_is_told() -> None:
    some = [candidate("a", {1: (0.3, 0.1)}), candidate("b", {1: (0.1, 0.1)}, method="suffix")]
    failed = {"a": "its server did not start"}
    assert next_candidate(some, [], RULES, given_up=failed).next == "b"
    told = {one.name: one.why for one in not_tried(some, [], RULES, given_up=failed)}
    assert told["a"] == "its server did not start"
    assert told["b"].startswith("the search was ended before it")


def test_why_says_the_figures() -> None:
    # exp(0.1) = 1.11; the first choice beats nothing but the baseline.
    choice = next_candidate([candidate("a", {1: (0.1, 0.05)})], [], RULES)
    assert "expected 1.11 times as fast as the baseline" in choice.why
    assert "at 1 at a time" in choice.why
    assert "beats baseline by 2% with a chance of" in choice.why
    assert choice.why.endswith("11.0 min")
    assert choice.per_minute == pytest.approx(choice.expected_gain / 11)


@settings(max_examples=60, deadline=None)
@given(
    settings_=st.lists(
        st.tuples(st.floats(-0.5, 0.5), st.floats(0.0, 0.4), st.floats(-0.3, 0.3)), min_size=1, max_size=7
    ),
    together=st.booleans(),
    known=st.booleans(),
)
def test_it_always_ends_and_never_measures_twice(
    settings_: list[tuple[float, float, float]], *, together: bool, known: bool
) -> None:
    rules = Rules(loads=(1, 4), measure_s=1.0, together=together)
    some = [
        candidate(f"c{at}", {1: (mean, sd), 4: (mean, sd)} if known else None, k=1 + at)
        for at, (mean, sd, _) in enumerate(settings_)
    ]
    seen: list[Observation] = []
    for _ in range(len(some) + 1):
        choice = next_candidate(some, seen, rules)
        assert choice == next_candidate(some, seen, rules)
        if choice.next is None:
            break
        assert choice.next not in {one.candidate for one in seen}
        truth = settings_[int(choice.next[1:])]
        speed = math.exp(truth[0] + truth[2])
        seen.append(observation(choice.next, at1=(speed, 0.08), at4=(speed, 0.08)))
    else:
        pytest.fail("it did not end")
    told = not_tried(some, seen, rules)
    assert {one.name for one in told} | {one.candidate for one in seen} == {one.name for one in some}
    assert all(one.why for one in told)


def test_an_arm_is_stopped_when_it_is_out_at_every_load() -> None:
    best = {1: LogSpeed(value=0.2, sd=0.02), 4: LogSpeed(value=0.1, sd=0.02)}
    slow = {1: LogSpeed(value=-0.1, sd=0.05), 4: LogSpeed(value=-0.2, sd=0.05)}
    assert cannot_beat(slow, best, look=1, looks=5)
    assert not cannot_beat({**slow, 4: LogSpeed(value=0.05, sd=0.05)}, best, look=1, looks=5)
    assert not cannot_beat({1: slow[1]}, best, look=1, looks=5)


def test_one_look_is_the_plain_interval() -> None:
    # 1.96 on both sides: 0.05 * 2 * 1.96 = 0.196.
    best = {1: LogSpeed(value=0.0, sd=0.05)}
    assert cannot_beat({1: LogSpeed(value=-0.197, sd=0.05)}, best, look=1, looks=1)
    assert not cannot_beat({1: LogSpeed(value=-0.195, sd=0.05)}, best, look=1, looks=1)


@pytest.mark.parametrize(("best_sd", "most"), [(0.0, 0.025), (0.03, 0.05)])
def test_looks_together_keep_the_error(best_sd: float, most: float) -> None:
    # An arm as fast as the best, looked at eight times while its prompts come in. Where the best is known exactly, half
    # of the error is not used. Three standard errors of 4,000 trials are 0.008 and 0.011.
    looks, trials = 8, 4000
    rng = np.random.default_rng(3)
    best = rng.normal(0, best_sd, trials)
    sums = rng.normal(0, 0.08, (trials, looks)).cumsum(axis=1)
    stopped = 0
    for one in range(trials):
        stopped += any(
            cannot_beat(
                {1: LogSpeed(value=float(sums[one, at] / (at + 1)), sd=0.08 / math.sqrt(at + 1))},
                {1: LogSpeed(value=float(best[one]), sd=best_sd)},
                look=at + 1,
                looks=looks,
            )
            for at in range(looks)
        )
    assert stopped / trials <= most + 3 * math.sqrt(most * (1 - most) / trials)


@pytest.mark.parametrize(("look", "looks"), [(0, 3), (4, 3)])
def test_a_look_that_was_not_planned(look: int, looks: int) -> None:
    with pytest.raises(ValueError, match="look"):
        cannot_beat({}, {1: LogSpeed(value=0, sd=0.1)}, look=look, looks=looks)
