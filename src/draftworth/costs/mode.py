"""Engine mode: what switching speculation on adds to a step, from measured modes, else from the library.

The form is additive, T + M. `benchmarks/mode_form.py` compares it with a floor max(H, T), a floor with a constant, a
ratio and a constant step, each judged on cells it was not fitted to: docs/costs-model.md has the figures. M belongs to
a batch size and to the longest draft, whatever number of requests drafts in one step: that is how it is solved for, out
of the mixture of an arm's steps. Where CUDA graphs tell mixed steps from those in which all draft (`costs.graphs`),
each have an M of their own. Elsewhere it is interpolated, between lengths of this batch or else, at the nearest length,
over the tokens of a step in which all draft, and the interval reaches to what the ratio form says, the best of the
others on one run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Costs, EngineMode
from draftworth.costs.curve import Band, Ints
from draftworth.costs.graphs import ON_THE_HOST, in_pieces, mixed_mode, mixed_of
from draftworth.errors import UsageError

CARRIED = (0.6, 1.4)
"""Ends of what is carried to another size, times M: 95 % of the spread of M over nine sizes of one server (20 % sd)."""
OTHER_KIND = (0.5, 2.0)
"""A mode of the other kind of step stands in with its lower end and its upper end times these."""


Mask = NDArray[np.bool_]
Kind = Literal["idle", "drafting", "mixed"]


@dataclass(frozen=True, slots=True)
class ModeBand:
    """What the engine mode adds to many steps, and where that comes from."""

    band: Band
    why: Mapping[Kind, str]
    """Only of kinds of steps that there are."""


class Lookup(Protocol):
    """The library of measured modes, as `draftworth.costs.library.lookup`."""

    def __call__(
        self,
        *,
        engine: str | None,
        version: str | None,
        runner: str | None,
        method: str,
        base_ms: float,
        kind: Literal["idle", "drafting"],
    ) -> EngineMode | None:
        """Return what was measured on other servers, with a wide interval; None for nothing."""
        ...


def mode_band(
    costs: Costs,
    method: tuple[str, str | None],
    *,
    batch: int,
    longest: int,
    tokens: Ints,
    base: Band,
    alone: float,
    lookup: Lookup,
) -> ModeBand:
    """Return what the engine mode adds to steps of a batch.

    Args:
        costs: with measured modes, or without.
        method: the speculative method, and vLLM's runner, None for any.
        batch: requests in the step.
        longest: tokens of a request that drafts as many as it may: k + 1.
        tokens: tokens of each step, from `batch` (nothing is drafted: `idle`) upwards (`drafting`), ascending.
        base: T of these steps without speculation.
        alone: T of a step that drafts nothing.
        lookup: the library, asked where nothing was measured.

    Raises:
        UsageError: nothing is known, not even from the library.
    """
    drafts = method[0]
    mine, borrowed = stand_in(costs, method)
    own = {kind: [mode for mode in mine if mode.kind == kind] for kind in _KINDS}
    size = tokens.size
    whole = Band(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.bool_))
    why: dict[Kind, str] = {}

    def one(kind: Literal["idle", "drafting"], part: Band) -> tuple[Band, str]:
        """Return M of one of the kinds that arms measure, of steps that cost `part` without it."""
        other = own["drafting" if kind == "idle" else "idle"]
        if own[kind]:
            band = _measured(own[kind], batch, longest, part, widen=OTHER_KIND if borrowed else None)
            return band, f"that of {borrowed}, widened ({_sources(own[kind])})" if borrowed else _sources(own[kind])
        if other:
            band = _measured(other, batch, longest, part, widen=OTHER_KIND)
            return band, f"taken from the other kind of step, widened ({_sources(other)})"
        found, other_method = _elsewhere(costs, method, lookup, kind=kind, base_ms=float(part.ms[0]))
        if found is None:
            raise UsageError(
                f"nothing is known of what {drafts} adds to a step of this engine: measure it with a null-draft arm"
                " and one of synthetic acceptance, and add them with `draftworth probe --add-trial TRIAL`"
            )
        if other_method is None:
            return _from_library(found, part), found.source
        return _from_library(found, part, widen=OTHER_KIND), f"that of {other_method}, widened ({found.source})"

    for name, where in kinds(costs, method, batch=batch, longest=longest, tokens=tokens).items():
        part = base.take(where)
        if name != "mixed":
            band, text = one(name, part)
        elif own["mixed"]:
            band = _measured(own["mixed"], batch, longest, part, widen=OTHER_KIND if borrowed else None)
            text = f"that of {borrowed}, widened ({_sources(own['mixed'])})" if borrowed else _sources(own["mixed"])
        else:
            (idle, _), (drafting, text) = one("idle", part), one("drafting", part)
            shared = plain_mode(costs, method[1], batch)
            band, text = (
                _mixed(idle, drafting, part.ms - alone, shared),
                f"of both other kinds, as CUDA graphs run in pieces ({text})",
            )
        why[name] = f"engine mode of {name} steps: {text}"
        whole.ms[where], whole.low[where], whole.high[where] = band.ms, band.low, band.high
        whole.measured[where] = band.measured
    return ModeBand(whole, why)


_KINDS: tuple[Kind, ...] = "idle", "drafting", "mixed"


def kinds(costs: Costs, method: tuple[str, str | None], *, batch: int, longest: int, tokens: Ints) -> dict[Kind, Mask]:
    """Return which of some steps are of which kind; only kinds of which there are any.

    Args:
        costs: of the server.
        method: the speculative method, and vLLM's runner, None for any.
        batch: requests in the step.
        longest: tokens of a request that drafts as many as it may: k + 1.
        tokens: of each step, at least `batch`.
    """
    idle = tokens == batch
    all_draft = tokens == batch * longest if in_pieces(method, costs.graph_sizes, costs.graph_mode) else ~idle
    masks: dict[Kind, Mask] = {"idle": idle, "mixed": ~idle & ~all_draft, "drafting": ~idle & all_draft}
    return {kind: mask for kind, mask in masks.items() if mask.any()}


def plain_mode(costs: Costs, runner: str | None, batch: int) -> tuple[float, float, float] | None:
    """Return F at a batch size, with its interval; None where no arm measured it."""
    found = [one for one in costs.modes if one.kind == "plain" and (runner is None or one.runner in {None, runner})]
    if not found:
        return None
    ms, low, high = (
        _at(found, batch, 1, value)
        for value in (
            lambda some: _mean([one.ms for one in some]),
            lambda some: min(one.low for one in some),
            lambda some: max(one.high for one in some),
        )
    )
    return ms, low, high


def _mixed(idle: Band, drafting: Band, work: NDArray[np.float64], shared: tuple[float, float, float] | None) -> Band:
    """Return MX of both kinds; `work` is what verification takes in each of these steps, `shared` F where measured."""
    if shared is not None:
        ms, least, most = shared
        low = mixed_of(idle.low, drafting.low, most, work, 1.0)
        high = mixed_of(idle.high, drafting.high, least, work, 0.0)
        return Band(mixed_of(idle.ms, drafting.ms, ms, work), low, high, np.zeros_like(idle.measured))
    low = mixed_mode(idle.low, drafting.low, work, 1.0, 1.0)
    high = mixed_mode(idle.high, drafting.high, work, 0.0, 0.0)
    return Band(mixed_mode(idle.ms, drafting.ms, work), low, high, np.zeros_like(idle.measured))


def known(costs: Costs, method: tuple[str, str | None], lookup: Lookup) -> bool:
    """Whether anything is known of what a method adds to a step, measured or from the library."""
    return (
        bool(stand_in(costs, method)[0]) or _elsewhere(costs, method, lookup, kind="idle", base_ms=1.0)[0] is not None
    )


def _elsewhere(
    costs: Costs,
    method: tuple[str, str | None],
    lookup: Lookup,
    *,
    kind: Literal["idle", "drafting"],
    base_ms: float,
) -> tuple[EngineMode | None, str | None]:
    """Return a method's mode out of the library, and of which other method it is; None where it is its own.

    As of measured modes (`stand_in`): where the library has nothing of a method that drafts on the host, that of the
    other one stands in.
    """
    drafts, runner = method
    others = sorted(ON_THE_HOST - {drafts}) if drafts in ON_THE_HOST else []
    for name in (drafts, *others):
        found = lookup(
            engine=costs.engine, version=costs.version, runner=runner, method=name, base_ms=base_ms, kind=kind
        )
        if found is not None:
            return found, None if name == drafts else name
    return None, None


def stand_in(costs: Costs, method: tuple[str, str | None]) -> tuple[list[EngineMode], str | None]:
    """Return the modes that tell a method's, and of which other method they are; None where they are its own.

    n-gram and suffix draft on the host and switch the same off on one runner (asynchronous scheduling, full graphs):
    the mode of one stands in for the other's.
    """
    mine = [mode for mode in costs.modes if applies(mode, method)]
    if mine or method[0] not in ON_THE_HOST:
        return mine, None
    for other in sorted(ON_THE_HOST - {method[0]}):
        found = [mode for mode in costs.modes if applies(mode, (other, method[1]))]
        if found:
            return found, other
    return [], None


def applies(mode: EngineMode, method: tuple[str, str | None]) -> bool:
    """Whether a mode is that of a method, on a runner where both are known."""
    return mode.method == method[0] and (method[1] is None or mode.runner in {None, method[1]})


def _sources(modes: Sequence[EngineMode]) -> str:
    return ", ".join(dict.fromkeys(mode.source for mode in modes))


def _measured(
    modes: Sequence[EngineMode], batch: int, longest: int, base: Band, *, widen: tuple[float, float] | None = None
) -> Band:
    """Return M of a batch and a draft's length, through measured modes; widened where they are of the other kind."""
    modes = _of_draft(modes, batch, longest)
    flat = np.ones_like(base.ms)
    ms = _at(modes, batch, longest, lambda some: _mean([mode.ms for mode in some])) * flat
    low = _at(modes, batch, longest, lambda some: min(mode.low for mode in some)) * flat
    high = _at(modes, batch, longest, lambda some: max(mode.high for mode in some)) * flat
    if widen is None and any(mode.batch == batch and mode.tokens in {1, longest} for mode in modes):
        return Band(ms, low, high, np.ones_like(base.measured))
    if widen is not None:
        low, high = np.minimum(low, low * widen[0]), np.maximum(high, high * widen[1])
    ratio = _at(modes, batch, longest, lambda some: _mean([mode.ms / mode.base_ms for mode in some])) * base.ms
    low = np.minimum(np.minimum(low, ratio), np.minimum(ms * CARRIED[0], ms))
    high = np.maximum(np.maximum(high, ratio), np.maximum(ms * CARRIED[1], ms))
    return Band(ms, low, high, np.zeros_like(base.measured))


