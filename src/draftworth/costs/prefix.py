"""T(1, n) on a running server: a cached prefix and n new tokens, with one token out.

A verification step of a draft of n - 1 tokens and the prefill of n new tokens behind a cached prefix compute the same:
n positions of one sequence over its KV cache, with the experts that n consecutive tokens ask for. What is timed is the
time to the first token, whose constant part (HTTP, scheduling, sampling) cancels in the difference against two new
tokens. Not against one: one new token runs as a decode step, as a full CUDA graph where more run piecewise, and on an
H200 that alone was three times the step. Where that is so the host may be what a prefill waits for, and the difference
tells nothing of its tokens; so two against one is measured too, and how far the rest is to be trusted hangs on it
(`prefix_points`, docs/costs.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from draftworth.bench.base import Target
from draftworth.bench.http import Client
from draftworth.costs.base import REFERENCE
from draftworth.costs.concurrency import Stream, ask, at_once
from draftworth.costs.passages import Passages
from draftworth.errors import MeasureError

GRAIN = 64
"""Cached lengths are multiples of this: of the usual block sizes (16, 32, 64), so that whole blocks are cached."""
SHOTS = 5
"""Pairs of requests of one repeat, of n new tokens and of `REFERENCE`."""


def cached_length(context: int) -> int:
    """Return the length of the prefix for a context that was asked for: the nearest multiple of `GRAIN`."""
    return max(GRAIN, round(context / GRAIN) * GRAIN)


@dataclass(frozen=True, slots=True)
class Shot:
    """One repeat of one cell.

    Attributes:
        more_ms: what n new tokens took longer to the first token than two, of the medians over the pairs; of several
            requests at a time, to the last one's first token.
        cached: prompt tokens from the prefix cache that each request told, None where the server does not tell.
    """

    more_ms: float
    cached: tuple[int, ...] | None


def prefix_of(passages: Passages, length: int, number: int) -> tuple[int, ...]:
    """Return the prefix of the `number`-th simultaneous request."""
    return passages.prompt(f"prefix {length} {number}", length)


async def fill(target: Target, prefixes: Sequence[Sequence[int]]) -> None:
    """Have the server put prefixes into its cache.

    Raises:
        MeasureError: a request failed.
    """
    async with Client(target.base_url, target.access) as client:
        for ids in prefixes:
            await ask(client, target, ids, 1)


async def shoot(
    target: Target, prefixes: Sequence[Sequence[int]], tokens: int, passages: Passages, *, shots: int = SHOTS
) -> Shot:
    """Send each prefix with `tokens` new ones and with two new ones behind it, for one token, `shots` times each.

    The two alternate, each first in every other pair, so that what drifts cancels. New tokens begin with another one
    each time: nothing of them is in the cache.

    Args:
        target: the server.
        prefixes: cached; all are sent at once.
        tokens: n.
        passages: gives the new tokens.
        shots: how many pairs.

    Raises:
        MeasureError: a request failed, or the server read another prompt than it was sent.
    """
    took: dict[int, list[float]] = {0: [], 1: []}
    every: list[Stream] = []
    async with Client(target.base_url, target.access) as client:
        for number in range(2 * shots):
            long = (number + number // 2) % 2  # 0 1, 1 0, 0 1, …
            new = tokens if long else REFERENCE
            found = await at_once(client, target, [(*ids, *passages.fresh(new)) for ids in prefixes], 1)
            read = {one.usage.prompt_tokens for one in found if one.usage is not None} - {None}
            if read - {len(prefixes[0]) + new}:
                raise MeasureError(f"the server read {read} tokens and not the {len(prefixes[0]) + new} it was sent")
            took[long].append((max(one.times[0] for one in found) - min(one.sent for one in found)) * 1000)
            every += found
    known = tuple(one.cached for one in every if one.cached is not None)
    return Shot(median(took[1]) - median(took[0]), known if len(known) == len(every) else None)
