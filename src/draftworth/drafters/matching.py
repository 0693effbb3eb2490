"""Kernels of the n-gram drafters: where the last n tokens occurred before, for every n at once, and walks over it.

The structure is a suffix tree over the reversed contexts, cut at the longest n-gram that is asked for and grown one
token at a time: a path from the root reads the context backwards, so that the node reached after n tokens stands for
the n-gram that ends the context. One descent at a position finds the longest n-gram with an earlier occurrence and an
occurrence of every shorter one, and adds the position: at most one node and two edges. Edges with one child are
compressed and compared against the tokens themselves, so a descent costs one look-up a branching node and its depth
in comparisons, independent of the length of the context and of how many windows are asked for.

Only these functions are compiled; all are in one file because numba's cache looks at the file of a function alone.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

BLOCK = 2048
"""Output positions whose matches are kept at a time: what the walks read stays in the processor's cache."""
UNBOUNDED = 2**31 - 1
"""A bound that is none."""
MARKED = 3
"""Longest n-gram of a prompt that is sifted out when no later context has it."""

_EMPTY = np.int64(-1)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def _key(node: int, token: int) -> int:
    """Return the key of the edge that leaves a node with a token."""
    return int(np.int64((np.uint64(node) << _HALF) | (np.uint64(token) & _LOW)))


@njit(cache=True, nogil=True, inline="always")
def _slot(key: int, shift: int) -> int:
    """Return where the search for a key begins in a table of 2 ** (64 - shift) slots."""
    mixed = np.uint64(key)
    mixed = (mixed ^ (mixed >> _HALF)) * _MIX
    return int(np.int64(mixed >> np.uint64(shift)))


@njit(cache=True, nogil=True, inline="always")
def _put(table: Longs, shift: int, mask: int, key: int, value: int) -> None:
    """Add an edge that is not there."""
    at = _slot(key, shift)
    while table[2 * at] != _EMPTY:
        at = (at + 1) & mask
    table[2 * at] = key
    table[2 * at + 1] = value


@njit(cache=True, nogil=True)
def slot_bits(tokens: int) -> int:
    """Return the bits of a table's size: at least 2.5 slots a token, of which at most 2 are taken."""
    bits = 4
    while (1 << bits) * 2 < tokens * 5:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def _visit(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one compiled loop
    seq: Ints,
    position: int,
    known: int,
    deepest: int,
    latest: bool,  # noqa: FBT001 - numba takes positions
    table: Longs,
    bits: int,
    nodes: Ints,
    count: int,
    found: Ints,
    wanted: bool,  # noqa: FBT001 - numba takes positions
) -> tuple[int, int]:
    """Descend along the context that ends before a position, and add the position.

    Args:
        seq: a request's tokens.
        position: how many of them are context, at least 1; positions are visited in order.
        known: how many tokens back from it matter: longer n-grams that end here are not asked for.
        deepest: longest n-gram.
        latest: whether the most recent occurrence is kept, else the earliest.
        table: edges, (key, value) pairs: a value above 0 is a node, one below 0 the only position of a leaf, negated.
        bits: the table's size.
        nodes: two a node: the position of its occurrence and its depth. Node 0 is the root.
        count: how many nodes there are.
        found: set to the position behind the occurrence at [n], for n up to the returned length.
        wanted: whether `found` is.

    Returns:
        How many nodes there are now, and the longest n with an earlier occurrence.
    """
    shift = 64 - bits
    mask = (1 << bits) - 1
    end = position - 1
    top = min(known, deepest, position)
    node = 0
    depth = 0
    while depth < top:
        key = _key(node, seq[end - depth])
        at = _slot(key, shift)
        held = table[2 * at]
        while held not in (key, _EMPTY):
            at = (at + 1) & mask
            held = table[2 * at]
        if held == _EMPTY:
            table[2 * at] = key
            table[2 * at + 1] = -position
            return count, depth
        child = table[2 * at + 1]
        if child < 0:
            other = -child
            length = deepest
            stop = min(top, other)
        else:
            other = int(nodes[2 * child])
            length = int(nodes[2 * child + 1])
            stop = min(top, length)
        reached = depth + 1
        while reached < stop and seq[end - reached] == seq[other - 1 - reached]:
            reached += 1
        if wanted:
            for n in range(depth + 1, reached + 1):
                found[n] = other
        depth = reached
        if reached == length:
            if child < 0:
                if latest:
                    table[2 * at + 1] = -position
                break
            if latest:
                nodes[2 * child] = position
            node = child
            continue
        if reached == top and not latest:
            break
        # The context leaves the edge here: a node in its middle, with what was below and this position as children.
        nodes[2 * count] = position if latest else other
        nodes[2 * count + 1] = reached
        table[2 * at + 1] = count
        if reached < other:
            _put(table, shift, mask, _key(count, seq[other - 1 - reached]), child)
        if reached < top:
            _put(table, shift, mask, _key(count, seq[end - reached]), -position)
        count += 1
        break
    return count, depth


