"""From repeats of one measurement to its median and an interval; nothing is left out as an outlier."""

import math
from collections.abc import Sequence
from statistics import mean, median, stdev

FEWEST = 2
"""Fewest repeats that have an interval."""
_LEVEL = 0.95
_FEWEST_RANKS = 6
"""Fewest repeats whose range is a 95 % interval of the median: 1 - 2 / 2^6 = 0.969; of five it is 0.9375."""


def median_interval(values: Sequence[float], *, difference: bool = False) -> tuple[float, float, float]:
    """Return the median and its 95 % interval.

    From six repeats on the limits are order statistics: the narrowest pair of ranks r and n + 1 - r that holds the
    median with at least 95 %, by the binomial distribution (no assumption on the shape). Of two to five there is no
    such pair; then the wider of their range and Student's interval of the mean is taken at each side, of the mean of
    logarithms: times are above 0, and so is their interval.

    Args:
        values: the repeats.
        difference: they are differences of times, which may be below 0: Student's interval of themselves.

    Raises:
        ValueError: fewer than two, or a time that is not above 0.
    """
    n = len(values)
    if n < FEWEST:
        raise ValueError(f"{n} repeats have no interval")
    if not difference and min(values) <= 0:
        raise ValueError(f"a time is above 0, not {min(values)}")
    ordered, middle = sorted(values), median(values)
    if n >= _FEWEST_RANKS:
        rank = _rank(n)
        return middle, ordered[rank - 1], ordered[n - rank]
    from scipy import special  # noqa: PLC0415 - lazy

    used = ordered if difference else [math.log(one) for one in ordered]
    half = float(special.stdtrit(n - 1, (1 + _LEVEL) / 2)) * stdev(used) / math.sqrt(n)
    ends = mean(used) - half, mean(used) + half
    low, high = ends if difference else (math.exp(one) for one in ends)
    return middle, min(ordered[0], low), max(ordered[-1], high)


def _rank(n: int) -> int:
    """Return the largest r for which ranks r and n + 1 - r hold the median with at least the level."""
    below, rank = 0.0, 0
    while rank < n // 2:
        below += math.comb(n, rank) / 2**n
        if 1 - 2 * below < _LEVEL:
            break
        rank += 1
    return rank
