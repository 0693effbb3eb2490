"""Replay of SGLang's NGRAM: every running request is matched and verified, then every context is put into the trie.

Source: SGLang 0.5.23, sglang/srt/speculative/ngram_worker.py (_prepare_draft_tokens, _update_ngram_corpus).
"""

from draftworth.drafters.sglang_tree import Doubles, accepted, by_frequency, by_recency
from draftworth.drafters.sglang_trie import Trie, insert, match, short
from draftworth.drafters.suffix_nodes import Ints, Longs, kernel
from draftworth.drafters.suffix_replay import Work

Shape = tuple[int, int, int, int, int, int]
"""k, depth, least and most breadth, match type (0 BFS, 1 PROB), capacity."""

NO_STATE = 4
REQUEST, EMITTED, TOTAL, ANCHORS = range(NO_STATE)
"""Columns of a slot: its request, output tokens so far, then what `match` knows; its anchors are behind them."""

WAITING, RUNNING, ROUND = range(3)
"""Where a replay stopped: the next request, how many run, whether the round has begun."""


@kernel
def replay(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one compiled loop
    work: Work,
    rows: Longs,
    shape: Shape,
    trie: Trie,
    joint: Longs,
    steps: Ints,
    record: Ints,
    slots: Longs,
    stop: Longs,
    tree: Ints,
    longs: Longs,
    doubles: Doubles,
) -> int:
    """Replay a batch for one setting.

    Args:
        work: the batch.
        rows: int64 [R + 1], outputs before each request.
        shape: the setting.
        trie: what earlier requests have taught.
        joint: int64 [G, K + 1, K + 1], counted up.
        steps: int32 [R], counted up.
        record: int32 [outputs, 1 + 2 k] takes the trees; empty to take none.
        slots: the running requests, the oldest first.
        stop: where to go on, zeros at first.
        tree: scratch, [k + 1, 2].
        longs: scratch, depth + most breadth.
        doubles: scratch for queue and heap.

    Returns:
        0 when it ended, else for how many more nodes the trie must have room before it is called again.
    """
    tokens, offsets, prompt_lengths, thinking, groups = work
    k, depth, low, high, kind, capacity = shape
    nodes = trie[0]
    requests = len(prompt_lengths)
    while True:
        while stop[RUNNING] < len(slots) and stop[WAITING] < requests:
            request = stop[WAITING]
            stop[WAITING] += 1
            if rows[request + 1] == rows[request]:
                continue
            slot = stop[RUNNING]
            slots[slot, REQUEST] = request
            slots[slot, EMITTED] = 1
            slots[slot, TOTAL] = -1
            slots[slot, ANCHORS] = 0
            stop[RUNNING] += 1
        if stop[RUNNING] == 0:
            return 0
        more = stop[RUNNING] * depth * depth
        if short(trie, more):
            return int(more)
        for slot in range(stop[RUNNING]):
            request = slots[slot, REQUEST]
            done = slots[slot, EMITTED]
            begin = offsets[request]
            first = begin + prompt_lengths[request]
            end = offsets[request + 1]
            at = first + done
            if at == end:
                continue
            known = slots[slot, TOTAL : ANCHORS + 1]
            anchors = slots[slot, NO_STATE:]
            match(trie, tokens[max(begin, at - depth) : at], at - begin, depth, known, anchors)
            if kind == 0:
                by_recency(nodes, known, anchors, k, depth, low, high, tree, doubles)
            else:
                by_frequency(nodes, known, anchors, k, high, tree, longs[depth:], doubles)
            agreed = accepted(tree, k, tokens[at:end])
            joint[groups[request, 1 if done >= thinking[request] else 0], k, agreed] += 1
            steps[request] += 1
            if record.size > 0:
                row = record[rows[request] + done]
                row[0] = tree[0, 0]
                for place in range(1, tree[0, 0] + 1):
                    row[place] = tree[place, 0]
                    row[k + place] = tree[place, 1]
            # The context is put in when all are matched; where it ends is kept until then.
            slots[slot, EMITTED] = done + (agreed + 1 << 32)
        left = 0
        for slot in range(stop[RUNNING]):
            request = slots[slot, REQUEST]
            done = slots[slot, EMITTED] & 0xFFFFFFFF
            gain = slots[slot, EMITTED] >> 32
            begin = offsets[request]
            at = begin + prompt_lengths[request] + done
            insert(trie, tokens[max(begin, at - depth) : at], depth, capacity, longs)
            if gain == 0:
                continue
            for column in range(slots.shape[1]):
                slots[left, column] = slots[slot, column]
            slots[left, EMITTED] = min(done + gain, offsets[request + 1] - begin - prompt_lengths[request])
            left += 1
        stop[RUNNING] = left
