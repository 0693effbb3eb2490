"""A replay of suffix decoding under way: which settings share trees, and trees that grow when a kernel asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from draftworth.drafters.base import Counts, Limits, Setting
from draftworth.drafters.suffix_lockstep import RUNNING, own_drafts, replay_in_lockstep
from draftworth.drafters.suffix_nodes import Ints, Longs
from draftworth.drafters.suffix_replay import (
    CACHE_FULL,
    CACHE_METAS,
    DONE,
    OWN_FULL,
    REQUEST,
    SLOT,
    STARTED,
    STOP_METAS,
    Cache,
    Floats,
    Plan,
    Work,
    make_space,
    replay_in_turn,
)
from draftworth.drafters.suffix_tree import SEQ_COLUMNS, Tree, grown, new_tree
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch

DEPTH = "suffix_decoding_max_tree_depth"
CACHED = "suffix_decoding_max_cached_requests"
FACTOR = "suffix_decoding_max_spec_factor"
LEAST = "suffix_decoding_min_token_prob"
DEFAULTS: Mapping[str, float] = {DEPTH: 24, CACHED: 10_000, FACTOR: 1.0, LEAST: 0.1}
"""vLLM's names and defaults."""

MOST_K = 1024
_NO_LIMIT = 1 << 40
_CELLS = 1 << 24
"""Most drafts of the requests' own trees that are kept at a time when several requests are decoded together."""

_NO_RECORD = np.empty((1, 0, 0), np.int32)


@dataclass(slots=True)
class _Group:
    """Settings whose trees are the same, as long as their requests are decoded one after the other.

    Attributes:
        at: their places among all settings.
        plan: their parameters.
        caches: one for all, or one each.
    """

    at: list[int]
    plan: Plan
    caches: list[Cache]


