"""Replay of suffix decoding with several requests at a time, each one step in turn.

The order in which the requests' tokens reach the shared tree depends on the steps then, so that each setting has a
shared tree of its own. The drafts of the requests' own trees depend on nothing else: they are made beforehand, for
every position. The order within a step is vLLM's: each request in turn adds the tokens it just got and drafts.

Source: vLLM 0.32.0, vllm/v1/spec_decode/suffix_decoding.py (propose).
"""

import numpy as np

from draftworth.drafters.suffix_draft import best_of_links, best_of_shared
from draftworth.drafters.suffix_nodes import Ints, Longs, kernel
from draftworth.drafters.suffix_replay import (
    AT,
    CACHE_FULL,
    DONE,
    NOTHING,
    OLDEST,
    OWN_FULL,
    REQUEST,
    SLOT,
    STARTED,
    STORE_FULL,
    WRITTEN,
    Cache,
    Floats,
    Plan,
    Work,
    begin_entry,
    note,
    start_own,
)
from draftworth.drafters.suffix_tree import Tree, extend, full

SLOT_COLUMNS = 4
RUNNING, ENTRY, EMITTED, GAIN = range(SLOT_COLUMNS)
"""Columns of a slot: its request (-1 for none), the request's number in the cache (-1 for none), output tokens so far,
tokens of the coming step."""


@kernel
def own_drafts(  # noqa: PLR0917 - numba takes positions
    work: Work,
    plan: Plan,
    own: Tree,
    own_seqs: Longs,
    scores: Floats,
    drafted: Ints,
    agreed: Ints,
    record: Ints,
    stop: Longs,
) -> int:
    """Make the drafts of the requests' own trees behind every output token.

    Args:
        work: the batch.
        plan: the settings.
        own: a tree for the requests' own tokens.
        own_seqs: its sequence, one row.
        scores: float32 [S, outputs of the batch], filled.
        drafted: int32, the same shape, filled.
        agreed: int32, the same shape, filled.
        record: int32 [S, outputs of the batch, K + 1] takes the drafts; empty to take none.
        stop: where to go on, [0, -1, 0, 0, 0] at first.

    Returns:
        `DONE`, or `OWN_FULL`.
    """
    tokens, offsets, prompt_lengths, _thinking, _groups = work
    ks, caps, leasts, depth, limit, _most_cached = plan
    while stop[REQUEST] < len(prompt_lengths):
        request = stop[REQUEST]
        begin = offsets[request]
        first = begin + prompt_lengths[request]
        end = offsets[request + 1]
        if stop[AT] < 0:
            start_own(own, own_seqs, begin, 2 * (end - begin))
            stop[AT] = begin
        for at in range(stop[AT], end - 1 if end > first else begin):
            stop[AT] = at
            if full(own, 1, depth):
                return OWN_FULL
            extend(own, own_seqs, tokens, 0, depth)
            if at < first:
                continue
            actual = tokens[at + 1 : end]
            row = stop[WRITTEN] + at + 1 - first
            for setting in range(len(ks)):
                most = min(int(ks[setting]), limit - (at + 1 - begin) - 1)
                best = best_of_links(
                    own[0], own_seqs, tokens, 0, caps[setting], most, leasts[setting], depth, actual, NOTHING
                )
                scores[setting, row] = best[0]
                drafted[setting, row] = best[1]
                agreed[setting, row] = best[2]
                if record.size > 0 and best[1] > 0:
                    note(own, own_seqs, tokens, best, leasts[setting], depth, actual, record[setting, row])
        stop[WRITTEN] += end - first
        stop[REQUEST] += 1
        stop[AT] = -1
    return DONE


