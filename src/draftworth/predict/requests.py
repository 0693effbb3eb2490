"""Each request's steps by how many tokens they drafted: what a prediction needs of a replay beyond its totals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Counts, Drafter, Limits, Session, Setting
from draftworth.drafters.replay import Replayed, replay
from draftworth.traces.base import Trace, TraceBatch

MOST = 20_000
"""Requests whose steps are kept one by one. Of more, every second, fourth, … is, evenly over the trace."""
_BYTES = 64 * 2**20
"""Of a drafter's table at a time."""
_FEWEST = 64
"""Requests a drafter is given at a time at least, for each that is decoded at a time."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The steps of some requests with one setting.

    Attributes:
        hist: float64 [R, K + 1], steps of each request by drafted tokens.
        tokens: float64 [R], tokens these steps emitted, at least 1.
    """

    hist: NDArray[np.float64]
    tokens: NDArray[np.float64]


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
    watched = _Watched(drafter, _Kept())
    replayed = replay(trace, watched, settings, limits, progress=progress)
    return replayed, watched.kept.requests(settings)


class _Watched:
    """A drafter whose sessions tell each request's steps."""

    def __init__(self, drafter: Drafter, kept: "_Kept") -> None:
        self.name, self.title, self.engine = drafter.name, drafter.title, drafter.engine
        self.shared, self.always_verifies, self.source = drafter.shared, drafter.always_verifies, drafter.source
        self.settings, self.grid, self.arguments = drafter.settings, drafter.grid, drafter.arguments
        self._drafter = drafter
        self.kept = kept

    def session(self, settings: Sequence[Setting], limits: Limits) -> "_Session":
        """Begin a replay."""
        k = max(one.k for one in settings)
        each = len(settings) * 2 * (k + 1) ** 2 * 8
        return _Session(
            self._drafter.session(settings, limits), self.kept, max(_FEWEST * limits.concurrency, _BYTES // each)
        )


class _Session:
    def __init__(self, session: Session, kept: "_Kept", size: int) -> None:
        self._session = session
        self._kept = kept
        self._size = size

    def feed(self, batch: TraceBatch, groups: NDArray[np.int32], group_count: int) -> Counts:
        """Replay a batch, each request counted by itself, and add up what was asked for."""
        joint: NDArray[np.int64] | None = None
        steps = []
        for first in range(0, len(batch), self._size):
            some = _part(batch, first, min(first + self._size, len(batch)))
            fine = np.arange(2 * len(some), dtype=np.int32).reshape(-1, 2)
            counts = self._session.feed(some, fine, 2 * len(some))
            if joint is None:
                joint = np.zeros((counts.joint.shape[0], group_count, *counts.joint.shape[2:]), dtype=np.int64)
            by_group = joint.swapaxes(0, 1)
            for phase in (0, 1):
                mine = counts.joint[:, phase::2].swapaxes(0, 1)
                np.add.at(by_group, groups[first : first + len(some), phase], mine)
            drafted = counts.joint.sum(axis=-1)
            self._kept.add(drafted[:, ::2] + drafted[:, 1::2], np.maximum(some.output_lengths - 1, 0))
            steps.append(counts.steps)
        assert joint is not None  # a batch has a request
        return Counts(joint, np.concatenate(steps, axis=1))


@dataclass(slots=True)
class _Kept:
    """Histograms of evenly chosen requests."""

    stride: int = 1
    seen: int = 0
    hist: list[NDArray[np.int32]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, hist: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Add requests: `hist` [S, R, K + 1], `tokens` [R]."""
        for at in np.flatnonzero(tokens > 0):
            if self.seen % self.stride == 0:
                self.hist.append(hist[:, at].astype(np.int32))
                self.tokens.append(int(tokens[at]))
            self.seen += 1
        while len(self.tokens) > MOST:
            self.hist, self.tokens, self.stride = self.hist[::2], self.tokens[::2], 2 * self.stride

    def requests(self, settings: Sequence[Setting]) -> list[Requests]:
        """Return one entry a setting."""
        tokens = np.asarray(self.tokens, dtype=np.float64)
        whole = np.stack(self.hist)
        return [Requests(whole[:, at, : one.k + 1].astype(np.float64), tokens) for at, one in enumerate(settings)]


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
