"""Where drafts begin to pay, read off arms of synthetic acceptance: upwards only, and with an interval."""

import pytest

from draftworth.explain.base import EvenPoint
from draftworth.explain.evencurve import _curve
from draftworth.predict.base import Range


def points(*some: tuple[float, float], half: float = 0.05) -> list[EvenPoint]:
    return [
        EvenPoint(arm=f"s{at}", length=length, speed_up=Range(value=value, low=value - half, high=value + half))
        for at, (length, value) in enumerate(some)
    ]


def test_it_is_read_off_where_it_rises_through_1_and_so_are_its_ends() -> None:
    """By hand: it rises by 0.2 a token from 0.9 at 1.0, so it is 1 at 1.5, and its ends at 1.25 and 1.75."""
    found = _curve(8, 3, points((1.0, 0.9), (2.0, 1.1)))
    assert (found.length, found.low, found.high) == pytest.approx((1.5, 1.25, 1.75))
    assert "pays from 1.50 tokens on (1.25 to 1.75), as measured" in found.text


def test_an_end_beyond_the_points_is_told_and_not_extrapolated() -> None:
    found = _curve(8, 3, points((1.0, 0.98), (2.0, 1.02)))
    assert found.length == pytest.approx(1.5)
    assert (found.low, found.high) == (None, None)
    assert "(below 1.00 to above 2.00)" in found.text


@pytest.mark.parametrize("values", [(1.04, 0.97, 0.98), (0.98, 1.01, 0.97), (1.2, 0.9, 1.2)])
def test_more_acceptance_that_made_arms_slower_is_no_break_even(values: tuple[float, ...]) -> None:
    found = _curve(8, 3, points(*zip((1.5, 2.0, 2.5), values, strict=True)))
    assert (found.length, found.low, found.high) == (None, None, None)
    assert "pays from" not in found.text
    assert "no break-even is read off" in found.text


def test_where_chance_can_be_all_of_it_that_is_said() -> None:
    assert "Every interval holds 1" in _curve(8, 3, points((1.5, 1.01), (2.0, 1.03))).text
    assert "Every interval holds 1" in _curve(8, 3, points((1.5, 1.0))).text
    assert "Every interval" not in _curve(8, 3, points((1.5, 1.2), (2.0, 1.3))).text
