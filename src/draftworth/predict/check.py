"""Predicted against measured, for every arm of finished trials at every load.

A cell is predicted from what is known without its arm: the baseline's own outputs are replayed, and costs come from
points and modes of other arms (docs/prediction-error.md). An arm that a mode was fitted to is not judged. Where an arm
accepts at a configured rate, there is nothing to replay: its own counts stand in, and the cell judges the cost alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from draftworth.costs.arms import draft_shares, modes_from_trial
from draftworth.costs.base import Costs
from draftworth.costs.model import FittedModel
from draftworth.drafters import drafter
from draftworth.drafters.base import Limits
from draftworth.drafters.counts import SettingCounts, Tally
from draftworth.engines.base import AcceptanceCounts, synthetic_in
from draftworth.errors import UsageError
from draftworth.predict.base import Checked, CheckedCell, Range
from draftworth.predict.speculation import method_of, replayable
from draftworth.predict.speedup import Steps, predict_one, steps_per_token
from draftworth.predict.trialrows import Load, Measured, measured

_RESAMPLES = 2000
_Z = 1.96


def check_trials(
    folders: Sequence[Path], costs: Costs | None = None, speculation: Mapping[str, Mapping[str, Any]] | None = None
) -> Checked:
    """Predict every arm of finished trials and compare with what was measured.

    Args:
        folders: the trials'.
        costs: measured points and modes; None takes what the trials' own baselines, null-draft and synthetic arms tell.
            A costs file without modes gets theirs.
        speculation: arm to what its server was started with, where the record does not say it.

    Raises:
        UsageError: a trial cannot be read.
    """
    left_out: list[str] = []
    trials = [_with(measured(folder), speculation or {}) for folder in folders]
    known = _known(folders, costs, left_out)
    fitted = {mode.source for mode in known.modes}
    cells: list[CheckedCell] = []
    for trial in trials:
        for (name, concurrency), load in trial.loads.items():
            if name == trial.baseline:
                continue
            where = f"{trial.record.id}, {name} at {concurrency} at a time"
            plain = trial.loads.get((trial.baseline, concurrency))
            if any(source == f"trial {trial.record.id}, arm {name}" for source in fitted):
                left_out.append(f"{where}: its speed was used to fit an engine mode")
            elif plain is None:
                left_out.append(f"{where}: its baseline was not measured at this load")
            else:
                try:
                    cells.append(_cell(trial, load, plain, FittedModel(known)))
                except UsageError as error:
                    left_out.append(f"{where}: {error}")
    errors = np.array([abs(one.error) for one in cells])
    return Checked(
        cells=tuple(cells),
        left_out=tuple(left_out),
        median_error=float(np.median(errors)) if cells else None,
        p95_error=float(np.quantile(errors, 0.95)) if cells else None,
        wrong_signs=sum(one.sign_right is False for one in cells),
    )


def _with(trial: Measured, speculation: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Return the trial with what its arms were started with."""
    loads = {
        key: Load(
            load.arm.model_copy(update={"declared": {**load.arm.declared, "speculative_config": speculation[key[0]]}})
            if key[0] in speculation
            else load.arm,
            load.concurrency,
            load.answers,
            load.counts,
        )
        for key, load in trial.loads.items()
    }
    return Measured(trial.record, loads)


def _known(folders: Sequence[Path], costs: Costs | None, told: list[str]) -> Costs:
    """Return the costs file, with the trials' modes where it has none; without a file also with their baselines."""
    if costs is not None and costs.modes:
        return costs
    given = costs or Costs(created="")
    # Every baseline is a point of T, also for the modes of the other trials.
    points = [*given.points, *(point for folder in folders for point in modes_from_trial(folder)[1])]
    modes = [
        mode
        for folder in folders
        for mode in modes_from_trial(folder, points, engine=given.engine, graph_sizes=given.graph_sizes, explain=told)[
            0
        ]
    ]
    return given.model_copy(update={"points": given.points or tuple(points), "modes": tuple(modes)})


