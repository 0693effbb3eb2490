"""When requests come in an open loop: seeded, and the same on every machine and version of Python.

The generator is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), started at the
seed: the state grows by 0x9E3779B97F4A7C15 each step and is mixed into 64 bits. Their upper 53, plus a half, divided
by 2**53 are a number u between 0 and 1, never either; -ln(u) is the gap to the next arrival in units of the mean gap.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError

_MASK = 2**64 - 1


def splitmix64(seed: int) -> Iterator[int]:
    """Yield 64-bit numbers without end."""
    state = seed & _MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield mixed ^ (mixed >> 31)


def poisson(rate: float, seed: int, count: int) -> list[float]:
    """Return the first `count` arrival times of a Poisson process, in seconds from its start.

    The same seed gives the same times at every rate, but for their scale.

    Raises:
        UsageError: the rate is no positive number.
    """
    if not (0 < rate < math.inf):
        raise UsageError(f"a rate of {rate:g} requests a second: it must be above 0")
    gaps = (-math.log(((number >> 11) + 0.5) * 2.0**-53) / rate for number in splitmix64(seed))
    return list(accumulate(islice(gaps, count)))


def recorded(prompts: Sequence[Prompt], speed: float, repeats: int) -> list[float]:
    """Return when each request of a recording comes, in seconds from the first, for every repeat in turn.

    A repeat begins one mean gap behind the last request of the one before.

    Raises:
        UsageError: a prompt has no arrival time, or the speed is no positive number.
    """
    if not (0 < speed < math.inf):
        raise UsageError(f"a speed of {speed:g}: it must be above 0")
    times = []
    for prompt in prompts:
        if prompt.arrival_s is None:
            raise UsageError(f"prompt {prompt.id!r} has no arrival time: only a recording can be replayed")
        times.append(prompt.arrival_s)
    if not times:
        return []
    first, span = min(times), max(times) - min(times)
    period = span + (span / (len(times) - 1) if len(times) > 1 else 0.0)
    return [(time - first + repeat * period) / speed for repeat in range(repeats) for time in times]
