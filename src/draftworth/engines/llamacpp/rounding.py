"""The whole numbers behind what llama.cpp prints rounded.

`/metrics` is written with six significant digits (`tools/server/server-task.cpp` of 10448 and 11434,
`server-context.cpp` before: a double into a stream of default precision), so a counter of a million and more is only
known between two ends. The mean length of a log line has two decimals.
"""

import math

_SIX_DIGITS = 1_000_000
_HALF_OF_LENGTH = 0.005
_SLACK = 1e-9


def ends(value: float) -> tuple[int, int]:
    """Return the smallest and the largest whole number that is printed as this value.

    A value with more than six digits was not rounded: it is itself.
    """
    if value < _SIX_DIGITS:
        return round(value), round(value)
    unit = 10 ** (math.floor(math.log10(value)) - 5)
    whole = round(value)
    if whole % unit:
        return whole, whole
    return whole - unit // 2, whole + unit // 2


def difference(before: float, after: float) -> tuple[int, int]:
    """Return the smallest and the largest growth between two printed values of one counter."""
    if before == after < _SIX_DIGITS:
        return 0, 0
    (old_low, old_high), (new_low, new_high) = ends(before), ends(after)
    return max(0, new_low - old_high), max(0, new_high - old_low)


def drafting_steps(accepted: int, drafted: int, length: str) -> tuple[int, int] | None:
    """Return the fewest and the most drafting steps behind a line's mean length, 1 + accepted / drafting steps.

    Args:
        accepted: tokens.
        drafted: tokens; each drafting step drafts at least one.
        length: the mean length as printed, two decimals.

    Returns:
        The two ends, or None where no number of steps prints like this.
    """
    mean = float(length) - 1
    if accepted == 0:
        return (1, drafted) if drafted and mean == 0 else None
    if mean + _HALF_OF_LENGTH <= 0:
        return None
    low = max(1, math.floor(accepted / (mean + _HALF_OF_LENGTH + _SLACK)))
    below = mean - _HALF_OF_LENGTH - _SLACK
    high = min(drafted, math.ceil(accepted / below)) if below > 0 else drafted
    while low <= high and not _prints(accepted, low, length):
        low += 1
    while low <= high and not _prints(accepted, high, length):
        high -= 1
    return (low, high) if low <= high else None


def _prints(accepted: int, steps: int, length: str) -> bool:
    return f"{1.0 + accepted / steps:.2f}" == length
