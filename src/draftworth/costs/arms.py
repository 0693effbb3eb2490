"""Engine modes out of finished trials: what null-draft and synthetic arms cost beyond their baseline's steps.

A *null-draft* arm speculates and drafts never, or next to never with a lookup that can hardly match: each of its steps
is a step of the baseline and M0. A
*synthetic* arm accepts drafts at a configured rate, so that its drafting steps are as long as those of a real drafter,
whatever the text. Of R requests in a step, each drafts with the arm's coverage c, so a step has a drafting request with
q = 1 - (1 - c)^R. With S the arm's measured step and E[T] the baseline's, expected over the mixture of requests that
draft and those that do not:

    S = E[T] + (1 - q) M0 + q M1

which gives M1. Where CUDA graphs tell steps in which all requests draft from mixed ones (`costs.graphs`), the last term
is of both kinds, and the solution has what they may share in its interval. An arm with a real drafter is never used:
its speed is what predictions are judged on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from draftworth.costs.arm_rows import Place, places_of
from draftworth.costs.arm_times import interval, own_step, shared_prompts
from draftworth.costs.base import Costs, EngineMode, Prefill, StepCost
from draftworth.costs.graphs import HIDDEN, WAYS, Mixture, in_pieces
from draftworth.costs.model import FittedModel
from draftworth.costs.prefill import prefill_share
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.trials.diagnostics import is_diagnostic as declared_diagnostic
from draftworth.trials.record import ArmRecord, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GRAPH_MODE = re.compile(r"[Ss]etting cudagraph_mode\s*(?:=|to)\s*(?:CUDAGraphMode\.)?(\w+)")
_ALWAYS = 0.999
"""Coverage from which on all steps draft."""
_NEVER = 0.005
"""Coverage up to which an arm of a long lookup counts as null-draft: one of 60 tokens finds a match now and then."""


def modes_from_trial(
    folder: Path,
    points: Sequence[StepCost] = (),
    *,
    engine: str | None = None,
    graph_sizes: tuple[int, ...] = (),
    prefills: Sequence[Prefill] = (),
    known_modes: Sequence[EngineMode] = (),
    explain: list[str] | None = None,
) -> tuple[list[EngineMode], list[StepCost]]:
    """Return the engine modes that a finished trial measured, and the baseline's own steps.

    Args:
        folder: the trial's folder, with `trial.json` and `requests.parquet`.
        points: measured points of T(B, n) of the same server, for steps that draft. The baseline's own steps of the
            trial are used beside them.
        engine: the server's engine, for its usual graph sizes.
        graph_sizes: token counts for which CUDA graphs were captured, where they are known.
        prefills: what prefills take beyond decode steps, of the probe that measured `points`.
        known_modes: of the same server: a null draft of another trial stands in where this one has none.
        explain: takes one line for each arm and point of which no mode could be made.

    Returns:
        Modes, and points with `how` "arm": the baseline's TPOT at each concurrency. Intervals are 95 % ones of a
        bootstrap over prompts, paired, widened to hold what each start by itself shows.

    Raises:
        UsageError: there is no such trial, its record or rows are damaged, or it measured no baseline.
    """
    told: list[str] = [] if explain is None else explain
    record = read(folder)
    places = places_of(record, folder, told)
    baseline = record.arms[0].name if record.arms else ""
    base = {(batch, label): place for (name, batch, label), place in places.items() if name == baseline}
    if not base:
        raise UsageError(f"{folder}: its baseline has no steps to compare with (open loop, or nothing was measured)")
    own = [own_step(place, points) for place in base.values()]
    known = Costs(created="", engine=engine, graph_sizes=graph_sizes, points=(*points, *own), prefills=tuple(prefills))
    steps = FittedModel(known)
    # Of an arm without speculation and without asynchronous scheduling: what mixed steps share with the others.
    modes = [
        _beyond(record.id, place, base[batch, label], kind="plain")
        for (name, batch, label), place in places.items()
        if name != baseline
        and _synchronous(place)
        and (batch, label) in base
        and shared_prompts(place.sums, base[batch, label].sums)
    ]
    for drafting in (False, True):  # the null-draft arms first: M1 needs M0
        for (name, batch, label), place in places.items():
            if name == baseline or _kind(place) is not drafting:
                continue
            if not place.speculation:
                told.append(f"{name}: the trial does not say what it was started with (speculative_config of the arm)")
                continue
            plain = base.get((batch, label))
            if plain is None:
                told.append(f"{name}: its baseline was not measured at the same point")
            elif not shared_prompts(place.sums, plain.sums):
                told.append(f"{name}: it and its baseline answered no prompt in common")
            elif drafting:
                shared = prefill_share(plain, plain.sums.tpot, points)[0]
                more = [*modes, *known_modes]
                modes += _drafting(record.id, place, plain, steps=steps, modes=more, told=told, prefill=shared)
            else:
                modes.append(_beyond(record.id, place, plain, kind="idle"))
    if not modes:
        told.append(f"trial {record.id}: no null-draft or synthetic arm, so no engine mode")
    return modes, own


def is_diagnostic(place: Place) -> bool:
    """Whether an arm only measures, as it is declared: a null draft, synthetic acceptance, or the scheduling alone."""
    declared = place.arm.declared
    return declared_diagnostic(place.speculation, declared.get("env") or {}, declared.get("args") or ())


def _synchronous(place: Place) -> bool:
    """Whether an arm has no speculation, and no asynchronous scheduling either."""
    return not place.speculation and declared_diagnostic(None, args=place.arm.declared.get("args") or ())


def _kind(place: Place) -> bool | None:
    """Whether an arm is synthetic (True), null-draft (False), or neither (None)."""
    counts = place.counts
    if counts is None or not counts.steps or counts.emitted is None or counts.drafting_steps is None:
        return None
    if synthetic_in(place.speculation, place.arm.declared.get("env") or {}):
        return True if counts.drafting_steps else None
    if not place.speculation:  # it counts drafts, and the record does not say what it was started with
        return False if counts.drafting_steps == 0 and counts.drafted == 0 else None
    # A real drafter that finds nothing is no null draft: what it costs is what is to be predicted. So the declaration
    # tells what an arm is for, and never its counts.
    few = counts.drafting_steps <= _NEVER * counts.steps
    return False if few and declared_diagnostic(place.speculation) else None


def _most_drafted(speculation: Mapping[str, Any]) -> int | None:
    """Return `num_speculative_tokens` of a configuration; None where it is not told."""
    found = speculation.get("num_speculative_tokens")
    return found if isinstance(found, int) and found > 0 else None


def _beyond(trial: str, place: Place, plain: Place, *, kind: Literal["idle", "plain"]) -> EngineMode:
    """Return what a step of an arm that drafts nothing has beyond its baseline's."""
    counts = place.counts
    drafts = kind == "idle" and counts is not None and counts.steps and counts.emitted
    per_token = counts.emitted / counts.steps if drafts and counts and counts.emitted and counts.steps else 1.0
    low, high = interval(place.sums, plain.sums, per_token)
    shared = shared_prompts(place.sums, plain.sums)
    step, base = place.sums.tpot_of(shared) * per_token, plain.sums.tpot_of(shared)
    return EngineMode(
        kind=kind,
        method=place.method if kind == "idle" else "none",
        runner=place.arm.runner,
        batch=place.batch,
        tokens=1,
        asked=1 + k if kind == "idle" and (k := _most_drafted(place.speculation)) else None,
        context=place.context,
        ms=step - base,
        low=min(low, step - base),
        high=max(high, step - base),
        step_ms=step,
        base_ms=base,
        source=f"trial {trial}, arm {place.arm.name}",
    )


