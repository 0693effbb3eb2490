"""The steps of llama.cpp's `ngram-map-k` and `ngram-map-k4v`, compiled; `llamacpp_ngram_map` says what they do."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from draftworth.drafters.llamacpp_common import Ints, Longs, Requests, Sink, verified

BUCKETS = 1 << 18
FACTOR = np.uint32(2654435761)
_VALUES = 4
_MOST_COUNTED = 16380
_N, _M, _MIN_HITS, _KEY_ONLY, _PARAMETERS = range(5)
_PLACE, _LOOKED_AT, _HITS = range(3)
_VALUE, _COUNT, _ACCEPTED = 3, 7, 11
"""A key: its place, up to where its continuations were counted, hits; then of four continuations each the place, the
count and how many tokens of the last draft were accepted."""
KEY_FIELDS = 15
_BEGIN, _CHECKED, _ENTERED, _KEYS, STATE_FIELDS = range(5)
"""A slot: length of its last prompt, of the history at the last draft, last place entered, number of keys."""


class Index(NamedTuple):
    """What is known of the n-grams of a batch, at their last tokens; see `llamacpp_common`.

    Attributes:
        before: where each occurred before.
        first: where each occurred first.
        hashed: llama.cpp's hash.
    """

    before: Ints
    first: Ints
    hashed: NDArray[np.uint32]


class Slots(NamedTuple):
    """What the slots of a setting know, but for their keys.

    Attributes:
        tables: int32 [C, buckets], the place of each bucket's n-gram, 0 for none.
        used: int32 [C, 1 + buckets], how many buckets are used, then which.
        states: int64 [C, 4].
        clocks: int64 [C], when each was done with its last request.
    """

    tables: Ints
    used: Ints
    states: Longs
    clocks: Longs


@njit(cache=True, nogil=True)
def _begin(parameters: Longs, prompt: int, slots: Slots, slot: int, keys: Ints) -> None:
    """Drop what a new prompt makes stale."""
    table, used, state = slots.tables[slot], slots.used[slot], slots.states[slot]
    begin = state[_BEGIN]
    if begin > prompt:
        begin = max(0, prompt - parameters[_N] - parameters[_M])
    if prompt < state[_CHECKED]:
        left = 0
        for i in range(1, used[0] + 1):
            bucket = used[i]
            if table[bucket] >= begin:
                table[bucket] = 0
            else:
                left += 1
                used[left] = bucket
        used[0] = left
        state[_ENTERED] = max(0, begin - 1)
        left = 0
        for i in range(state[_KEYS]):
            if _holds(keys[i], begin, parameters[_KEY_ONLY] != 0):
                keys[left] = keys[i]
                left += 1
        state[_KEYS] = left
    state[_CHECKED] = state[_BEGIN] = prompt


@njit(cache=True, nogil=True)
def _holds(key: Ints, begin: int, key_only: bool) -> bool:  # noqa: FBT001 - numba knows no keywords
    """Drop a key's continuations from a place on; returns whether the key stays."""
    if key[_PLACE] >= begin:
        return False
    if key_only:
        return True
    for j in range(_VALUES - 1, -1, -1):
        if key[_VALUE + j] != 0 and key[_VALUE + j] >= begin:
            for v in range(j, _VALUES - 1):
                key[_VALUE + v] = key[_VALUE + v + 1]
                key[_COUNT + v] = key[_COUNT + v + 1]
                key[_ACCEPTED + v] = key[_ACCEPTED + v + 1]
            key[_VALUE + _VALUES - 1] = 0
            key[_COUNT + _VALUES - 1] = 0
    return bool(key[_VALUE] != 0)


@njit(cache=True, nogil=True)
def _found(parameters: Longs, index: Index, at: int, slots: Slots, slot: int) -> int:
    """Return the place that the last n tokens are found at, 0 for none, and enter the places that are new.

    `index` is the request's own.
    """
    table, used, state = slots.tables[slot], slots.used[slot], slots.states[slot]
    n, begin, entered = parameters[_N], state[_BEGIN], state[_ENTERED]
    last = at - n - parameters[_M] - 1
    wanted, tail = index.first[at], n - 1
    match = np.int64(table[index.hashed[at] & np.uint32(BUCKETS - 1)])
    if match >= last or (match > 0 and index.first[match + tail] != wanted):
        match = np.int64(0)
    # The prompt's places, then those behind it, each the latest first. Entering them does not change what is found.
    for part in range(2):
        high, low = last, max(begin, entered)
        if part == 0:
            high, low = begin - n - parameters[_M] - 1, entered
        for place in range(high, low, -1):
            if match == 0 and index.first[place + tail] == wanted:
                match = np.int64(place)
            bucket = index.hashed[place + tail] & np.uint32(BUCKETS - 1)
            if table[bucket] == 0:
                table[bucket] = place
                used[0] += 1
                used[used[0]] = bucket
    state[_ENTERED] = max(last, entered)
    return int(match)


@njit(cache=True, nogil=True)
def _places(before: Ints, end: int, least: int, stack: Ints) -> int:
    """Put where an n-gram that ends at a place occurred up to it on the stack, the last first; returns how often.

    The places are those behind each occurrence, `least` and above.
    """
    depth = 0
    while end >= 0 and end + 1 >= least:
        stack[depth] = end + 1
        depth += 1
        end = before[end]
    return depth


