"""Which settings one reading of a trace serves, and a trace that is read more than once.

Where requests share what was learned, what a setting has learned may depend on its own steps: its state is then its
own, and grows with the trace to a bound of its own (SGLang's trie to some 10 million nodes). So many states at once
would not fit, so that such settings are replayed one after the other, each over the whole trace.
"""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from draftworth.drafters.base import Drafter, Limits, Setting
from draftworth.traces.base import TOKENS_A_BATCH, Trace, TraceBatch

MOST_HELD = 1 << 24
"""Tokens of a trace that are kept for the next reading, 64 MiB; a longer one is read from its file again."""


class Again:
    """A trace that is read several times: from its file as long as it is too long to be kept. A trace itself.

    Attributes:
        path: the trace's.
        requests: how many rows the trace says it has.
        bad: rows left out by the latest reading of the file.
    """

    def __init__(self, trace: Trace) -> None:
        self.path = trace.path
        self.requests = trace.requests
        self.bad = trace.bad
        self._trace = trace
        self._held: tuple[int, list[TraceBatch]] | None = None

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests; see `draftworth.traces.base.Trace`."""
        if self._held is not None and self._held[0] == tokens:
            yield from self._held[1]
            return
        kept: list[TraceBatch] | None = []
        size = 0
        for batch in self._trace.batches(tokens=tokens):
            size += len(batch.tokens)
            kept = None if kept is None or size > MOST_HELD else [*kept, batch]
            yield batch
        self.bad = self._trace.bad
        if kept is not None:
            self._held = tokens, kept


def rounds(drafter: Drafter, settings: Sequence[Setting], limits: Limits, *, longest: int = 0) -> list[list[int]]:
    """Return the settings' places by the reading of the trace that serves them, all of them in one if that fits.

    Args:
        drafter: the algorithm.
        settings: what is replayed.
        limits: what bounds drafts.
        longest: tokens of the trace's longest request that is replayed; matters only with `limits.max_model_len`.
    """
    if not drafter.shared:
        return [list(range(len(settings)))]
    found: dict[Hashable, list[int]] = {}
    for at, setting in enumerate(settings):
        found.setdefault(drafter.state(setting, limits, longest), []).append(at)
    return list(found.values())


def longest_within(trace: Trace, limits: Limits, *, tokens: int) -> int:
    """Return the length of the longest request that `limits.max_model_len` leaves, 0 without any."""
    found = 0
    for batch in trace.batches(tokens=tokens):
        lengths = np.diff(batch.offsets)
        if limits.max_model_len is not None:
            lengths = lengths[lengths <= limits.max_model_len]
        found = max(found, int(lengths.max(initial=0)))
    return found


def own_state(setting: Setting) -> Hashable:
    """Return what only an equal setting has: the state of a drafter that learns from its own steps."""
    return setting.k, setting.min, setting.max, *sorted(setting.more.items())
