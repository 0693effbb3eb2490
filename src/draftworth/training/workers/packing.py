"""Samples in one row, as speculators packs them: where they lie, and which a target reads together. numpy alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def groups(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Return which samples the target reads together: the longest first, as few groups as the padding allows.

    Args:
        lengths: tokens of each sample.
        most: tokens of a group, each row as long as its longest; a longer sample is a group of its own.
    """
    found: list[list[int]] = []
    longest = 0
    for at in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        if not found or (len(found[-1]) + 1) * longest > most:
            found.append([])
            longest = lengths[at]
        found[-1].append(at)
    return found


def spans_of(documents: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return where the samples of a packed row lie, by the number of each token's sample; -1 is padding."""
    edges = np.flatnonzero(np.diff(documents)) + 1
    firsts = [0, *edges.tolist()]
    return [
        (first, end)
        for first, end in zip(firsts, [*firsts[1:], len(documents)], strict=True)
        if documents[first] >= 0 and end > first
    ]


def followed(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions behind which a token of the same sample follows."""
    found: NDArray[np.int64] = np.flatnonzero((documents[1:] == documents[:-1]) & (documents[:-1] >= 0))
    return found
