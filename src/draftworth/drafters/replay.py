"""Replaying a drafter over a trace: the acceptance each setting would have had, counted and not estimated.

docs/replay.md says why that is exact, and when it is not. A trace is read a batch at a time; what is kept is a table a
setting, category and phase, a thousand sums for the intervals, and what a drafter whose requests share something has
learned, of one setting at a time where each learns for itself. So memory does not grow with the trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Drafter, Limits, Setting
from draftworth.drafters.counts import SettingCounts
from draftworth.drafters.gathered import Gathered, Seen
from draftworth.drafters.limits import categories_that_fit, check_size
from draftworth.drafters.rounds import Again, longest_within
from draftworth.drafters.rounds import rounds as rounds_of
from draftworth.drafters.rows import inside, within
from draftworth.errors import UsageError
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, Trace

_TOKENS_A_FEED = 1_000_000
"""Tokens a drafter is given at once where nothing is shared: progress is told often enough, and little is held."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay gives.

    Attributes:
        settings: one entry a setting, in the order in which they were asked for.
        seen: what the requests are.
        bad: rows that were left out, by reason: the trace's own, those with ids outside the vocabulary, and those
            longer than `max_model_len`.
        method: how the intervals are made.
        request_ids: of the requests that have steps, in order; None unless they were to be kept.
        emitted: int32 [R], tokens of each one's steps (output tokens less the first); None unless kept.
        steps: int32 [S, R], each one's steps by setting; None unless kept.
    """

    settings: list[SettingCounts]
    seen: Seen
    bad: BadRows
    method: str
    request_ids: list[str] | None = None
    emitted: NDArray[np.int32] | None = None
    steps: NDArray[np.int32] | None = None


def replay(
    trace: Trace,
    drafter: Drafter,
    settings: Sequence[Setting],
    limits: Limits,
    *,
    progress: Callable[[int, int], None] | None = None,
    keep_requests: bool = False,
    seed: int = 0,
) -> Replayed:
    """Replay every setting over a trace, which is read as often as the settings' states need (`drafters.rounds`).

    Args:
        trace: recorded requests.
        drafter: the algorithm.
        settings: at least one point of its grid.
        limits: what bounds drafts. Requests with ids outside `limits.vocabulary` and those longer than
            `limits.max_model_len`, prompt and output together, are left out and counted.
        progress: told requests and tokens replayed so far after every batch, those of the settings of one reading as
            that part of all.
        keep_requests: whether to keep every request's id, tokens and steps, 4 bytes a request and setting.
        seed: of the intervals' resampling.

    Raises:
        UsageError: the trace cannot be read, no request of it has a step, or the settings' tables would not fit.
    """
    check_size(settings)
    # Requests that are decoded side by side end with a batch, so those of shared drafters are made long.
    size = TOKENS_A_BATCH if drafter.shared and limits.concurrency > 1 else _TOKENS_A_FEED
    again = Again(trace)
    bounded = drafter.shared and limits.max_model_len is not None and len(settings) > 1
    longest = longest_within(again, limits, tokens=size) if bounded else 0
    rounds = rounds_of(drafter, settings, limits, longest=longest)
    reading = _Reading(again if len(rounds) > 1 or bounded else trace, drafter, limits, size, keep_requests, seed)
    whole = _Progress(len(rounds), progress)
    most = categories_that_fit(settings)
    done = [reading.replayed([settings[at] for at in places], most, whole) for places in rounds]
    if len(done) == 1:
        return done[0]
    order = np.argsort([at for places in rounds for at in places])
    settled = [one for some in done for one in some.settings]
    steps = [some.steps for some in done if some.steps is not None]
    return replace(
        done[0],
        settings=[settled[at] for at in order],
        steps=np.concatenate(steps)[order] if steps else None,
    )


class _Progress:
    """How far a trace is replayed that is read several times."""

    def __init__(self, rounds: int, tell: Callable[[int, int], None] | None) -> None:
        self._rounds = rounds
        self._tell = tell
        self._rows = self._tokens = 0

    def told(self, rows: int, tokens: int) -> None:
        """Say that so many more requests and tokens were replayed in this reading."""
        self._rows, self._tokens = self._rows + rows, self._tokens + tokens
        if self._tell is not None:
            self._tell(self._rows // self._rounds, self._tokens // self._rounds)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What every reading of a trace has in common.

    Attributes:
        trace: recorded requests.
        drafter: the algorithm.
        limits: what bounds drafts.
        size: tokens of a batch.
        keep: whether every request's id, tokens and steps are kept.
        seed: of the intervals' resampling.
    """

    trace: Trace
    drafter: Drafter
    limits: Limits
    size: int
    keep: bool
    seed: int

    def replayed(self, settings: Sequence[Setting], most: int, progress: _Progress) -> Replayed:
        """Replay some settings; `most` categories are counted one by one."""
        session = self.drafter.session(settings, self.limits)
        gathered = Gathered(settings, most)
        kept: list[tuple[list[str], NDArray[np.int32], NDArray[np.int32]]] = []
        outside = BadRows()
        for read in self.trace.batches(tokens=self.size):
            batch = inside(read, self.limits.vocabulary, outside, self.trace.path.name)
            batch = within(batch, self.limits.max_model_len, outside, self.trace.path.name)
            if len(batch):
                emitted, steps = gathered.add(batch, session.feed)
                if self.keep:
                    has = emitted > 0
                    ids = [one for one, there in zip(batch.request_ids, has, strict=True) if there]
                    kept.append((ids, emitted[has].astype(np.int32), steps[:, has]))
            progress.told(len(read), len(read.tokens))
        bad = _joined(self.trace.bad, outside)
        if not gathered.seen.requests:
            raise UsageError(_nothing(self.trace, gathered.seen, bad))
        settled = gathered.settings(self.seed)
        if not self.keep:
            return Replayed(settled, gathered.seen, bad, gathered.units.method)
        return Replayed(
            settled,
            gathered.seen,
            bad,
            gathered.units.method,
            request_ids=[one for ids, _, _ in kept for one in ids],
            emitted=np.concatenate([emitted for _, emitted, _ in kept]),
            steps=np.concatenate([steps for _, _, steps in kept], axis=1),
        )


def _joined(*several: BadRows) -> BadRows:
    found = BadRows()
    for bad in several:
        for reason, count in bad.counts.items():
            found.counts[reason] = found.counts.get(reason, 0) + count
            found.first.setdefault(reason, bad.first[reason])
    return found


def _nothing(trace: Trace, seen: Seen, bad: BadRows) -> str:
    without = seen.no_output + seen.one_token
    said = [f"{without:,} with fewer than two output tokens"] if without else []
    said = [*said, *bad.lines()] or ["it is empty"]
    return f"{trace.path}: no request to replay: {'; '.join(said)}"
