"""How many tokens a step drafts: the exact distribution of a sum over independent requests."""

import numpy as np
from numpy.typing import NDArray


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
    result, power, left = np.ones(1), one, batch
    while True:  # by squaring: 2 log2(batch) convolutions
        if left & 1:
            result = np.convolve(result, power)
        left >>= 1
        if not left:
            return result
        power = np.convolve(power, power)
