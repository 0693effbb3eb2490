"""Engine modes out of finished trials: what null-draft and synthetic arms cost beyond their baseline's steps.

A *null-draft* arm speculates and drafts next to never: each of its steps is a step of the baseline and M0. A
*synthetic* arm accepts drafts at a configured rate, so that its drafting steps are as long as those of a real drafter,
whatever the text. Of R requests in a step, each drafts with the arm's coverage c, so a step has a drafting request with
q = 1 - (1 - c)^R and carries R + R c d / q tokens then (d drafted tokens a drafting request). With S the arm's measured
step and T the baseline's:

    S = (1 - q) (T(R, 1) + M0) + q (T(R + R c d / q tokens) + M1)

which gives M1. An arm with a real drafter is never used: its speed is what predictions are judged on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from draftworth.costs.arm_rows import Place, Sums, places_of
from draftworth.costs.base import EngineMode, StepCost
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.trials.record import read

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 2000
_ALWAYS = 0.999
"""Coverage from which on all steps draft."""
_NEVER = 0.005
"""Coverage up to which an arm counts as null-draft: a lookup of 60 tokens finds a match now and then."""


def modes_from_trial(
    folder: Path, points: Sequence[StepCost] = (), *, explain: list[str] | None = None
) -> tuple[list[EngineMode], list[StepCost]]:
    """Return the engine modes that a finished trial measured, and the baseline's own steps.

    Args:
        folder: the trial's folder, with `trial.json` and `requests.parquet`.
        points: measured points of T(B, n) of the same server, for steps that draft. The baseline's own steps of the
            trial are used beside them: B n requests of one token where no point of n tokens is there.
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
    own = [_step(place) for place in base.values()]
    steps = _Steps([*points, *own])
    modes: list[EngineMode] = []
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
            elif drafting:
                modes += _drafting(record.id, place, plain, steps=steps, modes=modes, told=told)
            else:
                modes.append(_idle(record.id, place, plain))
    if not modes:
        told.append(f"trial {record.id}: no null-draft or synthetic arm, so no engine mode")
    return modes, own


def _kind(place: Place) -> bool | None:
    """Whether an arm is synthetic (True), null-draft (False), or neither (None)."""
    counts = place.counts
    if counts is None or not counts.steps or counts.emitted is None or counts.drafting_steps is None:
        return None
    if synthetic_in(place.speculation, place.arm.declared.get("env") or {}):
        return True if counts.drafting_steps else None
    return False if counts.drafting_steps <= _NEVER * counts.steps else None


def _idle(trial: str, place: Place, plain: Place) -> EngineMode:
    counts = place.counts
    assert counts is not None
    assert counts.steps
    per_token = (counts.emitted or counts.steps) / counts.steps
    low, high = _interval(place.sums, plain.sums, per_token)
    step, base = place.sums.tpot * per_token, plain.sums.tpot
    return EngineMode(
        kind="idle",
        method=place.method,
        runner=place.arm.runner,
        batch=place.batch,
        tokens=1,
        ms=step - base,
        low=min(low, step - base),
        high=max(high, step - base),
        step_ms=step,
        base_ms=base,
        source=f"trial {trial}, arm {place.arm.name}",
    )


