"""From repeats of one measurement to its median and an interval; nothing is left out as an outlier."""

import math
from collections.abc import Sequence
from statistics import mean, median, stdev

FEWEST = 2
"""Fewest repeats that have an interval."""
_LEVEL = 0.95
_FEWEST_RANKS = 6
"""Fewest repeats whose range is a 95 % interval of the median: 1 - 2 / 2^6 = 0.969; of five it is 0.9375."""


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % interval.

    From six repeats on the limits are order statistics: the narrowest pair of ranks r and n + 1 - r that holds the
    median with at least 95 %, by the binomial distribution (no assumption on the shape). Of two to five there is no
    such pair; then the wider of their range and Student's interval of the mean is taken at each side.

    Args:
        values: the repeats.

    Raises:
        ValueError: fewer than two.
    """
    n = len(values)
    if n < FEWEST:
        raise ValueError(f"{n} repeats have no interval")
    ordered, middle = sorted(values), median(values)
    if n >= _FEWEST_RANKS:
        rank = _rank(n)
        return middle, ordered[rank - 1], ordered[n - rank]
    from scipy import special  # noqa: PLC0415 - lazy

    half = float(special.stdtrit(n - 1, (1 + _LEVEL) / 2)) * stdev(values) / math.sqrt(n)
    centre = mean(values)
    return middle, min(ordered[0], centre - half), max(ordered[-1], centre + half)


def _rank(n: int) -> int:
    """Return the largest r for which ranks r and n + 1 - r hold the median with at least the level."""
    below, rank = 0.0, 0
    while rank < n // 2:
        below += math.comb(n, rank) / 2**n
        if 1 - 2 * below < _LEVEL:
            break
        rank += 1
    return rank
