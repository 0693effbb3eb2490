"""Nodes of a counting suffix tree in flat arrays: children, their order, and how the order follows the counts.

A node stands for one token string that occurs in the indexed text; its count is how often. A node's children form a
list of falling counts. Which of several equal ones comes first decides what is drafted, so the list moves as Arctic
Inference's does: a new child goes to the end; a child whose count rises goes before the head of its predecessor's group
of equal counts, unless the predecessor is ahead by more than one; a child whose count falls goes behind the last of its
equals. The root's children have no order: nothing is drafted from an empty match.

Source: arctic_inference 0.1.1, csrc/suffix_decoding/suffix_tree.cc (the same file in 0.3.0), rewritten for a tree with
a node a token: an edge of several tokens is a chain of only children here, in which there is no order to keep.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """Compile a function that allocates nothing: without reference counts on arrays, which take most of the time else.

    The cache looks at a function's own file alone: who changes one of the suffix_ or sglang_ files deletes the cached
    code of the others (`__pycache__`).
    """
    return cast("F", njit(**_OPTIONS)(function))


COLUMNS = 12
COUNT, TOKEN, PARENT, LINK, HEAD, NEXT, PREV, GROUP, DEPTH, SEQ, START, FLAGS = range(COLUMNS)
"""Columns of a node. LINK is the node of the same string less its first token; HEAD the first child; PREV of a first
child the last one. SEQ and START say where a lazy node's string occurs."""

LAZY, HASHED = 1, 2
"""Flags: a lazy node occurs once, what follows it is read from the text; a hashed one has its children in the table."""

ROOT = 0

METAS = 6
USED, FREE, GROUPS_USED, GROUPS_FREE, MASK, ENTRIES = range(METAS)
"""What a tree's `meta` holds: nodes and groups ever taken, heads of their free lists, the table's mask and entries."""

_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)
_HEAD, _SIZE = 0, 1
_EMPTY = -1


@kernel
def _slot(key: int, mask: int) -> int:
    mixed = (key ^ (key >> 32)) * _MULTIPLIER
    mixed = (mixed ^ (mixed >> 29)) * _MULTIPLIER
    return (mixed >> 32) & mask


@kernel
def put(keys: Longs, values: Ints, meta: Longs, parent: int, token: int, node: int) -> None:  # noqa: PLR0917 - numba takes positions
    """Enter a child into the table."""
    mask = meta[MASK]
    key = int((np.int64(parent) << 32) | np.int64(token))
    at = _slot(key, mask)
    while keys[at] != _EMPTY:
        at = (at + 1) & mask
    keys[at] = key
    values[at] = node
    meta[ENTRIES] += 1


@kernel
def drop(keys: Longs, meta: Longs, values: Ints, parent: int, token: int) -> None:
    """Take a child out of the table; those behind it move up, so that no marks of deleted ones are left."""
    mask = meta[MASK]
    key = int((np.int64(parent) << 32) | np.int64(token))
    at = _slot(key, mask)
    while keys[at] != key:
        at = (at + 1) & mask
    hole = at
    while True:
        at = (at + 1) & mask
        if keys[at] == _EMPTY:
            break
        if ((at - _slot(keys[at], mask)) & mask) >= ((at - hole) & mask):
            keys[hole] = keys[at]
            values[hole] = values[at]
            hole = at
    keys[hole] = _EMPTY
    meta[ENTRIES] -= 1


@kernel
def find(keys: Longs, values: Ints, meta: Longs, parent: int, token: int) -> int:
    """Return the child that was entered for this token, -1 where none was."""
    mask = meta[MASK]
    key = int((np.int64(parent) << 32) | np.int64(token))
    at = _slot(key, mask)
    while keys[at] != _EMPTY:
        if keys[at] == key:
            return int(values[at])
        at = (at + 1) & mask
    return -1