class SuffixSession:
    """A replay of vLLM's suffix decoding under way."""

    def __init__(self, settings: Sequence[Setting], limits: Limits) -> None:
        if limits.concurrency < 1:
            raise UsageError(f"concurrency is {limits.concurrency}: it must be 1 or more")
        self._limits = limits
        self._settings = list(settings)
        self._most_k = max((setting.k for setting in settings), default=0)
        self._own = new_tree()
        self._own_seqs: Longs = np.zeros((1, SEQ_COLUMNS), np.int64)
        places: dict[tuple[int, int], list[int]] = {}
        for at, setting in enumerate(self._settings):
            more = {**DEFAULTS, **setting.more}
            places.setdefault((int(more[DEPTH]), int(more[CACHED])), []).append(at)
        self._groups = [
            _Group(at, self._plan(at, depth, cached), [_new_cache()]) for (depth, cached), at in places.items()
        ]

    def _plan(self, at: Sequence[int], depth: int, cached: int) -> Plan:
        chosen = [self._settings[place] for place in at]
        mores = [{**DEFAULTS, **setting.more} for setting in chosen]
        lengths = np.arange(depth + 1, dtype=np.float32)
        # As the C++ computes it: a product in single precision, a sum in double, cut to a whole number.
        caps = np.array(
            [
                np.minimum((lengths * np.float32(more[FACTOR])).astype(np.float64) + 1e-6, MOST_K).astype(np.int32)
                for more in mores
            ]
        )
        limit = self._limits.max_model_len
        return (
            np.array([setting.k for setting in chosen], np.int32),
            caps,
            np.array([more[LEAST] for more in mores], np.float32),
            depth,
            _NO_LIMIT if limit is None else limit,
            min(cached, _NO_LIMIT),
        )

    def feed(self, batch: TraceBatch, groups: Ints, group_count: int) -> Counts:
        """Replay a batch; the requests that run when it ends are finished before the next begins.

        Raises:
            UsageError: a token id is negative or beyond the vocabulary.
        """
        return self._feed(batch, groups, group_count, _NO_RECORD)

    def drafts(self, batch: TraceBatch) -> tuple[Counts, Ints]:
        """Replay a batch and return its drafts too, to be compared with an engine's.

        Returns:
            The counts of all requests together, and int32 [S, outputs, K + 1]: the draft behind each output token, its
            length first; -1 where no step began.
        """
        record = np.full((len(self._settings), int(batch.output_lengths.sum()), self._most_k + 1), -1, np.int32)
        return self._feed(batch, np.zeros((len(batch), 2), np.int32), 1, record), record

    def _feed(self, batch: TraceBatch, groups: Ints, group_count: int, record: Ints) -> Counts:
        check_ids(batch, self._limits.vocabulary)
        size = self._most_k + 1
        counts = Counts(
            joint=np.zeros((len(self._settings), group_count, size, size), np.int64),
            steps=np.zeros((len(self._settings), len(batch)), np.int32),
        )
        work = work_of(batch, groups)
        limit = self._limits.max_model_len
        lengths = np.diff(work[1])
        # Tokens of a step that ends at max_model_len are not added, so that trees depend on the steps from there on.
        apart = self._limits.concurrency > 1 or (limit is not None and len(lengths) > 0 and lengths.max() >= limit)
        for group in self._groups:
            if apart and len(group.caches) < len(group.at):
                group.caches += [_copy(group.caches[0]) for _ in group.at[1:]]
            most_cached = group.plan[5]
            group.caches = [_with_places(cache, len(batch), most_cached) for cache in group.caches]
            if apart or len(group.caches) > 1:
                self._lockstep(group, work, counts, record)
            else:
                self._in_turn(group, work, counts, record)
        return counts

    def _in_turn(self, group: _Group, work: Work, counts: Counts, record: Ints) -> None:
        depth = group.plan[3]
        joint = np.zeros((len(group.at), *counts.joint.shape[1:]), np.int64)
        steps = np.zeros((len(group.at), counts.steps.shape[1]), np.int32)
        noted = record[group.at] if record.size else _NO_RECORD
        ends = np.empty(2 * depth, np.int64)
        next_step = np.ones(len(group.at), np.int64)
        stop = np.array([0, -1, 0, 0, 0], np.int64)
        cache = group.caches[0]
        while True:
            short = replay_in_turn(
                work, group.plan, self._own, self._own_seqs, cache, joint, steps, noted, ends, next_step, stop
            )
            if short == DONE:
                break
            if short == OWN_FULL:
                self._own = grown(self._own, 1, depth)
            else:
                cache = _grown_cache(cache, short, work, int(stop[REQUEST]), 1, depth)
        group.caches = [cache]
        counts.joint[group.at] = joint
        counts.steps[group.at] = steps
        if record.size:
            record[group.at] = noted

    def _lockstep(self, group: _Group, work: Work, counts: Counts, record: Ints) -> None:
        depth = group.plan[3]
        rows = np.concatenate([[0], np.cumsum(np.diff(work[1]) - work[2])])
        outputs = int(rows[-1])
        chunk = max(1, _CELLS // max(1, outputs))
        for low in range(0, len(group.at), chunk):
            at = group.at[low : low + chunk]
            ks, caps, leasts, _depth, limit, cached = group.plan
            part: Plan = (
                ks[low : low + chunk],
                caps[low : low + chunk],
                leasts[low : low + chunk],
                depth,
                limit,
                cached,
            )
            scores: Floats = np.zeros((len(at), outputs), np.float32)
            drafted: Ints = np.zeros((len(at), outputs), np.int32)
            agreed: Ints = np.zeros((len(at), outputs), np.int32)
            noted = record[at] if record.size else _NO_RECORD
            stop = np.array([0, -1, 0, 0, 0], np.int64)
            while own_drafts(work, part, self._own, self._own_seqs, scores, drafted, agreed, noted, stop) != DONE:
                self._own = grown(self._own, 1, depth)
            for place, setting in enumerate(at):
                own = (scores[place], drafted[place], agreed[place])
                row = noted[place] if record.size else _NO_RECORD[0]
                found = counts.joint[setting], counts.steps[setting], row
                group.caches[low + place] = self._one(work, part, place, rows, group.caches[low + place], own, found)
            if record.size:
                marked = noted[:, :, 0] - (self._most_k + 2)
                noted[:, :, 0] = np.where(marked >= 0, marked, -1)
                record[at] = noted

    def _one(  # noqa: PLR0917 - what a kernel takes
        self,
        work: Work,
        plan: Plan,
        place: int,
        rows: Longs,
        cache: Cache,
        own: tuple[Floats, Ints, Ints],
        found: tuple[Longs, Ints, Ints],
    ) -> Cache:
        """Replay one setting of a plan in lockstep; return the cache as it is then."""
        depth = plan[3]
        ends = np.empty(2 * depth, np.int64)
        slots = np.tile(np.array([-1, -1, 0, 0], np.int64), (self._limits.concurrency, 1))
        stop = np.zeros(STOP_METAS, np.int64)
        while True:
            short = replay_in_lockstep(work, plan, place, rows, cache, *own, *found, ends, slots, stop)
            if short == DONE:
                return cache
            request = int(slots[stop[SLOT], RUNNING])
            cache = _grown_cache(cache, short, work, request, self._most_k + 1, depth)


def _grown_cache(cache: Cache, short: int, work: Work, request: int, tokens: int, depth: int) -> Cache:  # noqa: PLR0917 - what a kernel takes
    """Return the cache with room for so many tokens in its tree, or for a request's output in its store."""
    if short == CACHE_FULL:
        tree, seqs, store, figures = cache
        return grown(tree, tokens, depth), seqs, store, figures
    return make_space(cache, int(work[1][request + 1] - work[1][request] - work[2][request]))


def check_ids(batch: TraceBatch, vocabulary: int | None) -> None:
    """Refuse ids that no vocabulary or not this one has."""
    if not len(batch.tokens):
        return
    low, high = int(batch.tokens.min()), int(batch.tokens.max())
    if low < 0:
        raise UsageError(f"token id {low} is negative: the trace is damaged, record or import it again")
    if vocabulary is not None and high >= vocabulary:
        raise UsageError(f"token id {high} is outside the vocabulary of {vocabulary}: the trace is of another model")


def work_of(batch: TraceBatch, groups: Ints) -> Work:
    """Return what a kernel needs of a batch, in the types it was compiled for (read-only arrays are another type)."""
    return (
        np.require(batch.tokens, np.int32, ["C", "W"]),
        np.require(batch.offsets, np.int64, ["C", "W"]),
        np.require(batch.prompt_lengths, np.int32, ["C", "W"]),
        np.require(batch.thinking, np.int32, ["C", "W"]),
        np.require(groups, np.int32, ["C", "W"]),
    )


def _new_cache() -> Cache:
    return new_tree(), np.zeros((1, SEQ_COLUMNS), np.int64), np.empty(1024, np.int32), np.zeros(CACHE_METAS, np.int64)


def _copy(cache: Cache) -> Cache:
    tree, seqs, store, figures = cache
    nodes, keys, values, groups, meta = tree
    copied: Tree = nodes.copy(), keys.copy(), values.copy(), groups.copy(), meta.copy()
    return copied, seqs.copy(), store.copy(), figures.copy()


def _with_places(cache: Cache, requests: int, most_cached: int) -> Cache:
    """Return the cache with places for so many more requests, but for no more than are cached at a time.

    A request's place is its number modulo the places. As long as there are fewer places than can be cached, every
    request has had its own, so that none moves when more are added.
    """
    tree, seqs, store, figures = cache
    places = min(most_cached + 1, int(figures[STARTED]) + requests + 1)
    if places > len(seqs):
        wider: Longs = np.zeros((min(most_cached + 1, 2 * places), SEQ_COLUMNS), np.int64)
        wider[: len(seqs)] = seqs
        seqs = wider
    return tree, seqs, store, figures
