"""How many experts a step loads: independent tokens touch more of them than consecutive tokens of one request.

Of E experts with k active, n independent tokens touch U(n) = E (1 - (1 - k/E)^n) on average (uniform routing; MoESD,
arXiv 2505.19645). Consecutive tokens of one request route alike: they count as n_eff = 1 + (n - 1)(1 - rho)
independent ones. rho was fitted to public counts: 0.39 and 0.48 (256 experts, top 8, 8 and 15 consecutive tokens:
Luce-Org/lucebox issue 501) and about 0.5 (2.5 times the experts of one token at 4 tokens: Cohere, 2026-04-21).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

RHO = 0.45
"""Overlap of consecutive tokens, where nothing was measured."""
RHO_RANGE = (0.39, 0.5)
"""The public figures lie in it."""


def union(tokens: ArrayLike, experts: int, active: int) -> NDArray[np.float64]:
    """Return how many different experts of a layer so many independent tokens touch on average.

    Args:
        tokens: how many; fractions are fine.
        experts: E.
        active: k, experts of each token.
    """
    count = np.asarray(tokens, dtype=np.float64)
    if active >= experts:
        return np.full_like(count, float(experts))
    touched: NDArray[np.float64] = experts * -np.expm1(count * np.log1p(-active / experts))
    return touched


def effective_tokens(requests: ArrayLike, tokens: ArrayLike, rho: float = RHO) -> NDArray[np.float64]:
    """Return as how many independent tokens a step counts.

    The first token of each request counts in full, each further one as 1 - rho of one.

    Args:
        requests: requests in the step.
        tokens: tokens of all of them together.
        rho: overlap of consecutive tokens.
    """
    first = np.asarray(requests, dtype=np.float64)
    effective: NDArray[np.float64] = first + (np.asarray(tokens, dtype=np.float64) - first) * (1.0 - rho)
    return effective


def effective_padded(
    requests: ArrayLike, tokens: ArrayLike, runs_as: ArrayLike, rho: float = RHO
) -> NDArray[np.float64]:
    """Return as how many independent tokens a step counts that is padded to a captured size.

    Rows of padding choose experts too (measured: six streams cost what eight cost). They are taken to be like the rest
    of the step: further tokens where it is one request, further requests where each has one token, a mixture between.

    Args:
        requests: requests in the step.
        tokens: tokens of all of them together.
        runs_as: the size it is padded to, at least `tokens`.
        rho: overlap of consecutive tokens.
    """
    first, total = np.asarray(requests, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    rows = np.asarray(runs_as, dtype=np.float64)
    own = np.where(total > 1, (first - 1) / np.maximum(total - 1, 1), 1.0)
    return effective_tokens(first + (rows - total) * own, rows, rho)