def _of_draft(modes: Sequence[EngineMode], batch: int, longest: int) -> Sequence[EngineMode]:
    """Return modes without the idle ones of other k at this batch, where one of this k is among them."""
    same = [one for one in modes if one.batch == batch and one.asked == longest]
    return [one for one in modes if one.batch != batch or one.asked in {None, longest}] if same else modes


def _at(modes: Sequence[EngineMode], batch: int, longest: int, value: Callable[[list[EngineMode]], float]) -> float:
    """Return a value of modes at a batch and a longest draft.

    At a measured batch it is interpolated between its lengths. Elsewhere the nearest length that was measured (of this
    batch, where any was) is taken at each batch, and these are interpolated over the tokens of a step in which all
    draft. So what is carried beyond the lengths of a batch starts from its own nearest one: another batch that happens
    to carry as many tokens, with drafts of another length, is another step.
    """
    length = 1 if all(mode.tokens == 1 for mode in modes) else longest
    by_batch: dict[int, dict[int, list[EngineMode]]] = {}
    for mode in modes:
        by_batch.setdefault(mode.batch, {}).setdefault(mode.tokens, []).append(mode)
    known = {tokens for one in ([by_batch[batch]] if batch in by_batch else by_batch.values()) for tokens in one}
    nearest = min(max(length, min(known)), max(known))
    values = {}
    for one, lengths in by_batch.items():
        tokens = sorted(lengths)
        values[one] = float(np.interp(nearest, tokens, [value(lengths[each]) for each in tokens]))
    if batch in values and nearest == length:
        return values[batch]
    batches = sorted(values)
    sizes = [one * nearest for one in batches]
    return float(np.interp(batch * length, sizes, [values[one] for one in batches]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _from_library(found: EngineMode, base: Band, *, widen: tuple[float, float] = (1.0, 1.0)) -> Band:
    flat = np.ones_like(base.ms)
    low, high = min(found.low, found.low * widen[0]), max(found.high, found.high * widen[1])
    return Band(found.ms * flat, low * flat, high * flat, np.zeros_like(base.measured))
