"""Sets of instants against a count of whole units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.profiles.events import Floats
from draftworth.profiles.intervals import Set, before, both, length, shared, union, without

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def columns(spans: list[tuple[int, int]]) -> tuple[Floats, Floats]:
    start = np.array([at for at, _ in spans], dtype=float)
    return start, start + np.array([long for _, long in spans], dtype=float)


def units(spans: list[tuple[int, int]]) -> set[int]:
    return {one for at, long in spans for one in range(at, at + long)}


def of(some: Set) -> set[int]:
    return {one for start, end in zip(*some, strict=True) for one in range(int(start), int(end))}


@given(one=SPANS, other=SPANS)
def test_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = union(*columns(one)), union(*columns(other))
    assert of(a) == units(one)
    assert length(a) == len(units(one))
    assert of(both(a, b)) == units(one) & units(other)
    assert of(without(a, b)) == units(one) - units(other)
    at = np.arange(0, 60, dtype=float)
    assert before(a, at).tolist() == [len([unit for unit in units(one) if unit < moment]) for moment in at]


@given(spans=SPANS)
def test_time_is_shared_evenly(spans: list[tuple[int, int]]) -> None:
    parts = shared(*columns(spans))
    running = {unit: sum(1 for at, long in spans if at <= unit < at + long) for unit in units(spans)}
    expected = [sum(1 / running[unit] for unit in range(at, at + long)) for at, long in spans]
    assert parts.tolist() == pytest.approx(expected)
