"""Acceptance length per step of a walk, with its interval over conversations."""

import math
from collections.abc import Mapping, Sequence

from draftworth.predict.base import Range

_RESAMPLES = 2000
_TAIL = 0.025
_FEW = 8
"""Conversations below which a bootstrap says less than Student's t."""
_CELLS = 4_000_000
"""Resamples times conversations that are held at a time."""


def lengths(tokens: Sequence[int], steps: Mapping[int, Sequence[int]]) -> dict[int, Range]:
    """Return the acceptance length per step by k, with its 95 % interval over conversations.

    The interval is made of expanded percentiles of a bootstrap (Hesterberg 2015, "What Teachers Should Know About the
    Bootstrap", section 5.3), below 8 conversations Student's t of the mean, of one conversation all that k can yield.

    Args:
        tokens: of each conversation, those that its drafting steps gave; above 0.
        steps: k to the drafting steps of each.

    Returns:
        Nothing where there is no conversation.
    """
    import numpy as np  # noqa: PLC0415 - lazy
    from scipy import special  # noqa: PLC0415 - lazy

    n = len(tokens)
    if not n or not steps:
        return {}
    ks = list(steps)
    each = np.array([steps[k] for k in ks], dtype=np.float64) / np.array(tokens, dtype=np.float64)
    mean = each.mean(axis=1)
    if n == 1:
        low, high = np.full(len(ks), 0.0), np.full(len(ks), 1.0)
    elif n < _FEW:
        half = -special.stdtrit(n - 1, _TAIL) * each.std(axis=1, ddof=1) / math.sqrt(n)
        low, high = mean - half, mean + half
    else:
        generator, drawn = np.random.default_rng([0, n]), []
        for first in range(0, _RESAMPLES, most := max(1, _CELLS // n)):
            size = min(most, _RESAMPLES - first)
            picks = generator.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
            drawn.append(np.bincount(picks.ravel(), minlength=size * n).reshape(size, n) @ each.T / n)
        tail = float(special.ndtr(math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, _TAIL)))
        low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail], axis=0)
    found = {}
    for at, k in enumerate(ks):
        value, least = 1 / float(mean[at]), 1 / (k + 1)  # a step gives one token at least, and k + 1 at most
        ends = (1 / min(1.0, max(least, float(end))) for end in (high[at], low[at]))
        found[k] = Range(value=value, low=min(value, next(ends)), high=max(value, next(ends)))
    return found
