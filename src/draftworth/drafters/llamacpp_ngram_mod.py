"""llama.cpp's `ngram-mod`: one table for all slots, from the hash of n tokens to the token that followed them last.

Read from common/ngram-mod.cpp and `common_speculative_impl_ngram_mod` in common/speculative.cpp. The table has 2^22
entries and checks no collision. A prompt is entered when it is done; of what is generated, a slot enters what is new
when a draft finds it more than 32 tokens behind. A draft is chained token by token, up to n_max; an empty entry ends
it, and drops it if it has fewer than n_min tokens. The table is emptied when it is more than a quarter full as a
prompt is done, and when five drafts of a slot one after the other had less than a quarter accepted.

As all slots share the table, order matters: in a turn all slots draft, then prompts are entered, then drafts are
verified, each in the slots' order. A prompt takes one turn here, however long it is. Requests that are under way when
a batch ends are finished before the next batch begins.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.llamacpp_common import (
    BUILD,
    Flag,
    Ints,
    LlamaCppDrafter,
    LlamaCppSession,
    Longs,
    Requests,
    Sink,
    verified,
)
from draftworth.drafters.llamacpp_lookups import hashes

_ENTRIES = 1 << 22
_FACTOR = np.uint32(6364136223846793005 & 0xFFFFFFFF)
"""The table's size divides 2^32, so 32 of the hash's 64 bits decide."""
_BEHIND = 32
_LOW_ROUNDS = 5
_N_MATCH, _N_MIN, _N_MAX = range(3)
_STATE, _REQUEST, _AT, _LAST, _LOW, _LENGTH, _ROOM, _SLOT_FIELDS = range(8)
"""A slot: what it does, its request, the sampled token's place, up to where it entered tokens, low drafts in a row,
length of its draft before and after the cut."""
_FREE, _PROMPT, _GENERATING = range(3)


class Table(NamedTuple):
    """What all slots share.

    Attributes:
        tokens: int32, what followed last, by the hash of the n tokens before; -1 for nothing.
        used: int32, how many entries are used, then which.
    """

    tokens: Ints
    used: Ints


class LlamaCppNgramMod(LlamaCppDrafter):
    """`ngram-mod`, what `--spec-default` switches on; `k` is n_max."""

    name = "llamacpp-ngram-mod"
    title = "llama.cpp: chains of tokens by the hash of the n before, one table for all requests"
    source = f"{BUILD}, common/ngram-mod.cpp and common/speculative.cpp"
    draft = Flag("--spec-ngram-mod-n-max", 64, 1, 1024)
    flags = {
        "n_match": Flag("--spec-ngram-mod-n-match", 24, 1, 1024),
        "n_min": Flag("--spec-ngram-mod-n-min", 48, 0, 1024),
    }
    tried = {"k": (8, 16, 32, 64), "n_match": (8, 12, 16, 24), "n_min": (1, 4, 16, 48)}

    def can_draft(self, setting: Setting) -> bool:
        """Return whether n_min is not above n_max: such a setting only drafts n_max tokens, as n_min = n_max does."""
        return setting.k >= setting.more["n_min"]

    def session(self, settings: Sequence[Setting], limits: Limits) -> LlamaCppSession:
        """Begin a replay."""
        return ModSession(settings, limits)


class ModSession(LlamaCppSession):
    """A replay of `ngram-mod`. The table of a setting is kept as its used entries between batches."""

    def __init__(self, settings: Sequence[Setting], limits: Limits) -> None:
        super().__init__(settings, limits)
        self._table = np.full(_ENTRIES, -1, np.int32)
        self._used = np.zeros(_ENTRIES + 1, np.int32)
        self._kept: list[tuple[Ints, Ints]] = [(np.zeros(0, np.int32), np.zeros(0, np.int32)) for _ in settings]
        self._low = np.zeros((len(settings), self.slots), np.int32)

    def _replay(self, requests: Requests, sinks: Sequence[Sink]) -> None:
        table, used = self._table, self._used
        found: dict[int, NDArray[np.uint32]] = {}
        order = sorted(range(len(self.settings)), key=lambda at: self.parameters(at)[1]["n_match"])
        for at in order:
            k, more = self.parameters(at)
            if more["n_match"] not in found:
                found = {more["n_match"]: hashes(requests.tokens, requests.offsets, more["n_match"], _FACTOR)}
            entries, values = self._kept[at]
            used[0] = entries.size
            used[1 : 1 + entries.size] = entries
            table[entries] = values
            parameters = np.array([more["n_match"], more["n_min"], k], np.int64)
            _walk(requests, sinks[at], found[more["n_match"]], parameters, Table(table, used), self._low[at])
            entries = used[1 : 1 + used[0]].copy()
            self._kept[at] = (entries, table[entries])
            table[entries] = -1


@njit(cache=True, nogil=True)
def _enter(table: Table, hashed: np.uint32, token: int) -> None:
    """Enter what followed an n-gram."""
    entry = np.int64(hashed & np.uint32(_ENTRIES - 1))
    if table.tokens[entry] < 0:
        table.used[0] += 1
        table.used[table.used[0]] = entry
    table.tokens[entry] = token


@njit(cache=True, nogil=True)
def _empty(table: Table) -> None:
    """Empty the table."""
    for i in range(1, table.used[0] + 1):
        table.tokens[table.used[i]] = -1
    table.used[0] = 0


@njit(cache=True, nogil=True)
def _chain(own: Ints, value: np.uint32, at: int, parameters: Longs, tokens: Ints, draft: Ints) -> int:  # noqa: PLR0917
    """Fill in the draft behind the sampled token at a place; returns its length. `value` is the last n tokens' hash."""
    n = parameters[_N_MATCH]
    gone = np.uint32(1)
    for _ in range(n):
        gone = np.uint32(gone * _FACTOR)
    for i in range(parameters[_N_MAX]):
        token = tokens[value & np.uint32(_ENTRIES - 1)]
        if token < 0:
            return 0 if i < parameters[_N_MIN] else i
        draft[i] = token
        old = own[at - n + 1 + i] if i < n else draft[i - n]
        value = np.uint32(np.uint32(np.uint32(value * _FACTOR) + np.uint32(token)) - np.uint32(gone * np.uint32(old)))
    return int(parameters[_N_MAX])


