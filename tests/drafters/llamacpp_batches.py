"""Batches for the tests of llama.cpp's drafters, and what replaying them drafts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters import drafter
from draftworth.drafters.base import Counts, Limits, Setting
from draftworth.drafters.llamacpp_common import LlamaCppSession
from draftworth.traces.base import TraceBatch

Request = tuple[Sequence[int], Sequence[int]]


def batch_of(requests: Sequence[Request], thinking: Sequence[int] | None = None) -> TraceBatch:
    """Return prompts and outputs as a batch."""
    count = len(requests)
    return TraceBatch(
        request_ids=[f"r{number}" for number in range(count)],
        tokens=np.array([token for pair in requests for side in pair for token in side], dtype=np.int32),
        offsets=np.cumsum([0, *(len(a) + len(b) for a, b in requests)], dtype=np.int64),
        prompt_lengths=np.array([len(a) for a, _ in requests], dtype=np.int32),
        thinking=np.array([-1] * count if thinking is None else thinking, dtype=np.int32),
        categories=[""] * count,
        temperatures=np.zeros(count),
        exact=np.ones(count, dtype=np.bool_),
    )


def rows_of(flat: NDArray[np.int32]) -> list[list[int]]:
    """Return steps with their drafts (request, history, drafted, accepted, tokens), sorted."""
    found, at = [], 0
    while at < len(flat):
        end = at + 4 + int(flat[at + 2])
        found.append(flat[at:end].tolist())
        at = end
    return sorted(found)


def replayed(
    name: str, settings: Sequence[Setting], limits: Limits, *batches: TraceBatch
) -> tuple[Counts, list[list[list[int]]]]:
    """Replay batches; returns the last one's counts, and its steps by setting."""
    session = drafter(name).session(settings, limits)
    assert isinstance(session, LlamaCppSession)
    session.keep_drafts = True
    for batch in batches:
        counts = session.feed(batch, np.zeros((len(batch), 2), dtype=np.int32), 1)
    return counts, [rows_of(flat) for flat in session.drafts]
