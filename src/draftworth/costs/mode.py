"""Engine mode: what switching speculation on adds to a step, from measured modes, else from the library.

The form is additive, T + M. `benchmarks/mode_form.py` compares it with a floor max(H, T), a floor with a constant, a
ratio and a constant step, each judged on cells it was not fitted to: docs/costs-model.md has the figures. At a measured
batch and length M is as measured. Elsewhere it is interpolated over the tokens of the step, and the interval reaches
to what the ratio form says, which is the best of the others on one run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Costs, EngineMode
from draftworth.costs.curve import Band, Floats, Ints
from draftworth.errors import UsageError

CARRIED = (0.6, 1.4)
"""Ends of what is carried to another size, times M: 95 % of the spread of M over nine sizes of one server (20 % sd)."""
OTHER_KIND = (0.5, 2.0)
"""A mode of the other kind of step stands in with its lower end and its upper end times these."""


Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ModeBand:
    """What the engine mode adds to many steps, and where that comes from."""

    band: Band
    why: str


Kind = Literal["idle", "drafting"]


class Lookup(Protocol):
    """The library of measured modes, as `draftworth.costs.library.lookup`."""

    def __call__(
        self, *, engine: str | None, version: str | None, runner: str | None, method: str, base_ms: float, kind: Kind
    ) -> EngineMode | None:
        """Return what was measured on other servers, with a wide interval; None for nothing."""
        ...


def mode_band(
    costs: Costs, method: str, runner: str | None, *, batch: int, tokens: Ints, base: Band, lookup: Lookup
) -> ModeBand:
    """Return what the engine mode adds to steps of a batch.

    Args:
        costs: with measured modes, or without.
        method: the speculative method.
        runner: vLLM's runner; None for any.
        batch: requests in the step.
        tokens: tokens of each step, from `batch` (nothing is drafted: `idle`) upwards (`drafting`), ascending.
        base: T of these steps without speculation.
        lookup: the library, asked where nothing was measured.

    Raises:
        UsageError: nothing is known, not even from the library.
    """
    mine = [mode for mode in costs.modes if mode.method == method and _runs_on(mode, runner)]
    idle, drafting = ([mode for mode in mine if mode.kind == kind] for kind in ("idle", "drafting"))
    none = tokens == batch
    parts: list[tuple[Mask, Band]] = []
    why: list[str] = []
    kinds: tuple[tuple[Kind, list[EngineMode], list[EngineMode], Mask], ...] = (
        ("idle", idle, drafting, none),
        ("drafting", drafting, idle, ~none),
    )
    for name, own, other, where in kinds:
        if not where.any():
            continue
        part = base.take(where)
        if own:
            band = _measured(own, batch, tokens[where], part)
            why.append(f"engine mode of {name} steps: {_sources(own)}")
        elif other:
            band = _measured(other, batch, tokens[where], part, widen=OTHER_KIND)
            why.append(f"engine mode of {name} steps: taken from the other kind of step, widened ({_sources(other)})")
        else:
            found = lookup(
                engine=costs.engine,
                version=costs.version,
                runner=runner,
                method=method,
                base_ms=float(part.ms[0]),
                kind=name,
            )
            if found is None:
                raise UsageError(
                    f"nothing is known of what {method} adds to a step of this engine: measure it with a null-draft arm"
                    " and one of synthetic acceptance, and add them with `draftworth probe --add-trial TRIAL`"
                )
            band = _from_library(found, part)
            why.append(f"engine mode of {name} steps: {found.source}")
        parts.append((where, band))
    size = tokens.size
    whole = Band(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.bool_))
    for where, band in parts:
        whole.ms[where], whole.low[where], whole.high[where] = band.ms, band.low, band.high
        whole.measured[where] = band.measured
    return ModeBand(whole, "; ".join(dict.fromkeys(why)))


def _runs_on(mode: EngineMode, runner: str | None) -> bool:
    return runner is None or mode.runner is None or mode.runner == runner


def _sources(modes: Sequence[EngineMode]) -> str:
    return ", ".join(dict.fromkeys(mode.source for mode in modes))


def _measured(
    modes: Sequence[EngineMode],
    batch: int,
    tokens: Ints,
    base: Band,
    *,
    widen: tuple[float, float] | None = None,
) -> Band:
    """Return M through measured modes, over the tokens of a step; widened where they are of the other kind of step."""
    by_size: dict[int, list[EngineMode]] = {}
    for mode in modes:
        by_size.setdefault(mode.batch * mode.tokens, []).append(mode)
    sizes = np.asarray(sorted(by_size), dtype=np.float64)
    groups = [by_size[int(size)] for size in sizes]
    x = tokens.astype(np.float64)
    ms = _over(x, sizes, [_mean([mode.ms for mode in group]) for group in groups])
    low = _over(x, sizes, [min(mode.low for mode in group) for group in groups])
    high = _over(x, sizes, [max(mode.high for mode in group) for group in groups])
    if widen is not None:
        low, high = np.minimum(low, low * widen[0]), np.maximum(high, high * widen[1])
    ratio = _over(x, sizes, [_mean([mode.ms / mode.base_ms for mode in group]) for group in groups]) * base.ms
    low = np.minimum(np.minimum(low, ratio), np.minimum(ms * CARRIED[0], ms))
    high = np.maximum(np.maximum(high, ratio), np.maximum(ms * CARRIED[1], ms))
    exact = np.zeros(x.size, dtype=np.bool_)
    for mode in modes:
        at = tokens == mode.batch * mode.tokens
        if mode.batch == batch and widen is None:
            ms[at], low[at], high[at], exact[at] = mode.ms, mode.low, mode.high, True
    return Band(ms, low, high, exact)


def _over(x: Floats, sizes: Floats, values: Sequence[float]) -> Floats:
    return np.interp(x, sizes, np.asarray(values, dtype=np.float64))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _from_library(found: EngineMode, base: Band) -> Band:
    flat = np.ones_like(base.ms)
    return Band(found.ms * flat, found.low * flat, found.high * flat, np.zeros_like(base.measured))
