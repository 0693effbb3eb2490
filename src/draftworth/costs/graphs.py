"""Steps that run as one CUDA graph, and steps that run in pieces: vLLM's V1 runner with speculation on.

With k draft tokens the V1 runner replays a full graph only where every request of the step carries k + 1 tokens; all
other decode steps, those that draft nothing too, run as piecewise graphs with attention between them (`v1/worker/
gpu_model_runner.py`, `_is_uniform_decode`, vLLM 0.25 and 0.32). So there are three kinds of steps. With F what
speculation adds to each (asynchronous scheduling is off), P what the pieces add, R rejection sampling:

    idle      M0 = F + P
    drafting  M1 = F + R           every request drafts k tokens
    mixed     MX = F + P - H + R   some draft and some do not, or fewer than k

P is the host's time, launching pieces one by one. A mixed step verifies more tokens than an idle one and so has more
work on the GPU, W, which goes on while the host launches: H of P hides under it, between nothing and the smaller of P
and W.
Of the three M0 and M1 can be measured by arms; F lies between 0 and the smaller of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = TypeVar("Floats", float, NDArray[np.float64])

FREE = 0.5
"""F as a share of the smaller of M0 and M1, where nothing tells it; the interval has it from 0 to 1."""
HIDDEN = 0.5
"""H as a share of the smaller of P and W; nothing measures it, and the interval has it from 0 to 1."""
WAYS = ((0.0, 0.0), (FREE, HIDDEN), (1.0, 1.0))
"""Both shares where a mixed step costs most, where it is told, and where it costs least."""


ON_THE_HOST = frozenset({"ngram", "suffix"})
"""Methods that draft on the host, whose drafts fall short or are not there; V1 is taken for them where none is told."""


def in_pieces(method: tuple[str, str | None], graph_sizes: Sequence[int], graph_mode: str | None = None) -> bool:
    """Whether mixed steps cost otherwise than drafting ones: on the V1 runner with CUDA graphs, full and in pieces.

    Args:
        method: the speculative method, and vLLM's runner; None where a server does not tell it.
        graph_sizes: token counts for which CUDA graphs were captured; empty for none, or where they are not known.
        graph_mode: vLLM's effective `cudagraph_mode` with speculation on. Attention that has no full graph for several
            tokens of a request (some MLA and linear kernels) makes it PIECEWISE for all steps, and FULL has none in
            pieces: all drafting steps are alike then. None is taken for the default, FULL_AND_PIECEWISE.
    """
    if graph_mode not in {None, "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"}:
        return False
    drafts, runner = method
    return bool(graph_sizes) and (runner == "V1" or (runner is None and drafts in ON_THE_HOST))


def mixed_of(idle: Floats, drafting: Floats, shared: float | Floats, work: Floats, hidden: float = HIDDEN) -> Floats:
    """Return MX of M0, M1, F and W, milliseconds; `hidden` is H as a share of the smaller of P and W."""
    pieces = idle - shared
    hides: Floats = np.maximum(0.0, np.minimum(pieces, work))
    return pieces + drafting - hidden * hides


def mixed_mode(idle: Floats, drafting: Floats, work: Floats, free: float = FREE, hidden: float = HIDDEN) -> Floats:
    """Return MX of M0, M1 and W; `free` is F as a share of the smaller of the modes. What is below 0 shares nothing."""
    shared: Floats = np.maximum(0.0, np.minimum(idle, drafting))
    return mixed_of(idle, drafting, free * shared, work, hidden)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Steps of an arm: how many of them are of which kind.

    Attributes:
        uniform: share of all steps in which every request drafts as many as it may.
        mixed: [n], shares of those of which only some do; above 0 with `uniform`, all together.
        work: [n], milliseconds of GPU time that each of the latter has beyond an idle step.
    """

    uniform: float
    mixed: NDArray[np.float64]
    work: NDArray[np.float64]

    def solve(self, both: float, idle: float, free: float = FREE, hidden: float = HIDDEN) -> tuple[float, float]:
        """Return M1 and the mean MX.

        Args:
            both: what speculation adds to the mean step without its idle ones: uniform x M1 + sum of mixed x MX, ms.
            idle: M0.
            free: F as a share of the smaller of M0 and M1.
            hidden: H as a share of the smaller of P and W.
        """

        def cost(one: float) -> NDArray[np.float64]:
            return mixed_mode(np.full_like(self.work, idle), np.full_like(self.work, one), self.work, free, hidden)

        # F follows M1 from 0 to M0, and P is W where F is M0 - W.
        turns = [0.0, max(0.0, idle), *((idle - self.work) / free if free else ())]
        return self._found(both, cost, turns)

    def solve_with(self, both: float, idle: float, shared: float, hidden: float = HIDDEN) -> tuple[float, float]:
        """Return the same where F is known: `shared`, milliseconds."""

        def cost(one: float) -> NDArray[np.float64]:
            ones = np.ones_like(self.work)
            return mixed_of(idle * ones, one * ones, shared, self.work, hidden)

        return self._found(both, cost, [0.0])

    def _found(
        self, both: float, cost: Callable[[float], NDArray[np.float64]], turns: Sequence[float]
    ) -> tuple[float, float]:
        def whole(one: float) -> float:
            return self.uniform * one + float(self.mixed @ cost(one))

        one = _where(whole, both, turns)
        return one, float(self.mixed @ cost(one) / self.mixed.sum())


def _where(rising: Callable[[float], float], value: float, turns: Sequence[float]) -> float:
    """Return where a function that never falls, and is straight between these turns and beyond them, has a value."""
    first, *_ = inner = sorted(set(turns))
    corners = [first - 1.0, *inner, inner[-1] + 1.0]
    heights = [rising(at) for at in corners]
    pieces = list(pairwise(zip(corners, heights, strict=True)))
    for (left, low), (right, high) in pieces:
        if value <= high or right == corners[-1]:
            flat = high <= low
            return left if flat else left + (value - low) / (high - low) * (right - left)
    raise AssertionError("the last piece has every value above it")
