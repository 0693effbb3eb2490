"""The cost of a step, fitted to a costs file: measured points stand, a model's shape leads between and beyond them.

A step is told by how many requests it has, B, and how many tokens they carry together, N. Two curves bracket it
(docs/costs-model.md): N requests of one token (`concurrency`: reads N KV caches, and its tokens choose experts
independently, so it is too dear) and one request of N tokens (`prefix`: runs as prefill). A step of B requests lies
(B - 1) / (N - 1) of the way from the second to the first, which is where its count of effective tokens lies, whatever
the overlap of experts is. Only where the second was not measured is it made from the first by the overlap of experts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Costs, EngineMode, Estimate
from draftworth.costs.curve import Band, Ints
from draftworth.costs.draws import total_drafted
from draftworth.costs.experts import RHO
from draftworth.costs.mode import ModeBand, mode_band
from draftworth.costs.paper.config import ModelShape
from draftworth.costs.steps import Steps
from draftworth.errors import UsageError

LOST = 1e-12
"""Compositions less likely than this are left out of an expectation."""
RARE = 1e-6
"""Compositions less likely than this may be unmeasured in an expectation that is called measured."""


class FittedModel:
    """`StepModel` and `StepMixture` of one costs file."""

    def __init__(self, costs: Costs, shape: ModelShape | None = None, *, rho: float = RHO) -> None:
        """Fit.

        Args:
            costs: with at least one point.
            shape: of the model it serves; without it nothing is known of experts and little of context.
            rho: overlap of experts between consecutive tokens of a request, used where no prefix was measured; 0 for a
                model of random weights.

        Raises:
            UsageError: the costs file has no points.
        """
        if not costs.points:
            raise UsageError("the costs file has no points: measure some with `draftworth probe URL`")
        self.costs = costs
        self.shape = shape
        self.steps = Steps(costs, shape, rho)

    def base(self, tokens: Sequence[int], context: int) -> Estimate:
        """Return T of a composition without speculation; see `StepModel`.

        Raises:
            ValueError: the composition is empty, or a request carries no token.
        """
        batch, total = _checked(tokens)
        return _one(self.steps.table(batch, total, context), total - batch, self.steps.why(batch, total))

    def speculating(
        self, tokens: Sequence[int], context: int, *, method: str, runner: str | None, longest: int | None = None
    ) -> Estimate:
        """Return T of a composition with speculation on; see `StepModel`.

        Raises:
            ValueError: the composition is empty, or a request carries no token.
            UsageError: nothing is known of this method's engine mode, not even from the library.
        """
        batch, total = _checked(tokens)
        at = total - batch
        band, why = self._with_mode((batch, longest or max(tokens)), np.asarray([total]), context, (method, runner))
        return _one(band, 0, f"{self.steps.why(batch, at + batch)}; {why}")

    def expected(
        self,
        lengths: NDArray[np.float64],
        batch: int,
        context: int,
        *,
        method: tuple[str, str | None] | None = None,
    ) -> Estimate:
        """Return the expected milliseconds of a step of `batch` independent requests; see `StepMixture`.

        The distribution of the step's tokens is convolved exactly; T is looked up at each of its values, never at a
        mean. The ends of the interval are expectations of the ends: errors are taken as common to all steps.

        Raises:
            ValueError: `lengths` is no distribution, or `batch` is below 1.
            UsageError: nothing is known of the method's engine mode.
        """
        chances = total_drafted(lengths, batch)
        drafted = np.flatnonzero(chances > LOST)
        weights = chances[drafted] / chances[drafted].sum()
        totals = drafted.astype(np.int64) + batch
        most = int(totals[-1])
        if method is None:
            band, why = self.steps.table(batch, most, context).take(drafted), ""
        else:
            band, why = self._with_mode((batch, len(lengths)), totals, context, method)
        reason = self.steps.why(batch, int(totals[int(np.argmax(weights))]))
        return Estimate(
            ms=float(weights @ band.ms),
            low=float(weights @ band.low),
            high=float(weights @ band.high),
            why=f"{reason}; {why}" if why else reason,
            measured=bool(band.measured[weights > RARE].all()),
        )

    def _with_mode(
        self, place: tuple[int, int], totals: Ints, context: int, method: tuple[str, str | None]
    ) -> tuple[Band, str]:
        """Return steps with speculation on, of these tokens (ascending, all at least the batch).

        Args:
            place: requests in the step, and tokens of one that drafts as many as it may.
            totals: tokens of the steps.
            context: tokens of each request in the KV cache.
            method: the speculative method and vLLM's runner.
        """
        batch, longest = place
        overlap = not self._beside_streams(*method)
        most = int(totals[-1])
        base = self.steps.table(batch, most, context, overlap=overlap).take(totals - batch)
        from draftworth.costs.library import lookup  # noqa: PLC0415 - its intervals need scipy

        costs = self.costs.model_copy(update={"modes": tuple(self._recentred(mode) for mode in self.costs.modes)})
        mode: ModeBand = mode_band(costs, method, batch=batch, longest=longest, tokens=totals, base=base, lookup=lookup)
        whole = base.plus(mode.band)
        floor = base.ms / 10  # an interval of milliseconds never reaches nothing
        return Band(whole.ms, np.maximum(whole.low, floor), whole.high, whole.measured), mode.why

    def _beside_streams(self, method: str, runner: str | None) -> bool:
        """Whether drafting modes were measured of which T was told by concurrency alone."""
        if any(point.tokens > 1 for point in self.costs.points):
            return False
        return any(
            mode.kind == "drafting" and mode.method == method and (runner is None or mode.runner in {None, runner})
            for mode in self.costs.modes
        )

    def _recentred(self, mode: EngineMode) -> EngineMode:
        """Return a drafting mode of one stream beside this model's own T of its step, so that the step is as measured.

        Of several streams the composition was a mixture, and its T stays what it was measured beside.
        """
        if mode.batch != 1 or mode.tokens == 1:
            return mode
        overlap = not self._beside_streams(mode.method, mode.runner)
        table = self.steps.table(1, mode.tokens, self.steps.reference, overlap=overlap)
        mine = float(table.ms[mode.tokens - 1])
        shift = mode.step_ms - mine - mode.ms
        return mode.model_copy(
            update={"ms": mode.ms + shift, "low": mode.low + shift, "high": mode.high + shift, "base_ms": mine}
        )


def _checked(tokens: Sequence[int]) -> tuple[int, int]:
    if not tokens or min(tokens) < 1:
        raise ValueError(f"a step has at least one request of at least one token: {tokens!r}")
    return len(tokens), sum(tokens)


def _one(band: Band, at: int, why: str) -> Estimate:
    return Estimate(float(band.ms[at]), float(band.low[at]), float(band.high[at]), why, bool(band.measured[at]))
