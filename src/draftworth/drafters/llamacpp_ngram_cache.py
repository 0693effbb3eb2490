"""llama.cpp's `ngram-cache`: the most frequent token behind the last 4, 3, 2 or 1 tokens, drafted one by one.

Read from common/ngram-cache.cpp and `common_speculative_impl_ngram_cache` in common/speculative.cpp. For each drafted
token the longest n-gram is asked first whose followers are enough (2, 2, 1 and 1 for n = 1 to 4) and of which the most
frequent has its share (66, 50, 50 and 50 %). At most 8 tokens are drafted; no flag changes that. Files of counts
(`--lookup-cache-static`, `--lookup-cache-dynamic`) are not replayed: without them only a slot's own context counts.

What the released server does, and examples/lookup does not:

- each step only enters the n-grams inside the tokens that are new since the step before, so those across two steps are
  never there, and a step of one token enters nothing;
- counts outlive a request, and so does the number of tokens entered: a slot learns from a request only what lies
  beyond the longest history it had before.

Two followers of equal count and share, 50 % each, are told apart by the order of libstdc++'s hash map: the one that
was entered later is drafted. A history of one or two tokens makes the released code read in front of it; longer
n-grams than the history are passed over here.
"""

from collections.abc import Mapping, Sequence

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
from draftworth.errors import UsageError

_DRAFT = 8
_LONGEST = 4
_ENOUGH = np.array([2, 2, 1, 1], np.int64)
_SHARE = np.array([66, 50, 50, 50], np.int64)
_SUM, _MOST, _BEST = _LONGEST, _LONGEST + 1, _LONGEST + 2
"""An n-gram: its tokens, -1 behind them; how often it was followed; its best follower's count and place."""
_OF, _TOKEN, _COUNT = range(3)
"""A follower: its n-gram, its token, its count."""
_HASH = np.uint64(0x9E3779B97F4A7C15)

Book = tuple[Ints, Ints, Ints, Ints]
"""What a slot counted: n-grams [N, 7], followers [F, 3], and where each is by its hash (-1: nowhere), sizes powers of
two and at least twice the others'."""


class LlamaCppNgramCache(LlamaCppDrafter):
    """`ngram-cache`; `k` is 8."""

    name = "llamacpp-ngram-cache"
    title = "llama.cpp: the most frequent follower of the last 4 to 1 tokens"
    source = f"{BUILD}, common/ngram-cache.cpp and common/speculative.cpp"
    draft = Flag("ngram-cache", _DRAFT, _DRAFT, _DRAFT)

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the protocol's word
        max: Sequence[int] | None = None,  # noqa: A002 - the protocol's word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the only setting there is; see the protocol.

        Raises:
            UsageError: a parameter is named, or k is not 8.
        """
        if set(k or ()) - {_DRAFT}:
            raise UsageError(f"{self.name}: ngram-cache always drafts {_DRAFT} tokens at most, no flag changes k")
        return super().settings(k=k, min=min, max=max, more=more)

    def session(self, settings: Sequence[Setting], limits: Limits) -> LlamaCppSession:
        """Begin a replay."""
        return CacheSession(settings, limits)


class CacheSession(LlamaCppSession):
    """A replay of `ngram-cache`. Slots share nothing, so each request is replayed in one go."""

    def __init__(self, settings: Sequence[Setting], limits: Limits) -> None:
        super().__init__(settings, limits)
        self._books = [_book(64) for _ in range(self.slots)]
        # N-grams and followers that are used, tokens entered, turns: of each slot.
        self._states = np.zeros((self.slots, 4), np.int64)

    def _replay(self, requests: Requests, sinks: Sequence[Sink]) -> None:
        for r in range(requests.prompts.size):
            slot = int(np.argmin(self._states[:, 3]))
            self._books[slot] = _walk(requests, sinks[0], r, self._books[slot], self._states[slot])
        # There is one setting only; who names it twice gets it twice.
        for sink in sinks[1:]:
            sink.joint[:], sink.steps[:] = sinks[0].joint, sinks[0].steps
            sink.log[:] = sinks[0].log


@njit(cache=True, nogil=True)
def _book(size: int) -> Book:
    """Return an empty book with room for so many n-grams and followers, a power of two."""
    return (
        np.empty((size, _BEST + 1), np.int32),
        np.empty((size, 3), np.int32),
        np.full(2 * size, -1, np.int32),
        np.full(2 * size, -1, np.int32),
    )


@njit(cache=True, nogil=True)
def _mixed(value: np.uint64) -> np.uint64:
    """Return a value whose low bits depend on all bits."""
    value = np.uint64(value * _HASH)
    return np.uint64(value ^ (value >> np.uint64(32)))


@njit(cache=True, nogil=True)
def _hashed(gram: Ints) -> np.uint64:
    """Return the hash of an n-gram, filled up with -1."""
    value = np.uint64(0)
    for i in range(_LONGEST):
        value = np.uint64(np.uint64(value * _HASH) + np.uint64(gram[i] + 1))
    return _mixed(value)


@njit(cache=True, nogil=True)
def _place(grams: Ints, index: Ints, gram: Ints) -> int:
    """Return the place in the index that an n-gram has or would have."""
    mask = index.size - 1
    at = np.int64(_hashed(gram) & np.uint64(mask))
    while index[at] >= 0:
        there = grams[index[at]]
        if there[0] == gram[0] and there[1] == gram[1] and there[2] == gram[2] and there[3] == gram[3]:
            break
        at = (at + 1) & mask
    return int(at)


@njit(cache=True, nogil=True)
def _follower_place(followers: Ints, index: Ints, of: int, token: int) -> int:
    """Return the place in the index that a follower has or would have."""
    mask = index.size - 1
    at = np.int64(_mixed((np.uint64(of) << np.uint64(32)) | np.uint64(token)) & np.uint64(mask))
    while index[at] >= 0 and (followers[index[at], _OF] != of or followers[index[at], _TOKEN] != token):
        at = (at + 1) & mask
    return int(at)


@njit(cache=True, nogil=True)
def _roomy(book: Book, grams_used: int, followers_used: int) -> Book:
    """Return the book with room for a token's n-grams and followers."""
    grams, followers, gram_index, follower_index = book
    if grams_used + _LONGEST > grams.shape[0]:
        larger = np.empty((2 * grams.shape[0], grams.shape[1]), np.int32)
        larger[:grams_used] = grams[:grams_used]
        grams, gram_index = larger, np.full(2 * gram_index.size, -1, np.int32)
        for i in range(grams_used):
            gram_index[_place(grams, gram_index, grams[i])] = i
    if followers_used + _LONGEST > followers.shape[0]:
        larger = np.empty((2 * followers.shape[0], followers.shape[1]), np.int32)
        larger[:followers_used] = followers[:followers_used]
        followers, follower_index = larger, np.full(2 * follower_index.size, -1, np.int32)
        for i in range(followers_used):
            one = followers[i]
            follower_index[_follower_place(followers, follower_index, one[_OF], one[_TOKEN])] = i
    return grams, followers, gram_index, follower_index


