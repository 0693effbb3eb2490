"""How far a mean over the steps of one run may be off: a bootstrap over blocks of steps that follow each other.

Steps are not independent (a context grows, clocks drift), so blocks of them are drawn, round the end (Politis and
Romano, "A circular block-resampling procedure for stationary data", 1992), of about the cube root of their number, and
what steps further apart than a block have in common is added. The interval of a difference of two runs is put together
out of the two (Zou and Donner, "Construction of confidence limits about effect measures", 2008, the method of variance
estimates recovery).
"""

import math
from collections.abc import Mapping

import numpy as np

from draftworth.profiles.base import Spread, StepTime
from draftworth.profiles.events import Floats

ENOUGH = 20
"""Steps from which on an interval is told; of fewer, a bootstrap knows too little."""
_DRAWS = 2000
_SEED = 7
_MOST = 0.95
"""The largest correlation of neighbouring steps that is taken: of more, a run tells next to nothing."""
_Z = 1.959964
"""Of 95 %."""


def step_times(of: Mapping[str, Floats]) -> tuple[StepTime, ...]:
    """Return the mean of each line over the steps, with a 95 % interval where there are enough steps.

    Args:
        of: name to its milliseconds in each step; all of one length.
    """
    if not of:
        return ()
    values = np.stack(list(of.values()), axis=1)
    count = len(values)
    if not count:
        return ()
    means = values.mean(axis=0)
    if count < ENOUGH:
        return tuple(StepTime(name=name, ms=float(ms)) for name, ms in zip(of, means, strict=True))
    drawn = _drawn(values)
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    # A bootstrap of few blocks is too narrow: its variance lacks about one block in count / block, and Student's
    # quantile (by its first term) is the one of about 3/2 times as many values as there are blocks.
    block = _block(count)
    few = math.sqrt(count / (count - block)) * (1 + (_Z**2 + 1) / (4 * (1.5 * count / block - 1)))
    wider = few * _beyond_blocks(values, block)
    low, high = means - wider * np.maximum(means - low, 0.0), means + wider * np.maximum(high - means, 0.0)
    return tuple(
        StepTime(name=name, ms=float(ms), interval=Spread(low_ms=max(float(one), 0.0), high_ms=float(other)))
        for name, ms, one, other in zip(of, means, low, high, strict=True)
    )


def few_steps(steps: int | None, told: tuple[StepTime, ...]) -> list[str]:
    """Return what is to be said where figures a step have no interval; nothing where they have one."""
    if steps is None or any(one.interval is not None for one in told):
        return []
    if not told:
        return [f"{steps} steps were stated, not told by the trace: no interval can be given"]
    counted = f"only {steps} decode step{'' if steps == 1 else 's'}"
    return [f"{counted}: figures are rounded, without intervals (they take {ENOUGH} steps); differences may be chance"]


def difference(base: StepTime, variant: StepTime) -> Spread | None:
    """Return the 95 % interval of variant less base, of two runs that do not depend on each other."""
    if base.interval is None or variant.interval is None:
        return None
    middle = variant.ms - base.ms
    down = math.hypot(variant.ms - variant.interval.low_ms, base.interval.high_ms - base.ms)
    up = math.hypot(variant.interval.high_ms - variant.ms, base.ms - base.interval.low_ms)
    return Spread(low_ms=middle - down, high_ms=middle + up)


def scaled(one: StepTime, by: float) -> StepTime:
    """Return the same of another unit, such as of a token where a step gives `1 / by` of them."""
    interval = one.interval
    if interval is not None:
        interval = Spread(low_ms=interval.low_ms * by, high_ms=interval.high_ms * by)
    return StepTime(name=one.name, ms=one.ms * by, interval=interval)


def _block(count: int) -> int:
    return max(1, round(math.cbrt(count)))


def _beyond_blocks(values: Floats, block: int) -> Floats:
    """Return how much wider an interval is than blocks make it, where steps depend on the ones before, by line.

    Blocks hold the dependence within them only. The rest is that of steps of which each takes over a part of how far
    the one before was off (an autoregression of first order): the correlation of neighbours, freed of the bias that it
    has in a short run (Kendall, "Note on bias in the estimation of autocorrelation", 1954).
    """
    count = len(values)
    off = values - values.mean(axis=0)
    squares = (off**2).sum(axis=0)
    neighbours = (off[1:] * off[:-1]).sum(axis=0)
    seen = np.divide(neighbours, squares, out=np.zeros_like(squares), where=squares > 0)
    part = np.where(squares > 0, np.clip((seen + 1 / count) / (1 - 4 / count), 0.0, _MOST), 0.0)
    lags = np.arange(1, block)[:, None]
    held = 1 + 2 * ((1 - lags / block) * part**lags).sum(axis=0)
    return np.asarray(np.sqrt((1 + part) / (1 - part) / held), dtype=np.float64)


def _drawn(values: Floats) -> Floats:
    """Return means of runs put together from blocks of steps, one a row."""
    count = len(values)
    block = _block(count)
    passed = np.concatenate(
        (np.zeros((1, values.shape[1])), np.cumsum(np.concatenate((values, values[:block])), axis=0))
    )
    sums = passed[block : block + count] - passed[:count]
    many = math.ceil(count / block)
    random = np.random.default_rng(_SEED)
    drawn = np.stack([sums[random.integers(0, count, many)].sum(axis=0) for _ in range(_DRAWS)])
    return np.asarray(drawn / (many * block), dtype=np.float64)
