"""llama.cpp's `ngram-map-k` and `ngram-map-k4v`: what followed the last n tokens, as long as it was right lately.

Read from common/ngram-map.cpp. A slot has a hash map from n-grams to a place (the first one entered keeps its bucket,
2^18 of them) and a list of keys, n-grams that were found again. With a history of L tokens, 2 n + m at least, the last
n tokens (the sampled one included) are looked up in the hash map, and if that fails in the places that are new since
the last draft, the latest first: those of the prompt, then those behind it. Places end n + m + 1 tokens before L, so
that m tokens follow; those between the prompt's last place and its end are not entered.

- `ngram-map-k` drafts the m tokens that follow, but at most as many as were accepted of the key's last draft: a key
  whose draft was refused is never drafted again.
- `ngram-map-k4v` counts up to four different continuations of m tokens for each key, from the key's last place looked
  at to the one found (that one is counted anew each time). It drafts if the most frequent has twice the count of the
  others together, at most as many tokens as were accepted of that continuation's last draft; the tokens are those that
  follow the place found, whichever continuation they are.

Keys outlive a request: they are dropped as a prompt is done that is shorter than the history before, from the place of
the prompt before on (or n + m before the end of this one). What is left means whatever the new history has there.
Where the released code would read behind a shorter history, continuations count as different.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
)
from draftworth.drafters.llamacpp_lookups import hashes, occurrences
from draftworth.drafters.llamacpp_map_walk import (
    BUCKETS,
    FACTOR,
    KEY_FIELDS,
    STATE_FIELDS,
    Index,
    Slots,
    walk,
)


class LlamaCppNgramMapK(LlamaCppDrafter):
    """`ngram-map-k`; `k` is size_m."""

    name = "llamacpp-ngram-map-k"
    title = "llama.cpp: what followed the last n tokens, as far as it was right the last time"
    source = f"{BUILD}, common/ngram-map.cpp"
    draft = Flag("--spec-ngram-map-k-size-m", 48, 1, 1024)
    flags = {"size_n": Flag("--spec-ngram-map-k-size-n", 12, 1, 1024)}
    unused = {"min_hits": "--spec-ngram-map-k-min-hits"}
    tried = {"k": (4, 8, 16, 32, 48, 64), "size_n": (2, 3, 4, 6, 8, 12, 16, 24)}

    def session(self, settings: Sequence[Setting], limits: Limits) -> LlamaCppSession:
        """Begin a replay."""
        return MapSession(settings, limits)


class LlamaCppNgramMapK4V(LlamaCppDrafter):
    """`ngram-map-k4v`; `k` is size_m."""

    name = "llamacpp-ngram-map-k4v"
    title = "llama.cpp: the most frequent of four continuations of the last n tokens"
    source = f"{BUILD}, common/ngram-map.cpp"
    draft = Flag("--spec-ngram-map-k4v-size-m", 48, 1, 1024)
    flags = {
        "size_n": Flag("--spec-ngram-map-k4v-size-n", 12, 1, 1024),
        "min_hits": Flag("--spec-ngram-map-k4v-min-hits", 1, 1, 65535),
    }
    tried = {"k": (4, 8, 16, 32, 48), "size_n": (3, 4, 8, 12, 16), "min_hits": (1, 2)}

    def session(self, settings: Sequence[Setting], limits: Limits) -> LlamaCppSession:
        """Begin a replay."""
        return MapSession(settings, limits)


@dataclass(slots=True)
class _Kept:
    """What a setting's slots know between batches: used buckets and their places, keys, states, and their clocks."""

    buckets: list[Ints]
    places: list[Ints]
    keys: Ints
    states: Longs
    clocks: Longs


class MapSession(LlamaCppSession):
    """A replay of `ngram-map-k` or `-k4v`. Slots share nothing, so each request is replayed in one go."""

    def __init__(self, settings: Sequence[Setting], limits: Limits) -> None:
        super().__init__(settings, limits)
        slots = self.slots
        self._map = np.zeros((slots, BUCKETS), np.int32)
        self._used = np.zeros((slots, BUCKETS + 1), np.int32)
        self._kept = [
            _Kept(
                [np.zeros(0, np.int32)] * slots,
                [np.zeros(0, np.int32)] * slots,
                np.zeros((slots, 16, KEY_FIELDS), np.int32),
                np.zeros((slots, STATE_FIELDS), np.int64),
                np.zeros(slots, np.int64),
            )
            for _ in settings
        ]

    def _replay(self, requests: Requests, sinks: Sequence[Sink]) -> None:
        by_n: dict[int, list[int]] = {}
        for at in range(len(self.settings)):
            by_n.setdefault(self.parameters(at)[1]["size_n"], []).append(at)
        for n, places in by_n.items():
            index = Index(
                *occurrences(requests.tokens, requests.offsets, n),
                hashes(requests.tokens, requests.offsets, n, FACTOR),
            )
            scratch = np.full((2, requests.longest), -1, np.int32)
            for at in places:
                k, more = self.parameters(at)
                kept = self._kept[at]
                self._restore(kept)
                parameters = np.array([n, k, more.get("min_hits", 0), "min_hits" not in more], np.int64)
                slots = Slots(self._map, self._used, kept.states, kept.clocks)
                kept.keys = walk(requests, sinks[at], index, parameters, slots, kept.keys, scratch)
                self._keep_map(kept)

    def _restore(self, kept: _Kept) -> None:
        """Fill in the hash maps with what a setting knows."""
        for slot, (buckets, places) in enumerate(zip(kept.buckets, kept.places, strict=True)):
            self._map[slot, buckets] = places
            self._used[slot, 0] = buckets.size
            self._used[slot, 1 : 1 + buckets.size] = buckets

    def _keep_map(self, kept: _Kept) -> None:
        """Keep what a setting knows and empty the hash maps."""
        for slot in range(self.slots):
            buckets = self._used[slot, 1 : 1 + self._used[slot, 0]].copy()
            kept.buckets[slot], kept.places[slot] = buckets, self._map[slot, buckets]
            self._map[slot, buckets] = 0
