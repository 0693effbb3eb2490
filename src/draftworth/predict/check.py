"""Predicted against measured, for every arm of finished trials at every point.

Costs come from points and modes of other arms, and p from the baseline's times (docs/prediction-error.md). An arm that
a mode was fitted to is not judged. Steps come from the baseline's own answers, replayed (`replay`); where a running
server of suffix drafting had met the same prompts in earlier trials, also from what it answered there (`remembered`).
Where an arm accepts at a configured rate, there is nothing to replay: its own counts stand in, and the cell judges the
costs alone (`synthetic`). The three are pooled apart.

What is compared is the mean over prompts of the arm's TPOT over the same of the baseline. The measured interval is one
over prompts alone: what another start of a server would have given is not in it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from draftworth.costs.arms import is_diagnostic
from draftworth.costs.base import Costs
from draftworth.costs.model import FittedModel
from draftworth.costs.prefill import prefill_share
from draftworth.drafters import drafter
from draftworth.drafters.base import Setting
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.predict.advice import MARGIN
from draftworth.predict.armreplay import from_counts, knew, replayed
from draftworth.predict.armsteps import arm_steps, pooled
from draftworth.predict.base import Checked, CheckedCell, Range, Source
from draftworth.predict.pools import pools
from draftworth.predict.speculation import replayable
from draftworth.predict.speedup import Z, predict_one
from draftworth.predict.trialcosts import contradiction, costs_of
from draftworth.predict.trialrows import Load, Measured, measured

_RESAMPLES = 2000


def check_trials(
    folders: Sequence[Path],
    costs: Costs | None = None,
    speculation: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    before_reload: bool = False,
) -> Checked:
    """Predict every arm of finished trials and compare with what was measured.

    Args:
        folders: the trials'.
        costs: measured points and modes; None takes what the trials' own baselines, null-draft and synthetic arms tell,
            each server's for its own trials alone. A costs file without modes gets theirs. A trial whose engine or
            model is another than the costs file's is left out.
        speculation: arm to what its server was started with, where the record does not say it.
        before_reload: leave out every engine mode that was measured on these servers, so that the library of other
            servers' stands in: what could have been told before any arm ran. Arms that only measure are not judged.

    Raises:
        UsageError: a trial cannot be read, or `speculation` names an arm that none has.
    """
    every = [measured(folder) for folder in folders]
    _known_arms(every, speculation or {})
    left_out: list[str] = []
    kept: list[tuple[Path, Measured]] = []
    for folder, trial in zip(folders, every, strict=True):
        why = None if costs is None else contradiction(costs, trial.record)
        if why is None:
            kept.append((folder, trial.told(speculation or {})))
        else:
            left_out.append(f"trial {trial.record.id}: {why}; the file is not used for it")
    told: list[str] = []
    known = costs_of([folder for folder, _ in kept], [trial.record for _, trial in kept], costs, told)
    if before_reload:
        known = [one.model_copy(update={"modes": ()}) for one in known]
    else:
        left_out += told
    trials = [trial for _, trial in kept]
    cells = [
        cell
        for trial, own in zip(trials, known, strict=True)
        for cell in _cells(trial, own, [one for one in trials if _before(one, trial)], left_out, bare=before_reload)
    ]
    errors = np.array([abs(one.error) for one in cells])
    learns = {(trial.record.id, name) for trial in trials for (name, _), load in trial.loads.items() if _shares(load)}
    return Checked(
        cells=tuple(cells),
        left_out=tuple(left_out),
        median_error=float(np.median(errors)) if cells else None,
        p95_error=float(np.quantile(errors, 0.95)) if cells else None,
        wrong_signs=sum(one.sign_right is False for one in cells),
        pools=pools(cells),
        findings=tuple(text for cell in cells if (text := _contradicts(cell, learns=(cell.trial, cell.arm) in learns))),
    )


def _shares(load: Load) -> bool:
    """Whether an arm's requests learn from each other."""
    config = load.arm.declared.get("speculative_config")
    return load.place.method == "suffix" or (isinstance(config, Mapping) and config.get("method") == "suffix")


def _contradicts(cell: CheckedCell, *, learns: bool) -> str | None:
    """Return a finding where an arm's own steps contradict the replay: beyond its interval, and by more than 2 %.

    Like is held against like: where only the counters' steps over tokens are known, so are those of the replay.
    """
    own = cell.measured_steps_per_token
    if cell.source == "synthetic" or own is None:
        return None
    told, factor = cell.steps_per_token, 1.0
    if cell.steps_by == "steps" and cell.pooled_steps_per_token is not None:
        factor = cell.pooled_steps_per_token / told.value
    steps = Range(value=told.value * factor, low=told.low * factor, high=told.high * factor)
    if steps.low <= own <= steps.high or abs(own / steps.value - 1) <= MARGIN:
        return None
    where = cell.point or f"{cell.concurrency} at a time"
    knew = "its server knew these prompts already (name its earlier trials too), or " if learns else ""
    return (
        f"{cell.trial}, {cell.arm} at {where}: it took {own:.3f} steps a token, the replay says {steps.value:.3f} "
        f"({steps.low:.3f} to {steps.high:.3f}): {knew}its drafts or its answers differ from what was replayed; the "
        "cell's error is not that of the costs alone"
    )


def _known_arms(trials: Sequence[Measured], speculation: Mapping[str, Mapping[str, Any]]) -> None:
    names = dict.fromkeys(name for trial in trials for name in trial.arms)
    for name in speculation:
        if name not in names:
            raise UsageError(f"--speculation: no trial has an arm {name!r}; there are {', '.join(names) or 'none'}")


def _before(one: Measured, trial: Measured) -> bool:
    return (one.record.created, one.record.id) < (trial.record.created, trial.record.id)


