"""Arrival times: known numbers, the same everywhere, and a Poisson process."""

import itertools
import math
import statistics
import subprocess
import sys

import pytest

from draftworth.bench import arrivals
from draftworth.bench.base import Prompt
from draftworth.errors import UsageError


def test_the_generator_is_splitmix64() -> None:
    # The first numbers of its authors' reference for the seed 0.
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert list(itertools.islice(arrivals.splitmix64(0), 3)) == known
    assert list(itertools.islice(arrivals.splitmix64(2**64), 3)) == known


def test_gaps_are_those_of_the_generator() -> None:
    # u = (0xE220A8397B1DCDAF >> 11) / 2**53 is 0.88331; -ln(u) = 0.124079; at 2 a second that is 62 ms.
    first, second = arrivals.poisson(2.0, 0, 2)
    assert first == pytest.approx(0.0620395, rel=1e-5)
    # The second: 0x6E78... / 2**64 is 0.431528; -ln(u) = 0.840423.
    assert second - first == pytest.approx(0.4202115, rel=1e-5)


def test_it_is_a_poisson_process() -> None:
    times = arrivals.poisson(5.0, 11, 20_000)
    gaps = [b - a for a, b in itertools.pairwise([0.0, *times])]
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.03)
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), rel=0.03)


def test_the_rate_is_only_the_scale() -> None:
    assert [t * 8 for t in arrivals.poisson(8.0, 5, 50)] == pytest.approx(arrivals.poisson(1.0, 5, 50))
    assert arrivals.poisson(1.0, 5, 50) != arrivals.poisson(1.0, 6, 50)


def test_it_does_not_depend_on_the_process() -> None:
    code = "from draftworth.bench.arrivals import poisson; print(poisson(3.0, 7, 5))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {f"{arrivals.poisson(3.0, 7, 5)}\n"}


def recording(*times: float | None) -> list[Prompt]:
    return [Prompt(f"p{i}", "c", arrival_s=time) for i, time in enumerate(times)]


def test_a_recording_begins_at_once_and_keeps_its_gaps() -> None:
    assert arrivals.recorded(recording(10.0, 12.0, 11.0), 2.0, 1) == [0.0, 1.0, 0.5]
    assert arrivals.recorded([], 1.0, 1) == []


def test_a_repeat_follows_after_a_mean_gap() -> None:
    # 0, 1, 4: the mean gap is 2, so the second round begins at 6.
    assert arrivals.recorded(recording(0.0, 1.0, 4.0), 1.0, 2) == [0, 1, 4, 6, 7, 10]


@pytest.mark.parametrize("number", [0.0, -1.0, math.inf, math.nan])
def test_odd_rates_and_speeds_are_told(number: float) -> None:
    with pytest.raises(UsageError, match="it must be above 0"):
        arrivals.poisson(number, 0, 1)
    with pytest.raises(UsageError, match="it must be above 0"):
        arrivals.recorded(recording(0.0), number, 1)


def test_what_was_not_recorded_cannot_be_replayed() -> None:
    with pytest.raises(UsageError, match="prompt 'p1' has no arrival time"):
        arrivals.recorded(recording(0.0, None), 1.0, 1)
