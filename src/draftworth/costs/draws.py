"""How many tokens a step drafts: the exact distribution of a sum over independent requests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_TAIL = 1e-18
"""Chances below this are left out at the ends of a long distribution."""
_LONG = 2048
"""Totals from which transforms are the faster way."""
_NOISE = 1e-15
"""What transforms may leave of nothing."""
_WHOLE = 512
"""Totals up to which a distribution is kept whole."""


def total_drafted(lengths: NDArray[np.float64], batch: int) -> NDArray[np.float64]:
    """Return the chance of each number of tokens drafted by `batch` independent requests together.

    Args:
        lengths: chance that one request drafts 0, 1, … tokens; adds up to 1.
        batch: requests, at least 1.

    Returns:
        `batch * (len(lengths) - 1) + 1` chances; the first is that nobody drafts, exactly.

    Raises:
        ValueError: `lengths` is no distribution, or `batch` is below 1.
    """
    one = np.asarray(lengths, dtype=np.float64)
    if one.ndim != 1 or one.size == 0 or not np.isfinite(one).all() or one.min() < 0 or abs(one.sum() - 1) > 1e-6:  # noqa: PLR2004
        raise ValueError("chances of draft lengths must be at least 0 and add up to 1")
    if batch < 1:
        raise ValueError(f"a step has at least one request, not {batch}")
    one = one / one.sum()
    result, power, left = _Part(np.ones(1)), _Part(one), batch
    while True:  # by squaring: 2 log2(batch) convolutions
        if left & 1:
            result = result.plus(power)
        left >>= 1
        if not left:
            break
        power = power.plus(power)
    found = np.zeros(batch * (one.size - 1) + 1)
    found[result.first : result.first + result.chances.size] = result.chances
    found[0] = one[0] ** batch
    return found


def _convolved(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a convolution; of long ones by Fourier transforms, whose errors are far below any chance that counts."""
    if min(one.size, other.size) <= _LONG:
        return np.convolve(one, other)
    size = one.size + other.size - 1
    length = 1 << (size - 1).bit_length()
    whole = np.fft.irfft(np.fft.rfft(one, length) * np.fft.rfft(other, length), length)[:size]
    return np.where(whole > _NOISE, whole, 0.0)


@dataclass(frozen=True, slots=True)
class _Part:
    """A distribution without its tails, which together weigh next to nothing; the sum of many requests is mostly tail.

    Attributes:
        chances: of the totals from `first` upwards.
        first: total.
    """

    chances: NDArray[np.float64]
    first: int = 0

    def plus(self, other: "_Part") -> "_Part":
        """Return the distribution of the sum of two independent ones."""
        chances = _convolved(self.chances, other.chances)
        if chances.size > _WHOLE:
            there = np.flatnonzero(chances > _TAIL)
            low, high = int(there[0]), int(there[-1]) + 1
            return _Part(chances[low:high], self.first + other.first + low)
        return _Part(chances, self.first + other.first)
