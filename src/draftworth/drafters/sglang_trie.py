"""SGLang's n-gram trie: windows of recent tokens, and how often and how recently each of their parts was put in.

A node is one token behind its parent's. Putting a window in counts each of its substrings once more and makes them
the most recently used; when no node is free, the least recently used leaf goes. A match keeps, for each length, where
the suffix of the context ends in the trie, and follows new tokens from there instead of looking it up again: a suffix
that came into the trie after its last token was matched stays unmatched. Both are kept as they are.

Source: SGLang 0.5.23, sglang/kernels/jit/csrc/ngram_corpus/trie.cpp and result.cpp.
"""

import numpy as np

from draftworth.drafters.suffix_nodes import ENTRIES, MASK, METAS, Ints, Longs, drop, find, kernel, put

COLUMNS = 10
TOKEN, PARENT, FREQUENCY, HEAD, NEXT, PREV, OLDER, NEWER, VERSION, SPARE = range(COLUMNS)
"""Columns of a node. HEAD is the child used last, NEXT the sibling used before; OLDER and NEWER order all by use."""

ROOT = 0
USED, FREE, LIVE, OLDEST, NEWEST = METAS, METAS + 1, METAS + 2, METAS + 3, METAS + 4
TRIE_METAS = METAS + 5
"""`meta` holds the figures of the table (see suffix_nodes), then nodes ever taken, the first free one, nodes in use
(with the root), and both ends of the order of use."""

Trie = tuple[Ints, Longs, Ints, Longs]
"""`nodes`, `keys`, `values`, `meta`."""

_SMALL = 1024


def new_trie() -> Trie:
    """Return an empty trie."""
    nodes = np.zeros((_SMALL, COLUMNS), np.int32)
    nodes[ROOT, HEAD] = -1
    meta = np.zeros(TRIE_METAS, np.int64)
    meta[MASK] = _SMALL - 1
    meta[USED] = meta[LIVE] = 1
    meta[FREE] = meta[OLDEST] = meta[NEWEST] = -1
    return nodes, np.full(_SMALL, -1, np.int64), np.empty(_SMALL, np.int32), meta


@kernel
def short(trie: Trie, more: int) -> bool:
    """Return whether so many more nodes might not fit."""
    nodes, _keys, _values, meta = trie
    return bool(meta[LIVE] + more > len(nodes) or 2 * (meta[ENTRIES] + more) > meta[MASK])


def grown(trie: Trie, more: int, capacity: int) -> Trie:
    """Return the trie with room for at least so many more nodes, for no more than it may have beyond these."""
    nodes, keys, values, meta = trie
    used = int(meta[USED])
    if meta[LIVE] + more > len(nodes):
        size = min(2 * len(nodes), max(capacity, int(meta[LIVE]))) + more
        wider = np.zeros((size, COLUMNS), np.int32)
        wider[:used] = nodes[:used]
        nodes = wider
    if 2 * (meta[ENTRIES] + more) > meta[MASK]:
        size = len(keys)
        while 2 * (meta[ENTRIES] + more) > size - 1:
            size *= 2
        wider_keys, wider_values = np.full(size, -1, np.int64), np.empty(size, np.int32)
        meta[MASK] = size - 1
        meta[ENTRIES] = 0
        _enter_again(keys, values, wider_keys, wider_values, meta)
        keys, values = wider_keys, wider_values
    return nodes, keys, values, meta


@kernel
def _enter_again(keys: Longs, values: Ints, wider_keys: Longs, wider_values: Ints, meta: Longs) -> None:
    for at in range(len(keys)):
        if keys[at] != -1:
            put(wider_keys, wider_values, meta, keys[at] >> 32, keys[at] & 0xFFFFFFFF, values[at])


@kernel
def _leave_siblings(nodes: Ints, node: int) -> None:
    before, after = nodes[node, PREV], nodes[node, NEXT]
    if before >= 0:
        nodes[before, NEXT] = after
    else:
        nodes[nodes[node, PARENT], HEAD] = after
    if after >= 0:
        nodes[after, PREV] = before


@kernel
def _lead_siblings(nodes: Ints, node: int) -> None:
    parent = nodes[node, PARENT]
    head = nodes[parent, HEAD]
    nodes[node, PREV] = -1
    nodes[node, NEXT] = head
    if head >= 0:
        nodes[head, PREV] = node
    nodes[parent, HEAD] = node


