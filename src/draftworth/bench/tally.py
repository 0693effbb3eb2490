"""Figures of rows that are kept as the rows come: a row costs the same whether it is the tenth or the millionth."""

import math
from collections.abc import Callable

from draftworth.bench.base import RequestRow

_FEWEST = 2
_TAIL = 0.025
"""Of a 95 % interval."""


class Tally:
    """Time per token of one window so far, with the interval of its mean over prompts; and failed requests.

    Attributes:
        n: rows with a time per token.
        failed: rows that failed.
    """

    def __init__(self) -> None:
        self.n = 0
        self.failed = 0
        self._sum = 0.0
        self._prompts: dict[str, tuple[float, int]] = {}
        # Sums over prompts of their means and squares, less the first value: squares of what is large lose digits.
        self._origin = 0.0
        self._first = 0.0
        self._second = 0.0
        self._quantile = student()

    def row(self, row: RequestRow) -> None:
        """Take a row."""
        self.failed += not row.ok
        if not row.timed or row.tpot_ms is None:
            return
        if not self.n:
            self._origin = row.tpot_ms
        self.n += 1
        self._sum += row.tpot_ms
        total, count = self._prompts.get(row.conversation, (0.0, 0))
        self._prompts[row.conversation] = total + row.tpot_ms, count + 1
        if count:
            self._add(total / count, -1)
        self._add((total + row.tpot_ms) / (count + 1), 1)

    def _add(self, mean: float, sign: int) -> None:
        off = mean - self._origin
        self._first += sign * off
        self._second += sign * off * off

    @property
    def mean(self) -> float | None:
        """Mean over rows, in milliseconds."""
        return self._sum / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval (Student's t) of the mean over prompts; None for fewer than two prompts."""
        n = len(self._prompts)
        if n < _FEWEST:
            return None
        middle = self._origin + self._first / n
        spread = max(0.0, self._second - self._first**2 / n)
        half = self._quantile(n - 1) * math.sqrt(spread / (n - 1) / n)
        return middle - half, middle + half

    def note(self) -> str:
        """Say how it goes."""
        parts = []
        if self.mean is not None:
            limits = self.interval
            shown = "" if limits is None else f" ({limits[0]:.1f} to {limits[1]:.1f})"
            parts.append(f"{self.mean:.1f} ms a token{shown}")
        return ", ".join([*parts, *([f"{self.failed} failed"] if self.failed else [])])


class Ratio:
    """Time per token of a variant / the baseline's so far, over the prompts that both have answered.

    The same figures as `verdicts.running.running`, whose sums are kept here.
    """

    def __init__(self) -> None:
        # Of each prompt and arm: milliseconds of decoding, and the tokens in them.
        self._arms: tuple[dict[str, tuple[float, int]], ...] = ({}, {})
        self._n = 0
        self._sums = [0.0] * 5  # over prompts: baseline, variant, their squares, their product
        self._quantile = student()

    def baseline(self, row: RequestRow) -> None:
        """Take a row of the baseline."""
        self._row(row, 0)

    def variant(self, row: RequestRow) -> None:
        """Take a row of the variant."""
        self._row(row, 1)

    def _row(self, row: RequestRow, arm: int) -> None:
        if row.decode_ms is None or row.tpot_ms is None or row.tokens is None or not row.timed:
            return
        time, tokens = self._arms[arm].get(row.prompt_id, (0.0, 0))
        self._count(row.prompt_id, -1)
        self._arms[arm][row.prompt_id] = time + row.decode_ms, tokens + row.tokens - (row.first_chunk_tokens or 0)
        self._count(row.prompt_id, 1)

    def _count(self, prompt: str, sign: int) -> None:
        """Add a prompt to the sums, or take it out."""
        before, after = (_rate(arm.get(prompt)) for arm in self._arms)
        if before is None or after is None:
            return
        self._n += sign
        for i, value in enumerate((before, after, before * before, after * after, before * after)):
            self._sums[i] += sign * value

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The ratio and its 95 % interval (linearised, Student's t); None for fewer than two prompts."""
        n = self._n
        if n < _FEWEST:
            return None
        base, other, base2, other2, both = self._sums
        ratio = other / base
        residual = max(0.0, other2 - 2 * ratio * both + ratio * ratio * base2)
        se = math.sqrt(residual / (n - 1) / n) / (ratio * base / n)
        half = self._quantile(n - 1) * se
        return ratio, ratio * math.exp(-half), ratio * math.exp(half)


def student() -> Callable[[int], float]:
    """Return the function from degrees of freedom to the t quantile of a 95 % interval."""
    from scipy import special  # noqa: PLC0415 - lazy: heavy

    return lambda freedom: -float(special.stdtrit(freedom, _TAIL))


def _rate(sums: tuple[float, int] | None) -> float | None:
    if sums is None:
        return None
    time, tokens = sums
    return time / tokens if tokens > 0 and time > 0 else None
