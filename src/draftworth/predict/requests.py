"""Each request's steps by how many tokens they drafted: what a prediction needs of a replay beyond its totals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Counts, Drafter, Limits, Session, Setting
from draftworth.drafters.limits import check_size
from draftworth.drafters.replay import Replayed, replay
from draftworth.errors import UsageError
from draftworth.traces.base import Trace, TraceBatch

MOST = 20_000
"""Requests whose steps are kept one by one. Of more, every second, fourth, … is, evenly over the trace."""
_MOST_KEPT = 1 << 26
"""Counts of all kept requests together, 256 MiB: with more settings and longer drafts fewer requests are kept."""
_BYTES = 64 * 2**20
"""Of a drafter's table at a time."""
_FEWEST = 64
"""Requests a drafter whose requests share something is given at a time at least, for each that is decoded at a time:
those that run when a part ends are finished before the next begins."""
_MOST_BYTES = 4 * 2**30
"""Of a drafter's table at a time, where that many requests make it larger."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The steps of some requests with one setting.

    Attributes:
        hist: float64 [R, K + 1], steps of each request by drafted tokens.
        tokens: float64 [R], tokens these steps emitted, at least 1.
        half_way: tokens of a request in the KV cache half-way its answer, the mean over all requests that have steps;
            NaN where the prompts are not known.
    """

    hist: NDArray[np.float64]
    tokens: NDArray[np.float64]
    half_way: float = math.nan


def replay_requests(
    trace: Trace,
    drafter: Drafter,
    settings: Sequence[Setting],
    limits: Limits,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Replayed, list[Requests]]:
    """Replay a trace and keep each request's steps. Returns the replay and one entry a setting.

    Raises:
        UsageError: the trace cannot be read, or no request of it has a step.
    """
    watched = _Watched(drafter, settings)
    replayed = replay(trace, watched, settings, limits, progress=progress)
    return replayed, watched.requests(settings)


class _Watched:
    """A drafter whose sessions tell each request's steps."""

    def __init__(self, drafter: Drafter, settings: Sequence[Setting]) -> None:
        self.name, self.title, self.engine = drafter.name, drafter.title, drafter.engine
        self.shared, self.always_verifies, self.source = drafter.shared, drafter.always_verifies, drafter.source
        self.settings, self.grid, self.arguments = drafter.settings, drafter.grid, drafter.arguments
        self.state = drafter.state
        self._drafter = drafter
        self._k = max((one.k for one in settings), default=0)
        # Evenly fewer requests are kept where many settings or long drafts make each of them large.
        self._most = max(1, min(MOST, _MOST_KEPT // max(1, sum(one.k + 1 for one in settings))))
        self._kept: list[tuple[Sequence[Setting], _Kept]] = []

    def session(self, settings: Sequence[Setting], limits: Limits) -> "_Session":
        """Begin a replay of settings that one reading of the trace serves."""
        check_size(settings)
        at_a_time = limits.concurrency if self._drafter.shared else 1
        # Of the largest k of all settings: with several requests at a time parts end alike, whatever the setting.
        each = len(settings) * 2 * (self._k + 1) ** 2 * 8
        size = max(1 if at_a_time == 1 else _FEWEST * at_a_time, _BYTES // each)
        kept = _Kept(self._most)
        self._kept.append((settings, kept))
        return _Session(self._drafter.session(settings, limits), kept, (size, each, self._k))

    def requests(self, settings: Sequence[Setting]) -> list[Requests]:
        """Return what was kept, one entry a setting, in the order in which they were asked for."""
        found = {id(one): its for some, kept in self._kept for one, its in zip(some, kept.requests(some), strict=True)}
        return [found[id(one)] for one in settings]


class _Session:
    def __init__(self, session: Session, kept: "_Kept", size: tuple[int, int, int]) -> None:
        self._session = session
        self._kept = kept
        self._size, self._each, self._k = size

    def feed(self, batch: TraceBatch, groups: NDArray[np.int32], group_count: int) -> Counts:
        """Replay a batch, each request counted by itself, and add up what was asked for."""
        table: NDArray[np.int64] | None = None
        steps = []
        for first in range(0, len(batch), self._size):
            some = _part(batch, first, min(first + self._size, len(batch)))
            if self._each * len(some) > _MOST_BYTES:
                raise UsageError(
                    f"drafts of up to {self._k:,} tokens take {self._each * len(some) / 2**30:.0f} GiB with so many "
                    "requests at a time: give a smaller --k or --concurrency"
                )
            fine = np.arange(2 * len(some), dtype=np.int32).reshape(-1, 2)
            counts = self._session.feed(some, fine, 2 * len(some))
            if table is None:
                count, side = counts.joint.shape[0], counts.joint.shape[-1]
                table = np.zeros((count, group_count, side, side), dtype=np.int64)
            by_group = table.swapaxes(0, 1)
            for phase in (0, 1):
                mine = counts.joint[:, phase::2].swapaxes(0, 1)
                np.add.at(by_group, groups[first : first + len(some), phase], mine)
            drafted = counts.joint.sum(axis=-1)
            self._kept.add(drafted[:, ::2] + drafted[:, 1::2], some.prompt_lengths, some.output_lengths)
            steps.append(counts.steps)
        assert table is not None  # a batch has a request
        return Counts(table, np.concatenate(steps, axis=1))


@dataclass(slots=True)
class _Kept:
    """Histograms of evenly chosen requests, at most so many, and how long all of them are half-way."""

    most: int
    stride: int = 1
    seen: int = 0
    half_ways: float = 0.0
    hist: list[NDArray[np.int32]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, hist: NDArray[np.int64], prompts: NDArray[np.int32], outputs: NDArray[np.int64]) -> None:
        """Add requests: `hist` [S, R, K + 1], tokens of each one's prompt and output [R]; those without steps fall out.

        One that answers with a single token is never in a decode step, whatever its prompt.
        """
        tokens = outputs - 1
        there = tokens > 0
        self.half_ways += float((prompts[there] + outputs[there] / 2).sum(dtype=np.float64))
        for at in np.flatnonzero(there):
            if self.seen % self.stride == 0:
                self.hist.append(hist[:, at].astype(np.int32))
                self.tokens.append(int(tokens[at]))
            self.seen += 1
        while len(self.tokens) > self.most:
            self.hist, self.tokens, self.stride = self.hist[::2], self.tokens[::2], 2 * self.stride

    def requests(self, settings: Sequence[Setting]) -> list[Requests]:
        """Return one entry a setting."""
        tokens = np.asarray(self.tokens, dtype=np.float64)
        whole = np.stack(self.hist)
        mean = self.half_ways / self.seen
        return [Requests(whole[:, at, : one.k + 1].astype(np.float64), tokens, mean) for at, one in enumerate(settings)]


def _part(batch: TraceBatch, first: int, last: int) -> TraceBatch:
    """Return the requests from `first` up to `last`."""
    begin, end = batch.offsets[first], batch.offsets[last]
    return replace(
        batch,
        request_ids=batch.request_ids[first:last],
        tokens=batch.tokens[begin:end],
        offsets=batch.offsets[first : last + 1] - begin,
        prompt_lengths=batch.prompt_lengths[first:last],
        thinking=batch.thinking[first:last],
        categories=batch.categories[first:last],
        temperatures=batch.temperatures[first:last],
        exact=batch.exact[first:last],
        first_row=batch.first_row + first,
    )
