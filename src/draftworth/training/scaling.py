"""What others reached with EAGLE-3 heads and what it took them: published.toml, with a source for every figure."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from draftworth.models import Strict, Words

_FILE = Path(__file__).with_name("published.toml")
_FEW = 10_000
"""Samples below which a head is an example: nobody serves it."""


class Published(Strict):
    """The acceptance length of one head."""

    target: str
    """The model it drafts for."""
    billions: float
    """Its parameters, in 10^9."""
    head: str
    """Who trained it."""
    samples: int | None = None
    """Conversations it was trained on; None where that is not told."""
    k: int | None = None
    """Tokens drafted a step; None where that is not told."""
    tree: bool = False
    """Whether they are a tree; a tree's lengths are longer at the same head than a chain's, which vLLM drafts."""
    lengths: dict[str, float]
    """Tokens per step, by benchmark."""
    source: str
    """Where it is published."""


class Effort(Strict):
    """What one training took."""

    what: str
    """The target and the data."""
    samples: int
    """Conversations."""
    gpu: str
    """Which GPU."""
    hours: float
    """GPU hours, of all GPUs together."""
    length: float | None = None
    """Tokens per step on MT-bench; None where that is not told."""
    source: str
    """Where it is published."""


class Scaling(Strict):
    """The whole file."""

    advice: str
    """How much data a good head takes."""
    warnings: Words
    """What went wrong for others."""
    results: Annotated[tuple[Published, ...], Field(strict=False)]
    """Heads."""
    efforts: Annotated[tuple[Effort, ...], Field(strict=False)]
    """Trainings."""


@cache
def scaling() -> Scaling:
    """Return what was published."""
    return Scaling.model_validate(tomllib.loads(_FILE.read_text(encoding="utf-8")))


def chain_lengths(k: int) -> list[float]:
    """Return the published lengths of chains of so many drafted tokens, one a head and benchmark, ascending.

    Examples of a few thousand samples are left out.
    """
    heads = [one for one in scaling().results if not one.tree and one.k == k and (one.samples or _FEW) >= _FEW]
    return sorted(length for one in heads for length in one.lengths.values())