def _drafting(
    trial: str,
    place: Place,
    plain: Place,
    *,
    steps: FittedModel,
    modes: Sequence[EngineMode],
    told: list[str],
    prefill: float,
) -> Iterator[EngineMode]:
    counts, name = place.counts, place.arm.name
    assert counts is not None
    if not counts.steps or not counts.emitted or not counts.drafting_steps or not counts.drafted:
        told.append(f"{name}: its counts of steps are not known, so its drafting steps cannot be told from the others")
        return
    per_token = counts.emitted / counts.steps
    coverage = min(1.0, counts.drafting_steps / counts.steps)
    drafts = 1 - (1 - coverage) ** place.batch
    lengths = draft_shares(counts.steps, counts.drafting_steps, counts.drafted)
    length = counts.drafted / counts.drafting_steps
    mean = place.batch * (1 + coverage * length / drafts)  # of a step that drafts
    # A mode belongs to the longest draft that was asked for; drafts that fall short of it are in the mixture.
    n = max(1 + (_most_drafted(place.speculation) or 0), len(lengths))
    if mean > max(one.batch * one.tokens for one in steps.costs.points):
        told.append(f"{name} at {place.batch}: T of {mean:.3g} tokens a step was not measured; probe it (--tokens {n})")
        return
    mixed = steps.expected(lengths, place.batch, place.context)
    alone = steps.expected(np.ones(1), place.batch, place.context)
    verify = (mixed.ms - (1 - drafts) * alone.ms) / drafts
    idle = 0.0
    if drafts < _ALWAYS or in_pieces((place.method, place.arm.runner), steps.costs.graph_sizes, graph_mode(place.arm)):
        found = [
            one
            for one in modes
            if one.kind == "idle"
            and (one.method, one.runner, one.batch) == (place.method, place.arm.runner, place.batch)
        ]
        found.sort(key=lambda one: one.asked != n)  # one of the same k first
        if not found:
            told.append(
                f"{name} at {place.batch}: {1 - coverage:.0%} of its requests' steps draft nothing, and no null-draft "
                f"arm of {place.method} tells what those cost"
            )
            return
        idle = found[0].ms
    both_answered = shared_prompts(place.sums, plain.sums)
    # Each output token waits for the prefills of others, however few steps it takes: they are no part of a step.
    step = (place.sums.tpot_of(both_answered) - prefill) * per_token
    base = plain.sums.tpot_of(both_answered) - prefill
    taken = prefill * (per_token - (1 - drafts))
    low, high = (one - taken for one in interval(place.sums, plain.sums, per_token, less=1 - drafts))
    spread = (mixed.high - mixed.low) / 2
    centre = step - (1 - drafts) * base
    below, above = np.hypot(max(0.0, centre - low), spread), np.hypot(max(0.0, high - centre), spread)
    both = step - mixed.ms - (1 - drafts) * idle
    found_modes: dict[Literal["drafting", "mixed"], tuple[float, float, float]]
    uniform = float(lengths[n - 1]) ** place.batch if len(lengths) == n else 0.0
    if (
        in_pieces((place.method, place.arm.runner), steps.costs.graph_sizes, graph_mode(place.arm))
        and uniform < drafts * _ALWAYS
    ):
        ends = (both - below, both, both + above)
        shared = _shared(modes, place)
        mixture = Mixture(uniform, *steps.mixed_work(lengths, place.batch, n, place.context))
        if shared:
            pairs = list(zip(shared, (0.0, HIDDEN, 1.0), strict=True))
            solved = np.array([[mixture.solve_with(one, idle, *pair) for pair in pairs] for one in ends])
        else:
            solved = np.array([[mixture.solve(one, idle, *way) for way in WAYS] for one in ends])
        every, some = solved[..., 0], solved[..., 1]
        found_modes = {
            "drafting": (float(every[1, 1]), float(every.min()), float(every.max())),
            "mixed": (float(some[1, 1]), float(some.min()), float(some.max())),
        }
    else:
        found_modes = {"drafting": (both / drafts, float(both - below) / drafts, float(both + above) / drafts)}
    for kind, (ms, least, most) in found_modes.items():
        yield EngineMode(
            kind=kind,
            method=place.method,
            runner=place.arm.runner,
            batch=place.batch,
            tokens=n,
            mean_tokens=1 + length if 1 + length < n else None,
            context=place.context,
            ms=ms,
            low=least,
            high=most,
            step_ms=verify + ms,
            base_ms=verify,
            source=f"trial {trial}, arm {name}",
        )


