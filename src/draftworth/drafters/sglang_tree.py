"""Trees of draft tokens that SGLang builds from its trie, by recency (BFS) or frequency (PROB), and what is accepted.

Every suffix of the context that has children is an anchor, the longest first; all fill one tree until its budget is
spent. What is left of the budget is filled with token 0 below the root, which is verified like any other.

Source: SGLang 0.5.23, sglang/kernels/jit/csrc/ngram_corpus/trie.cpp (buildRecency, buildFrequency) and result.cpp.
PROB takes equal probabilities in the order of libstdc++'s heap.
"""

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.sglang_trie import FREQUENCY, HEAD, NEXT, TOKEN
from draftworth.drafters.suffix_nodes import Ints, Longs, kernel

Doubles = NDArray[np.float64]


@kernel
def _position(tree: Ints, parent: int, token: int) -> int:
    """Return the place of a token below a place of the tree, a new one where there is none."""
    size = tree[0, 0]
    for at in range(parent + 1, size + 1):
        if tree[at, 1] == parent and tree[at, 0] == token:
            return int(at)
    tree[0, 0] = size + 1
    tree[size + 1, 0] = token
    tree[size + 1, 1] = parent
    return int(size + 1)


@kernel
def by_recency(  # noqa: PLR0917 - numba takes positions
    nodes: Ints, known: Longs, anchors: Longs, budget: int, depth: int, low: int, high: int, tree: Ints, queue: Doubles
) -> None:
    """Build the tree breadth first, children in the order in which they were used last.

    Args:
        nodes: of the trie.
        known: of the match.
        anchors: of the match.
        budget: most tokens.
        depth: of the trie.
        low: breadth behind the longest match.
        high: breadth behind the shortest one.
        tree: int32 [budget + 1, 2], filled: token and parent's place; the number of tokens at [0, 0].
        queue: scratch, [budget + 2, 3].
    """
    tree[0, 0] = 0
    steps = max(1, depth - 1)
    scale = (high - low) / steps
    for length in range(known[1], 0, -1):
        anchor = anchors[2 * length - 2]
        if anchor < 0 or nodes[anchor, HEAD] < 0:
            continue
        queue[0, 0] = 0
        queue[0, 1] = (steps - length) * scale + low
        queue[0, 2] = anchor
        first, last = 0, 1
        while first < last and tree[0, 0] < budget:
            parent = int(queue[first, 0])
            breadth = queue[first, 1]
            child = nodes[int(queue[first, 2]), HEAD]
            first += 1
            left = max(1, int(breadth))
            while left > 0 and child >= 0 and tree[0, 0] < budget:
                queue[last, 0] = _position(tree, parent, nodes[child, TOKEN])
                queue[last, 1] = breadth - scale
                queue[last, 2] = child
                last += 1
                left -= 1
                child = nodes[child, NEXT]


@kernel
def _sift_up(heap: Doubles, hole: int, place: float, node: float, chance: float) -> None:
    while hole > 0 and heap[(hole - 1) // 2, 2] < chance:
        up = (hole - 1) // 2
        for column in range(3):
            heap[hole, column] = heap[up, column]
        hole = up
    heap[hole, 0] = place
    heap[hole, 1] = node
    heap[hole, 2] = chance


@kernel
def _pop(heap: Doubles, size: int) -> None:
    """Take the first entry off a heap of so many; the same moves as libstdc++'s."""
    size -= 1
    place, node, chance = heap[size, 0], heap[size, 1], heap[size, 2]
    hole = 0
    second = 0
    while second < (size - 1) // 2:
        second = 2 * (second + 1)
        if heap[second, 2] < heap[second - 1, 2]:
            second -= 1
        for column in range(3):
            heap[hole, column] = heap[second, column]
        hole = second
    if size > 0 and size & 1 == 0 and second == (size - 2) // 2:
        second = 2 * (second + 1)
        for column in range(3):
            heap[hole, column] = heap[second - 1, column]
        hole = second - 1
    if size > 0:
        _sift_up(heap, hole, place, node, chance)


@kernel
def _push_children(  # noqa: PLR0917 - numba takes positions
    nodes: Ints, node: int, place: int, chance: float, most: int, top: Longs, heap: Doubles, size: int
) -> int:
    """Add a node's most frequent children (the lower token among equals); return the heap's new size."""
    count = 0
    child = nodes[node, HEAD]
    while child >= 0:
        at = min(count, most)
        while at > 0 and (
            nodes[top[at - 1], FREQUENCY] < nodes[child, FREQUENCY]
            or (
                nodes[top[at - 1], FREQUENCY] == nodes[child, FREQUENCY]
                and nodes[top[at - 1], TOKEN] > nodes[child, TOKEN]
            )
        ):
            if at < most:
                top[at] = top[at - 1]
            at -= 1
        if at < most:
            top[at] = child
            count = min(count + 1, most)
        child = nodes[child, NEXT]
    total = 0.0
    for at in range(count):
        total += nodes[top[at], FREQUENCY]
    for at in range(count):
        _sift_up(heap, size, float(place), float(top[at]), nodes[top[at], FREQUENCY] / total * chance)
        size += 1
    return size


@kernel
def by_frequency(  # noqa: PLR0917 - numba takes positions
    nodes: Ints, known: Longs, anchors: Longs, budget: int, most: int, tree: Ints, top: Longs, heap: Doubles
) -> None:
    """Build the tree by the product of the children's shares, the highest first.

    Args:
        nodes: of the trie.
        known: of the match.
        anchors: of the match.
        budget: most tokens.
        most: children of a node that are looked at.
        tree: as in `by_recency`.
        top: scratch, `most`.
        heap: scratch, [(budget + 2) x most, 3].
    """
    tree[0, 0] = 0
    size = 0
    for length in range(known[1], 0, -1):
        anchor = anchors[2 * length - 2]
        if anchor < 0 or nodes[anchor, HEAD] < 0:
            continue
        size = _push_children(nodes, anchor, 0, 1.0, most, top, heap, size)
        while size > 0 and tree[0, 0] < budget:
            parent, node, chance = int(heap[0, 0]), int(heap[0, 1]), heap[0, 2]
            _pop(heap, size)
            size -= 1
            place = _position(tree, parent, nodes[node, TOKEN])
            size = _push_children(nodes, node, place, chance, most, top, heap, size)
        if tree[0, 0] >= budget:
            return


@kernel
def accepted(tree: Ints, budget: int, actual: Ints) -> int:
    """Return how many of the tokens that came lie on a path of the tree."""
    place = 0
    count = 0
    while count < len(actual):
        found = -1
        for at in range(place + 1, tree[0, 0] + 1):
            if tree[at, 1] == place and tree[at, 0] == actual[count]:
                found = at
                break
        if found < 0:
            break
        place = found
        count += 1
    if count == 0 and len(actual) > 0 and actual[0] == 0 and tree[0, 0] < budget:
        return 1
    return count