def _drafting(
    trial: str, place: Place, plain: Place, *, steps: "_Steps", modes: Sequence[EngineMode], told: list[str]
) -> Iterator[EngineMode]:
    counts, name = place.counts, place.arm.name
    assert counts is not None
    if not counts.steps or not counts.emitted or not counts.drafting_steps or not counts.drafted:
        told.append(f"{name}: its counts of steps are not known, so its drafting steps cannot be told from the others")
        return
    per_token = counts.emitted / counts.steps
    coverage = min(1.0, counts.drafting_steps / counts.steps)
    drafts = 1 - (1 - coverage) ** place.batch
    drafted = counts.drafted / counts.drafting_steps
    tokens = place.batch + place.batch * coverage * drafted / drafts
    n = round(drafted) + 1
    verify = steps.at(place.batch, n, tokens, place.context)
    if verify is None:
        told.append(
            f"{name} at {place.batch}: T of {tokens:.3g} tokens a step was not measured; probe it (--tokens {n})"
        )
        return
    idle = 0.0
    if drafts < _ALWAYS:
        found = [
            one
            for one in modes
            if one.kind == "idle"
            and (one.method, one.runner, one.batch) == (place.method, place.arm.runner, place.batch)
        ]
        if not found:
            told.append(
                f"{name} at {place.batch}: {1 - drafts:.0%} of its steps draft nothing, and no null-draft arm of "
                f"{place.method} tells what those cost"
            )
            return
        idle = found[0].ms
    step, base = place.sums.tpot * per_token, plain.sums.tpot
    whole = (step - (1 - drafts) * (base + idle)) / drafts
    low, high = _interval(place.sums, plain.sums, per_token, less=1 - drafts)
    spread = (verify.high - verify.low) / 2
    ms = whole - verify.ms
    centre = step - (1 - drafts) * base
    below, above = max(0.0, centre - low) / drafts, max(0.0, high - centre) / drafts
    yield EngineMode(
        kind="drafting",
        method=place.method,
        runner=place.arm.runner,
        batch=place.batch,
        tokens=n,
        ms=ms,
        low=ms - float(np.hypot(below, spread)),
        high=ms + float(np.hypot(above, spread)),
        step_ms=whole,
        base_ms=verify.ms,
        source=f"trial {trial}, arm {name}",
    )


def _interval(arm: Sums, base: Sums, scale: float, *, less: float = 1.0) -> tuple[float, float]:
    """Return the interval of scale x TPOT(arm) - less x TPOT(baseline), over prompts both answered."""
    shared = [name for name in arm.prompts if name in base.prompts]
    found: list[float] = []
    for one in arm.starts:
        found += [scale * one[0] / one[1] - less * other[0] / other[1] for other in base.starts]
    if len(shared) > 1:
        table = np.array([[*arm.prompts[name], *base.prompts[name]] for name in shared])
        picks = np.random.default_rng(0).integers(0, len(shared), (RESAMPLES, len(shared)))
        sums: NDArray[np.float64] = table[picks].sum(axis=1)
        values = scale * sums[:, 0] / sums[:, 1] - less * sums[:, 2] / sums[:, 3]
        found += [float(one) for one in np.quantile(values, (0.025, 0.975))]
    return min(found), max(found)


@dataclass(frozen=True, slots=True)
class _Steps:
    """T of a number of tokens, out of measured points."""

    points: Sequence[StepCost]

    def at(self, batch: int, n: int, tokens: float, context: int) -> StepCost | None:
        """Return T of a step, None beyond what was measured.

        The point of (batch, n) where every request drafts alike, else the mean of the neighbours in the number of
        tokens, weighted by distance: first among points of this batch, then among streams of one token.
        """
        exact = [one for one in self.points if (one.batch, one.tokens) == (batch, n) and n > 1]
        if exact and abs(tokens - batch * n) < 0.05 * tokens:
            return min(exact, key=lambda one: abs(one.context - context))
        own = [one for one in self.points if one.batch == batch]
        return _between(own, tokens, context) or _between(
            [one for one in self.points if one.tokens == 1], tokens, context
        )


def _between(points: Sequence[StepCost], tokens: float, context: int) -> StepCost | None:
    nearest: dict[int, StepCost] = {}
    for one in points:
        size = one.batch * one.tokens
        if size not in nearest or abs(one.context - context) < abs(nearest[size].context - context):
            nearest[size] = one
    below = max((size for size in nearest if size <= tokens), default=None)
    above = min((size for size in nearest if size >= tokens), default=None)
    if below is None or above is None:
        return None
    share = 0.0 if above == below else (tokens - below) / (above - below)
    first, second = nearest[below], nearest[above]
    return first.model_copy(
        update={
            name: (1 - share) * getattr(first, name) + share * getattr(second, name) for name in ("ms", "low", "high")
        }
    )


def _step(place: Place) -> StepCost:
    ms = place.sums.tpot
    alone = Sums({name: (0.0, tokens) for name, (_, tokens) in place.sums.prompts.items()}, ((0.0, 1.0),))
    low, high = _interval(place.sums, alone, 1.0)
    return StepCost(
        batch=place.batch,
        tokens=1,
        context=place.context,
        ms=ms,
        low=min(low, ms),
        high=max(high, ms),
        repeats=max(1, len(place.sums.starts)),
        how="arm",
    )