@kernel
def child(nodes: Ints, keys: Longs, values: Ints, meta: Longs, node: int, token: int) -> int:  # noqa: PLR0917 - numba takes positions
    """Return the node's child by this token, -1 where there is none."""
    head = nodes[node, HEAD]
    if head >= 0 and nodes[head, TOKEN] == token:
        return int(head)
    if nodes[node, FLAGS] & HASHED == 0:
        return -1
    return find(keys, values, meta, node, token)


@kernel
def _own_group(nodes: Ints, groups: Ints, meta: Longs, node: int) -> None:
    at = meta[GROUPS_FREE]
    if at >= 0:
        meta[GROUPS_FREE] = groups[at, _HEAD]
    else:
        at = meta[GROUPS_USED]
        meta[GROUPS_USED] = at + 1
    groups[at, _HEAD] = node
    groups[at, _SIZE] = 1
    nodes[node, GROUP] = at


@kernel
def _leave_group(nodes: Ints, groups: Ints, meta: Longs, node: int) -> None:
    """Leave the group; the node's NEXT is still the sibling behind it."""
    group = nodes[node, GROUP]
    if group < 0:
        return
    if groups[group, _SIZE] == 1:
        groups[group, _HEAD] = meta[GROUPS_FREE]
        meta[GROUPS_FREE] = group
    else:
        groups[group, _SIZE] -= 1
        if groups[group, _HEAD] == node:
            groups[group, _HEAD] = nodes[node, NEXT]
    nodes[node, GROUP] = -1


@kernel
def _join(nodes: Ints, groups: Ints, node: int, member: int) -> None:
    group = nodes[member, GROUP]
    nodes[node, GROUP] = group
    groups[group, _SIZE] += 1


@kernel
def _unlink(nodes: Ints, node: int) -> None:
    parent = nodes[node, PARENT]
    head = nodes[parent, HEAD]
    after = nodes[node, NEXT]
    before = nodes[node, PREV]
    if node == head:
        nodes[parent, HEAD] = after
        if after >= 0:
            nodes[after, PREV] = before
    else:
        nodes[before, NEXT] = after
        if after >= 0:
            nodes[after, PREV] = before
        else:
            nodes[head, PREV] = before


@kernel
def leaf(nodes: Ints, meta: Longs, parent: int, token: int, seq: int, start: int) -> int:  # noqa: PLR0917 - numba takes positions
    """Return a new node that occurs once, in no list yet."""
    node = meta[FREE]
    if node >= 0:
        meta[FREE] = nodes[node, NEXT]
    else:
        node = meta[USED]
        meta[USED] = node + 1
    nodes[node, COUNT] = 1
    nodes[node, TOKEN] = token
    nodes[node, PARENT] = parent
    nodes[node, LINK] = ROOT
    nodes[node, HEAD] = -1
    nodes[node, NEXT] = -1
    nodes[node, PREV] = node
    nodes[node, GROUP] = -1
    nodes[node, DEPTH] = nodes[parent, DEPTH] + 1
    nodes[node, SEQ] = seq
    nodes[node, START] = start
    nodes[node, FLAGS] = LAZY
    return int(node)


@kernel
def attach(nodes: Ints, keys: Longs, values: Ints, groups: Ints, meta: Longs, node: int) -> None:  # noqa: PLR0917 - numba takes positions
    """Make a new leaf its parent's last child."""
    parent = nodes[node, PARENT]
    if parent == ROOT:
        put(keys, values, meta, parent, nodes[node, TOKEN], node)
        return
    head = nodes[parent, HEAD]
    if head < 0:
        nodes[parent, HEAD] = node
        if nodes[parent, FLAGS] & HASHED:
            put(keys, values, meta, parent, nodes[node, TOKEN], node)
        return
    if nodes[parent, FLAGS] & HASHED == 0:
        nodes[parent, FLAGS] |= HASHED
        put(keys, values, meta, parent, nodes[head, TOKEN], head)
    put(keys, values, meta, parent, nodes[node, TOKEN], node)
    if nodes[head, GROUP] < 0:
        _own_group(nodes, groups, meta, head)
    last = nodes[head, PREV]
    nodes[last, NEXT] = node
    nodes[node, PREV] = last
    nodes[head, PREV] = node
    if nodes[last, COUNT] == 1:
        _join(nodes, groups, node, last)
    else:
        _own_group(nodes, groups, meta, node)


