"""SGLang's `NGRAM`: a tree of tokens from a trie of everything that was generated, verified in every step.

The trie is shared by all requests and learns from each step's last tokens, the same ones again and again; prompts are
only learned as far as the first steps' windows reach into them. A step always verifies as many tokens as were asked
for: what the trie has no answer for is token 0.

Order: all running requests, in the order in which they came, are matched; then the contexts that were matched are put
in, in the same order. A new request joins when it has its first token. With SGLang's overlapped scheduler (its default
on GPUs) a request that has ended stays for one more step, whose result is thrown away: that step still puts its context
in. External corpora (`--speculative-ngram-external-corpus-path`) are not replayed.

Source: SGLang 0.5.23, sglang/srt/speculative/ngram_worker.py, srt/arg_groups/fields/spec.py and
kernels/jit/csrc/ngram_corpus/. SGLang's `--speculative-num-draft-tokens` is k + 1: it counts the root.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

import numpy as np

from draftworth.drafters.base import Counts, Limits, Setting
from draftworth.drafters.rounds import own_state
from draftworth.drafters.sglang_replay import NO_STATE, Shape, replay
from draftworth.drafters.sglang_trie import Trie, grown, new_trie
from draftworth.drafters.suffix_nodes import Ints, Longs
from draftworth.drafters.suffix_session import check_ids, work_of
from draftworth.errors import UsageError
from draftworth.traces.base import TraceBatch

_LOW = "speculative-ngram-min-bfs-breadth"
_HIGH = "speculative-ngram-max-bfs-breadth"
_TYPE = "speculative-ngram-match-type"
_DEPTH = "speculative-ngram-max-trie-depth"
_CAPACITY = "speculative-ngram-capacity"
_DEFAULTS: Mapping[str, float] = {_LOW: 1, _HIGH: 10, _TYPE: 0, _DEPTH: 18, _CAPACITY: 10_000_000}
_RANGES = {_LOW: (1, 1024), _HIGH: (1, 1024), _TYPE: (0, 1), _DEPTH: (2, 256), _CAPACITY: (1024, 1 << 30)}
_K = 11
_MOST_K = 1023
_NO_RECORD = np.empty((0, 0), np.int32)


class SGLangSession:
    """A replay of SGLang's NGRAM under way."""

    def __init__(self, settings: Sequence[Setting], limits: Limits) -> None:
        if limits.concurrency < 1:
            raise UsageError(f"concurrency is {limits.concurrency}: it must be 1 or more")
        self._limits = limits
        self._settings = list(settings)
        self._tries: list[Trie] = [new_trie() for _ in self._settings]

    def feed(self, batch: TraceBatch, groups: Ints, group_count: int) -> Counts:
        """Replay a batch; the requests that run when it ends are finished before the next begins.

        Raises:
            UsageError: a token id is negative or beyond the vocabulary.
        """
        return self._feed(batch, groups, group_count, None)

    def drafts(self, batch: TraceBatch) -> tuple[Counts, list[Ints]]:
        """Replay a batch and return its drafts too, to be compared with the engine's.

        Returns:
            The counts of all requests together, and for each setting int32 [outputs, 1 + 2 k]: behind each output token
            the number of tokens in its tree (-1 where no step began), the tokens, and their parents' places from 1, 0
            for the root.
        """
        outputs = int(batch.output_lengths.sum())
        records = [np.full((outputs, 1 + 2 * setting.k), -1, np.int32) for setting in self._settings]
        return self._feed(batch, np.zeros((len(batch), 2), np.int32), 1, records), records

    def _feed(self, batch: TraceBatch, groups: Ints, group_count: int, records: list[Ints] | None) -> Counts:
        check_ids(batch, self._limits.vocabulary)
        size = max((setting.k for setting in self._settings), default=0) + 1
        counts = Counts(
            joint=np.zeros((len(self._settings), group_count, size, size), np.int64),
            steps=np.zeros((len(self._settings), len(batch)), np.int32),
        )
        work = work_of(batch, groups)
        rows: Longs = np.concatenate([[0], np.cumsum(batch.output_lengths)]).astype(np.int64)
        for at, setting in enumerate(self._settings):
            more = {**_DEFAULTS, **setting.more}
            depth, high = int(more[_DEPTH]), int(more[_HIGH])
            shape: Shape = (setting.k, depth, int(more[_LOW]), high, int(more[_TYPE]), int(more[_CAPACITY]))
            slots = np.full((self._limits.concurrency, NO_STATE + 2 * depth), -1, np.int64)
            stop = np.zeros(3, np.int64)
            trees = np.zeros((setting.k + 1, 2), np.int32)
            longs = np.zeros(depth + high, np.int64)
            doubles = np.zeros(((setting.k + 2) * high + depth * high + 2, 3), np.float64)
            record = _NO_RECORD if records is None else records[at]
            while True:
                more_nodes = replay(
                    work, rows, shape, self._tries[at], counts.joint[at], counts.steps[at], record, slots, stop, trees,
                    longs, doubles,
                )  # fmt: skip
                if more_nodes == 0:
                    break
                self._tries[at] = grown(self._tries[at], more_nodes, shape[5])
        return counts


