"""What suffix trees draft behind a context: the best of all match lengths, in the request's own tree and the shared.

Every suffix of the context that the tree knows is followed by the most frequent child; the sum of the tokens'
probabilities is its score. The best score wins, the longest match among equals, and the request's own tree before the
shared one. A suffix that occurs only as the context itself drafts nothing, so that only those with nodes of two
occurrences are followed, longest first; a shorter one can draft no more than its length times the factor, which ends
the search early.

Source: arctic_inference 0.1.1, csrc/suffix_decoding/suffix_tree.cc (speculate, _speculate_path, _match_context) and
suffix_decoding/cache.py (speculate).
"""

from typing import Any

import numpy as np

from draftworth.drafters.suffix_nodes import (
    COUNT,
    DEPTH,
    FLAGS,
    HEAD,
    LAZY,
    LINK,
    ROOT,
    SEQ,
    START,
    TOKEN,
    Ints,
    Longs,
    child,
    kernel,
)
from draftworth.drafters.suffix_tree import ACTIVE, BASE, LENGTH, Tree

Draft = tuple[Any, Any, Any, Any, Any]
"""Score, tokens drafted, tokens that came so, and where the match ends: the node and how many tokens behind it."""


@kernel
def follow(  # noqa: PLR0917 - numba takes positions
    nodes: Ints,
    seqs: Longs,
    text: Ints,
    node: int,
    extra: int,
    cap: int,
    least: np.float32,
    depth: int,
    actual: Ints,
    drafted: Ints,
) -> tuple[np.float32, int, int]:
    """Draft from a match, always by the most frequent child.

    Args:
        nodes: of the tree.
        seqs: of the tree.
        text: of the tree.
        node: where the match ends.
        extra: how many tokens behind a lazy leaf it ends.
        cap: most tokens drafted.
        least: least probability of a token, of those before it too.
        depth: of the tree.
        actual: the tokens that came.
        drafted: takes the tokens, as many as fit.

    Returns:
        The sum of the probabilities (in single precision, as Arctic's), tokens drafted, tokens that came so.
    """
    chance = np.float32(1.0)
    score = np.float32(0.0)
    count = 0
    agreed = 0
    while count < cap and nodes[node, FLAGS] & LAZY == 0:
        below = nodes[node, HEAD]
        if below < 0:
            break
        chance *= np.float32(nodes[below, COUNT]) / np.float32(nodes[node, COUNT])
        if chance < least:
            break
        score += chance
        node = below
        token = nodes[node, TOKEN]
        if count < len(drafted):
            drafted[count] = token
        if agreed == count and count < len(actual) and actual[count] == token:
            agreed += 1
        count += 1
    if nodes[node, FLAGS] & LAZY:
        owner = nodes[node, SEQ]
        after = nodes[node, START] + nodes[node, DEPTH] + extra
        source = seqs[owner, BASE] + after
        run = min(cap - count, depth - nodes[node, DEPTH] - extra, seqs[owner, LENGTH] - after)
        for step in range(run):
            score += chance
            token = text[source + step]
            if count < len(drafted):
                drafted[count] = token
            if agreed == count and count < len(actual) and actual[count] == token:
                agreed += 1
            count += 1
    return score, count, agreed


@kernel
def best_of_links(  # noqa: PLR0917 - numba takes positions
    nodes: Ints,
    seqs: Longs,
    text: Ints,
    seq: int,
    caps: Ints,
    most: int,
    least: np.float32,
    depth: int,
    actual: Ints,
    best: Draft,
) -> Draft:
    """Return the best draft of a sequence's suffixes that occur twice, or `best` if none has a higher score.

    Args:
        nodes: of the tree.
        seqs: of the tree.
        text: of the tree.
        seq: the sequence that is drafted for.
        caps: most tokens drafted by length of the match.
        most: most tokens drafted.
        least: least probability.
        depth: of the tree.
        actual: the tokens that came.
        best: to be beaten.
    """
    node = seqs[seq, ACTIVE]
    while node != ROOT:
        cap = min(caps[nodes[node, DEPTH]], most)
        if cap <= best[0]:
            break
        score, count, agreed = follow(nodes, seqs, text, node, 0, cap, least, depth, actual, actual[:0])
        if score > best[0]:
            best = (np.float64(score), count, agreed, np.int64(node), 0)
        node = nodes[node, LINK]
    return best


@kernel
def locate(tree: Tree, seqs: Longs, text: Ints, match: Ints) -> tuple[int, int]:
    """Return where a string ends in the tree: the node and how many tokens behind it; node -1 if it is not there."""
    nodes, keys, values, _groups, meta = tree
    node = ROOT
    for at in range(len(match)):
        if nodes[node, FLAGS] & LAZY:
            owner = nodes[node, SEQ]
            after = nodes[node, START] + nodes[node, DEPTH]
            source = seqs[owner, BASE] + after
            rest = len(match) - at
            if rest > seqs[owner, LENGTH] - after:
                return -1, 0
            for step in range(rest):
                if text[source + step] != match[at + step]:
                    return -1, 0
            return node, rest
        node = child(nodes, keys, values, meta, node, match[at])
        if node < 0:
            return -1, 0
    return node, 0


@kernel
def best_of_shared(  # noqa: PLR0917 - numba takes positions
    tree: Tree,
    seqs: Longs,
    text: Ints,
    seq: int,
    caps: Ints,
    most: int,
    least: np.float32,
    depth: int,
    context: Ints,
    actual: Ints,
    ends: Longs,
    best: Draft,
) -> Draft:
    """Return the shared tree's best draft, or `best` if none has a higher score.

    Args:
        tree: the shared tree.
        seqs: of the tree.
        text: of the tree.
        seq: the request's own output in the tree, -1 if it is not there (evicted).
        caps: most tokens drafted by length of the match.
        most: most tokens drafted.
        least: least probability.
        depth: of the tree.
        context: all tokens so far.
        actual: the tokens that came.
        ends: scratch, 2 x depth.
        best: to be beaten.
    """
    nodes = tree[0]
    # Suffixes within the request's own output are in the tree: those that occur twice are its links. Longer ones, which
    # reach into the prompt, are looked up; while the output is shorter than the depth there are some.
    own = 0 if seq < 0 else seqs[seq, LENGTH]
    longest = min(len(context), depth) - 1
    known = own
    while known < longest:
        node, extra = locate(tree, seqs, text, context[len(context) - known - 1 :])
        if node < 0:
            break
        ends[2 * known] = node
        ends[2 * known + 1] = extra
        known += 1
    while known > own:
        cap = min(caps[known], most)
        if cap <= best[0]:
            return best
        known -= 1
        node = ends[2 * known]
        extra = ends[2 * known + 1]
        score, count, agreed = follow(nodes, seqs, text, node, extra, cap, least, depth, actual, actual[:0])
        if score > best[0]:
            best = (np.float64(score), count, agreed, np.int64(node), np.int64(extra))
    if seq < 0:
        return best
    return best_of_links(nodes, seqs, text, seq, caps, most, least, depth, actual, best)
