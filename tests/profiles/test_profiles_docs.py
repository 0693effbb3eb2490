"""The figures of docs/profiles.md are those that its scripts measured, of traces as Draftworth's own arms make them."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import profile_intervals, profile_reading
from draftworth.profiles.read import read_profile

PAGE = profile_reading.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", [profile_reading, profile_intervals], ids=["reading", "intervals"])
def test_the_page_has_what_was_measured(script: object) -> None:
    begin, end, result = (getattr(script, name) for name in ("BEGIN", "END", "RESULT"))
    wanted = getattr(script, "table")(json.loads(result.read_text(encoding="utf-8")))  # noqa: B009 - of either script
    assert PAGE.split(begin, 1)[1].split(end, 1)[0].strip().splitlines() == wanted


def test_a_trace_that_is_made_is_read_to_its_last_step(tmp_path: Path) -> None:
    path = tmp_path / "rank0.1.pt.trace.json.gz"
    made = profile_reading.write(path, "gzip", 6e6, 0.0)
    found = read_profile([path])
    assert found.complete
    assert found.steps == made["steps"] - 1, "of the last step nothing tells the end"
    assert found.steps > 2
    one = read_profile([profile_reading.SOURCE])
    assert one.steps
    assert found.of("experts") / found.steps == pytest.approx(one.of("experts") / one.steps, rel=0.05)


@pytest.mark.parametrize(("steps", "correlation"), [(20, 0.0), (60, 0.5)])
def test_intervals_hold_the_mean_as_often_as_the_page_says(steps: int, correlation: float) -> None:
    told = json.loads(profile_intervals.RESULT.read_text(encoding="utf-8"))
    share = next(one["held"] for one in told["cells"] if (one["steps"], one["correlation"]) == (steps, correlation))
    runs = 60
    assert abs(profile_intervals.held(steps, correlation, runs) - share) < 4 * math.sqrt(share * (1 - share) / runs)
