"""Which requests of a trace are replayed: those with known ids, short enough for the server, of some categories."""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, Trace, TraceBatch


class OfCategories:
    """A trace's requests of some categories, a trace itself.

    What shared drafters learn from the other categories is lost: this is the traffic without them.

    Attributes:
        path: the trace's.
        requests: how many rows the whole trace says it has.
        bad: rows left out by the latest reading, of every category.
        others: how many requests of other categories the latest reading left out.
    """

    def __init__(self, trace: Trace, names: Collection[str]) -> None:
        self.path = trace.path
        self.requests = trace.requests
        self.bad = trace.bad
        self.others = 0
        self._trace = trace
        self._names = set(names)

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests of these categories; a batch of them may be empty.

        Raises:
            UsageError: the trace cannot be read, or has none of one of the categories; those it has are named.
        """
        self.others = 0
        there: dict[str, None] = {}
        for batch in self._trace.batches(tokens=tokens):
            there.update(dict.fromkeys(batch.categories))
            keep = np.fromiter((name in self._names for name in batch.categories), np.bool_, len(batch))
            self.others += len(batch) - int(keep.sum())
            yield batch if keep.all() else only(batch, keep)
        self.bad = self._trace.bad
        if missing := sorted(self._names - set(there)):
            has = ", ".join(sorted(filter(None, there))) or "no categories"
            raise UsageError(f"{self.path}: no request of the category {missing[0]!r}; it has {has}")


def inside(batch: TraceBatch, vocabulary: int | None, bad: BadRows, name: str) -> TraceBatch:
    """Return the requests whose ids are all ids; the others are counted in `bad`."""
    most = np.iinfo(np.int32).max if vocabulary is None else vocabulary - 1
    tokens = batch.tokens
    if not len(tokens) or (tokens.min() >= 0 and tokens.max() <= most):
        return batch
    wrong = np.flatnonzero((tokens < 0) | (tokens > most))
    rows = np.unique(np.searchsorted(batch.offsets, wrong, side="right") - 1)
    what = "below 0" if vocabulary is None else f"outside the vocabulary of {vocabulary:,}"
    for row in rows.tolist():
        bad.add(f"token ids {what}", f"{name}, request {batch.request_ids[row]}")
    keep = np.ones(len(batch), dtype=np.bool_)
    keep[rows] = False
    return only(batch, keep)


def within(batch: TraceBatch, max_model_len: int | None, bad: BadRows, name: str) -> TraceBatch:
    """Return the requests whose prompt and output fit a server's longest context; the others are counted in `bad`.

    Such a server refuses a longer one or cuts its answer, and drafts nothing behind its limit.
    """
    if max_model_len is None:
        return batch
    keep = np.diff(batch.offsets) <= max_model_len
    if keep.all():
        return batch
    reason = f"longer than --max-model-len {max_model_len:,} with their answers; nothing is drafted beyond it"
    for row in np.flatnonzero(~keep).tolist():
        bad.add(reason, f"{name}, request {batch.request_ids[row]}")
    return only(batch, keep)


def only(batch: TraceBatch, keep: NDArray[np.bool_]) -> TraceBatch:
    """Return some of a batch's requests.

    Args:
        batch: the requests.
        keep: [R], which of them.
    """
    lengths = np.diff(batch.offsets)
    return TraceBatch(
        request_ids=[one for one, kept in zip(batch.request_ids, keep, strict=True) if kept],
        tokens=batch.tokens[np.repeat(keep, lengths)],
        offsets=np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64),
        prompt_lengths=batch.prompt_lengths[keep],
        thinking=batch.thinking[keep],
        categories=[one for one, kept in zip(batch.categories, keep, strict=True) if kept],
        temperatures=batch.temperatures[keep],
        exact=batch.exact[keep],
        first_row=batch.first_row,
        model=batch.model,
        tokenizer_hash=batch.tokenizer_hash,
    )
