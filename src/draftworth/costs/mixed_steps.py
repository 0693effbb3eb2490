"""Steps by how many tokens they have, and what each of them costs: expectations over a mixture are taken here."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.costs.curve import Band, Ints
from draftworth.costs.mode import Kind, Mask
from draftworth.costs.steps import Steps

RARE = 1e-6
"""Compositions less likely than this may be unmeasured in an expectation that is called measured."""


@dataclass(frozen=True, slots=True)
class KindCost:
    """What the steps of one kind add to a step without drafts, in milliseconds of the mean step.

    Attributes:
        kind: of step.
        share: of all steps.
        verify: best value, lower and upper end, of verifying more tokens.
        mode: the same of the engine's mode.
        why: where the mode comes from.
        mode_measured: whether it lies on measured modes.
        verify_measured: whether T lies on measured points.
    """

    kind: Kind
    share: float
    verify: tuple[float, float, float]
    mode: tuple[float, float, float]
    why: tuple[str, ...]
    mode_measured: bool
    verify_measured: bool


@dataclass(frozen=True, slots=True)
class ModedSteps:
    """Steps with speculation on: the whole, without engine mode, the mode, where it comes from, and their kinds [n]."""

    band: Band
    base: Band
    mode: Band
    why: Mapping[Kind, str]
    where: Mapping[Kind, Mask]

    def reasons(self, there: Mask) -> list[str]:
        """Return where the mode of those of these steps comes from that there are."""
        return [reason for kind, reason in self.why.items() if there[self.where[kind]].any()]


@dataclass(frozen=True, slots=True)
class MixedSteps:
    """Steps by their tokens, and how likely each is.

    Attributes:
        steps: T, for where it comes from.
        batch: requests in a step.
        totals: [n], tokens of the steps, ascending.
        given: [m, n], chance of each where one request drafts the m-th number of tokens.
        own: [m], chance that it does.
        band: of each of the steps.
        moded: the same with its engine mode apart; None without.
    """

    steps: Steps
    batch: int
    totals: Ints
    given: NDArray[np.float64]
    own: NDArray[np.float64]
    band: Band
    moded: ModedSteps | None

    def at(self, weights: NDArray[np.float64]) -> Estimate:
        """Return the mean by these weights [n]."""
        band, there = self.band, weights > 0
        return Estimate(
            ms=float(weights @ band.ms),
            low=float(weights @ band.low),
            high=float(weights @ band.high),
            why=(
                self.steps.why(self.batch, int(self.totals[int(np.argmax(weights))])),
                *(self.moded.reasons(there) if self.moded else ()),
            ),
            measured=bool(band.measured[weights > RARE].all()),
        )
