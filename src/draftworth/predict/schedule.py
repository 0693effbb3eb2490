"""The best k by the number of running requests, as vLLM's `num_speculative_tokens_per_batch_size` takes it."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from draftworth.drafters.base import Drafter, Setting
from draftworth.predict.advice import pays
from draftworth.predict.base import PerBatchSize, Predicted

TABLE = "num_speculative_tokens_per_batch_size"
"""vLLM's name of the table in its speculative configuration."""
Key = tuple[str, int | None, int | None, tuple[tuple[str, float], ...]]


def per_batch_size(
    predicted: Sequence[Predicted], drafters: Mapping[str, Drafter] | None = None
) -> PerBatchSize | None:
    """Return the window whose k, chosen by load, gains most, with its table; None where none gains.

    Only k differs within a table: drafter, window and other parameters are the server's. It drafts only where that pays
    beyond doubt, at loads that were predicted. k = 0 drafts nothing, but the engine's mode stays, so it is taken for
    what it is (`idle_speed_up`), and the whole table is worth it only where its mean gain over no speculation at all is
    above zero. Ranges end half-way between the loads that were predicted (geometric mean).

    Args:
        predicted: every setting at every load.
        drafters: whose settings they are, by name, for what the engine is started with; None leaves that out.
    """
    windows: dict[Key, dict[int, list[Predicted]]] = defaultdict(lambda: defaultdict(list))
    for one in predicted:
        windows[one.drafter, one.min, one.max, tuple(sorted(one.more.items()))][one.concurrency].append(one)
    best: PerBatchSize | None = None
    for (name, low, high, more), loads in windows.items():
        chosen = {batch: _best(some) for batch, some in loads.items()}
        gain = sum(math.log(speed) for _, speed in chosen.values()) / len(chosen)
        if gain > 0 and any(k for k, _ in chosen.values()) and (best is None or gain > best.gain):
            most = max(k for k, _ in chosen.values())
            table = ranges({batch: k for batch, (k, _) in chosen.items()})
            best = PerBatchSize(
                drafter=name,
                k=most,
                min=low,
                max=high,
                more=dict(more),
                arguments=()
                if drafters is None
                else _arguments(drafters[name], Setting(most, low, high, dict(more)), table),
                table=table,
                gain=gain,
                loads=tuple(sorted(loads)),
                unsure=tuple(batch for batch in sorted(loads) if not any(map(pays, loads[batch]))),
            )
    return best


def _arguments(drafter: Drafter, setting: Setting, table: Sequence[tuple[int, int, int]]) -> tuple[str, ...]:
    """Return what vLLM is started with: the setting of the largest k, and the table beside it."""
    flag, config = drafter.arguments(setting)
    return flag, json.dumps({**json.loads(config), TABLE: [list(one) for one in table]})


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