@njit(cache=True, nogil=True)
def _drafted(  # noqa: PLR0917 - numba
    own: Ints, hashed: NDArray[np.uint32], slot: Longs, parameters: Longs, table: Table, draft: Ints
) -> int:
    """Enter a slot's new tokens if they are many, and draft for it; returns the draft's length."""
    n, at = parameters[_N_MATCH], int(slot[_AT])
    if at < n:
        return 0
    if slot[_LAST] + _BEHIND < at:
        for i in range(slot[_LAST], at - n):
            _enter(table, hashed[i + n - 1], own[i + n])
        slot[_LAST] = at - n
    return int(_chain(own, hashed[at], at, parameters, table.tokens, draft))


@njit(cache=True, nogil=True)
def _begun(own: Ints, hashed: NDArray[np.uint32], slot: Longs, n: int, table: Table) -> None:
    """Enter a prompt that is done, of which the slot has the length."""
    prompt = slot[_AT]
    slot[_LAST] = slot[_LENGTH] = 0
    if prompt < n:
        return
    for i in range(prompt - n):
        _enter(table, hashed[i + n - 1], own[i + n])
    slot[_LAST] = prompt - n
    if 4 * table.used[0] > _ENTRIES:
        _empty(table)


@njit(cache=True, nogil=True)
def _told(slot: Longs, accepted: int, table: Table) -> None:
    """Tell a slot's drafter how many tokens of its draft were accepted."""
    if 4 * accepted >= slot[_LENGTH]:
        slot[_LOW] = 0
        return
    slot[_LOW] += 1
    if slot[_LOW] >= _LOW_ROUNDS:
        _empty(table)
        slot[_LOW] = slot[_LAST] = 0


@njit(cache=True, nogil=True)
def _all_drafted(  # noqa: PLR0917 - numba
    requests: Requests, hashed: NDArray[np.uint32], parameters: Longs, table: Table, slots: Longs, drafts: Ints
) -> None:
    """Draft for every slot that generates."""
    for s in range(slots.shape[0]):
        slot = slots[s]
        slot[_ROOM] = 0
        if slot[_STATE] != _GENERATING:
            continue
        room = requests.most[slot[_REQUEST]] - slot[_AT] - 2
        if room > 0:
            first, end = requests.offsets[slot[_REQUEST]], requests.offsets[slot[_REQUEST] + 1]
            slot[_LENGTH] = _drafted(requests.tokens[first:end], hashed[first:end], slot, parameters, table, drafts[s])
            slot[_ROOM] = min(slot[_LENGTH], room)


@njit(cache=True, nogil=True)
def _all_begun(requests: Requests, hashed: NDArray[np.uint32], parameters: Longs, table: Table, slots: Longs) -> None:
    """Enter every prompt that is done in this turn."""
    for s in range(slots.shape[0]):
        if slots[s, _STATE] == _PROMPT:
            first, end = requests.offsets[slots[s, _REQUEST]], requests.offsets[slots[s, _REQUEST] + 1]
            _begun(requests.tokens[first:end], hashed[first:end], slots[s], parameters[_N_MATCH], table)


@njit(cache=True, nogil=True)
def _all_verified(requests: Requests, sink: Sink, table: Table, slots: Longs, drafts: Ints) -> int:
    """Verify every draft; returns how many requests ended."""
    ended = 0
    for s in range(slots.shape[0]):
        slot = slots[s]
        r, at = int(slot[_REQUEST]), int(slot[_AT])
        if slot[_STATE] == _GENERATING:
            accepted = verified(requests, sink, r, at, drafts[s, : slot[_ROOM]])
            if slot[_ROOM] > 0:
                _told(slot, accepted, table)
            slot[_AT] = at + accepted + 1
        if slot[_STATE] != _FREE:
            slot[_STATE] = _GENERATING
            if slot[_AT] >= requests.offsets[r + 1] - requests.offsets[r] - 1:
                slot[_STATE] = _FREE
                ended += 1
    return ended


@njit(cache=True, nogil=True)
def _walk(  # noqa: PLR0917 - numba
    requests: Requests, sink: Sink, hashed: NDArray[np.uint32], parameters: Longs, table: Table, low: Ints
) -> None:
    """Replay one setting over all slots, turn by turn."""
    slots = np.zeros((low.size, _SLOT_FIELDS), np.int64)
    slots[:, _LOW] = low
    drafts = np.empty((low.size, parameters[_N_MAX]), np.int32)
    following, busy = 0, 0
    while busy > 0 or following < requests.prompts.size:
        for s in range(low.size):
            if slots[s, _STATE] == _FREE and following < requests.prompts.size:
                slots[s, _STATE], slots[s, _REQUEST], slots[s, _AT] = _PROMPT, following, requests.prompts[following]
                following += 1
                busy += 1
        _all_drafted(requests, hashed, parameters, table, slots, drafts)
        _all_begun(requests, hashed, parameters, table, slots)
        busy -= _all_verified(requests, sink, table, slots, drafts)
    low[:] = slots[:, _LOW]
