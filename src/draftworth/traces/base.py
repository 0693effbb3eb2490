"""What a trace is: recorded requests as token ids, a batch at a time, and what happens to rows that cannot be used.

A trace may hold millions of requests: readers yield batches of bounded size and keep nothing of the batches before.
The columns are in docs/traces.md; Parquet and JSONL hold the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

TOKENS_A_BATCH = 4_000_000
"""Most tokens of a batch that has more than one request: 16 MB of ids."""


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """Some requests of a trace, in the order in which they were recorded.

    Attributes:
        request_ids: one a request, unique in a trace.
        tokens: int32, every request's prompt and output ids behind each other: `tokens[offsets[i]:offsets[i + 1]]`.
        offsets: int64, one more than there are requests.
        prompt_lengths: int32, how many of a request's tokens are its prompt; the rest is its output.
        thinking: int32, how many output tokens are reasoning; -1 where that is not known.
        categories: what kind of work each is; empty text where it is not known.
        temperatures: float64, NaN where it is not known.
        exact: bool, whether the ids came from the server and not from re-tokenised text.
        first_row: the number of the first request in its file, from 0.
        model: the model that answered, None where it is not known.
        tokenizer_hash: of the tokenizer that made the ids, None where it is not known.
    """

    request_ids: Sequence[str]
    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    prompt_lengths: NDArray[np.int32]
    thinking: NDArray[np.int32]
    categories: Sequence[str]
    temperatures: NDArray[np.float64]
    exact: NDArray[np.bool_]
    first_row: int = 0
    model: str | None = None
    tokenizer_hash: str | None = None

    def __len__(self) -> int:
        """Return how many requests there are."""
        return len(self.request_ids)

    @property
    def output_lengths(self) -> NDArray[np.int64]:
        """How many output tokens each request has."""
        lengths: NDArray[np.int64] = self.offsets[1:] - self.offsets[:-1] - self.prompt_lengths
        return lengths

    def prompt(self, at: int) -> NDArray[np.int32]:
        """Return a request's prompt ids."""
        start = self.offsets[at]
        return self.tokens[start : start + self.prompt_lengths[at]]

    def output(self, at: int) -> NDArray[np.int32]:
        """Return a request's output ids."""
        return self.tokens[self.offsets[at] + self.prompt_lengths[at] : self.offsets[at + 1]]


@dataclass(slots=True)
class BadRows:
    """Rows that were left out, by reason: counted and named, never silently dropped.

    Attributes:
        counts: reason to how many.
        first: reason to where the first of them is (`trace.jsonl:12`).
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, where: str) -> None:
        """Count a row."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.first.setdefault(reason, where)

    @property
    def total(self) -> int:
        """How many rows were left out."""
        return sum(self.counts.values())

    def lines(self) -> list[str]:
        """Return one line a reason, for a person."""
        return [f"{count:,} left out: {reason} (first: {self.first[reason]})" for reason, count in self.counts.items()]


class Trace(Protocol):
    """A trace that can be read as often as one likes.

    Attributes:
        path: the file or folder it is read from.
        bad: rows left out by the latest reading, complete when `batches` has ended.
        requests: how many rows the file says it has; None where only reading tells.
    """

    path: Path
    bad: BadRows
    requests: int | None

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests in order, in batches of at most so many tokens (or of one request).

        A batch holds requests of one model and one tokenizer. A trace of several models is refused.

        Raises:
            UsageError: the file cannot be read as a trace; one line that names the file, the row and what to do.
        """
        ...