def _cells(
    trial: Measured, costs: Costs, earlier: Sequence[Measured], left_out: list[str], *, bare: bool
) -> list[CheckedCell]:
    """Return a trial's cells, and a line for each arm and point without one."""
    left_out += trial.missing
    variants = [load for (name, _label), load in trial.loads.items() if name != trial.baseline]
    if not variants:
        return []
    try:
        model = FittedModel(costs)
    except UsageError as error:
        left_out += [f"{trial.record.id}, {load.arm.name} at {load.where}: {error}" for load in variants]
        return []
    fitted = {mode.source for mode in costs.modes}
    cells = []
    for load in variants:
        where = f"{trial.record.id}, {load.arm.name} at {load.where}"
        plain = trial.loads.get((trial.baseline, load.label))
        if f"trial {trial.record.id}, arm {load.arm.name}" in fitted:
            left_out.append(f"{where}: its speed was used to fit an engine mode")
        elif bare and is_diagnostic(load.place):
            left_out.append(f"{where}: it only measures, and what it measures is left out")
        elif plain is None:
            left_out.append(f"{where}: its baseline was not measured at this load")
        else:
            try:
                cells.append(_cell(trial, load, plain, model, earlier))
            except UsageError as error:
                left_out.append(f"{where}: {error}")
    return cells


def _cell(trial: Measured, load: Load, plain: Load, model: FittedModel, earlier: Sequence[Measured]) -> CheckedCell:
    prompts = sorted(load.place.sums.prompts.keys() & plain.place.sums.prompts.keys())
    if not prompts:
        raise UsageError("no prompt was answered by both arms")
    config = load.arm.declared.get("speculative_config")
    if not isinstance(config, Mapping):
        raise UsageError("its speculative configuration is not in the record; give --speculation ARM=JSON")
    batch, own = load.place.batch, load.counts
    source: Source = "replay"
    more_sd = 0.0
    if synthetic_in(config, load.arm.declared.get("env") or {}):
        source = "synthetic"
        setting, method = Setting(_drafts(config)), (load.place.method, load.arm.runner)
        requests, more_sd = from_counts(own or load.place.counts, setting.k)
    else:
        if load.arm.engine != "vllm":
            raise UsageError(f"drafts of {load.arm.engine} cannot be replayed from a trial")
        found = replayable({**config, "method": load.place.method}, load.arm.runner)
        if not drafter(found.drafter).shared:  # vLLM's suffix takes its tree's depth
            _drafts(config)
        setting, method = found.setting, found.method
        before = [one for one in earlier if _same_server(one, trial, load)]
        requests = replayed(trial, load, found, prompts, before)
        if drafter(found.drafter).shared and knew(load, before):
            source = "remembered"
    prefill = prefill_share(plain.place, plain.place.sums.tpot, model.costs.points)
    told = predict_one(
        setting, requests, model, batch=batch, context=plain.place.context, method=method, prefill=prefill
    )
    predicted = _wider(told.speed_up, more_sd)
    ratio = _ratio(plain.tpot(prompts), load.tpot(prompts))
    speed = Range(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)
    steps = arm_steps(load, prompts, prefill[0])
    clear = speed.low > 1 or speed.high < 1
    return CheckedCell(
        trial=trial.record.id,
        arm=load.arm.name,
        point=load.label,
        concurrency=batch,
        predicted=predicted,
        measured=speed,
        error=predicted.value / speed.value - 1,
        sign_right=((predicted.value > 1) == (speed.value > 1)) if clear else None,
        steps_per_token=_wider(told.steps_per_token, more_sd),
        pooled_steps_per_token=pooled(requests),
        measured_steps_per_token=None if steps is None else steps.per_token,
        steps_by=None if steps is None else steps.by,
        step_ms=told.step_ms,
        measured_step_ms=None if steps is None else steps.step_ms,
        base_ms=told.parts.base_ms,
        measured_base_ms=float(plain.tpot(prompts).mean()),
        prefill_ms=told.prefill_ms,
        prompts=len(prompts),
        starts=len({row.start for row in load.rows if row.timed}),
        source=source,
    )


def _drafts(config: Mapping[str, Any]) -> int:
    """Return how many tokens an arm drafts at most.

    Raises:
        UsageError: its configuration does not say, or not as a whole number.
    """
    value = config.get("num_speculative_tokens")
    if value is None:
        raise UsageError("its speculative configuration has no num_speculative_tokens")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"num_speculative_tokens is {value!r} and not a whole number of at least 1")
    return value


def _same_server(one: Measured, trial: Measured, load: Load) -> bool:
    """Whether an earlier trial asked the very server that this arm is: one that ran before either began."""
    server = trial.server(load.arm.name)
    return server is not None and one.server(load.arm.name) == server


def _wider(one: Range, log_sd: float) -> Range:
    """Return an interval widened by an independent error of the logarithm."""
    low, high = (
        math.hypot(math.log(one.value / one.low), Z * log_sd),
        math.hypot(math.log(one.high / one.value), Z * log_sd),
    )
    return Range(value=one.value, low=one.value * math.exp(-low), high=one.value * math.exp(high))


def _ratio(base: "np.ndarray[Any, Any]", arm: "np.ndarray[Any, Any]") -> Range:
    """Return mean(arm) / mean(base) with a paired bootstrap interval over prompts."""
    value = float(arm.mean() / base.mean())
    if len(base) < 2:  # noqa: PLR2004 - no spread of one
        return Range(value=value, low=value, high=value)
    picks = np.random.default_rng(0).integers(0, len(base), (_RESAMPLES, len(base)))
    low, high = np.quantile(arm[picks].mean(axis=1) / base[picks].mean(axis=1), (0.025, 0.975))
    return Range(value=value, low=float(low), high=float(high))
