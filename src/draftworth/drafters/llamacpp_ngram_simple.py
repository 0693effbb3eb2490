"""llama.cpp's `ngram-simple`: what followed the most recent occurrence of the last n tokens.

Read from common/ngram-map.cpp, `common_ngram_simple_draft`. With a history of L tokens and the sampled one, the last
n of both are looked for from start L - n - 1 down to start 1; only with L > n + m + 1. What follows, at most m tokens
and none of the last n - 1 of a run, is the draft if it has n tokens or more; else there is none, and no earlier
occurrence is tried. So size_m below size_n never drafts. Nothing is kept between steps or requests.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

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
from draftworth.drafters.llamacpp_lookups import occurrences


class LlamaCppNgramSimple(LlamaCppDrafter):
    """`ngram-simple`; `k` is size_m."""

    name = "llamacpp-ngram-simple"
    title = "llama.cpp: what followed the last n tokens when they came last"
    source = f"{BUILD}, common/ngram-map.cpp"
    shared = False
    draft = Flag("--spec-ngram-simple-size-m", 48, 1, 1024)
    flags = {"size_n": Flag("--spec-ngram-simple-size-n", 12, 1, 1024)}
    unused = {"min_hits": "--spec-ngram-simple-min-hits"}
    tried = {"k": (4, 8, 16, 32, 48, 64), "size_n": (2, 3, 4, 6, 8, 12, 16, 24)}

    def can_draft(self, setting: Setting) -> bool:
        """Return whether size_m is not below size_n."""
        return setting.k >= setting.more["size_n"]

    def session(self, settings: Sequence[Setting], limits: Limits) -> LlamaCppSession:
        """Begin a replay."""
        return SimpleSession(settings, limits)


class SimpleSession(LlamaCppSession):
    """A replay of `ngram-simple`: occurrences are found once for all settings of one size_n."""

    def _replay(self, requests: Requests, sinks: Sequence[Sink]) -> None:
        by_n: dict[int, list[int]] = {}
        for at in range(len(self.settings)):
            by_n.setdefault(self.parameters(at)[1]["size_n"], []).append(at)
        for n, places in by_n.items():
            before, _ = occurrences(requests.tokens, requests.offsets, n)
            for at in places:
                _walk(requests, sinks[at], before, np.array([n, self.settings[at].k], np.int64))


@njit(cache=True, nogil=True)
def _walk(requests: Requests, sink: Sink, before: Ints, parameters: Longs) -> None:
    """Replay one setting; parameters are n and m."""
    n, m = parameters[0], parameters[1]
    for r in range(requests.prompts.size):
        own = requests.tokens[requests.offsets[r] : requests.offsets[r + 1]]
        seen = before[requests.offsets[r] : requests.offsets[r + 1]]
        # `at` is the sampled token's place: the length of the history.
        at = int(requests.prompts[r])
        while at < own.size - 1:
            start = length = 0
            if requests.most[r] - at - 2 > 0 and at > n + m + 1:
                end = seen[at]
                if end == at - 1:
                    # The occurrence one token back is not looked at; the one before that is that one's previous.
                    end = seen[end]
                if end >= n:
                    start = end + 1
                    length = min(m, at - start)
                    length = 0 if length < n else min(length, requests.most[r] - at - 2)
            at += verified(requests, sink, r, at, own[start : start + length]) + 1
