"""What the values of a tensor tell, from a sample that is read once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from draftworth.heads.files.tensors import Tensor, sample

_SAMPLED = 1 << 17
"""Values read of a tensor; smaller ones are read whole."""
_MOST_TENSORS = 400
"""Tensors sampled of a checkpoint, spread over it; heads have a few dozen, whole models hundreds."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one tensor's sampled values.

    Attributes:
        tensor: which.
        count: how many were read.
        bad: how many of them are NaN or infinite; where there are any, the rest is not computed.
        low: the smallest.
        high: the largest.
        mean: their mean.
        deviation: their standard deviation.
        kurtosis: the fourth moment over the squared variance: 3 for a normal distribution, 1.8 for a uniform one.
    """

    tensor: Tensor
    count: int
    bad: int
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    deviation: float = math.nan
    kurtosis: float = math.nan

    @property
    def is_constant(self) -> bool:
        """Whether all values are the same one."""
        return not self.bad and self.low == self.high


def statistics(tensors: Mapping[str, Tensor]) -> tuple[Statistics, ...]:
    """Return the statistics of floating-point tensors; of more than 400 of them, of every second, third and so on."""
    floating = [one for one in tensors.values() if one.is_floating and one.can_be_read and one.size]
    step = max(1, math.ceil(len(floating) / _MOST_TENSORS))
    return tuple(_of(one) for one in floating[::step])


def _of(tensor: Tensor) -> Statistics:
    values = sample(tensor, _SAMPLED).astype(np.float64)
    bad = int((~np.isfinite(values)).sum())
    if bad:
        return Statistics(tensor, len(values), bad)
    low, high = float(values.min()), float(values.max())
    if low == high or max(abs(low), abs(high)) > _LARGEST:
        return Statistics(tensor, len(values), 0, low, high)
    mean = float(values.mean())
    apart = values - mean
    squares = apart * apart
    variance = float(squares.mean())
    fourth = float((squares * squares).mean())
    kurtosis = fourth / variance**2 if variance**2 > 0 else math.nan
    return Statistics(tensor, len(values), 0, low, high, mean, math.sqrt(variance), kurtosis)


_LARGEST = 1e60
"""Above, a fourth power is no number any more."""
