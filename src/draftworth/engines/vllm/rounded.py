"""Finds the whole numbers behind what a log line prints rounded: how many steps drafted, and accepted by position.

A "SpecDecoding metrics" line has exact sums and rounded means of them. So few numbers of steps print like that that
often one is left. A number is tried by printing it as vLLM does, from the same double precision quotients (numpy's and
Python's are the same), so there is no edge of rounding to guess about.
"""

import math
from typing import NamedTuple

_HALF_OF_LENGTH = 0.005
_HALF_OF_RATE = 0.0005
_SLACK = 1e-9
_TRIES = 30_000
"""Positions printed at each end of an interval before it is left as it is."""
_SURELY_ZERO = 3_000
"""Steps an accepted token in which a length's and a rate's decimals are zeros."""


class Printed(NamedTuple):
    """What a line prints.

    Attributes:
        accepted: tokens, exact.
        drafted: tokens, exact.
        length: the acceptance length, two decimals.
        bonus: 1 where the length counts the bonus token.
        rates: accepted by position / drafting steps, three decimals, position 0 first; at least one.
    """

    accepted: int
    drafted: int
    length: str
    bonus: int
    rates: tuple[str, ...]


class Solved(NamedTuple):
    """What fits.

    Attributes:
        low: the fewest drafting steps.
        high: the most; None where nothing bounds them.
        per_position: accepted tokens by position where only these fit, else None.
    """

    low: int
    high: int | None
    per_position: tuple[int, ...] | None = None


def solve(printed: Printed, *, refused: bool) -> Solved | None:
    """Return every number of drafting steps that prints like this, as an interval; None where there is none.

    Args:
        printed: the line.
        refused: whether drafts that a grammar refused may be missing in `drafted`. A drafting step drafts at least one
            token and at most one a position; with refused drafts a step can be left without any, so there may be more
            steps than drafted tokens.
    """
    low, high = _interval(printed)
    low = max(low, 1, -(-printed.drafted // len(printed.rates)))
    if not refused:
        high = min(high, printed.drafted)
    elif high == math.inf:
        # Only zeros are printed: from some number on, every one fits.
        return Solved(low, None) if _spans(printed, max(low, _SURELY_ZERO * printed.accepted)) else None
    within = _survivors(printed, low, high)
    if within is None:
        return None
    first, last = within
    return Solved(first, last, _only(printed, first) if first == last else None)


def _interval(printed: Printed) -> tuple[int, float]:
    """Return bounds that no fitting number lies beyond; the upper one may be infinite."""
    mean = float(printed.length) - printed.bonus
    low, high = 1, math.inf
    for value, half in (
        (mean, _HALF_OF_LENGTH),
        (sum(map(float, printed.rates)), _HALF_OF_RATE * len(printed.rates)),
    ):
        most, fewest = value + half + _SLACK, value - half - _SLACK
        if most <= 0:
            return 1, 0
        low = max(low, math.floor(printed.accepted / most))
        if fewest > 0:
            high = min(high, math.ceil(printed.accepted / fewest))
    for position, text in enumerate(printed.rates, 1):
        # What was accepted at a position was accepted at each one before it.
        fewest = float(text) - _HALF_OF_RATE - _SLACK
        if fewest > 0:
            high = min(high, math.ceil(printed.accepted / position / fewest))
    return low, high


def _survivors(printed: Printed, low: int, high: float) -> tuple[int, int] | None:
    """Return the first and the last number that fits; an end that is not found soon stays where it is."""
    if high < low:
        return None
    end = int(high)
    tries = max(1, _TRIES // len(printed.rates))
    first = next((n for n in range(low, min(end, low + tries) + 1) if _spans(printed, n)), None)
    if first is None:
        if end <= low + tries:
            return None
        first = low
    last = next((n for n in range(end, max(first, end - tries) - 1, -1) if _spans(printed, n)), end)
    return first, last


def _spans(printed: Printed, steps: int) -> list[tuple[int, int]] | None:
    """Return how many tokens each position can have accepted in so many steps; None where nothing fits."""
    if f"{printed.bonus + printed.accepted / steps:.2f}" != printed.length:
        return None
    spans: list[tuple[int, int]] = []
    for text in printed.rates:
        span = _span(text, steps)
        if span is None:
            return None
        # A position is reached only past the one before it.
        spans.append((span[0], min(span[1], spans[-1][1])) if spans else span)
    for index in range(len(spans) - 2, -1, -1):
        spans[index] = (max(spans[index][0], spans[index + 1][0]), spans[index][1])
    if any(low > high for low, high in spans):
        return None
    fewest, most = (sum(ends) for ends in zip(*spans, strict=True))
    return spans if fewest <= printed.accepted <= most else None


def _span(text: str, steps: int) -> tuple[int, int] | None:
    rate = float(text)
    low, top = max(0, math.floor((rate - _HALF_OF_RATE) * steps)), math.ceil((rate + _HALF_OF_RATE) * steps)
    high = min(steps, top)
    while low <= high and f"{low / steps:.3f}" != text:
        low += 1
    while low < high and f"{high / steps:.3f}" != text:
        high -= 1
    return (low, high) if low <= high else None


def _only(printed: Printed, steps: int) -> tuple[int, ...] | None:
    """Return the accepted tokens by position where only one falling row within the spans has their sum, else None."""
    spans = _spans(printed, steps)
    if spans is None:
        return None
    lows, highs = (list(ends) for ends in zip(*spans, strict=True))
    row: list[int] = []
    for index, (low, high) in enumerate(spans):
        # So many at this position need as many before it; as few at it need no more behind it.
        most = max(
            n
            for n in range(low, high + 1)
            if sum(max(one, n) for one in lows[: index + 1]) + sum(lows[index + 1 :]) <= printed.accepted
        )
        fewest = min(
            n
            for n in range(low, high + 1)
            if sum(highs[:index]) + sum(min(one, n) for one in highs[index:]) >= printed.accepted
        )
        if most != fewest:
            return None
        row.append(most)
    return tuple(row)
