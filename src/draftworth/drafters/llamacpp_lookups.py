"""Lookups of n-grams that llama.cpp's drafters make, for all places of a batch at once: by its hash, and exact ones."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from draftworth.drafters.llamacpp_common import Ints, Longs


@njit(cache=True, nogil=True)
def hashes(tokens: Ints, offsets: Longs, n: int, factor: np.uint32) -> NDArray[np.uint32]:
    """Return llama.cpp's hash of every n-gram, at its last token: sum of token i times factor^(n - 1 - i), 32 bits."""
    found = np.zeros(tokens.size, np.uint32)
    gone = np.uint32(1)
    for _ in range(n):
        gone = np.uint32(gone * factor)
    for r in range(offsets.size - 1):
        value = np.uint32(0)
        for at in range(offsets[r], offsets[r + 1]):
            value = np.uint32(np.uint32(value * factor) + np.uint32(tokens[at]))
            if at - offsets[r] >= n:
                value = np.uint32(value - np.uint32(gone * np.uint32(tokens[at - n])))
            found[at] = value
    return found


@njit(cache=True, nogil=True)
def occurrences(tokens: Ints, offsets: Longs, n: int) -> tuple[Ints, Ints]:
    """Return where every n-gram occurred before, and first; exact, in time linear in the tokens.

    Args:
        tokens: of all requests.
        offsets: where each begins.
        n: length of the n-grams.

    Returns:
        Two int32 arrays, at an n-gram's last token: where its previous occurrence in the request ends, and where its
        first one ends (the same for equal n-grams). Positions count from the request's start; -1 for none.
    """
    before = np.full(tokens.size, -1, np.int32)
    first = np.full(tokens.size, -1, np.int32)
    longest = 1
    for r in range(offsets.size - 1):
        longest = max(longest, offsets[r + 1] - offsets[r])
    most = 16
    while most < 2 * longest:
        most *= 2
    table = np.empty(most, np.int32)
    factor, spread = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
    gone = np.uint64(1)
    for _ in range(n):
        gone = np.uint64(gone * factor)
    for r in range(offsets.size - 1):
        start, length = offsets[r], offsets[r + 1] - offsets[r]
        size, shift = 16, np.uint64(60)
        while size < 2 * length:
            size *= 2
            shift = np.uint64(shift - np.uint64(1))
        table[:size] = -1
        value = np.uint64(0)
        for at in range(length):
            value = np.uint64(np.uint64(value * factor) + np.uint64(tokens[start + at] + 1))
            if at >= n:
                value = np.uint64(value - np.uint64(gone * np.uint64(tokens[start + at - n] + 1)))
            if at < n - 1:
                continue
            slot = np.int64(np.uint64(value * spread) >> shift)
            while table[slot] >= 0 and not _same(tokens, first, start, table[slot], at, n):
                slot = (slot + 1) & (size - 1)
            before[start + at] = table[slot]
            first[start + at] = at if table[slot] < 0 else first[start + table[slot]]
            table[slot] = at
    return before, first


@njit(cache=True, nogil=True)
def _same(tokens: Ints, first: Ints, start: int, one: int, other: int, n: int) -> bool:  # noqa: PLR0917 - numba
    """Return whether the n-grams that end at two positions are equal."""
    if tokens[start + one] != tokens[start + other]:
        return False
    if one >= n and first[start + one - 1] == first[start + other - 1]:
        return True
    for i in range(1, n):  # noqa: SIM110 - numba compiles no generator
        if tokens[start + one - i] != tokens[start + other - i]:
            return False
    return True