@njit(cache=True, nogil=True, inline="always")
def _mark(seq: Ints, position: int, length: int, mask: int) -> int:
    """Return where the n-gram that ends before a position is marked. Several may share a mark."""
    mixed = np.uint64(length)
    for i in range(length):
        mixed = (mixed ^ (np.uint64(seq[position - 1 - i]) & _LOW)) * _MIX
        mixed ^= mixed >> _HALF
    return int(np.int64(mixed)) & mask


@njit(cache=True, nogil=True)
def _sift(seq: Ints, begin: int, marks: NDArray[np.uint8], bits: int, known: NDArray[np.uint8]) -> int:
    """Find which positions before `begin` can be found by the contexts from it on.

    Args:
        seq: a request's tokens.
        begin: the first context that is looked up.
        marks: room for marks, at least 2 ** bits.
        bits: how many marks to use.
        known: set for each position: 0 if no later context ends with its last token, 1 if one may, 2 and so on if one
            may end with its last two, and `MARKED` if one may end with so many or more.

    Returns:
        How many positions can be found.
    """
    mask = (1 << bits) - 1
    marks[: mask + 1] = 0
    for p in range(begin, seq.size):
        for n in range(1, min(MARKED, p) + 1):
            marks[_mark(seq, p, n, mask)] |= np.uint8(1 << n)
    kept = 0
    for p in range(1, begin):
        deep = 0
        while deep < MARKED and deep < p and marks[_mark(seq, p, deep + 1, mask)] & np.uint8(2 << deep):
            deep += 1
        known[p] = deep
        if deep:
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _reach(  # noqa: PLR0917 - numba takes positions
    seq: Ints,
    position: int,
    start: int,
    most: int,
    padded: bool,  # noqa: FBT001 - numba takes positions
    ends: Ints,
) -> tuple[int, int]:
    """Compare what follows a match with what was recorded.

    Args:
        seq: a request's tokens.
        position: how many of them are context.
        start: where the draft is read; at or above `position` for no match.
        most: longest draft.
        padded: whether the draft is filled up with the context's last token.
        ends: tokens before which a draft is cut.

    Returns:
        How many tokens are drafted at most, and how many of them agree before the first that does not.
    """
    available = min(most, position - start)
    if ends.size:
        for i in range(available):
            for token in ends:
                if seq[start + i] == token:
                    available = i
                    break
            if available == i:
                break
    left = seq.size - position
    bound = min(available, left)
    same = 0
    while same < bound and seq[start + same] == seq[position + same]:
        same += 1
    if padded:
        if same == available:
            bound = min(most, left)
            last = seq[position - 1]
            while same < bound and seq[position + same] == last:
                same += 1
        available = most
    return available, same


@njit(cache=True, nogil=True)
def _walk(  # noqa: PLR0917 - numba takes positions
    reach: Ints, first: int, position: int, stop: int, k: int, joint: Longs
) -> tuple[int, int]:
    """Step from a position until one at or behind `stop`. Returns it and how many steps were made.

    Args:
        reach: [positions, 2] from `_reach`, of one window.
        first: the position of the first row.
        position: where to begin.
        stop: where to stop.
        k: most tokens drafted.
        joint: [K + 1, K + 1], counted into.
    """
    steps = 0
    while position < stop:
        at = position - first
        drafted = min(k, int(reach[at, 0]))
        accepted = min(k, int(reach[at, 1]))
        joint[drafted, accepted] += 1
        position += accepted + 1
        steps += 1
    return position, steps


