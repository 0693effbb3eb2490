"""The staircase: a step runs as the smallest captured CUDA graph that holds its tokens, and costs what that size costs.

Source of the default sizes: vLLM's configuration (`cudagraph_capture_sizes`): 1, 2, 4, multiples of 8 below 256, then
multiples of 16. A server's own sizes come from its costs file where they are known.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import StepCost

VLLM_SIZES: tuple[int, ...] = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""What vLLM captures when it is told nothing, up to its largest default."""

SAME = 0.03
"""Two sizes that differ by less are on the same stair, if their intervals do not say more."""

Known = Literal["given", "inferred", "unknown", "none"]
"""`given`: told by the server; `inferred`: measured points lie on vLLM's default stairs; `unknown`: no two points could
tell; `none`: points contradict the stairs (no CUDA graphs, or other sizes)."""


@dataclass(frozen=True, slots=True)
class Staircase:
    """Sizes a step is padded to.

    Attributes:
        sizes: ascending; empty for no padding.
        known: how they are known.
    """

    sizes: tuple[int, ...]
    known: Known

    def pad(self, tokens: int) -> int:
        """Return what a step of so many tokens runs as; itself beyond the largest size."""
        at = bisect_left(self.sizes, tokens)
        return self.sizes[at] if at < len(self.sizes) else tokens

    def pad_all(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `pad` of each."""
        if not self.sizes:
            return tokens
        sizes = np.asarray(self.sizes, dtype=np.int64)
        at = np.searchsorted(sizes, tokens)
        padded: NDArray[np.int64] = np.where(at < sizes.size, sizes[np.minimum(at, sizes.size - 1)], tokens)
        return padded


def staircase(graph_sizes: Sequence[int], points: Sequence[StepCost], engine: str | None) -> Staircase:
    """Return the staircase of a server.

    Sizes that are given are used. Else vLLM's default is tried on the points of one token a request: where at least two
    of them share a stair and all that share one cost the same, it is taken as inferred; where any two do not, there is
    none; where no two share one, it stays unknown, and estimates between points span both readings.

    Args:
        graph_sizes: as the costs file has them; empty for not known.
        points: measured points.
        engine: the engine's name; the default is vLLM's own, so it is tried on no other engine.
    """
    if graph_sizes:
        return Staircase(tuple(sorted({size for size in graph_sizes if size > 0})), "given")
    if engine not in {None, "vllm"}:
        return Staircase((), "none")
    guess = Staircase(VLLM_SIZES, "unknown")
    stairs: dict[tuple[int, int], list[StepCost]] = {}
    for point in points:
        if point.tokens == 1:
            stairs.setdefault((point.context, guess.pad(point.batch)), []).append(point)
    shared = False
    for stair in stairs.values():
        for one, other in pairwise(sorted(stair, key=lambda point: point.batch)):
            if one.batch == other.batch:
                continue
            shared = True
            if not _same(one, other):
                return Staircase((), "none")
    return Staircase(VLLM_SIZES, "inferred" if shared else "unknown")


def _same(one: StepCost, other: StepCost) -> bool:
    """Whether two points cost the same: within SAME, or with intervals that overlap and are themselves narrow."""
    if abs(one.ms - other.ms) <= SAME * max(one.ms, other.ms):
        return True
    overlap = one.low <= other.high and other.low <= one.high
    return overlap and abs(one.ms - other.ms) <= 3 * SAME * max(one.ms, other.ms)
