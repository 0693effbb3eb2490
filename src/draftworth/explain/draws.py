"""What the figures of an account rest on, drawn together, so that errors they share are in all of them alike.

One draw resamples whole prompts (a conversation's turns together) and takes the baseline's time, the arm's time and
its steps from the same ones; and it draws what another start of either server would differ by. Every part is made of
one draw, and the rest is what that draw leaves: an error that moves two parts against each other is not in it.
Resampled means are spread about their value by t(n - 1) sqrt(n / (n - 1)) / z, as the percentiles of a verdict are
expanded (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.explain.beside import Spread
from draftworth.explain.steps import ArmSteps
from draftworth.predict.base import Range
from draftworth.predict.speedup import Z

Floats = NDArray[np.float64]

DRAWS = 4000
_TAIL = 0.025


@dataclass(frozen=True, slots=True)
class Draws:
    """One figure a draw each, shape [DRAWS].

    Attributes:
        base: mean TPOT of the baseline.
        arm: mean TPOT of the arm.
        r: steps per token.
        coverage: share of the arm's steps that draft.
        base_start: what the baseline's starts make of its TPOT, as a share.
        arm_start: the same of the arm.
        other_start: the same of one other start of a server that speculates, as modes come from.
        other_base: the same of one other start of a server that does not.
        weights: [DRAWS, R], how often each row of the arm's steps is drawn; None where they are one row for all.
        rows_spread: by how much a resampled mean over these rows is spread about its value.
    """

    base: Floats
    arm: Floats
    r: Floats
    coverage: Floats
    base_start: Floats
    arm_start: Floats
    other_start: Floats
    other_base: Floats
    weights: Floats | None
    rows_spread: float

    def scale(self, each: Floats, r: float) -> Floats:
        """Return by what factor a mean over the arm's rows moves from draw to draw; as r does where that is nothing.

        Args:
            each: a value a row, such as what its steps cost a token.
            r: steps per token.
        """
        if self.weights is None or not each.mean():
            return self.r / r
        found: Floats = 1 + self.rows_spread * (self.weights @ each / self.weights.sum(axis=1) / each.mean() - 1)
        return found


def joint(
    base: Floats, arm: Floats, prompts: Sequence[str], steps: ArmSteps, spread: Spread, *, seed: int = 0
) -> Draws:
    """Draw prompts and starts.

    Args:
        base: TPOT of each prompt in the baseline.
        arm: the same in the arm.
        prompts: their names.
        steps: of the arm.
        spread: what starts of a server differ by.
        seed: of the draws.
    """
    random = np.random.default_rng([seed, len(prompts)])
    clusters = clusters_of(prompts)
    count = int(clusters.max()) + 1
    drawn = random.multinomial(count, np.full(count, 1 / count), DRAWS).astype(np.float64)
    more = _expansion(count)
    by_prompt = drawn[:, clusters]
    starts = [
        _student(random, spread.base, spread.base_free),
        _student(random, spread.arm, spread.arm_free),
        _student(random, spread.other, spread.other_free),
        _student(random, spread.other_base, math.inf),
    ]
    requests = steps.requests
    each = requests.hist.sum(axis=1) / requests.tokens
    r = float(each.mean())
    drafting = requests.hist[:, 1:].sum(axis=1) / requests.tokens
    coverage = float(drafting.mean()) / r
    known = {name: at for at, name in enumerate(prompts)}
    weights = None
    if steps.prompts and all(name in known for name in steps.prompts):
        weights = by_prompt[:, [known[name] for name in steps.prompts]]
        # A draw may hold none of the prompts whose steps are known, where that is not all of them.
        weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, 1.0)
        per_token = _means(weights, each, more)
        covered = np.clip(coverage + more * (weights @ drafting / (weights @ each) - coverage), 0.0, 1.0)
    else:
        log_se = max(steps.log_se, _between_prompts(base, arm) if steps.log_se else 0.0)
        per_token = r * np.exp(log_se * random.standard_normal(DRAWS))
        covered = np.full(DRAWS, coverage)
    return Draws(
        base=_means(by_prompt, base, more) * (1 + starts[0]),
        arm=_means(by_prompt, arm, more) * (1 + starts[1]),
        r=np.maximum(per_token, 1 / (steps.k + 1)),
        coverage=covered,
        base_start=starts[0],
        arm_start=starts[1],
        other_start=starts[2],
        other_base=starts[3],
        weights=weights,
        rows_spread=more,
    )


def around(one: Range, seed: int) -> Floats:
    """Return draws of a figure with an interval of its own, each side normal."""
    if one.low == one.high:
        return np.full(DRAWS, one.value)
    from scipy import special  # noqa: PLC0415 - lazy: scipy

    noise = special.ndtri((np.random.default_rng([seed, DRAWS]).permutation(DRAWS) + 0.5) / DRAWS)
    found: Floats = one.value + noise * np.where(noise > 0, one.high - one.value, one.value - one.low) / Z
    return found


def interval(value: float, drawn: Floats) -> Range:
    """Return a figure with the 95 % interval of its draws."""
    low, high = (float(one) for one in np.quantile(drawn, (_TAIL, 1 - _TAIL)))
    return Range(value=value, low=min(low, value), high=max(high, value))


def clusters_of(prompts: Sequence[str]) -> NDArray[np.int64]:
    """Return the conversation of each prompt by number: `a#2`, a later turn of `a`, belongs to `a`."""
    there = set(prompts)
    numbers: dict[str, int] = {}
    found = []
    for name in prompts:
        first, mark, turn = name.rpartition("#")
        whole = first if mark and turn.isdigit() and first in there else name
        found.append(numbers.setdefault(whole, len(numbers)))
    return np.array(found, dtype=np.int64)


def _means(weights: Floats, each: Floats, more: float) -> Floats:
    """Return means over what was drawn, spread about the mean over all."""
    mean = float(each.mean())
    found: Floats = mean + more * (weights @ each / weights.sum(axis=1) - mean)
    return np.maximum(found, mean * 1e-3)


def _expansion(count: int) -> float:
    """Return what a resampled mean's distance is multiplied by; 0 for one prompt, which shows no spread."""
    if count < 2:  # noqa: PLR2004 - no spread of one
        return 0.0
    from scipy import special  # noqa: PLC0415 - lazy: scipy

    return -float(special.stdtrit(count - 1, _TAIL)) / Z * math.sqrt(count / (count - 1))


def _student(random: np.random.Generator, sd: float, free: float) -> Floats:
    """Return draws of an error whose standard deviation is known as well as so many degrees of freedom tell it.

    A share of a time, so that it stays above -1 and below 1 however few they are.
    """
    if not sd:
        return np.zeros(DRAWS)
    from scipy import special  # noqa: PLC0415 - lazy: scipy

    # Each draw from its own part of the distribution: few degrees of freedom have tails that chance would not tell.
    at = (random.permutation(DRAWS) + 0.5) / DRAWS
    drawn = special.ndtri(at) if math.isinf(free) else special.stdtrit(max(free, 1.0), at)
    found: Floats = np.expm1(np.clip(sd * drawn, -3.0, 3.0))
    return found


def _between_prompts(base: Floats, arm: Floats) -> float:
    """Return the standard error that prompts make of the log of r where only its total is known.

    By what their own times differ: with one cost of a step that is what their steps per token differ by, and noise.
    """
    ratio = arm / base
    return float(ratio.std(ddof=1) / math.sqrt(len(ratio)) / ratio.mean()) if len(ratio) > 1 else 0.0