@njit(cache=True, nogil=True)
def replay(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one compiled loop
    tokens: Ints,
    offsets: Longs,
    prompts: Ints,
    thinking: Ints,
    groups: Ints,
    windows: Ints,
    window_of: Ints,
    ks: Ints,
    rules: Longs,
    ends: Ints,
    joint: Longs,
    steps: Ints,
) -> None:
    """Replay requests for every setting.

    Args:
        tokens: every request's tokens.
        offsets: where each begins, and the end.
        prompts: prompt lengths.
        thinking: reasoning lengths, -1 where not known.
        groups: [R, 2] groups while thinking and while answering.
        windows: [W, 2] shortest and longest n-gram of each window.
        window_of: the window of each setting.
        ks: k of each setting.
        rules: whether the most recent occurrence counts; whether drafts are padded; a request's tokens at which
            drafts end; a context's length at which none is made.
        ends: tokens before which drafts are cut.
        joint: [S, G, K + 1, K + 1], counted into.
        steps: [S, R], counted into.
    """
    latest, padded, limit, barred = rules[0] != 0, rules[1] != 0, int(rules[2]), int(rules[3])
    longest = 0
    for r in range(prompts.size):
        length = int(offsets[r + 1] - offsets[r])
        if length - prompts[r] > 1:
            longest = max(longest, length)
    if longest == 0:
        return
    most = int(ks.max())
    deepest = min(int(windows[:, 1].max()), longest)
    table = np.empty(2 << slot_bits(longest), np.int64)
    nodes = np.empty(2 * (longest + 1), np.int32)
    found = np.empty(deepest + 1, np.int32)
    mark_bits = slot_bits(2 * longest)
    marks = np.empty(1 << mark_bits, np.uint8)
    known = np.empty(longest, np.uint8)
    reach = np.empty((windows.shape[0], min(BLOCK, longest), 2), np.int32)
    reached = np.empty(ks.size, np.int64)
    for r in range(prompts.size):
        seq = tokens[offsets[r] : offsets[r + 1]]
        if seq.size - prompts[r] < 2:  # noqa: PLR2004 - the first token is prefill's
            continue
        begin = int(prompts[r]) + 1
        turn = int(prompts[r]) + int(thinking[r])
        kept = _sift(seq, begin, marks, slot_bits(2 * (seq.size - begin)), known)
        bits = slot_bits(kept + seq.size - begin)
        for i in range(1 << bits):
            table[2 * i] = _EMPTY
        count = 1
        for p in range(1, begin):
            if known[p]:
                depth = int(known[p]) if known[p] < MARKED else deepest
                count, _ = _visit(seq, p, depth, deepest, latest, table, bits, nodes, count, found, wanted=False)
        reached[:] = begin
        first = begin
        while first < seq.size:
            stop = min(first + BLOCK, seq.size)
            for p in range(first, stop):
                count, matched = _visit(seq, p, deepest, deepest, latest, table, bits, nodes, count, found, wanted=True)
                previous = -1
                drafted, same = 0, 0
                room = max(0, min(most, limit - p))
                if p == barred:
                    room = 0
                for w in range(windows.shape[0]):
                    n = min(matched, int(windows[w, 1]))
                    start = int(found[n]) if n > 0 and n >= windows[w, 0] else p
                    if start != previous:
                        if start < p or padded:
                            drafted, same = _reach(seq, p, start, room, padded, ends)
                        else:
                            drafted, same = 0, 0
                        previous = start
                    reach[w, p - first, 0] = drafted
                    reach[w, p - first, 1] = same
            middle = min(turn, stop)
            for s in range(ks.size):
                rows, k, position, made, more = reach[window_of[s]], int(ks[s]), int(reached[s]), 0, 0
                if position < middle:
                    position, made = _walk(rows, first, position, middle, k, joint[s, groups[r, 0]])
                position, more = _walk(rows, first, position, stop, k, joint[s, groups[r, 1]])
                reached[s] = position
                steps[s, r] += made + more
            first = stop


@njit(cache=True, nogil=True)
def last_match(seq: Ints, shortest: int, longest: int, latest: bool) -> int:  # noqa: FBT001 - numba takes positions
    """Return where a draft for a whole context is read; the context's length where nothing matches."""
    size = seq.size
    deepest = min(longest, size)
    bits = slot_bits(size)
    table = np.empty(2 << bits, np.int64)
    for i in range(1 << bits):
        table[2 * i] = _EMPTY
    nodes = np.empty(2 * (size + 1), np.int32)
    found = np.empty(deepest + 1, np.int32)
    count = 1
    matched = 0
    for p in range(1, size + 1):
        count, matched = _visit(seq, p, deepest, deepest, latest, table, bits, nodes, count, found, wanted=p == size)
    if matched == 0 or matched < shortest:
        return size
    return int(found[matched])