@njit(cache=True, nogil=True)
def _entered(new: Ints, book: Book, state: Longs) -> Book:
    """Enter the n-grams inside some tokens."""
    gram = np.empty(_LONGEST, np.int32)
    for i in range(1, new.size):
        book = _roomy(book, state[0], state[1])
        grams, followers, gram_index, follower_index = book
        for n in range(1, min(i, _LONGEST) + 1):
            gram[:] = -1
            gram[:n] = new[i - n : i]
            place = _place(grams, gram_index, gram)
            of = gram_index[place]
            if of < 0:
                of = state[0]
                state[0] += 1
                gram_index[place] = of
                grams[of, :_LONGEST] = gram
                grams[of, _LONGEST:] = 0
            place = _follower_place(followers, follower_index, of, new[i])
            one = follower_index[place]
            if one < 0:
                one = state[1]
                state[1] += 1
                follower_index[place] = one
                followers[one, _OF], followers[one, _TOKEN], followers[one, _COUNT] = of, new[i], 0
            followers[one, _COUNT] += 1
            grams[of, _SUM] += 1
            count, most = followers[one, _COUNT], grams[of, _MOST]
            # Of two that are equal, the one that was entered later.
            if count > most or (count == most and one > grams[of, _BEST]):
                grams[of, _MOST], grams[of, _BEST] = count, one
    return book


@njit(cache=True, nogil=True)
def _next_token(last: Ints, known: int, book: Book) -> int:
    """Return the token to draft behind the last four, of which so many are there; -1 for none."""
    grams, followers, gram_index, _ = book
    gram = np.empty(_LONGEST, np.int32)
    for n in range(min(known, _LONGEST), 0, -1):
        gram[:] = -1
        gram[:n] = last[_LONGEST - n :]
        of = gram_index[_place(grams, gram_index, gram)]
        if of < 0:
            continue
        total, most = np.int64(grams[of, _SUM]), np.int64(grams[of, _MOST])
        if total >= _ENOUGH[n - 1] and 100 * most >= _SHARE[n - 1] * total:
            return int(followers[grams[of, _BEST], _TOKEN])
    return -1


@njit(cache=True, nogil=True)
def _walk(requests: Requests, sink: Sink, r: int, book: Book, state: Longs) -> Book:
    """Replay one request in a slot; returns the slot's book."""
    own = requests.tokens[requests.offsets[r] : requests.offsets[r + 1]]
    draft = np.empty(_DRAFT, np.int32)
    last = np.empty(_LONGEST, np.int32)
    at = int(requests.prompts[r])
    while at < own.size - 1:
        length, room = 0, requests.most[r] - at - 2
        if room > 0:
            if state[2] < at + 1:
                book = _entered(own[state[2] : at + 1], book, state)
                state[2] = at + 1
            for i in range(min(at + 1, _LONGEST)):
                last[_LONGEST - 1 - i] = own[at - i]
            # A history of the sampled token alone drafts nothing.
            while at > 0 and length < _DRAFT:
                token = _next_token(last, at + 1 + length, book)
                if token < 0:
                    break
                draft[length] = token
                length += 1
                last[:-1] = last[1:]
                last[-1] = token
        at += verified(requests, sink, r, at, draft[: min(length, max(room, 0))]) + 1
    # A prompt takes a turn.
    state[3] += sink.steps[r] + 1
    return book
