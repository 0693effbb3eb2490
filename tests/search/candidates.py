"""Candidates for tests of the search."""

import math
from collections.abc import Mapping

from draftworth.search.base import Candidate, LogSpeed, Observation


def candidate(
    name: str,
    predicted: Mapping[int, tuple[float, float]] | None = None,
    *,
    k: int = 3,
    method: str = "ngram",
    window: tuple[int, int] = (2, 4),
    reload_s: float = 600.0,
    free: bool = False,
) -> Candidate:
    told = None if predicted is None else {load: LogSpeed(value=mean, sd=sd) for load, (mean, sd) in predicted.items()}
    return Candidate(
        name=name, method=method, k=k, min=window[0], max=window[1], reload_s=reload_s, predicted=told, free=free
    )


def observation(name: str, **speeds: tuple[float, float]) -> Observation:
    """Return an observation; `at4=(1.2, 0.05)` is a speed-up of 1.2 at 4 at a time, known to 5 %."""
    return Observation(
        candidate=name,
        measured={int(load[2:]): LogSpeed(value=math.log(speed), sd=sd) for load, (speed, sd) in speeds.items()},
    )
