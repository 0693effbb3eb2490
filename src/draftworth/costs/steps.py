"""T of steps without speculation: two curves through measured points, and what lies between them."""

from dataclasses import replace
from functools import partial

import numpy as np

from draftworth.costs import experts
from draftworth.costs.base import REFERENCE, Costs, StepCost
from draftworth.costs.curve import Band, Curve, Floats, Growth, Ints, only
from draftworth.costs.kv import NEAR_SHARE, at_context, kv_slope
from draftworth.costs.paper.config import ModelShape
from draftworth.costs.prefix_points import read_prefixes
from draftworth.costs.staircase import staircase

LONE_SHARE = 0.5
"""Of a mixture of experts with one measured point: what part of its experts' share of bytes grows with their number;
the rest of T is launches, attention and the host."""
COMPUTE_TOKENS = 256.0
"""Tokens of a step from which computing rules over reading dense weights: peak over bandwidth of data centre GPUs in
bf16 (H100 295, H200 206, B200 281, A100 153)."""
LONE_UNKNOWN = 0.05
"""The same where no shape is known: little, with an interval up to in proportion to the tokens."""


def _no_cheaper(table: Band) -> Band:
    """Return the steps of a batch, none of them below its first, which carries one token a request.

    A step that does the same and verifies drafts beside cannot take less; where points say so it is their noise.
    """
    ms, low = np.maximum(table.ms, table.ms[0]), np.maximum(table.low, table.low[0])
    return Band(ms, np.minimum(low, ms), np.maximum(table.high, ms), table.measured)


