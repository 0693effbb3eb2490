"""Looking at a trial while it runs, with the error rate kept: group-sequential boundaries by alpha spending.

Look k of K has a share k / K of the information. The error that may be spent by then is a function of that share (Lan
and DeMets 1983, Biometrika 70:659), and the nominal level of each look is what spends exactly that, found by the
recursion of Armitage, McPherson and Rowe (1969, JRSS A 132:235) on the sums of independent increments. The interval of
a look at its nominal level is a repeated confidence interval (Jennison and Turnbull 1989, JRSS B 51:305): all of them
hold the truth together with probability 1 - alpha, so a verdict taken from any of them keeps its error, whatever the
reason for stopping. Looks that share prompts or a restart are more alike than those of independent increments, and more
alike looks cross less often (Slepian's inequality), so the error is then below alpha.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy import special

from draftworth.verdicts.base import Comparison, Verdict

Floats = NDArray[np.float64]
Spending = Literal["linear", "obrien-fleming", "pocock"]

SPENDING: Spending = "linear"
"""The default: alpha t (Kim and DeMets 1987, Biometrika 74:149, with rho = 1).

A look of a trial costs a restart of a service, and the effects looked for (10 to 25 %) are one to three standard errors
of a single start at the stated prior. O'Brien-Fleming's function asks for 4.9 standard errors at the first of five
looks and so for restarts that the evidence does not need; Pocock's asks for 2.4, but leaves 2.4 for the last look too,
which a small effect pays for. Linear spending asks for 2.6 at the first and 2.3 at the last."""

NODES = 240
"""Points of the Gauss-Legendre rule on a continuation region: constants are right to 1e-8 for up to 50 looks."""
FURTHEST = 40.0
"""No boundary lies further out, in standard errors."""
_DECIDED = frozenset({Verdict.FASTER, Verdict.SLOWER, Verdict.NO_DIFFERENCE})


def spent(share: float, alpha: float, spending: Spending = SPENDING) -> float:
    """Return the two-sided error that may be spent at a share of the information.

    `linear`: alpha t. `obrien-fleming`: 4 (1 - Phi(z(alpha/4) / sqrt(t))), alpha/2 to each side. `pocock`:
    alpha ln(1 + (e - 1) t). (Lan and DeMets 1983.)

    Raises:
        ValueError: a share outside (0, 1], an error outside (0, 1), or an unknown function.
    """
    if not (0 < share <= 1 and 0 < alpha < 1):
        raise ValueError(f"the share lies in (0, 1] and alpha in (0, 1), not at {share} and {alpha}")
    if spending == "linear":
        return alpha * share
    if spending == "obrien-fleming":
        return 4 * float(special.ndtr(special.ndtri(alpha / 4) / math.sqrt(share)))
    if spending == "pocock":
        return alpha * math.log(1 + (math.e - 1) * share)
    raise ValueError(f"spending is linear, obrien-fleming or pocock, not {spending}")


@lru_cache(maxsize=64)
def nominal_levels(looks: int, alpha: float, spending: Spending = SPENDING) -> tuple[float, ...]:
    """Return the two-sided nominal error of each of equally spaced looks, so that all together spend alpha.

    The interval at look k is taken at the confidence 1 - nominal_levels(...)[k - 1]; with one look that is 1 - alpha.

    Raises:
        ValueError: fewer than one look, an error outside (0, 1), or an unknown spending function.
    """
    return tuple(2 * float(special.ndtr(-limit)) for limit in boundaries(looks, alpha, spending))


@lru_cache(maxsize=64)
def boundaries(looks: int, alpha: float, spending: Spending = SPENDING) -> tuple[float, ...]:
    """Return the boundary of |Z| at each of equally spaced looks, in standard errors; see `nominal_levels`.

    Raises:
        ValueError: fewer than one look, an error outside (0, 1), or an unknown spending function.
    """
    if looks < 1:
        raise ValueError(f"a trial has at least one look, not {looks}")
    found: list[float] = []
    walk = _Walk()
    before = 0.0
    for look in range(1, looks + 1):
        share = look / looks
        total = spent(share, alpha, spending)
        low, high = 0.0, FURTHEST
        while high - low > 1e-10:  # noqa: PLR2004 - far below what a quantile of a time can show
            middle = (low + high) / 2
            low, high = (middle, high) if walk.crossing(share, middle) > total - before else (low, middle)
        found.append((low + high) / 2)
        walk.step(share, found[-1])
        before = total
    return tuple(found)


def crossing_probability(limits: Sequence[float], shares: Sequence[float] | None = None, drift: float = 0.0) -> float:
    """Return the probability that |Z| reaches its limit at some look.

    Z_k is normal with mean drift sqrt(t_k) and variance 1, and sqrt(t_k) Z_k has independent increments.

    Args:
        limits: one a look, in standard errors.
        shares: the share of the information at each look, rising; equally spaced by default.
        drift: mean of Z at the full information; 0 gives the error, anything else the power.
    """
    walk = _Walk(drift)
    total = 0.0
    for share, limit in zip(shares or [k / len(limits) for k in range(1, len(limits) + 1)], limits, strict=True):
        total += walk.crossing(share, limit)
        walk.step(share, limit)
    return total


def enough(comparison: Comparison) -> bool:
    """Return whether the verdict is decided, so that the trial may stop: faster, slower or no difference.

    Only for comparisons made under `Rules.look` of `Rules.looks`; at the level of a single look, stopping at the first
    decided verdict would be wrong far more often than stated.
    """
    return comparison.verdict in _DECIDED


class _Walk:
    """The density of sqrt(t) Z of those who crossed at no look so far, as weights on nodes."""

    def __init__(self, drift: float = 0.0) -> None:
        self.drift = drift
        self.share = 0.0
        self.nodes: Floats = np.zeros(1)
        self.weights: Floats = np.ones(1)

    def _scaled(self, share: float, at: Floats) -> tuple[Floats, float]:
        """Return where `at` lies in standard errors of the next step, from each node: shape (at, nodes)."""
        step = share - self.share
        root = math.sqrt(step)
        return (at[:, None] - self.nodes[None, :] - self.drift * step) / root, root

    def crossing(self, share: float, limit: float) -> float:
        """Return the probability of crossing at this share and not before."""
        edge = limit * math.sqrt(share)
        z, _ = self._scaled(share, np.array([-edge, edge]))
        return float((special.ndtr(z[0]) + special.ndtr(-z[1])) @ self.weights)

    def step(self, share: float, limit: float) -> None:
        """Go on to this share with those who did not cross."""
        edge = limit * math.sqrt(share)
        points, rule = _rule()
        at = edge * points
        z, root = self._scaled(share, at)
        density = np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * root)
        self.nodes, self.weights, self.share = at, edge * rule * (density @ self.weights), share


@lru_cache(maxsize=1)
def _rule() -> tuple[Floats, Floats]:
    points, weights = leggauss(NODES)
    return points, weights
