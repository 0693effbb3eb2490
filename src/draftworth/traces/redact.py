"""A trace that can be given away: ids permuted, names replaced. A trace never holds text.

Permuted ids are the old ones under other numbers, the same everywhere in the trace. Whatever only asks whether two ids
are equal gives the same results as before, which is all that look-up drafters do. It is no encryption: how often each
number occurs, and next to which, stays, and gives common words away to anyone who counts.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftworth.models import Frozen
from draftworth.traces.base import Trace, TraceBatch
from draftworth.traces.columns import Row
from draftworth.traces.writing import TraceWriter

_LARGEST_TABLE = 1 << 24

Relabel = Callable[[NDArray[np.int32]], NDArray[np.int32]]


class Redacted(Frozen):
    """What was written."""

    requests: int
    tokens: int
    ids: int | None
    """How many different ids there are, now numbered from 0; None where they were kept."""
    left_out: dict[str, int] = {}
    left_out_first: dict[str, str] = {}


def redact(
    trace: Trace, out: Path, *, keep_ids: bool = False, seed: int | None = None, keep_categories: bool = False
) -> Redacted:
    """Write a trace without what tells whose it is.

    Requests are numbered, in their order. Categories become `category-1`, `category-2`, … in order of appearance.
    Temperatures, numbers of reasoning tokens, the model's name and exactness stay. Where ids are permuted the tokenizer
    is forgotten, since they are not its ids any more.

    Args:
        trace: read twice where ids are permuted.
        out: the trace to write.
        keep_ids: keep token ids; anyone with the tokenizer can read them.
        seed: of the permutation, so that it can be made again; None draws one that nobody knows.
        keep_categories: keep the categories' names.

    Raises:
        UsageError: see `Trace.batches`; `out` is there already.
    """
    with TraceWriter(out) as writer:
        change, ids = (None, None) if keep_ids else _permutation(trace, seed)
        names: dict[str, str] = {"": ""}
        for batch in trace.batches():
            kept = batch if change is None else replace(batch, tokens=change(batch.tokens), tokenizer_hash=None)
            for row in rows_of(kept):
                category = row.category
                if not keep_categories:
                    category = names.setdefault(category, f"category-{len(names)}")
                writer.add_row(replace(row, request_id=f"request-{writer.rows + 1}", category=category))
    return Redacted(
        requests=writer.rows,
        tokens=writer.tokens,
        ids=ids,
        left_out=dict(trace.bad.counts),
        left_out_first=dict(trace.bad.first),
    )


def rows_of(batch: TraceBatch) -> list[Row]:
    """Return the rows of a batch."""
    return [
        Row(
            request_id=batch.request_ids[at],
            prompt=batch.prompt(at),
            output=batch.output(at),
            thinking=int(batch.thinking[at]),
            category=batch.categories[at],
            temperature=float(batch.temperatures[at]),
            model=batch.model,
            tokenizer_hash=batch.tokenizer_hash,
            exact=bool(batch.exact[at]),
        )
        for at in range(len(batch))
    ]


def _permutation(trace: Trace, seed: int | None) -> tuple[Relabel, int]:
    """Return a one-to-one renumbering of the ids that occur, and how many they are."""
    present = np.empty(0, np.int32)
    for batch in trace.batches():
        present = np.union1d(present, np.unique(batch.tokens)).astype(np.int32)
    made = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    numbers = made.permutation(len(present)).astype(np.int32)
    if len(present) and int(present[-1]) < _LARGEST_TABLE:
        table = np.zeros(int(present[-1]) + 1, np.int32)
        table[present] = numbers
        return lambda ids: table[ids], len(present)
    return lambda ids: numbers[np.searchsorted(present, ids)], len(present)
