"""A trace in memory and a drafter of a few lines, for tests of what stands around drafters."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.drafters import naive
from tests.drafters.naive import Request

from draftworth.drafters.base import Counts, Limits, Setting
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch


def batch_of(
    requests: Sequence[Request],
    *,
    first: int = 0,
    exact: bool = True,
    temperature: float = 0.0,
    model: str | None = "smol",
) -> TraceBatch:
    rows = [[*one.prompt, *one.output] for one in requests]
    return TraceBatch(
        request_ids=[f"r{first + at}" for at in range(len(requests))],
        tokens=np.array([token for row in rows for token in row], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        prompt_lengths=np.array([len(one.prompt) for one in requests], dtype=np.int32),
        thinking=np.array([one.thinking for one in requests], dtype=np.int32),
        categories=[one.category for one in requests],
        temperatures=np.full(len(requests), temperature),
        exact=np.full(len(requests), exact),
        first_row=first,
        model=model,
    )


@dataclass
class InMemory:
    """A trace of some requests, so many a batch."""

    rows: Sequence[Request]
    each: int = 1000
    exact: bool = True
    temperature: float = 0.0
    path: Path = Path("some.jsonl")
    bad: BadRows = field(default_factory=BadRows)
    requests: int | None = None

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        for first in range(0, len(self.rows), self.each):
            some = self.rows[first : first + self.each]
            yield batch_of(some, first=first, exact=self.exact, temperature=self.temperature)


def earliest(context: Sequence[int], setting: Setting) -> list[int]:
    """Return what followed the earliest occurrence of the longest of the last n tokens, n from `max` to `min`."""
    assert setting.min is not None
    assert setting.max is not None
    for n in range(setting.max, setting.min - 1, -1):
        last = list(context[-n:])
        for start in range(len(context) - n):
            if list(context[start : start + n]) == last:
                return list(context[start + n : start + n + setting.k])
    return []


@dataclass
class Toy:
    """Looks up the earliest n-gram, by the naive replay."""

    name: str = "toy"
    title: str = "Toy lookup"
    engine: str = "vllm"
    shared: bool = False
    always_verifies: bool = False
    source: str = "toy.py 1.0"

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the protocol's
        max: Sequence[int] | None = None,  # noqa: A002
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        return [Setting(a, b, c) for b in min or [1] for c in max or [2] for a in k or [3] if b <= c]

    def grid(self) -> list[Setting]:
        return self.settings(k=[1, 2, 5], min=[1, 2], max=[2, 3])

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        return None

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        return "--toy", str(setting.k)

    def session(self, settings: Sequence[Setting], limits: Limits) -> "ToySession":
        return ToySession(settings)


@dataclass
class ToySession:
    settings: Sequence[Setting]

    def feed(self, batch: TraceBatch, groups: NDArray[np.int32], group_count: int) -> Counts:
        rows = [
            Request(batch.prompt(at).tolist(), batch.output(at).tolist(), int(batch.thinking[at]))
            for at in range(len(batch))
        ]
        drafts = [lambda context, one=one: earliest(context, one) for one in self.settings]
        return Counts(*naive.counts(rows, drafts, max(one.k for one in self.settings), groups, group_count))
