"""A TPOT ratio of costs that are known within intervals, and how far it reaches."""

import math
from dataclasses import dataclass

from draftworth.costs.base import Estimate


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The ratio of mean TPOTs, with each error of its costs counted once.

    The step with speculation has the baseline's own step in it wherever nobody drafts, so that a T(B, 1) that is off by
    some share moves both sides alike: where nothing is ever drafted and no mode is added the ratio is 1 whatever T is.
    T of steps that verify drafts was measured by itself; it, the engine's mode and p are taken as independent of
    T(B, 1) and of each other.

    Attributes:
        per_token: steps per token.
        idle: share of the steps in which nobody drafts.
        base: T(B, 1).
        verify: the mean step without the engine's mode.
        whole: the mean step.
        prefill: p, what the prefills of other requests add to each token: value, lower and upper end.
    """

    per_token: float
    idle: float
    base: Estimate
    verify: Estimate
    whole: Estimate
    prefill: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def ratio(self, *, base: float = 0.0, drafting: float = 0.0, mode: float = 0.0, prefill: float = 0.0) -> float:
        """Return TPOT with speculation over TPOT without.

        Args:
            base: milliseconds that T(B, 1) is moved by.
            drafting: what the mean step is moved by for T of the steps that verify drafts.
            mode: the same for the engine's mode.
            prefill: what p is moved by.
        """
        alone, shared = self.base.ms + base, self.prefill[0] + prefill
        step = self.whole.ms + self.idle * base + drafting + mode
        return (self.per_token * step + shared) / (alone + shared)

    def reach(self, sign: int) -> float:
        """Return how far the logarithm of the ratio reaches beyond its best value, at 95 %.

        Each cost is moved to its own ends, the others at their best values; what they do adds up as independent errors.

        Args:
            sign: 1 for upwards, -1 for downwards.
        """
        lower, upper = self._moved(-1), self._moved(1)
        ends = [(self.ratio(**{name: lower[name]}), self.ratio(**{name: upper[name]})) for name in lower]
        best = self.ratio()
        return math.hypot(*(max(0.0, *(sign * math.log(one / best) for one in pair)) for pair in ends))

    def _moved(self, sign: int) -> dict[str, float]:
        """Return what each cost is moved by to its lower or upper end."""
        base, verify, whole = (
            (one.high if sign > 0 else one.low) - one.ms for one in (self.base, self.verify, self.whole)
        )
        return {
            "base": base,
            "drafting": verify - self.idle * base,
            "mode": whole - verify,
            "prefill": self.prefill[2 if sign > 0 else 1] - self.prefill[0],
        }
