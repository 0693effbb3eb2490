import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.counts import FIELDS, AcceptanceCounts, Sum, figure, figures, not_comparable, sum_counts

# By hand: 40 steps, 25 of them drafted; of 100 drafted tokens 50 were accepted; 40 + 50 - 2 cut off were emitted.
WHOLE: dict[str, Any] = {
    "steps": 40,
    "drafting_steps": 25,
    "drafted": 100,
    "accepted": 50,
    "accepted_per_position": (20, 15, 10, 5),
    "emitted": 88,
    "source": "a test",
}


def test_every_figure_names_its_formula_and_has_the_value_of_it() -> None:
    found = {one.name: one for one in figures(AcceptanceCounts(**WHOLE))}
    assert {name: (one.value, one.formula) for name, one in found.items()} == {
        "coverage": (25 / 40, "drafting steps / steps"),
        "acceptance_rate": (0.5, "accepted / drafted"),
        "length_per_drafting_step": (3.0, "1 + accepted / drafting steps"),
        "length_per_step": (2.2, "emitted / steps"),
    }


def test_survival_and_conditional_acceptance_by_hand() -> None:
    counts = AcceptanceCounts(**WHOLE)
    assert counts.survival == (0.8, 0.6, 0.4, 0.2)
    assert counts.conditional == (20 / 25, 15 / 20, 10 / 15, 5 / 10)


def test_drafts_of_unequal_length_have_no_conditional_acceptance() -> None:
    assert AcceptanceCounts(**{**WHOLE, "drafted": 99}).conditional is None


def test_a_figure_that_cannot_be_had_says_which_count_is_missing_and_why() -> None:
    counts = AcceptanceCounts(accepted=5, source="a test", not_given={"drafted": "this engine counts no drafts"})
    found = figure(counts, "acceptance_rate")
    assert found.value is None
    assert found.why_not == "drafted not given: this engine counts no drafts"


def test_counts_that_contradict_each_other_make_no_figure() -> None:
    found = figure(AcceptanceCounts(drafted=10, accepted=11, source="a test"), "acceptance_rate")
    assert (found.value, found.why_not) == (None, "11 accepted of 10 drafted contradict each other")


def test_a_rounded_count_gives_a_range() -> None:
    counts = AcceptanceCounts(accepted=60, between={"drafting_steps": (29, 31)}, source="a line")
    found = figure(counts, "length_per_drafting_step")
    assert found.value is None
    assert (found.low, found.high) == (1 + 60 / 31, 1 + 60 / 29)
    assert counts.why_not("drafting_steps") == "told only rounded: 29 to 31"


def test_nothing_drafted_is_no_rate_of_zero() -> None:
    found = figure(AcceptanceCounts(drafted=0, accepted=0, source="a test"), "acceptance_rate")
    assert (found.value, found.why_not) == (None, "drafted: none")


def test_figures_of_other_meaning_are_not_compared_and_the_reason_is_said() -> None:
    plain = AcceptanceCounts(**WHOLE)
    other = AcceptanceCounts(**{**WHOLE, "meaning": {"steps": "prefill included"}})
    assert not_comparable("acceptance_rate", plain, other) is None
    why = not_comparable("length_per_step", plain, other)
    assert why == "its counts differ in meaning (as defined / steps: prefill included)"


def test_windows_of_other_meaning_are_not_added() -> None:
    total = sum_counts([AcceptanceCounts(**WHOLE), AcceptanceCounts(**{**WHOLE, "meaning": {"steps": "other"}})])
    assert total is not None
    assert (total.steps, total.why_not("steps")) == (None, "the windows count it in different ways")
    assert total.accepted == 100


def test_bounds_add_up() -> None:
    one = AcceptanceCounts(accepted=6, between={"drafting_steps": (2, 4)}, source="a line")
    two = AcceptanceCounts(accepted=3, drafting_steps=5, source="a line")
    total = sum_counts([one, two])
    assert total is not None
    assert (total.accepted, total.between) == (9, {"drafting_steps": (7, 9)})


def test_a_window_without_a_count_takes_it_from_the_sum_with_its_reason() -> None:
    lacking = AcceptanceCounts(**{**WHOLE, "steps": None, "not_given": {"steps": "the line does not tell"}})
    total = sum_counts([AcceptanceCounts(**WHOLE), lacking])
    assert total is not None
    assert (total.steps, total.why_not("steps"), total.emitted) == (None, "the line does not tell", 176)


COUNTS = st.none() | st.integers(0, 10**6)


@given(
    st.lists(st.fixed_dictionaries({name: COUNTS for name in FIELDS if name != "accepted_per_position"}), max_size=6)
)
def test_a_sum_is_the_sum_of_its_parts_or_not_given(parts: list[dict[str, int | None]]) -> None:
    total = Sum()
    for part in parts:
        total.add(AcceptanceCounts(**part, source="a window"))  # type: ignore[arg-type]  # None and int only
    found = total.total()
    if not parts:
        assert found is None
        return
    assert found is not None
    for name in parts[0]:
        values = [part[name] for part in parts]
        assert getattr(found, name) == (None if None in values else sum(value or 0 for value in values))


@given(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS))
def test_no_counts_make_a_share_above_one_or_a_number_that_is_none(values: tuple[int | None, ...]) -> None:
    names = ("steps", "drafting_steps", "drafted", "accepted", "emitted")
    given_counts: dict[str, Any] = dict(zip(names, values, strict=True))
    for one in figures(AcceptanceCounts(**given_counts, source="a test")):
        assert (one.value is None) == (one.why_not is not None)
        if one.value is not None:
            assert math.isfinite(one.value)
            assert one.name not in {"coverage", "acceptance_rate"} or 0 <= one.value <= 1


def test_positions_of_other_widths_are_padded() -> None:
    one = AcceptanceCounts(accepted_per_position=(3, 1), source="a")
    two = AcceptanceCounts(accepted_per_position=(4, 2, 1), source="a")
    total = sum_counts([one, two])
    assert total is not None
    assert total.accepted_per_position == (7, 3, 1)
    assert total.source == "a, 2 windows added"


def test_a_missing_window_makes_the_sum_missing() -> None:
    assert sum_counts([AcceptanceCounts(**WHOLE), None]) is None
    assert sum_counts([]) is None


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_nobody_explained_was_not_read(name: str) -> None:
    assert AcceptanceCounts(source="a test").why_not(name) == "was not read"


def test_a_count_that_would_be_below_zero_is_none_and_says_so() -> None:
    counts = AcceptanceCounts(emitted=-3, steps=5, source="a test")
    assert (counts.emitted, counts.steps) == (None, 5)
    assert counts.why_not("emitted") == "the counters contradict each other: it would be -3"


def test_a_count_without_an_upper_bound_bounds_its_figure_from_one_side() -> None:
    exact = AcceptanceCounts(accepted=60, drafted=90, drafting_steps=30, source="a line")
    zeros = AcceptanceCounts(accepted=0, drafted=30, between={"drafting_steps": (10, None)}, source="a line")
    total = sum_counts([exact, zeros])
    assert total is not None
    assert total.between == {"drafting_steps": (40, None)}
    length = figure(total, "length_per_drafting_step")
    assert (length.value, length.low, length.high) == (None, 1.0, 1 + 60 / 40)
    assert figure(total, "acceptance_rate").value == 60 / 120
