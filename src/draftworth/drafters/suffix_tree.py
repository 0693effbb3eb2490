"""A counting suffix tree over growing sequences: add a token, remove a sequence, and draft from a match.

Every substring of up to `depth` tokens has a count. Nodes are made only for strings that occur, or occurred, twice, and
for their children: a suffix that occurs once is a lazy leaf, which grows with its sequence at no cost. A node's LINK is
the same string less its first token, so that a new token is looked up once, at the longest suffix that is there twice;
the shorter ones follow the links. Counts and the order of children equal those of Arctic Inference's SuffixTree.

A tree is the arrays `nodes`, `keys`, `values`, `groups` and `meta`; `grown` gives larger ones when it is nearly `full`.
Sequences are rows of `seqs` over one array of tokens, `text`.

Source: arctic_inference 0.1.1, csrc/suffix_decoding/suffix_tree.cc (append, remove, speculate, _speculate_path).
"""

import numpy as np

from draftworth.drafters.suffix_nodes import (
    COLUMNS,
    COUNT,
    DEPTH,
    ENTRIES,
    FLAGS,
    FREE,
    GROUPS_FREE,
    GROUPS_USED,
    HASHED,
    HEAD,
    LAZY,
    LINK,
    MASK,
    METAS,
    ROOT,
    SEQ,
    START,
    TOKEN,
    USED,
    Ints,
    Longs,
    attach,
    child,
    detach,
    fall,
    kernel,
    leaf,
    put,
    rise,
)

Tree = tuple[Ints, Longs, Ints, Ints, Longs]
"""`nodes`, `keys`, `values`, `groups`, `meta`."""

SEQ_COLUMNS = 3
BASE, LENGTH, ACTIVE = range(SEQ_COLUMNS)
"""Columns of a sequence: where it begins in the text, how many tokens are in the tree, and the node of its longest
suffix that occurs twice or did (shorter than the depth)."""

_SMALL = 1024


def new_tree() -> Tree:
    """Return an empty tree."""
    nodes = np.empty((_SMALL, COLUMNS), np.int32)
    keys = np.full(_SMALL, -1, np.int64)
    values = np.empty(_SMALL, np.int32)
    groups = np.empty((_SMALL, 2), np.int32)
    meta = np.empty(METAS, np.int64)
    tree = (nodes, keys, values, groups, meta)
    clear(tree, 0)
    return tree


@kernel
def clear(tree: Tree, tokens: int) -> None:
    """Empty a tree, with a table for about so many tokens if there is room (a small one is cleared faster)."""
    nodes, keys, _values, _groups, meta = tree
    size = _SMALL
    while size < tokens and size < len(keys):
        size *= 2
    for at in range(size):
        keys[at] = -1
    meta[USED] = 1
    meta[FREE] = -1
    meta[GROUPS_USED] = 0
    meta[GROUPS_FREE] = -1
    meta[MASK] = size - 1
    meta[ENTRIES] = 0
    for column in range(COLUMNS):
        nodes[ROOT, column] = 0
    nodes[ROOT, HEAD] = -1
    nodes[ROOT, FLAGS] = HASHED


@kernel
def full(tree: Tree, tokens: int, depth: int) -> bool:
    """Return whether so many more tokens might not fit: each makes at most two nodes, groups and entries a level."""
    nodes, _keys, _values, groups, meta = tree
    more = tokens * (2 * depth + 4)
    return bool(
        meta[USED] + more > len(nodes)
        or meta[GROUPS_USED] + more > len(groups)
        or 2 * (meta[ENTRIES] + more) > meta[MASK]
    )


def grown(tree: Tree, tokens: int, depth: int) -> Tree:
    """Return the tree with room for at least so many more tokens, in arrays of twice the size."""
    nodes, keys, values, groups, meta = tree
    more = tokens * (2 * depth + 4)
    if meta[USED] + more > len(nodes):
        nodes = _longer(nodes, int(meta[USED]), more)
    if meta[GROUPS_USED] + more > len(groups):
        groups = _longer(groups, int(meta[GROUPS_USED]), more)
    size = int(meta[MASK]) + 1
    if 2 * (meta[ENTRIES] + more) > meta[MASK]:
        wider = 2 * size
        while 2 * (meta[ENTRIES] + more) > wider - 1:
            wider *= 2
        new_keys = np.full(wider, -1, np.int64)
        new_values = np.empty(wider, np.int32)
        meta[MASK] = wider - 1
        meta[ENTRIES] = 0
        _enter_again(keys[:size], values[:size], new_keys, new_values, meta)
        keys, values = new_keys, new_values
    return nodes, keys, values, groups, meta