class Steps:
    """T of B requests with N tokens together, at a context; `FittedModel` says what lies behind it."""

    def __init__(self, costs: Costs, shape: ModelShape | None, rho: float) -> None:
        """Take the points of a costs file, at least one."""
        self.slope = kv_slope(costs.points, shape)
        self.prefixes = read_prefixes(costs, self.slope)
        self.points = self.prefixes.points
        self._written = costs.points
        self.shape = shape
        self.rho = rho
        self.stairs = staircase(costs.graph_sizes, costs.points, costs.engine)
        contexts = sorted(point.context for point in costs.points)
        self.reference = contexts[len(contexts) // 2]
        """The context most was measured at."""
        self._curves: dict[int, tuple[Curve | None, Curve | None]] = {}
        self._tables: dict[tuple[int, int, bool], Band] = {}

    def _points(self, context: int) -> tuple[Curve | None, Curve | None]:
        """Return the curves by concurrency and by prefix at a context; None for one without points."""
        if context not in self._curves:
            points = self.points
            growth = Growth(self._work, self._lone(), self._knee())
            draw = partial(Curve, stairs=self.stairs, growth=growth, context=context, slope=self.slope)
            streams = only(points, lambda point: point.tokens == 1)
            one = only(points, lambda point: point.batch == 1)
            several = any(point.tokens > 1 for point in one)
            by_stream = draw(streams, tokens=lambda point: point.batch) if streams else None
            by_prefix = draw(one, tokens=lambda point: point.tokens) if several else None
            if by_stream is None and by_prefix is None:
                # Only steps of several requests of several tokens: better than nothing, on the dear side.
                by_stream = draw(points, tokens=lambda point: point.batch * point.tokens)
            self._curves[context] = by_stream, by_prefix
        return self._curves[context]

    def table(self, batch: int, most: int, context: int, *, overlap: bool = True) -> Band:
        """Return T of all steps of `batch` requests, of `batch` tokens up to `most`.

        Args:
            batch: requests.
            most: tokens of the longest step.
            context: tokens of each request in the KV cache.
            overlap: whether consecutive tokens share experts where only concurrency was measured. Not where a drafting
                mode was measured beside concurrency: the overlap is part of it then.
        """
        key = batch, context, overlap
        table = self._tables.get(key)
        if table is None or table.ms.size <= most - batch:
            grown = most if table is None else max(most, batch + 2 * table.ms.size)
            table = _no_cheaper(
                self._pinned(self._steps(batch, np.arange(batch, grown + 1), context, overlap=overlap), batch, context)
            )
            self._tables[key] = table
        return table

    def _steps(self, batch: int, totals: Ints, context: int, *, overlap: bool) -> Band:
        by_stream, by_prefix = self._points(context)
        if by_stream is not None and by_prefix is not None:
            if self.prefixes.trust == "floor":
                return self._above(
                    by_prefix.at(totals), self._thinned(by_stream, batch, totals, context, overlap=overlap)
                )
            dear, cheap = by_stream.at(totals), self._prefix(by_prefix, totals, context)
            share = np.where(totals > 1, (batch - 1) / np.maximum(totals - 1, 1), 1.0)
            ms = share * dear.ms + (1 - share) * cheap.ms
            plain = totals == batch
            low = np.where(plain, dear.low, np.minimum(np.minimum(cheap.low, dear.low), ms))
            top = np.maximum(dear.high - (totals - batch) * context * self.slope.low, ms)
            if self.prefixes.trust == "untold":
                top = np.maximum(top, dear.high)
            high = np.where(plain, dear.high, np.maximum(cheap.high, top))
            return Band(ms, low, high, np.where(plain, dear.measured, cheap.measured & (batch == 1)))
        if by_stream is not None:
            return self._thinned(by_stream, batch, totals, context, overlap=overlap)
        assert by_prefix is not None  # one of them has points
        cheap = self._prefix(by_prefix, totals, context)
        if batch == 1:
            return cheap
        # Independent tokens count for more consecutive ones.
        as_one = np.ceil(experts.effective_tokens(batch, totals, 1 - 1 / (1 - experts.RHO_RANGE[1])))
        dear = by_prefix.at(as_one.astype(np.int64))
        ms = (cheap.ms + dear.ms) / 2
        return Band(ms, np.minimum(cheap.low, ms), np.maximum(dear.high, ms), np.zeros(totals.size, dtype=np.bool_))

    def _prefix(self, curve: Curve, totals: Ints, context: int) -> Band:
        """Return the prefix curve; measured where nothing that was assumed of it matters."""
        band = curve.at(totals)
        sure = self.prefixes.doubt(1, context) <= NEAR_SHARE * band.ms
        told = self.prefixes.trust == "measured"
        return replace(band, measured=band.measured & (totals > 1) & sure & told | band.measured & (totals == 1))

    @staticmethod
    def _above(prefix: Band, streams: Band) -> Band:
        """Return what streams say, down to what the prefixes say: those are a lower end only."""
        return replace(streams, low=np.minimum(streams.low, prefix.low))

    def _thinned(self, curve: Curve, batch: int, totals: Ints, context: int, *, overlap: bool) -> Band:
        """Return steps made of the concurrency curve alone: consecutive tokens share experts.

        Rows a graph is padded with choose experts like any others: a step of 6 costs what 8 cost.
        """
        band = curve.at(totals)
        rows = self.stairs.pad_all(totals) if self.stairs.known in {"given", "inferred"} else totals

        def fewer(rho: float) -> Floats:
            alike = experts.effective_padded(batch, totals, rows, rho)
            cut = curve.at_fractions(alike) - curve.at_fractions(rows.astype(np.float64))
            # The curve rises by KV caches too; those are taken off on their own.
            cut += (rows - alike) * context * self.slope.ms
            result: Floats = np.minimum(cut, 0.0)
            return result

        shape = self.shape
        several = totals > batch
        # A step of as many requests of one token each costs no more; beyond what was measured streams have no caches.
        least = curve.at(np.asarray([batch]))
        moe = shape is not None and shape.experts > 0
        # N streams read N caches, a step of B requests only B.
        read = np.maximum(np.minimum(totals, curve.sizes[-1]) - batch, 0)
        caches = np.where(several, read * float(context), 0.0)
        best = band.ms - caches * self.slope.ms + (fewer(self.rho) if moe and overlap else 0.0)
        best = np.where(several, np.maximum(best, np.minimum(least.ms, band.ms)), band.ms)
        lowest = band.low - caches * self.slope.high + (0.0 if shape and not moe else fewer(experts.RHO_RANGE[1]))
        low = np.where(several, np.minimum(np.maximum(lowest, np.minimum(least.low, band.low)), best), band.low)
        high = np.maximum(band.high - caches * self.slope.low, best)
        return Band(best, low, high, band.measured & ~several)

    def _pinned(self, band: Band, batch: int, context: int) -> Band:
        """Put in steps of several requests of several tokens each where they were measured.

        What they differ by from the curves is carried to the sizes between and beyond them, with an interval that holds
        both readings.
        """
        if self.prefixes.trust == "floor":
            return band
        cells: dict[int, list[StepCost]] = {}
        for point in self.points:
            if point.batch == batch > 1 and point.tokens > 1 and point.how != "paper":
                cells.setdefault(batch * point.tokens - batch, []).append(point)
        exact = {at: at_context(points, context, self.slope) for at, points in cells.items() if at < band.ms.size}
        if not exact:
            return band
        totals = batch + np.arange(band.ms.size)
        runs_as = self.stairs.pad_all(totals) if self.stairs.known in {"given", "inferred"} else totals
        # Of several cells on one stair the longest speaks for it.
        off = {int(runs_as[at]): float(np.log(exact[at][0] / band.ms[at])) for at in sorted(exact)}
        places = sorted({batch, *off})
        factor = np.exp(np.interp(runs_as, places, [off.get(at, 0.0) for at in places]))
        factor[0] = 1.0
        low, high = np.minimum(band.low, band.low * factor), np.maximum(band.high, band.high * factor)
        pinned = Band(band.ms * factor, low, high, band.measured.copy())
        for at, row in exact.items():
            pinned.ms[at], pinned.low[at], pinned.high[at], pinned.measured[at] = row
            doubt = self.prefixes.doubt(batch, context)
            pinned.measured[at] &= self.prefixes.trust == "measured" and doubt <= NEAR_SHARE * row[0]
            if self.prefixes.trust == "untold":
                pinned.high[at] = max(row[2], high[at])
        return pinned

    def _work(self, tokens: Floats) -> Floats:
        if self.shape is None or not self.shape.experts:
            return tokens
        return experts.union(tokens, self.shape.experts, self.shape.active)

    def _lone(self) -> float:
        if self.shape is None:
            return LONE_UNKNOWN
        return LONE_SHARE * self.shape.expert_share if self.shape.experts else 0.0

    def _knee(self) -> float:
        """Return from how many tokens on computing rules: each expert sees only active / experts of them."""
        if self.shape is None or not self.shape.experts:
            return COMPUTE_TOKENS
        return COMPUTE_TOKENS * self.shape.experts / self.shape.active

    def why(self, batch: int, total: int) -> str:
        """Return where T of a step comes from, for a person."""
        stair = self.stairs.pad(total) if self.stairs.known in {"given", "inferred"} else total
        runs = f", which run as {stair}" if stair != total else ""
        by_stream, by_prefix = self._points(self.reference)
        exact = [point for point in self.points if (point.batch, point.batch * point.tokens) == (batch, total)]
        trust = self.prefixes.trust
        if total > batch and trust == "floor":
            by_prefix = None
        elif exact:
            untold = "prefix, without what a prefill costs beyond a decode step: probe it again"
            how = untold if exact[0].how == "prefix" and trust == "untold" else exact[0].how
            told = f"T of {batch} x {total / batch:g} tokens"
            if any((one.batch, one.tokens, one.how) == (batch, exact[0].tokens, exact[0].how) for one in self._written):
                return f"{told}: measured ({how})"
            return f"{told}: derived from {REFERENCE * batch} streams of one token"
        curve = by_stream if batch == total or by_prefix is None else by_prefix
        kind = "concurrency" if curve is by_stream else "prefix"
        sizes = curve.sizes if curve is not None else ()
        if stair in sizes or total in sizes:
            place = "on measured points"
        else:
            place = "beyond" if sizes and total > sizes[-1] else "between"
            place += " measured points"
        mixed = " and concurrency" if kind == "prefix" and batch > 1 else ""
        if total > batch and trust == "floor":
            mixed = ", down to what prefixes say: prefills are bound by something else than their tokens"
        return f"T of {batch} requests with {total} tokens{runs}: {place} by {kind}{mixed}"