def _shared(modes: Sequence[EngineMode], place: Place) -> tuple[float, float, float] | None:
    """Return F at an arm's batch: lower end, value, upper end; None where it was not measured."""
    found = [one for one in modes if one.kind == "plain" and one.batch == place.batch]
    return (found[0].low, found[0].ms, found[0].high) if found else None


def graph_mode(arm: ArmRecord) -> str | None:
    """Return the `cudagraph_mode` that an arm's log says was set in the end; None where it says nothing of it."""
    found = [_GRAPH_MODE.search(one.line) for one in arm.warnings if "cudagraph" in one.line.lower()]
    told = [one[1].upper() for one in found if one]
    return told[-1] if told else None


def draft_shares(steps: int, drafting_steps: int, drafted: int, k: int | None = None) -> "NDArray[np.float64]":
    """Return the share of an arm's steps that drafted 0, 1, … tokens, its drafts as alike as whole tokens can be.

    Args:
        steps: of the arm.
        drafting_steps: at least 1.
        drafted: tokens, at least as many as there are drafting steps.
        k: the longest draft that was asked for, for k + 1 shares at least; None ends at the longest there is.
    """
    length, longer = divmod(drafted, drafting_steps)
    shares = np.zeros(max(length + (2 if longer else 1), (k or 0) + 1))
    shares[0] = (steps - min(steps, drafting_steps)) / steps
    shares[length] = (1 - shares[0]) * (1 - longer / drafting_steps)
    if longer:
        shares[length + 1] = (1 - shares[0]) * longer / drafting_steps
    return shares