class SGLangNgram:
    """The drafter of SGLang's `--speculative-algorithm NGRAM`."""

    name = "sglang-ngram"
    title = "SGLang NGRAM: a tree of recent continuations from a trie that all requests share, verified in every step"
    engine = "sglang"
    shared = True
    always_verifies = True
    source = "SGLang 0.5.23 sglang/kernels/jit/csrc/ngram_corpus/trie.cpp, sglang/srt/speculative/ngram_worker.py"

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the engines' own word
        max: Sequence[int] | None = None,  # noqa: A002 - the engines' own word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the grid of these values, SGLang's defaults where none is given (k 11, which is 12 draft tokens).

        The parameters are SGLang's flags without the dashes in front; the match type is 0 for BFS and 1 for PROB.

        Raises:
            UsageError: the algorithm has no such parameter, a value is out of its range, or nothing is left.
        """
        if min is not None or max is not None:
            raise UsageError(f"{self.name} has no n-gram length: leave out min and max ({_DEPTH} bounds its matches)")
        values: dict[str, Sequence[float]] = {name: (value,) for name, value in _DEFAULTS.items()}
        for name, given in (more or {}).items():
            if name not in values:
                raise UsageError(f"{self.name} has no parameter {name!r}: it has k, {', '.join(values)}")
            low, high = _RANGES[name]
            for value in given:
                if not low <= value <= high or value != int(value):
                    raise UsageError(f"{self.name}: {name}={value:g} must be a whole number, {low} to {high}")
            values[name] = given
        for value in k or ():
            if not 1 <= value <= _MOST_K:
                raise UsageError(f"{self.name}: k={value} must be 1 to {_MOST_K}")
        points = [dict(zip(values, point, strict=True)) for point in product(*values.values())]
        chosen = (_K,) if k is None else k
        found = [Setting(k=each, more=point) for point in points if point[_LOW] <= point[_HIGH] for each in chosen]
        if not found:
            raise UsageError(f"{self.name}: no setting is left: {_LOW} must not exceed {_HIGH}, and k needs a value")
        return found

    def grid(self) -> list[Setting]:
        """Return the settings worth trying: k and the match type."""
        return self.settings(k=(3, 5, 7, 11, 15, 23), more={_TYPE: (0, 1), _HIGH: (1, 4, 10)})

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        """Return SGLang's flags, those at their defaults left out. Draft tokens count the root."""
        words = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(setting.k + 1)]
        for name, default in _DEFAULTS.items():
            value = setting.more.get(name, default)
            if value != default:
                words += [f"--{name}", ("BFS", "PROB")[int(value)] if name == _TYPE else str(int(value))]
        return tuple(words)

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        """Return the setting itself: what its trie holds depends on its own steps."""
        del limits, longest
        return own_state(setting)

    def session(self, settings: Sequence[Setting], limits: Limits) -> SGLangSession:
        """Begin a replay with an empty trie for each setting."""
        return SGLangSession(settings, limits)