@kernel
def replay_in_lockstep(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one compiled loop
    work: Work,
    plan: Plan,
    setting: int,
    rows: Longs,
    cache: Cache,
    scores: Floats,
    drafted: Ints,
    agreed: Ints,
    joint: Longs,
    steps: Ints,
    record: Ints,
    ends: Longs,
    slots: Longs,
    stop: Longs,
) -> int:
    """Replay several requests at a time for one setting, each one step in turn; a free slot takes the next request.

    Args:
        work: the batch.
        plan: the settings.
        setting: which of them.
        rows: int64 [R + 1], outputs before each request.
        cache: what earlier requests have taught this setting.
        scores: float32 [outputs of the batch], from `own_drafts`.
        drafted: int32, the same shape.
        agreed: int32, the same shape.
        joint: int64 [G, K + 1, K + 1], counted up.
        steps: int32 [R], counted up.
        record: int32 [outputs of the batch, K + 1] with the own trees' drafts; empty to take none. Steps are marked by
            adding K + 2 to the length.
        ends: scratch, 2 x depth.
        slots: the slots, [-1, -1, 0, 0] each at first.
        stop: where to go on, [0, 0, 0, 0, 0] at first.

    Returns:
        `DONE`, or what must grow.
    """
    tokens, offsets, prompt_lengths, thinking, groups = work
    ks, caps, leasts, depth, limit, most_cached = plan
    tree, seqs, store, figures = cache
    requests = len(prompt_lengths)
    running = 0
    for slot in range(len(slots)):
        running += slots[slot, RUNNING] >= 0
    while running > 0 or stop[REQUEST] < requests:
        for slot in range(stop[SLOT], len(slots)):
            stop[SLOT] = slot
            if slots[slot, RUNNING] < 0:
                while stop[REQUEST] < requests and rows[stop[REQUEST] + 1] == rows[stop[REQUEST]]:
                    stop[REQUEST] += 1
                if stop[REQUEST] == requests:
                    continue
                slots[slot, RUNNING] = stop[REQUEST]
                slots[slot, ENTRY] = -1
                slots[slot, EMITTED] = 0
                slots[slot, GAIN] = 1
                stop[REQUEST] += 1
                running += 1
            request = slots[slot, RUNNING]
            begin = offsets[request]
            first = begin + prompt_lengths[request]
            end = offsets[request + 1]
            done = min(slots[slot, EMITTED] + slots[slot, GAIN], end - first)
            at = first + done
            if most_cached > 0 and at - begin < limit:
                if full(tree, done - slots[slot, EMITTED], depth):
                    return CACHE_FULL
                if slots[slot, ENTRY] < 0:
                    slots[slot, ENTRY] = figures[STARTED]
                    if not begin_entry(cache, tokens[first:end], most_cached, depth):
                        slots[slot, ENTRY] = -1
                        return STORE_FULL
                if slots[slot, ENTRY] >= figures[OLDEST]:
                    for _ in range(slots[slot, EMITTED], done):
                        extend(tree, seqs, store, slots[slot, ENTRY] % len(seqs), depth)
            slots[slot, EMITTED] = done
            if at == end:
                slots[slot, RUNNING] = -1
                running -= 1
                continue
            row = rows[request] + done
            best = (np.float64(scores[row]), np.int64(drafted[row]), np.int64(agreed[row]), np.int64(-1), np.int64(0))
            most = min(int(ks[setting]), limit - (at - begin) - 1)
            if most_cached > 0 and most > 0:
                seq = slots[slot, ENTRY] % len(seqs) if slots[slot, ENTRY] >= figures[OLDEST] else -1
                best = best_of_shared(
                    tree, seqs, store, seq, caps[setting], most, leasts[setting], depth, tokens[begin:at],
                    tokens[at:end], ends, best,
                )  # fmt: skip
            group = groups[request, 1 if done >= thinking[request] else 0]
            joint[group, best[1], best[2]] += 1
            steps[request] += 1
            slots[slot, GAIN] = best[2] + 1
            if record.size > 0:
                if best[3] >= 0:
                    note(tree, seqs, store, best, leasts[setting], depth, tokens[at:end], record[row])
                record[row, 0] = best[1] + record.shape[1] + 1
        stop[SLOT] = 0
    return DONE
