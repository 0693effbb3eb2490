"""What a search decides by: stated before it, kept in its record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from draftworth.search.base import Candidate
from draftworth.search.belief import Sizes
from draftworth.verdicts.rules import MARGIN, PRIOR_LOG_SD_VARIANT

MIN_GAIN = 0.0025
"""A reload that is expected to gain less, in log speed, is not made: an eighth of what counts as a difference."""
MIN_CHANCE = 0.05
"""A candidate less likely to beat the best by the margin is not started."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a search decides by.

    Attributes:
        loads: the concurrencies that count.
        weights: load to its weight; equal where none are given.
        together: whether one setting has to serve all loads, so that its mean over them counts; else each load can have
            the setting that is best there.
        min_gain: expected gain, in log speed, below which nothing more is started.
        min_chance: chance of beating the best by the margin below which a candidate is not started.
        margin: a speed-up within this share is no difference.
        measure_s: seconds it takes to measure a candidate once its server answers.
        start_sd: what one start of a candidate will be off by, restart (`verdict.restart_sd_variant`) and prompts
            together, at each load by itself.
        baseline_sd: of the baseline's own start, which every observation is over (`verdict.restart_sd_baseline`).
        sizes: of the errors of predictions.
    """

    loads: tuple[int, ...]
    weights: Mapping[int, float] = field(default_factory=dict)
    together: bool = False
    min_gain: float = MIN_GAIN
    min_chance: float = MIN_CHANCE
    margin: float = MARGIN
    measure_s: float = 0.0
    start_sd: float = PRIOR_LOG_SD_VARIANT
    baseline_sd: float = 0.0
    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        """Check the rules.

        Raises:
            ValueError: no load, a load without a weight, or a figure out of its range.
        """
        if not self.loads:
            raise ValueError("a search needs a load")
        weights = [self.weights.get(load, -1.0) for load in self.loads] if self.weights else [1.0]
        if min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise ValueError("every load needs a weight of at least 0, and one of them above 0")
        figures = self.min_gain, self.min_chance, self.margin, self.measure_s, self.start_sd, self.baseline_sd
        if not all(math.isfinite(one) and one >= 0 for one in figures):
            raise ValueError("figures of a search are finite and at least 0")

    def shares(self, loads: Sequence[int]) -> NDArray[np.float64]:
        """Return the loads' weights, adding up to 1."""
        found = np.array([self.weights[load] if self.weights else 1.0 for load in loads])
        return np.asarray(found / found.sum(), dtype=np.float64)

    def seconds(self, one: Candidate) -> float:
        """Return how long it takes to start and measure a candidate."""
        return (0.0 if one.free else one.reload_s) + self.measure_s