def _longer(rows: Ints, used: int, more: int) -> Ints:
    """Return a copy of the rows in use with room for as many and some more; what is not touched costs no memory."""
    longer = np.empty((2 * used + more, rows.shape[1]), np.int32)
    longer[:used] = rows[:used]
    return longer


@kernel
def _enter_again(keys: Longs, values: Ints, new_keys: Longs, new_values: Ints, meta: Longs) -> None:
    for at in range(len(keys)):
        if keys[at] != -1:
            put(new_keys, new_values, meta, keys[at] >> 32, keys[at] & 0xFFFFFFFF, values[at])


@kernel
def extend(tree: Tree, seqs: Longs, text: Ints, seq: int, depth: int) -> None:  # noqa: C901 - one compiled loop
    """Add a sequence's next token of the text."""
    nodes, keys, values, groups, meta = tree
    length = seqs[seq, LENGTH]
    token = text[seqs[seq, BASE] + length]
    seqs[seq, LENGTH] = length + 1
    # From the longest suffix that has children down to the first that this token follows already.
    at = seqs[seq, ACTIVE]
    waiting = -1
    while True:
        node = child(nodes, keys, values, meta, at, token)
        if node >= 0:
            break
        node = leaf(nodes, meta, at, token, seq, length - nodes[at, DEPTH])
        attach(nodes, keys, values, groups, meta, node)
        if waiting >= 0:
            nodes[waiting, LINK] = node
        waiting = node
        if at == ROOT:
            seqs[seq, ACTIVE] = ROOT
            return
        at = nodes[at, LINK]
    if waiting >= 0:
        nodes[waiting, LINK] = node
    seqs[seq, ACTIVE] = node if nodes[node, DEPTH] < depth else nodes[node, LINK]
    # That one and all shorter ones occur once more.
    waiting = -1
    while node != ROOT:
        rise(nodes, groups, meta, node)
        if nodes[node, FLAGS] & LAZY and nodes[node, DEPTH] < depth:
            below = _unfold(tree, seqs, text, node)
            if waiting >= 0:
                nodes[waiting, LINK] = below
            waiting = below
        elif waiting >= 0:
            nodes[waiting, LINK] = child(nodes, keys, values, meta, node, nodes[waiting, TOKEN])
            waiting = -1
        node = nodes[node, LINK]
    if waiting >= 0:
        nodes[waiting, LINK] = child(nodes, keys, values, meta, ROOT, nodes[waiting, TOKEN])


@kernel
def _unfold(tree: Tree, seqs: Longs, text: Ints, node: int) -> int:
    """Give a lazy leaf that now occurs twice its first occurrence's child; return it, -1 where that one ends here."""
    nodes, keys, values, groups, meta = tree
    nodes[node, FLAGS] &= ~LAZY
    owner = nodes[node, SEQ]
    after = nodes[node, START] + nodes[node, DEPTH]
    if after < seqs[owner, LENGTH]:
        below = leaf(nodes, meta, node, text[seqs[owner, BASE] + after], owner, nodes[node, START])
        attach(nodes, keys, values, groups, meta, below)
        return below
    if nodes[node, DEPTH] > nodes[seqs[owner, ACTIVE], DEPTH]:
        seqs[owner, ACTIVE] = node
    return -1


@kernel
def remove(tree: Tree, seqs: Longs, text: Ints, seq: int, depth: int) -> None:
    """Take a sequence out of the tree, the suffixes that begin first before the others."""
    nodes, keys, values, groups, meta = tree
    base = seqs[seq, BASE]
    length = seqs[seq, LENGTH]
    for start in range(length):
        node = ROOT
        for at in range(start, min(start + depth, length)):
            node = child(nodes, keys, values, meta, node, text[base + at])
            if nodes[node, COUNT] == 1:
                detach(nodes, keys, values, groups, meta, node)
                break
            fall(nodes, groups, meta, node)