def _cell(trial: Measured, load: Load, plain: Load, model: FittedModel) -> CheckedCell:
    prompts = sorted(load.answers.decode.keys() & plain.answers.decode.keys())
    if not prompts:
        raise UsageError("no prompt was answered by both arms")
    config = load.arm.declared.get("speculative_config")
    if not isinstance(config, Mapping):
        raise UsageError("its speculative configuration is not in the record; give --speculation ARM=JSON")
    if synthetic_in(config):
        method: tuple[str, str | None] = str(config.get("method")), load.arm.runner
        counts, steps = _from_counts(load.counts, int(config["num_speculative_tokens"]))
        source = "synthetic"
    else:
        counts, steps, method = _from_replay(plain, frozenset(prompts), config, load.arm.runner)
        source = "replay"
    batch, context = load.concurrency, plain.answers.context
    base = model.expected(np.ones(1), batch, context)
    told = predict_one(counts, steps, base, model, batch=batch, context=context, method=method)
    found = _ratio(plain.answers.tpot(prompts), load.answers.tpot(prompts))
    speed = Range(value=1 / found.value, low=1 / found.high, high=1 / found.low)
    spread = np.exp(_Z * steps.log_sd)
    own = _own_steps(load.counts)
    mean = float(np.mean(load.answers.tpot(prompts)))
    clear = speed.low > 1 or speed.high < 1
    return CheckedCell(
        trial=trial.record.id,
        arm=load.arm.name,
        concurrency=batch,
        predicted=told.speed_up,
        measured=speed,
        error=told.speed_up.value / speed.value - 1,
        sign_right=((told.speed_up.value > 1) == (speed.value > 1)) if clear else None,
        steps_per_token=Range(value=steps.per_token, low=steps.per_token / spread, high=steps.per_token * spread),
        measured_steps_per_token=own,
        step_ms=Range(value=told.parts.step_ms, low=told.parts.step_ms, high=told.parts.step_ms),
        measured_step_ms=None if own is None else mean / own,
        source="synthetic" if source == "synthetic" else "replay",
    )


def _from_replay(
    plain: Load, prompts: frozenset[str], config: Mapping[str, Any], runner: str | None
) -> tuple[SettingCounts, Steps, tuple[str, str | None]]:
    found = replayable(config, runner)
    if found is None:
        raise UsageError(f"drafts of method {config.get('method')!r} cannot be replayed")
    batch = plain.answers.batch(prompts)
    if batch is None:
        raise UsageError("the baseline's answers have no token ids")
    algorithm = drafter(found.drafter)
    session = algorithm.session([found.setting], Limits(concurrency=plain.concurrency if algorithm.shared else 1))
    counted = session.feed(batch, np.zeros((len(batch), 2), dtype=np.int32), 1)
    emitted = (batch.output_lengths - 1).astype(np.int32)
    has = emitted > 0
    if not has.any():
        raise UsageError("no answer has a second token")
    tally = Tally(counted.joint[0, 0], int(emitted[has].sum()), found.setting.k)
    counts = SettingCounts(found.setting, tally, {}, {}, None, None)
    return counts, steps_per_token(counted.steps[0][has], emitted[has]), method_of(found.drafter)


def _from_counts(counts: AcceptanceCounts | None, k: int) -> tuple[SettingCounts, Steps]:
    """Return an arm's own counts as if they were replayed: all drafts as long as the mean, to its two neighbours."""
    from draftworth.drafters.base import Setting  # noqa: PLC0415 - beside its only use

    if counts is None or not counts.steps or not counts.emitted or counts.drafting_steps is None or not counts.drafted:
        raise UsageError("its counts of steps and drafts are not known at this load")
    joint = np.zeros((k + 1, k + 1), dtype=np.int64)
    shares = draft_shares(counts.steps, counts.drafting_steps, counts.drafted)
    joint[: len(shares), 0] = np.rint(shares * counts.steps)
    # Only sums are read of it: how many were accepted does not matter to a step's cost.
    tally = Tally(joint, counts.emitted, k)
    return SettingCounts(Setting(k), tally, {}, {}, None, None), Steps(counts.steps / counts.emitted, 0.0)


def _own_steps(counts: AcceptanceCounts | None) -> float | None:
    return None if counts is None or not counts.steps or not counts.emitted else counts.steps / counts.emitted


def _ratio(base: "np.ndarray[Any, Any]", arm: "np.ndarray[Any, Any]") -> Range:
    """Return mean(arm) / mean(base) with a paired bootstrap interval over prompts."""
    value = float(arm.mean() / base.mean())
    if len(base) < 2:  # noqa: PLR2004 - no spread of one
        return Range(value=value, low=value, high=value)
    picks = np.random.default_rng(0).integers(0, len(base), (_RESAMPLES, len(base)))
    low, high = np.quantile(arm[picks].mean(axis=1) / base[picks].mean(axis=1), (0.025, 0.975))
    return Range(value=value, low=float(low), high=float(high))
