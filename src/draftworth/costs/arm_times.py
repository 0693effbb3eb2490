"""What an arm's steps took beside its baseline's: intervals over prompts, and the baseline's own decode step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from draftworth.costs.arm_rows import Place, Sums
from draftworth.costs.base import StepCost
from draftworth.costs.prefill import prefill_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 2000


def interval(arm: Sums, base: Sums, scale: float, *, less: float = 1.0) -> tuple[float, float]:
    """Return the 95 % interval of scale x TPOT(arm) - less x TPOT(baseline) in ms, over prompts both answered.

    Of several starts it holds what each pair of them shows. There must be a prompt that both answered.
    """
    shared = shared_prompts(arm, base)
    found: list[float] = []
    if max(len(arm.starts), len(base.starts)) > 1:
        for one in arm.starts:
            found += [scale * one[0] / one[1] - less * other[0] / other[1] for other in base.starts]
    if len(shared) > 1:
        table = np.array([[ms / tokens for ms, tokens in (arm.prompts[name], base.prompts[name])] for name in shared])
        picks = np.random.default_rng(0).integers(0, len(shared), (RESAMPLES, len(shared)))
        means: NDArray[np.float64] = table[picks].mean(axis=1)
        values = scale * means[:, 0] - less * means[:, 1]
        found += [float(one) for one in np.quantile(values, (0.025, 0.975))]
    value = scale * arm.tpot_of(shared) - less * base.tpot_of(shared)
    return min([value, *found]), max([value, *found])


def shared_prompts(arm: Sums, base: Sums) -> list[str]:
    """Return the prompts that both answered."""
    return [name for name in arm.prompts if name in base.prompts]


def own_step(place: Place, points: Sequence[StepCost]) -> StepCost:
    """Return the baseline's own decode step: its TPOT less what the prefills of others add to it."""
    alone = Sums({name: (0.0, tokens) for name, (_, tokens) in place.sums.prompts.items()}, ((0.0, 1.0),))
    low, high = interval(place.sums, alone, 1.0)
    value, least, most = prefill_share(place, place.sums.tpot, points)
    ms = place.sums.tpot - value
    return StepCost(
        batch=place.batch,
        tokens=1,
        context=place.context,
        ms=ms,
        low=min(low - most, ms),
        high=max(high - least, ms),
        repeats=max(1, len(place.sums.starts)),
        how="arm",
    )
