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
from draftworth.costs.graphs import in_pieces
from draftworth.costs.kv import near
from draftworth.costs.mixed_steps import RARE, KindCost, MixedSteps, ModedSteps
from draftworth.costs.mode import Kind, ModeBand, applies, kinds, known, mode_band, plain_mode
from draftworth.costs.paper.config import ModelShape
from draftworth.costs.steps import Steps
from draftworth.errors import UsageError

LOST = 1e-12
"""Compositions less likely than this are left out of an expectation."""


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
        return _one(self.steps.table(batch, total, context), total - batch, (self.steps.why(batch, total),))

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
        found = self._with_mode((batch, longest or max(tokens)), np.asarray([total]), context, (method, runner))
        return _one(found.band, 0, (self.steps.why(batch, at + batch), *found.why.values()))

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
        mixed = self._mixed(lengths, np.flatnonzero(np.asarray(lengths) > 0), batch, context, method)
        return mixed.at(mixed.own @ mixed.given)

    def by_own(
        self,
        lengths: NDArray[np.float64],
        batch: int,
        context: int,
        *,
        method: tuple[str, str | None] | None = None,
    ) -> list[Estimate]:
        """Return the expected milliseconds of a step by what one of its requests drafts; see `StepMixture`.

        Raises:
            ValueError: `lengths` is no distribution, or `batch` is below 1.
            UsageError: nothing is known of the method's engine mode.
        """
        mixed = self._mixed(lengths, np.arange(len(lengths)), batch, context, method)
        return [mixed.at(weights) for weights in mixed.given]

    def by_kind(
        self,
        shares: NDArray[np.float64],
        pooled: NDArray[np.float64],
        batch: int,
        context: int,
        *,
        method: tuple[str, str | None],
    ) -> list[KindCost]:
        """Return what steps of each kind add to a step without drafts, engine mode and verification apart.

        Args:
            shares: share of a request's own steps that draft 0, 1, … tokens; adds up to 1.
            pooled: the same of the other requests of its batch.
            batch: requests in the step.
            context: tokens of each request in the KV cache.
            method: the speculative method and vLLM's runner.

        Raises:
            ValueError: `pooled` is no distribution, or `batch` is below 1.
            UsageError: nothing is known of the method's engine mode.
        """
        mixed = self._mixed(pooled, np.arange(len(pooled)), batch, context, method)
        assert mixed.moded is not None
        weights = shares @ mixed.given
        base, mode = mixed.moded.base, mixed.moded.mode
        alone = self.steps.table(batch, batch, context).ms[0]
        found = []
        for kind, where in mixed.moded.where.items():
            part = weights[where]
            if part.sum() <= LOST:
                continue
            verify = float(part @ (base.ms[where] - alone)) if kind != "idle" else 0.0
            spread = (base.ms - base.low, base.high - base.ms)
            below, above = (float(part @ one[where]) if kind != "idle" else 0.0 for one in spread)
            found.append(
                KindCost(
                    kind,
                    float(part.sum()),
                    (verify, verify - below, verify + above),
                    (float(part @ mode.ms[where]), float(part @ mode.low[where]), float(part @ mode.high[where])),
                    (mixed.moded.why[kind],),
                    bool(mode.measured[where][part > RARE].all()),
                    bool(base.measured[where][part > RARE].all()),
                )
            )
        return found

    def mixed_work(
        self, lengths: NDArray[np.float64], batch: int, longest: int, context: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the steps that are neither idle nor have every request draft as many tokens as it may.

        Args:
            lengths: share of a request's steps that draft 0, 1, … tokens; adds up to 1.
            batch: requests in the step.
            longest: tokens of a request that drafts as many as it may.
            context: tokens of each request in the KV cache.

        Returns:
            Shares of all steps [n], and milliseconds each takes beyond one that drafts nothing [n], without a mode.
        """
        mixed = self._mixed(lengths, np.flatnonzero(np.asarray(lengths) > 0), batch, context, None)
        some = (mixed.totals > batch) & (mixed.totals < batch * longest)
        alone = self.steps.table(batch, batch, context).ms[0]
        return (mixed.own @ mixed.given)[some], mixed.band.ms[some] - alone

    def in_pieces(self, method: tuple[str, str | None]) -> bool:
        """Whether steps in which not every request drafts all it may leave a full CUDA graph; see `costs.graphs`."""
        return in_pieces(method, self.costs.graph_sizes, self.costs.graph_mode)

    def plain(self, method: tuple[str, str | None], batch: int) -> tuple[float, float, float] | None:
        """Return F at a batch size, what the scheduling that speculation gets adds by itself: value, low, high.

        None where no arm measured it.
        """
        return plain_mode(self.costs, method[1], batch)

    def knows(self, method: tuple[str, str | None]) -> bool:
        """Whether the engine mode of a method is known; see `StepMixture`."""
        from draftworth.costs.library import lookup  # noqa: PLC0415 - its intervals need scipy

        return known(self.costs, method, lookup)

    def _mixed(
        self,
        lengths: NDArray[np.float64],
        own: Ints,
        batch: int,
        context: int,
        method: tuple[str, str | None] | None,
    ) -> MixedSteps:
        """Return the steps in which one request drafts each of `own` tokens and the others by `lengths`."""
        total_drafted(lengths, batch)  # raises where it is no distribution
        chances = total_drafted(lengths, batch - 1) if batch > 1 else np.ones(1)
        others = np.flatnonzero(chances > LOST)
        share = chances[others] / chances[others].sum()
        totals = np.unique(batch + own[:, None] + others[None, :]).astype(np.int64)
        given = np.zeros((own.size, totals.size))
        for row, drafted in enumerate(own):
            given[row, np.searchsorted(totals, batch + drafted + others)] = share
        moded = None
        if method is None:
            band = self.steps.table(batch, int(totals[-1]), context).take(totals - batch)
        else:
            moded = self._with_mode((batch, len(lengths)), totals, context, method)
            band = moded.band
        chosen = np.asarray(lengths, dtype=np.float64)[own]
        share_of = chosen / chosen.sum() if chosen.any() else chosen
        return MixedSteps(self.steps, batch, totals, given, share_of, band, moded)

    def _with_mode(
        self, place: tuple[int, int], totals: Ints, context: int, method: tuple[str, str | None]
    ) -> ModedSteps:
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
        table = self.steps.table(batch, most, context, overlap=overlap)
        base = table.take(totals - batch)
        from draftworth.costs.library import lookup  # noqa: PLC0415 - its intervals need scipy

        costs = self.costs.model_copy(update={"modes": tuple(self._recentred(mode) for mode in self.costs.modes)})
        floor, least = float(table.ms[0]), float(table.low[0])
        mode: ModeBand = mode_band(
            costs, method, batch=batch, longest=longest, tokens=totals, base=base, alone=floor, lookup=lookup
        )
        whole = base.plus(mode.band)
        # Speculation takes nothing off a step: where a mode is below 0, so that a step would be cheaper than a plain
        # one of the same requests, that is noise of two measurements.
        ms, high = np.maximum(whole.ms, floor), np.maximum(whole.high, floor)
        there = np.zeros(totals.size, dtype=np.bool_)
        found = kinds(costs, method, batch=batch, longest=longest, tokens=totals)
        for kind, where in found.items():
            there[where] = self._measured_at(method, kind, batch, context)
        low = np.minimum(np.maximum(whole.low, least), ms)
        band = Band(ms, low, high, whole.measured & there)
        return ModedSteps(band, base, mode.band, mode.why, found)

    def _measured_at(self, method: tuple[str, str | None], kind: Kind, batch: int, context: int) -> bool:
        """Whether modes of a batch were measured at a context, as far as files tell."""
        several = len({one.context for one in self.costs.points}) > 1
        modes = [one for one in self.costs.modes if (one.kind, one.batch) == (kind, batch)]
        told = [one.context for one in modes if applies(one, method)]
        return all(not several if one is None else near(context, one) for one in told)

    def _beside_streams(self, method: str, runner: str | None) -> bool:
        """Whether drafting modes were measured of which T was told by concurrency alone."""
        if self.steps.prefixes.trust != "floor" and any(point.tokens > 1 for point in self.costs.points):
            return False
        return any(mode.kind == "drafting" and applies(mode, (method, runner)) for mode in self.costs.modes)

    def _recentred(self, mode: EngineMode) -> EngineMode:
        """Return a drafting mode of one stream beside this model's own T of its step, so that the step is as measured.

        Of several streams the composition was a mixture, and its T stays what it was measured beside. So it does where
        nobody knows at which context the mode was measured, and the file has several.
        """
        if mode.batch != 1 or mode.tokens == 1:
            return mode
        if mode.context is None and len({one.context for one in self.costs.points}) > 1:
            return mode
        overlap = not self._beside_streams(mode.method, mode.runner)
        context = self.steps.reference if mode.context is None else mode.context
        table = self.steps.table(1, mode.tokens, context, overlap=overlap)
        tokens = mode.mean_tokens or float(mode.tokens)  # drafts as alike as whole tokens can be: `arms.draft_shares`
        mine = float(np.interp(tokens, np.arange(1, table.ms.size + 1), table.ms))
        shift = mode.step_ms - mine - mode.ms
        return mode.model_copy(
            update={"ms": mode.ms + shift, "low": mode.low + shift, "high": mode.high + shift, "base_ms": mine}
        )


def _checked(tokens: Sequence[int]) -> tuple[int, int]:
    if not tokens or min(tokens) < 1:
        raise ValueError(f"a step has at least one request of at least one token: {tokens!r}")
    return len(tokens), sum(tokens)


def _one(band: Band, at: int, why: tuple[str, ...]) -> Estimate:
    return Estimate(float(band.ms[at]), float(band.low[at]), float(band.high[at]), why, bool(band.measured[at]))