@kernel
def rise(nodes: Ints, groups: Ints, meta: Longs, node: int) -> None:
    """Count one more occurrence and move the node among its siblings."""
    count = nodes[node, COUNT]
    nodes[node, COUNT] = count + 1
    group = nodes[node, GROUP]
    if group < 0:
        return
    parent = nodes[node, PARENT]
    before = nodes[node, PREV]
    if node == nodes[parent, HEAD] or nodes[before, COUNT] > count + 1:
        if groups[group, _SIZE] > 1:
            _leave_group(nodes, groups, meta, node)
            _own_group(nodes, groups, meta, node)
        return
    other = groups[nodes[before, GROUP], _HEAD]
    _leave_group(nodes, groups, meta, node)
    _unlink(nodes, node)
    ahead = nodes[other, PREV]
    nodes[node, NEXT] = other
    nodes[node, PREV] = ahead
    nodes[other, PREV] = node
    first = other == nodes[parent, HEAD]
    if first:
        nodes[parent, HEAD] = node
    else:
        nodes[ahead, NEXT] = node
    if not first and nodes[ahead, COUNT] == count + 1:
        _join(nodes, groups, node, ahead)
    elif nodes[other, COUNT] == count + 1:
        _join(nodes, groups, node, other)
        groups[nodes[node, GROUP], _HEAD] = node
    else:
        _own_group(nodes, groups, meta, node)


@kernel
def fall(nodes: Ints, groups: Ints, meta: Longs, node: int) -> None:
    """Count one occurrence less (at least one is left) and move the node among its siblings."""
    count = nodes[node, COUNT]
    nodes[node, COUNT] = count - 1
    group = nodes[node, GROUP]
    if group < 0:
        return
    after = nodes[node, NEXT]
    if after < 0 or nodes[after, COUNT] < count - 1:
        if groups[group, _SIZE] > 1:
            _leave_group(nodes, groups, meta, node)
            _own_group(nodes, groups, meta, node)
        return
    _leave_group(nodes, groups, meta, node)
    if nodes[after, COUNT] == count:
        last = after
        while nodes[last, NEXT] >= 0 and nodes[nodes[last, NEXT], COUNT] == count:
            last = nodes[last, NEXT]
        _unlink(nodes, node)
        after = nodes[last, NEXT]
        nodes[last, NEXT] = node
        nodes[node, PREV] = last
        nodes[node, NEXT] = after
        if after >= 0:
            nodes[after, PREV] = node
        else:
            nodes[nodes[nodes[node, PARENT], HEAD], PREV] = node
    if after >= 0 and nodes[after, COUNT] == count - 1:
        _join(nodes, groups, node, after)
        groups[nodes[node, GROUP], _HEAD] = node
    else:
        _own_group(nodes, groups, meta, node)


@kernel
def detach(nodes: Ints, keys: Longs, values: Ints, groups: Ints, meta: Longs, node: int) -> None:  # noqa: PLR0917 - numba takes positions
    """Free a node that occurs no more, and the chain of only children under it."""
    parent = nodes[node, PARENT]
    if nodes[parent, FLAGS] & HASHED:
        drop(keys, meta, values, parent, nodes[node, TOKEN])
    if parent != ROOT:
        _leave_group(nodes, groups, meta, node)
        _unlink(nodes, node)
    while node >= 0:
        below = nodes[node, HEAD]
        if below >= 0:
            _leave_group(nodes, groups, meta, below)
            if nodes[node, FLAGS] & HASHED:
                drop(keys, meta, values, node, nodes[below, TOKEN])
        nodes[node, NEXT] = meta[FREE]
        meta[FREE] = node
        node = below
