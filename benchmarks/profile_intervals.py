"""How often the intervals of a profile's steps hold the true mean: benchmarks/results/profile_intervals.json, the page.

    python -m benchmarks.profile_intervals          (some minutes)
    python -m benchmarks.profile_intervals --page   (the table again)

Runs of steps are drawn, each step normal round 10 ms with a standard deviation of 1 before it takes over a part of how
far the step before it was off (`correlation`), and go through the code that tells a profile's intervals
(`draftworth.profiles.spread`).
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.pages import write_between

from draftworth.profiles.spread import step_times

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "profile_intervals.json"
PAGE = ROOT / "docs" / "profiles.md"
BEGIN, END = "<!-- intervals: by benchmarks/profile_intervals.py -->", "<!-- end of intervals -->"
STEPS, CORRELATIONS = (20, 60, 200, 400), (0.0, 0.5, 0.8)
RUNS = 1000
TRUE_MS = 10.0
SEED = 3


def runs(random: np.random.Generator, steps: int, correlation: float, many: int) -> "np.ndarray[Any, Any]":
    """Return the milliseconds of each step, one run a row, as if each had gone on for long already."""
    found = random.normal(0, 1, (many, steps))
    found[:, 0] /= math.sqrt(1 - correlation**2)
    for step in range(1, steps):
        found[:, step] += correlation * found[:, step - 1]
    return TRUE_MS + found


def held(steps: int, correlation: float, many: int) -> float:
    """Return the share of runs whose interval holds the true mean."""
    drawn = runs(np.random.default_rng(SEED), steps, correlation, many)
    count = 0
    for each in drawn:
        (told,) = step_times({"total": each})
        if told.interval is not None:
            count += told.interval.low_ms <= TRUE_MS <= told.interval.high_ms
    return count / many


def table(found: dict[str, Any]) -> list[str]:
    """Return the page's table."""
    rows = ["| steps | " + " | ".join(f"correlation {one:g}" for one in CORRELATIONS) + " |"]
    rows.append("|---|" + "---|" * len(CORRELATIONS))
    shares = {(one["steps"], one["correlation"]): one["held"] for one in found["cells"]}
    return rows + [
        f"| {steps} | " + " | ".join(f"{shares[steps, one]:.1%}" for one in CORRELATIONS) + " |" for steps in STEPS
    ]


def page() -> None:
    """Write the table into the page."""
    write_between(PAGE, (BEGIN, END), table(json.loads(RESULT.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the page of what was simulated before")
    if not parser.parse_args().page:
        cells = [
            {"steps": steps, "correlation": one, "held": held(steps, one, RUNS)}
            for steps in STEPS
            for one in CORRELATIONS
        ]
        RESULT.write_text(json.dumps({"runs": RUNS, "cells": cells}, indent=1) + "\n", encoding="utf-8")
    page()