@kernel
def _leave_order(nodes: Ints, meta: Longs, node: int) -> None:
    older, newer = nodes[node, OLDER], nodes[node, NEWER]
    if older >= 0:
        nodes[older, NEWER] = newer
    else:
        meta[OLDEST] = newer
    if newer >= 0:
        nodes[newer, OLDER] = older
    else:
        meta[NEWEST] = older


@kernel
def _lead_order(nodes: Ints, meta: Longs, node: int) -> None:
    newest = meta[NEWEST]
    nodes[node, OLDER] = newest
    nodes[node, NEWER] = -1
    if newest >= 0:
        nodes[newest, NEWER] = node
    else:
        meta[OLDEST] = node
    meta[NEWEST] = node


@kernel
def _evict(trie: Trie) -> None:
    nodes, keys, values, meta = trie
    node = meta[OLDEST]
    _leave_order(nodes, meta, node)
    _leave_siblings(nodes, node)
    drop(keys, meta, values, nodes[node, PARENT], nodes[node, TOKEN])
    nodes[node, VERSION] += 1
    nodes[node, NEXT] = meta[FREE]
    meta[FREE] = node
    meta[LIVE] -= 1


@kernel
def insert(trie: Trie, window: Ints, depth: int, capacity: int, path: Longs) -> None:
    """Put a window in: each substring that begins at any of its tokens and is at most as long as the trie is deep.

    Args:
        trie: with room for them.
        window: the tokens.
        depth: of the trie.
        capacity: most nodes, the root's too.
        path: scratch, at least `depth`.
    """
    nodes, keys, values, meta = trie
    for start in range(len(window)):
        end = min(len(window), start + depth)
        while capacity - meta[LIVE] < end - start:
            _evict(trie)
        cursor = ROOT
        for at in range(start, end):
            node = find(keys, values, meta, cursor, window[at])
            if node >= 0:
                nodes[node, FREQUENCY] += 1
                if nodes[cursor, HEAD] != node:
                    _leave_siblings(nodes, node)
                    _lead_siblings(nodes, node)
                _leave_order(nodes, meta, node)
            else:
                node = meta[FREE]
                if node >= 0:
                    meta[FREE] = nodes[node, NEXT]
                else:
                    node = meta[USED]
                    meta[USED] += 1
                meta[LIVE] += 1
                nodes[node, TOKEN] = window[at]
                nodes[node, PARENT] = cursor
                nodes[node, FREQUENCY] = 1
                nodes[node, HEAD] = -1
                _lead_siblings(nodes, node)
                put(keys, values, meta, cursor, window[at], node)
            path[at - start] = node
            cursor = node
        # The deepest first, so that a parent is always more recent than its children.
        for back in range(end - start - 1, -1, -1):
            _lead_order(nodes, meta, path[back])


@kernel
def match(trie: Trie, context: Ints, total: int, depth: int, known: Longs, anchors: Longs) -> None:  # noqa: PLR0917 - numba takes positions
    """Bring a request's anchors to the end of its context.

    Args:
        trie: the trie.
        context: the last tokens, at most `depth`.
        total: how many tokens there are in all.
        depth: of the trie.
        known: int64 [2], tokens in all when the anchors were set (-1: never), and how many anchors there are.
        anchors: int64 [2 x depth], for each length a node (-1: not there) and the version it had.
    """
    nodes, keys, values, meta = trie
    new = total - known[0]
    usable = known[0] >= 0 and new <= len(context)
    for at in range(known[1] if usable else 0):
        node = anchors[2 * at]
        if node >= 0 and nodes[node, VERSION] != anchors[2 * at + 1]:
            usable = False
    known[0] = total
    if usable:
        for at in range(len(context) - new, len(context)):
            size = min(known[1] + 1, depth)
            for length in range(size - 1, -1, -1):
                before = ROOT if length == 0 else anchors[2 * length - 2]
                node = -1 if before < 0 else find(keys, values, meta, before, context[at])
                anchors[2 * length] = node
                anchors[2 * length + 1] = nodes[node, VERSION] if node >= 0 else 0
            known[1] = size
        return
    known[1] = min(len(context), depth)
    for length in range(1, known[1] + 1):
        node = ROOT
        for at in range(len(context) - length, len(context)):
            node = find(keys, values, meta, node, context[at])
            if node < 0:
                break
        anchors[2 * length - 2] = node
        anchors[2 * length - 1] = nodes[node, VERSION] if node >= 0 else 0
