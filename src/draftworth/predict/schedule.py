"""The best k by the number of running requests, as vLLM's `num_speculative_tokens_per_batch_size` takes it."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from draftworth.predict.base import PerBatchSize, Predicted

_OPEN_END = 1_000_000
"""Last batch size of the last range: vLLM carries the last k forward anyway."""


Key = tuple[int | None, int | None, tuple[tuple[str, float], ...]]


def per_batch_size(predicted: Sequence[Predicted]) -> PerBatchSize | None:
    """Return the window whose k, chosen by load, gains most, with its table; None where none gains.

    Only k differs within a table: windows and other parameters are the server's. k = 0 drafts nothing, but the engine's
    mode stays, so it is taken for what it is (`idle_speed_up`), and the whole table is worth it only where its mean
    gain over no speculation at all is above zero. Ranges end half-way between the loads that were predicted (geometric
    mean), the first begins at 1. The form is vLLM's: inclusive ranges, gaps carry the k before forward
    (`config/speculative.py` of 0.32).
    """
    windows: dict[Key, dict[int, list[Predicted]]] = defaultdict(lambda: defaultdict(list))
    for one in predicted:
        windows[one.min, one.max, tuple(sorted(one.more.items()))][one.concurrency].append(one)
    best: PerBatchSize | None = None
    for (low, high, _), loads in windows.items():
        chosen = {batch: _best(some) for batch, some in loads.items()}
        gain = sum(math.log(speed) for _, speed in chosen.values()) / len(chosen)
        if gain > 0 and (best is None or gain > best.gain):
            table = ranges({batch: k for batch, (k, _) in chosen.items()})
            best = PerBatchSize(min=low, max=high, table=table, gain=gain, loads=tuple(sorted(loads)))
    return best


def _best(some: Sequence[Predicted]) -> tuple[int, float]:
    """Return the best k of one load with its speed-up; 0 where drafting nothing is best."""
    drafting = max(some, key=lambda one: (one.speed_up.value, -one.k))
    idle = some[0].idle_speed_up
    return (0, idle) if idle >= drafting.speed_up.value else (drafting.k, drafting.speed_up.value)


def ranges(k_at: dict[int, int]) -> tuple[tuple[int, int, int], ...]:
    """Return inclusive ranges of batch sizes with their k, neighbours of one k joined.

    Args:
        k_at: the best k at each batch size that was predicted; at least one.
    """
    sizes = sorted(k_at)
    starts = [1] + [max(int(math.sqrt(low * high)) + 1, low + 1) for low, high in pairwise(sizes)]
    found: list[tuple[int, int, int]] = []
    for at, size in enumerate(sizes):
        last = starts[at + 1] - 1 if at + 1 < len(sizes) else _OPEN_END
        if found and found[-1][2] == k_at[size]:
            found[-1] = (found[-1][0], last, k_at[size])
        else:
            found.append((starts[at], last, k_at[size]))
    return tuple(found)
