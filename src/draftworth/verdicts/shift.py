"""The Hodges-Lehmann shift: a robust paired difference beside the ratio."""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from scipy import special

from draftworth.verdicts.base import Interval
from draftworth.verdicts.restarts import Floats

EXACT_PAIRS = 50
"""Most differences for which the signed-rank distribution is counted exactly."""
LISTED_PAIRS = 1000
"""Most differences whose Walsh averages are all listed (half a million); above, the ones asked for are searched."""


def hodges_lehmann(differences: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Return the Hodges-Lehmann shift: the median of all Walsh averages (d_i + d_j) / 2, i <= j.

    The interval is distribution-free: it runs between the C-th smallest and the C-th largest Walsh average, C the
    largest number with P(W <= C - 1) <= (1 - confidence) / 2 under the signed-rank distribution (Hollander, Wolfe and
    Chicken, "Nonparametric Statistical Methods", section 3.3). The distribution is counted exactly up to 50
    differences and taken as normal, with continuity correction, above. Memory grows with n, not with its square.

    Args:
        differences: one a prompt, variant minus baseline, any unit.
        confidence: two-sided level, between 0 and 1; what is reached is at least this.

    Returns:
        The shift in the unit of the differences; no limits where n is too small for the level (below 6 at 95 %).

    Raises:
        ValueError: nothing given, a value that is not finite, or a level outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, not at {confidence}")
    values = np.sort(np.asarray(differences, dtype=np.float64))
    n = values.size
    if n == 0:
        raise ValueError("a shift needs at least one difference")
    if not np.isfinite(values).all():
        raise ValueError("a shift needs finite differences")
    total = n * (n + 1) // 2
    rank = _walsh_rank(n, (1 - confidence) / 2)
    lower, upper, low, high = _walsh(values, [(total + 1) // 2, total // 2 + 1, max(rank, 1), total + 1 - max(rank, 1)])
    estimate = (lower + upper) / 2
    if rank < 1:
        return Interval(
            estimate=estimate, confidence=confidence, method=f"Hodges-Lehmann: {n} prompts are too few for an interval"
        )
    kind = "exact" if n <= EXACT_PAIRS else "normal approximation of the"
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        confidence=confidence,
        method=f"Hodges-Lehmann over {n} prompts, {kind} signed-rank distribution; within these starts",
    )


def _walsh(values: Floats, ranks: Sequence[int]) -> list[float]:
    """Return the Walsh averages of sorted values that have these ranks, counted from 1."""
    if values.size > LISTED_PAIRS:
        return [_searched(values, rank) for rank in ranks]
    rows, columns = np.triu_indices(values.size)
    averages = np.sort((values[rows] + values[columns]) / 2)
    return [float(averages[rank - 1]) for rank in ranks]


def _searched(values: Floats, rank: int) -> float:
    """Return one Walsh average by bisection on its value, in O(n log n) a step and O(n) memory.

    Counting is exact but for the rounding of 2 x - d_i, so the result is within rounding of the Walsh average.
    """
    own = np.arange(values.size)
    low, high = float(values[0]), float(values[-1])
    rounding = 4 * float(np.finfo(np.float64).eps) * max(abs(low), abs(high))
    while high - low > rounding:
        middle = low + (high - low) / 2
        # Partners j >= i with d_j <= 2 x - d_i.
        reached = np.searchsorted(values, 2 * middle - values, side="right") - own
        if int(np.maximum(reached, 0).sum()) >= rank:
            high = middle
        else:
            low = middle
    return high


def _walsh_rank(n: int, tail: float) -> int:
    """Return the largest C with P(W <= C - 1) <= tail for the signed-rank statistic W of n differences; 0: none."""
    total = n * (n + 1) // 2
    if n > EXACT_PAIRS:
        sd = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return math.floor(total / 2 + 0.5 + float(special.ndtri(tail)) * sd)
    # counts[w]: sets of the ranks 1..n whose sum is w.
    counts = [1] + [0] * total
    for rank in range(1, n + 1):
        for weight in range(total, rank - 1, -1):
            counts[weight] += counts[weight - rank]
    # Half the weights at most: beyond the middle low and high would cross.
    below = accumulate(counts[: total // 2 + 1])
    return sum(1 for count in below if count <= tail * 2**n)
