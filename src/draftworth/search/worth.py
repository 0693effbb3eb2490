"""What starting a candidate is worth: the expected rise of the best setting's mean.

With b the best known at a load (the baseline's 0, or the measured candidate with the highest mean),
d = mean(c) - mean(b), and s the sd of what d will move by after one more start of c:

    gain = d Phi(d / s) + s phi(d / s)
    s² = (k_c - k_b)' K⁻¹ (k_c - k_b)

k are covariances with what that start will show at all loads, K is the covariance of the latter, noise included. This
is the expected improvement of Jones, Schonlau and Welch (1998, J. Global Optimization 13:455) for a noisy measurement
(between two, the knowledge gradient of Frazier, Powell and Dayanik 2009, INFORMS J. Computing 21:599): what the spread
of a start hides cannot be gained. Either each
load has a best of its own and gains are averaged over them, or one setting serves all loads and the above is about its
mean over them.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from draftworth.search.base import BASELINE, Candidate, LogSpeed, Observation
from draftworth.search.belief import Belief
from draftworth.search.rules import Rules

_FLAT = 1e-12
"""Below this sd a measurement tells nothing."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What starting one candidate is worth.

    Attributes:
        candidate: which.
        gain: expected, mean over the loads, in log speed.
        per_minute: the same a minute of reload and measuring.
        chance: of beating the best known by the margin, at the load where that is likeliest.
        load: that load; None for all loads together.
        speed: what is believed of it there.
        best: name of the best known there, `baseline` for the baseline.
        best_value: its mean there, in log speed.
    """

    candidate: Candidate
    gain: float
    per_minute: float
    chance: float
    load: int | None
    speed: LogSpeed
    best: str
    best_value: float


def worths(
    candidates: Sequence[Candidate], observations: Sequence[Observation], rules: Rules, given_up: Container[str]
) -> list[Worth]:
    """Return what starting each candidate is worth that was neither measured nor given up, in their order."""
    belief = Belief(candidates, rules.loads, observations, sizes=rules.sizes, baseline_sd=rules.baseline_sd)
    measured = {one.candidate for one in observations}
    known = [name for name in belief.names if name in measured]
    return [
        _worth(one, belief, known, rules) for one in candidates if one.name not in measured and one.name not in given_up
    ]


def expected_improvement(difference: float, sd: float) -> float:
    """Return E max(0, X) of a normal X: difference Phi(difference / sd) + sd phi(difference / sd)."""
    if sd <= _FLAT:
        return max(0.0, difference)
    z = difference / sd
    found = difference * float(special.ndtr(z)) + sd * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return max(0.0, found)


@dataclass(frozen=True, slots=True)
class _Where:
    """A weighted mean over the loads: one load, or (None) all of them. `share` is what it counts for."""

    weights: NDArray[np.float64]
    load: int | None
    share: float


@dataclass(frozen=True, slots=True)
class _Place:
    """What a candidate would gain there."""

    where: _Where
    speed: LogSpeed
    best: str
    best_value: float
    chance: float
    gain: float


def _worth(one: Candidate, belief: Belief, known: Sequence[str], rules: Rules) -> Worth:
    shares = rules.shares(belief.loads)
    if rules.together:
        places = [_place(one.name, belief, known, rules, _Where(shares, None, 1.0))]
    else:
        places = [
            _place(one.name, belief, known, rules, _Where(np.eye(len(shares))[at], load, float(shares[at])))
            for at, load in enumerate(belief.loads)
            if shares[at] > 0
        ]
    top = max(places, key=lambda place: (place.chance, -(place.where.load or 0)))
    gain = sum(place.where.share * place.gain for place in places)
    minutes = max(rules.seconds(one), 1.0) / 60
    return Worth(one, gain, gain / minutes, top.chance, top.where.load, top.speed, top.best, top.best_value)


def _place(name: str, belief: Belief, known: Sequence[str], rules: Rules, where: _Where) -> _Place:
    """Return what a candidate would gain in a weighted mean over the loads."""
    weights = where.weights
    towards, seen = belief.next_start(name, rules.start_sd)
    mine = belief.rows(name)
    cov = belief.cov
    mean, variance = float(weights @ belief.mean.reshape(-1)[mine]), float(weights @ cov[mine, mine] @ weights)
    speed = LogSpeed(value=mean, sd=math.sqrt(max(0.0, variance)))
    change = weights @ towards[mine]
    means = {other: float(weights @ belief.mean.reshape(-1)[belief.rows(other)]) for other in known}
    best = max(means, key=lambda other: (means[other], other), default=BASELINE)
    value = means.get(best, 0.0)
    if value > 0:
        rows = belief.rows(best)
        change = change - weights @ towards[rows]
        variance += float(weights @ (cov[rows, rows] - 2 * cov[mine, rows]) @ weights)
    else:
        best, value = BASELINE, 0.0
    told = math.sqrt(max(0.0, float(change @ np.linalg.solve(seen, change))))
    return _Place(
        where,
        speed,
        best,
        value,
        chance=_beyond(mean - value - rules.margin, math.sqrt(max(0.0, variance))),
        gain=expected_improvement(mean - value, told),
    )


def _beyond(difference: float, sd: float) -> float:
    """Return P(X > 0) of a normal X."""
    return float(difference > 0) if sd <= _FLAT else float(special.ndtr(difference / sd))
