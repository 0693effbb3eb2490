"""Steps that run as one CUDA graph, and steps that run in pieces: vLLM's V1 runner with speculation on.

With k draft tokens the V1 runner replays a full graph only where every request of the step carries k + 1 tokens; all
other decode steps, those that draft nothing too, run as piecewise graphs with attention between them (`v1/worker/
gpu_model_runner.py`, `_is_uniform_decode`, vLLM 0.25 and 0.32). So there are three kinds of steps. With F what
speculation adds to each (asynchronous scheduling is off), P what the pieces add, R rejection sampling:

    idle      M0 = F + P
    drafting  M1 = F + R        every request drafts k tokens
    mixed     MX = F + P + R    some draft and some do not, or fewer than k

Of the three M0 and M1 can be measured by arms; F lies between 0 and the smaller of them, so MX = M0 + M1 - F lies
between the larger and their sum.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = TypeVar("Floats", float, NDArray[np.float64])

FREE = 0.5
"""F as a share of the smaller of M0 and M1, where nothing tells it; the interval has it from 0 to 1."""
SHARES = (0.0, FREE, 1.0)


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


def mixed_of(idle: Floats, drafting: Floats, shared: float) -> Floats:
    """Return MX of M0, M1 and F."""
    return idle + drafting - shared


def solve_with(both: float, idle: float, uniform: float, mixed: float, shared: float) -> tuple[float, float]:
    """Return M1 and MX of a mixture where F is known; see `solve`."""
    one = (both - mixed * (idle - shared)) / (uniform + mixed)
    return one, float(mixed_of(idle, one, shared))


def mixed_mode(idle: Floats, drafting: Floats, free: float = FREE) -> Floats:
    """Return MX of M0 and M1; `free` is F as a share of the smaller. What is below 0 shares nothing."""
    shared: Floats = np.maximum(0.0, np.minimum(idle, drafting))
    return idle + drafting - free * shared


def solve(both: float, idle: float, uniform: float, mixed: float, free: float = FREE) -> tuple[float, float]:
    """Return M1 and MX of a mixture of drafting and mixed steps.

    Args:
        both: uniform x M1 + mixed x MX, milliseconds.
        idle: M0.
        uniform: share of all steps in which every request drafts as many as it may.
        mixed: share of those of which only some do; together above 0.
        free: F as a share of the smaller of M0 and M1.
    """
    shared = max(0.0, idle)
    # MX is linear in M1 on three pieces: M1 below 0, up to M0, and above; the mixture grows along all of them.
    above = (both - mixed * (idle - free * shared)) / (uniform + mixed)
    if above >= shared:
        one = above
    else:
        between = (both - mixed * idle) / (uniform + mixed * (1 - free)) if uniform + mixed * (1 - free) > 0 else 0.0
        one = between if between >= 0 else (both - mixed * idle) / (uniform + mixed)
    return one, float(mixed_mode(idle, one, free))
