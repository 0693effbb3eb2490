"""Replay of suffix decoding request by request, for many settings at once.

What the trees hold at a position does not depend on the steps that led there, only on the tokens. Requests decoded one
after the other are therefore replayed for every setting over one pair of trees.

Source: vLLM 0.32.0, vllm/v1/spec_decode/suffix_decoding.py (propose).
"""

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.suffix_draft import Draft, best_of_links, best_of_shared, follow
from draftworth.drafters.suffix_nodes import ROOT, Ints, Longs, kernel
from draftworth.drafters.suffix_tree import ACTIVE, BASE, LENGTH, Tree, clear, extend, full, remove

Floats = NDArray[np.float32]

CACHE_METAS = 3
STARTED, OLDEST, STORED = range(CACHE_METAS)
"""The shared cache's figures: requests ever started, the oldest that is cached, tokens of the store in use."""

Cache = tuple[Tree, Longs, Ints, Longs]
"""The shared tree, its sequences (a ring by the number of the request), their tokens, and the figures above."""

Work = tuple[Ints, Longs, Ints, Ints, Ints]
"""tokens, offsets, prompt_lengths, thinking and groups of a batch."""

Plan = tuple[Ints, Ints, Floats, int, int, int]
"""k [S], most tokens drafted by match length [S, depth + 1], least probability [S], depth, max_model_len, most
cached."""

DONE, OWN_FULL, CACHE_FULL, STORE_FULL = range(4)
"""What a replay returns: ended, or stopped where the named part must grow before it is called again."""

STOP_METAS = 5
REQUEST, AT, WRITTEN, SLOT, NUMBER = range(STOP_METAS)
"""Where a replay stopped: the request, its next token (-1 if it has not begun), outputs before it, the slot, and the
request's number in the cache. In lockstep REQUEST is the next one that waits."""

NOTHING: Draft = (0.0, 0, 0, -1, 0)
"""The draft of no match."""


@kernel
def begin_entry(cache: Cache, output: Ints, most_cached: int, depth: int) -> bool:
    """Give a request a place in the shared tree; the oldest leave it. Return False if its output does not fit."""
    tree, seqs, store, figures = cache
    number = figures[STARTED]
    while number + 1 - figures[OLDEST] > most_cached:
        remove(tree, seqs, store, figures[OLDEST] % len(seqs), depth)
        figures[OLDEST] += 1
    if figures[STORED] + len(output) > len(store):
        return False
    seq = number % len(seqs)
    seqs[seq, BASE] = figures[STORED]
    seqs[seq, LENGTH] = 0
    seqs[seq, ACTIVE] = ROOT
    for at in range(len(output)):
        store[figures[STORED] + at] = output[at]
    figures[STORED] += len(output)
    figures[STARTED] = number + 1
    return True


def make_space(cache: Cache, tokens: int) -> Cache:
    """Return the cache with space for so many more tokens in its store; those that left it are dropped."""
    tree, seqs, store, figures = cache
    numbers = np.arange(figures[OLDEST], figures[STARTED])
    places = numbers % len(seqs)
    low = int(seqs[places[0], BASE]) if len(places) else int(figures[STORED])
    live = store[low : figures[STORED]]
    wider = np.empty(max(len(store), 2 * (len(live) + tokens)), np.int32)
    wider[: len(live)] = live
    seqs[places, BASE] -= low
    figures[STORED] = len(live)
    return tree, seqs, wider, figures


@kernel
def note(  # noqa: PLR0917 - numba takes positions
    tree: Tree, seqs: Longs, text: Ints, best: Draft, least: np.float32, depth: int, actual: Ints, row: Ints
) -> None:
    """Write a draft's tokens down, their number first."""
    row[0] = best[1]
    follow(tree[0], seqs, text, best[3], best[4], best[1], least, depth, actual, row[1:])


@kernel
def start_own(own: Tree, seqs: Longs, begin: int, tokens: int) -> None:
    """Empty a tree for the request that begins there in the text."""
    clear(own, tokens)
    seqs[0, BASE] = begin
    seqs[0, LENGTH] = 0
    seqs[0, ACTIVE] = ROOT


@kernel
def replay_in_turn(  # noqa: C901, PLR0912, PLR0917 - one compiled loop
    work: Work,
    plan: Plan,
    own: Tree,
    own_seqs: Longs,
    cache: Cache,
    joint: Longs,
    steps: Ints,
    record: Ints,
    ends: Longs,
    next_step: Longs,
    stop: Longs,
) -> int:
    """Replay one request after the other for all settings.

    Args:
        work: the batch; no request reaches max_model_len.
        plan: the settings.
        own: a tree for the requests' own tokens.
        own_seqs: its sequence, one row.
        cache: what earlier requests have taught.
        joint: int64 [S, G, K + 1, K + 1], counted up.
        steps: int32 [S, R], counted up.
        record: int32 [S, outputs of the batch, K + 1] takes each step's draft behind its length; empty to take none.
        ends: scratch, 2 x depth.
        next_step: scratch, S.
        stop: where to go on, [0, -1, 0, 0, 0] at first.

    Returns:
        `DONE`, or what must grow.
    """
    tokens, offsets, prompt_lengths, thinking, groups = work
    ks, caps, leasts, depth, limit, most_cached = plan
    tree, seqs, store, figures = cache
    while stop[REQUEST] < len(prompt_lengths):
        request = stop[REQUEST]
        begin = offsets[request]
        first = begin + prompt_lengths[request]
        end = offsets[request + 1]
        if stop[AT] < 0 and end > first:
            stop[NUMBER] = figures[STARTED]
            if most_cached > 0 and not begin_entry(cache, tokens[first:end], most_cached, depth):
                return STORE_FULL
            start_own(own, own_seqs, begin, 2 * (end - begin))
            next_step[:] = 1
            stop[AT] = begin
        seq = stop[NUMBER] % len(seqs)
        for at in range(stop[AT] if end > first else end, end):
            stop[AT] = at
            if full(own, 1, depth):
                return OWN_FULL
            if at >= first and most_cached > 0:
                if full(tree, 1, depth):
                    return CACHE_FULL
                extend(tree, seqs, store, seq, depth)
            extend(own, own_seqs, tokens, 0, depth)
            done = at + 1 - first
            if done < 1 or at + 1 == end:
                continue
            context = tokens[begin : at + 1]
            actual = tokens[at + 1 : end]
            group = groups[request, 1 if done >= thinking[request] else 0]
            for setting in range(len(ks)):
                if next_step[setting] != done:
                    continue
                most = min(int(ks[setting]), limit - len(context) - 1)
                mine = best_of_links(
                    own[0], own_seqs, tokens, 0, caps[setting], most, leasts[setting], depth, actual, NOTHING
                )
                best = mine
                if most_cached > 0:
                    best = best_of_shared(
                        tree, seqs, store, seq, caps[setting], most, leasts[setting], depth, context, actual, ends, mine
                    )
                joint[setting, group, best[1], best[2]] += 1
                steps[setting, request] += 1
                next_step[setting] = done + best[2] + 1
                if record.size > 0:
                    row = record[setting, stop[WRITTEN] + done]
                    row[0] = 0
                    if best[0] > mine[0]:
                        note(tree, seqs, store, best, leasts[setting], depth, actual, row)
                    elif best[1] > 0:
                        note(own, own_seqs, tokens, best, leasts[setting], depth, actual, row)
        stop[WRITTEN] += end - first
        stop[REQUEST] += 1
        stop[AT] = -1
    return DONE