@njit(cache=True, nogil=True)
def _count(m: int, own: Ints, at: int, key: Ints, places: Ints) -> None:
    """Count the continuations at some places, the last place first; `own` is known up to `at`."""
    for d in range(places.size - 1, -1, -1):
        start = places[d]
        for v in range(_VALUES):
            there = key[_VALUE + v]
            if there == 0:
                key[_VALUE + v], key[_COUNT + v], key[_ACCEPTED + v] = start, 1, m
                break
            same = there + m <= at
            for i in range(m):
                if not same or own[start + i] != own[there + i]:
                    same = False
                    break
            if same:
                key[_COUNT + v] = min(key[_COUNT + v] + 1, _MOST_COUNTED)
                break


@njit(cache=True, nogil=True)
def _chosen(key: Ints) -> int:
    """Return the continuation to draft, -1 if none is frequent enough."""
    most, best, total = 0, 0, 0
    for v in range(_VALUES):
        total += key[_COUNT + v]
        if key[_COUNT + v] > most:
            most, best = key[_COUNT + v], v
    others = total - key[_COUNT + best]
    return -1 if others > 0 and most < 2 * others else best


@njit(cache=True, nogil=True)
def _key(keys: Ints, number: int, place: int, m: int) -> None:
    """Make a key new."""
    keys[number] = 0
    keys[number, _PLACE] = place
    keys[number, _ACCEPTED:] = m


@njit(cache=True, nogil=True)
def _value(parameters: Longs, own: Ints, before: Ints, at: int, place: int, key: Ints, stack: Ints) -> int:  # noqa: PLR0917
    """Count a key's hit and say which of its continuations to draft, -1 for none."""
    key[_HITS] = min(key[_HITS] + 1, _MOST_COUNTED)
    if parameters[_KEY_ONLY] != 0:
        return 0
    if key[_HITS] < parameters[_MIN_HITS]:
        return -1
    n = parameters[_N]
    depth = _places(before, place + n - 1, key[_LOOKED_AT] + n, stack)
    _count(parameters[_M], own, at, key, stack[:depth])
    key[_LOOKED_AT] = place
    return int(_chosen(key))


@njit(cache=True, nogil=True)
def _request(  # noqa: PLR0917 - numba
    requests: Requests,
    sink: Sink,
    index: Index,
    parameters: Longs,
    slots: Slots,
    keys: Ints,
    scratch: Ints,
    r: int,
    slot: int,
) -> Ints:
    """Replay a request in a slot; returns the keys, which may have moved. `index` is the request's own."""
    n, m = parameters[_N], parameters[_M]
    numbers, stack, state = scratch[0], scratch[1], slots.states[slot]
    own = requests.tokens[requests.offsets[r] : requests.offsets[r + 1]]
    at = int(requests.prompts[r])
    _begin(parameters, at, slots, slot, keys[slot])
    for i in range(state[_KEYS] - 1, -1, -1):
        numbers[index.first[keys[slot, i, _PLACE] + n - 1]] = i
    while at < own.size - 1:
        room = requests.most[r] - at - 2
        length, place, number, value = 0, 0, 0, -1
        if room > 0 and at >= 2 * n + m:
            state[_CHECKED] = at
            place = _found(parameters, index, at, slots, slot)
        if place > 0:
            number = int(numbers[index.first[at]])
            if number < 0:
                number = int(state[_KEYS])
                if number == keys.shape[1]:
                    grown = np.zeros((keys.shape[0], 2 * number, KEY_FIELDS), np.int32)
                    grown[:, :number] = keys
                    keys = grown
                state[_KEYS] += 1
                numbers[index.first[at]] = number
                _key(keys[slot], number, place, m)
            value = _value(parameters, own, index.before, at, place, keys[slot, number], stack)
            if value >= 0:
                length = min(m, keys[slot, number, _ACCEPTED + value], room)
        accepted = verified(requests, sink, r, at, own[place + n : place + n + length])
        if length > 0:
            keys[slot, number, _ACCEPTED + value] = accepted
        at += accepted + 1
    for i in range(state[_KEYS]):
        numbers[index.first[keys[slot, i, _PLACE] + n - 1]] = -1
    return keys


@njit(cache=True, nogil=True)
def walk(  # noqa: PLR0917 - numba
    requests: Requests, sink: Sink, index: Index, parameters: Longs, slots: Slots, keys: Ints, scratch: Ints
) -> Ints:
    """Replay one setting; returns the keys, which may have moved.

    The next request takes the slot that is done first. In scratch[0] is the number of each key by its first
    occurrence, -1 all over between requests; scratch[1] is a stack.
    """
    for r in range(requests.prompts.size):
        slot = int(np.argmin(slots.clocks))
        first, end = requests.offsets[r], requests.offsets[r + 1]
        own = Index(index.before[first:end], index.first[first:end], index.hashed[first:end])
        keys = _request(requests, sink, own, parameters, slots, keys, scratch, r, slot)
        # A prompt takes a turn.
        slots.clocks[slot] += sink.steps[r] + 1
    return keys
