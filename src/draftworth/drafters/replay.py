"""Replaying a drafter over a trace: the acceptance each setting would have had, counted and not estimated.

docs/replay.md says why that is exact, and when it is not. A trace is read once, a batch at a time; what is kept is a
table a setting, category and phase, and a thousand sums for the intervals, so memory does not grow with the trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Drafter, Limits, Setting
from draftworth.drafters.counts import SettingCounts
from draftworth.drafters.gathered import Gathered, Seen
from draftworth.drafters.limits import check_size
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
    """Replay every setting over a trace that is read once.

    Args:
        trace: recorded requests.
        drafter: the algorithm.
        settings: at least one point of its grid.
        limits: what bounds drafts. Requests with ids outside `limits.vocabulary` and those longer than
            `limits.max_model_len`, prompt and output together, are left out and counted.
        progress: told requests and tokens read so far after every batch.
        keep_requests: whether to keep every request's id, tokens and steps, 4 bytes a request and setting.
        seed: of the intervals' resampling.

    Raises:
        UsageError: the trace cannot be read, no request of it has a step, or the settings' tables would not fit.
    """
    check_size(settings)
    session = drafter.session(settings, limits)
    gathered = Gathered(settings)
    kept: list[tuple[list[str], NDArray[np.int32], NDArray[np.int32]]] = []
    outside = BadRows()
    rows = tokens = 0
    # Requests that are decoded side by side end with a batch, so those of shared drafters are made long.
    size = TOKENS_A_BATCH if drafter.shared and limits.concurrency > 1 else _TOKENS_A_FEED
    for read in trace.batches(tokens=size):
        rows, tokens = rows + len(read), tokens + len(read.tokens)
        batch = inside(read, limits.vocabulary, outside, trace.path.name)
        batch = within(batch, limits.max_model_len, outside, trace.path.name)
        if len(batch):
            emitted, steps = gathered.add(batch, session.feed)
            if keep_requests:
                has = emitted > 0
                ids = [one for one, there in zip(batch.request_ids, has, strict=True) if there]
                kept.append((ids, emitted[has].astype(np.int32), steps[:, has]))
        if progress is not None:
            progress(rows, tokens)
    bad = _joined(trace.bad, outside)
    if not gathered.seen.requests:
        raise UsageError(_nothing(trace, gathered.seen, bad))
    settled = gathered.settings(seed)
    if not keep_requests:
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
