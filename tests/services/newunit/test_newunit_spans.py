"""Spans of time, and a start limit that every loop meets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.errors import UsageError
from draftworth.services.newunit.spans import BURST, RESTART_S, seconds, span, start_limit_interval


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2h", 7200), ("90min", 5400), ("90m", 5400), ("1h30min", 5400), ("1h 30m", 5400), ("45s", 45), ("2400", 2400)],
)
def test_spans_as_people_write_them(text: str, expected: int) -> None:
    assert seconds(text, "--x") == expected


@pytest.mark.parametrize("text", ["", "0", "-5s", "2 weeks", "h", "1.5h", "infinity", "8d", "2h foo"])
def test_what_is_no_span_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="--x"):
        seconds(text, "--x")


@given(st.integers(1, 7 * 86400))
def test_what_is_written_reads_back(total: int) -> None:
    assert seconds(span(total), "--x") == total


def starts(cycle: float, interval: float, until: float) -> int:
    """Count starts of a loop as systemd does it (ratelimit.c): BURST in an interval that begins with the first."""
    at, begin, number, count = 0.0, 0.0, 0, 0
    while at < until:
        if count == 0 or at > begin + interval:
            begin, number = at, 0
        if number >= BURST:
            return count
        number, count, at = number + 1, count + 1, at + cycle
    return count


@given(load=st.integers(1, 86400), stop=st.integers(1, 3600), wait=st.integers(0, 3600), part=st.floats(0.0, 1.0))
def test_any_loop_of_failing_starts_ends_after_three(load: int, stop: int, wait: int, part: float) -> None:
    interval = start_limit_interval(load_s=load, stop_s=stop, wait_s=wait)
    longest = wait + load + 2 * stop + RESTART_S
    cycle = RESTART_S + part * (longest - RESTART_S)
    assert starts(cycle, interval, until=100 * interval) == BURST


def test_a_shorter_interval_would_never_stop_the_loop() -> None:
    # What a unit with systemd's own interval of 10 s, or the one of an hour, does with loads of 30 minutes.
    assert starts(1830, 3600, until=30 * 86400) > 1000
    assert start_limit_interval(load_s=7200, stop_s=60, wait_s=120) == 380 * 60
