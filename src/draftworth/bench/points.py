"""The points of a sweep: every combination of load, context length and output length."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from draftworth.bench.base import Closed, Load, Open, Replay


@dataclass(frozen=True, slots=True)
class Point:
    """One combination.

    Attributes:
        load: how requests come.
        max_tokens: most tokens an answer may have.
        context_tokens: about how many tokens each prompt is filled up to; None leaves prompts as they are.
        label: its name in rows and tables; empty where the sweep has one point.
    """

    load: Load
    max_tokens: int
    context_tokens: int | None = None
    label: str = ""


def points(
    *,
    concurrency: Sequence[int] = (1,),
    rate: Sequence[float] | None = None,
    replay_speed: float | None = None,
    max_tokens: Sequence[int] = (192,),
    context_tokens: Sequence[int] | None = None,
    seed: int = 0,
) -> tuple[Point, ...]:
    """Return every point of a sweep; a label names only what varies.

    Args:
        concurrency: closed loops, requests at a time; not used where a rate or a replay is given.
        rate: open loops, requests a second.
        replay_speed: recorded arrival times, this many times as fast.
        max_tokens: output lengths.
        context_tokens: context lengths, None for prompts as they are.
        seed: of the arrival times.
    """
    loads: list[Load]
    if replay_speed is not None:
        loads = [Replay(replay_speed)]
    elif rate is not None:
        loads = [Open(one, seed) for one in dict.fromkeys(rate)]
    else:
        loads = [Closed(one) for one in dict.fromkeys(concurrency)]
    contexts: list[int | None] = list(dict.fromkeys(context_tokens)) if context_tokens else [None]
    lengths = list(dict.fromkeys(max_tokens))
    found = []
    for context, length, load in product(contexts, lengths, loads):
        parts = [load.label] * (len(loads) > 1)
        parts += [f"{context} in"] * (len(contexts) > 1)
        parts += [f"{length} out"] * (len(lengths) > 1)
        found.append(Point(load, length, context, ", ".join(parts)))
    return tuple(found)
