"""The best k by the number of running requests, as vLLM's `num_speculative_tokens_per_batch_size` takes it."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from draftworth.predict.advice import pays
from draftworth.predict.base import PerBatchSize, Predicted

Key = tuple[int | None, int | None, tuple[tuple[str, float], ...]]


def per_batch_size(predicted: Sequence[Predicted]) -> PerBatchSize | None:
    """Return the window whose k, chosen by load, gains most, with its table; None where none gains.

    Only k differs within a table: windows and other parameters are the server's. A table drafts only where that pays
    beyond doubt, at loads that were predicted. k = 0 drafts nothing, but the engine's mode stays, so it is taken for
    what it is (`idle_speed_up`), and the whole table is worth it only where its mean gain over no speculation at all is
    above zero. Ranges end half-way between the loads that were predicted (geometric mean).
    """
    windows: dict[Key, dict[int, list[Predicted]]] = defaultdict(lambda: defaultdict(list))
    for one in predicted:
        windows[one.min, one.max, tuple(sorted(one.more.items()))][one.concurrency].append(one)
    best: PerBatchSize | None = None
    for (low, high, _), loads in windows.items():
        chosen = {batch: _best(some) for batch, some in loads.items()}
        gain = sum(math.log(speed) for _, speed in chosen.values()) / len(chosen)
        if gain > 0 and any(k for k, _ in chosen.values()) and (best is None or gain > best.gain):
            best = PerBatchSize(
                min=low,
                max=high,
                table=ranges({batch: k for batch, (k, _) in chosen.items()}),
                gain=gain,
                loads=tuple(sorted(loads)),
                unsure=tuple(batch for batch in sorted(loads) if not any(map(pays, loads[batch]))),
            )
    return best


def _best(some: Sequence[Predicted]) -> tuple[int, float]:
    """Return the best k of one load with its speed-up; 0 where no k pays beyond doubt, or drafting nothing is best."""
    idle = some[0].idle_speed_up
    drafting = max((one for one in some if pays(one)), key=lambda one: (one.speed_up.value, -one.k), default=None)
    if drafting is None or idle >= drafting.speed_up.value:
        return 0, idle
    return drafting.k, drafting.speed_up.value


def ranges(k_at: dict[int, int]) -> tuple[tuple[int, int, int], ...]:
    """Return inclusive ranges of batch sizes with their k, neighbours of one k joined.

    Outside of the loads that were predicted k is 0. vLLM asks for a first range that begins at 1, lets gaps carry the k
    before forward, and the last k to all larger batches (`v1/spec_decode/dynamic/utils.py` of 0.32): one entry of 0
    behind the largest load ends drafting there.

    Args:
        k_at: the best k at each batch size that was predicted; at least one.
    """
    sizes = sorted(k_at)
    starts = [sizes[0]] + [max(int(math.sqrt(low * high)) + 1, low + 1) for low, high in pairwise(sizes)]
    parts = [(1, sizes[0] - 1, 0)] if sizes[0] > 1 else []
    parts += [
        (start, last, k_at[size])
        for size, start, last in zip(sizes, starts, [*(one - 1 for one in starts[1:]), sizes[-1]], strict=True)
    ]
    if k_at[sizes[-1]]:
        parts.append((sizes[-1] + 1, sizes[-1] + 1, 0))
    found: list[tuple[int, int, int]] = []
    for first, last, k in parts:
        if found and found[-1][2] == k:
            found[-1] = (found[-1][0], last, k)
        else:
            found.append((first, last, k))
    return tuple(found)
