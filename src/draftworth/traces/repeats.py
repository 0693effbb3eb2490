"""How repetitive an output is: how often its next token is the one that followed the same few tokens before."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

GRAM = 3
"""How many tokens must be the same before the next one counts as a continuation."""


@njit(cache=True, nogil=True)
def continued(
    tokens: NDArray[np.int32], offsets: NDArray[np.int64], prompt_lengths: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return for each request how many output tokens are what followed the newest earlier place of the `GRAM` before.

    Earlier places are those of the same request, its prompt among them. Linear in the tokens.

    Args:
        tokens: int32, requests behind each other.
        offsets: int64, where each begins, and the end.
        prompt_lengths: int32.

    Returns:
        int64, one a request.
    """
    found = np.zeros(len(prompt_lengths), np.int64)
    longest = np.int64(0)
    for at in range(len(prompt_lengths)):
        longest = max(longest, offsets[at + 1] - offsets[at])
    table = np.empty(_slots(longest), np.int32)
    for at in range(len(prompt_lengths)):
        begin, end = offsets[at], offsets[at + 1]
        slots = _slots(end - begin)
        table[:slots] = -1
        for here in range(begin + GRAM, end):
            slot = _place(tokens, begin, here, table, slots)
            if here >= begin + prompt_lengths[at] and table[slot] >= 0:
                found[at] += tokens[begin + table[slot]] == tokens[here]
            table[slot] = here - begin
    return found


@njit(cache=True, nogil=True)
def _slots(tokens: Any) -> Any:
    """Return the size of a table that is at most half full."""
    slots = 16
    while slots < 2 * tokens:
        slots *= 2
    return slots


@njit(cache=True, nogil=True)
def _place(tokens: NDArray[np.int32], begin: Any, here: int, table: NDArray[np.int32], slots: int) -> Any:
    """Return the slot of the tokens before `here`: the one that holds an earlier place of them, or a free one."""
    mixed = np.uint64(0)
    for back in range(here - GRAM, here):
        mixed = (mixed ^ np.uint64(tokens[back])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    slot = np.int64(mixed & np.uint64(slots - 1))
    while table[slot] >= 0:
        earlier, same = begin + table[slot], True
        for back in range(1, GRAM + 1):
            same = same and tokens[earlier - back] == tokens[here - back]
        if same:
            break
        slot = (slot + 1) & (slots - 1)
    return slot
