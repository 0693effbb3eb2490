"""The account of a whole trial: every variant at every load, and what would change the verdict."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.costs.arms import graph_mode, is_diagnostic
from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs
from draftworth.costs.model import FittedModel
from draftworth.costs.prefill import prefill_share
from draftworth.errors import UsageError
from draftworth.explain.account import account
from draftworth.explain.base import Account, Explained, Inputs
from draftworth.explain.beside import DrafterTime, drafter_at, profiled_drafters, spread_of
from draftworth.explain.changes import changes, settings_predicted
from draftworth.explain.drift import drift_of
from draftworth.explain.evencurve import even_curves
from draftworth.explain.inputs import costs_beside
from draftworth.explain.mode import StatedTooMuchError
from draftworth.explain.stepcurve import curve_points
from draftworth.explain.steps import steps_of
from draftworth.explain.words import foremost, otherwise, says_slower
from draftworth.predict.base import Predicted, Range
from draftworth.predict.speculation import replayable
from draftworth.predict.trialcosts import contradiction, costs_of, server
from draftworth.predict.trialrows import Load, Measured, measured
from draftworth.traces.store import open_trace
from draftworth.trials.probing import COSTS
from draftworth.trials.record import TrialRecord, read

_APART = 0.1
"""A trial's own baseline step and the costs file's may differ by this share before it is said."""


def explain_trial(
    folder: Path,
    costs: Costs | None = None,
    others: Sequence[Path] = (),
    *,
    speculation: Mapping[str, Mapping[str, Any]] | None = None,
    drafter_ms: Mapping[str, Range] | None = None,
    costs_name: str = "",
) -> Explained:
    """Assign the milliseconds between a trial's arms to causes.

    Args:
        folder: the trial's.
        costs: measured points of its baseline, perhaps with modes; None takes those that the trial probed, else what
            the trials' own arms tell.
        others: further trials of the same server, whose null-draft and synthetic arms tell modes.
        speculation: arm to what its server was started with, where the record does not say it.
        drafter_ms: arm to its drafter's milliseconds a step, as somebody states it; it goes before the trial's own
            profiles.
        costs_name: what `costs` are called, for whoever reads the account.

    Raises:
        UsageError: a trial cannot be read, the costs are of another server, or something is stated of an arm that is
            not there or cannot be.
    """
    trial = measured(folder)
    _check_arms(trial.record, "--drafter-ms", drafter_ms or {})
    _check_arms(trial.record, "--speculation", speculation or {})
    trial = trial.told(speculation or {})
    told: list[str] = []
    given_costs = costs is not None
    if costs is None and (folder / COSTS).exists():
        costs, costs_name = load_costs(folder / COSTS), COSTS
    if costs is not None:
        why = contradiction(costs, trial.record)
        if why is not None:
            raise UsageError(f"trial {trial.record.id}: {why}")
    folders = [folder, *others]
    records = [trial.record, *(read(one) for one in others)]
    inputs = Inputs(
        costs=(costs_name or "given") if costs is not None else "",
        costs_created="" if costs is None else costs.created,
        costs_given=given_costs,
        with_trials=tuple(one.id for one in records[1:]),
        speculation=tuple(f"{name}={json.dumps(config)}" for name, config in (speculation or {}).items()),
        drafter_ms=tuple(f"{name}={ms.value:g}" for name, ms in (drafter_ms or {}).items()),
    )
    known = costs_of(folders, records, costs, told)[0]
    left_out = [*trial.missing, *_worth_telling(told, trial.record.id), *_strangers(records)]
    beside = costs_beside(folder, trial.record) if costs is None else ""
    left_out += [beside] if beside else []
    try:
        model = FittedModel(known)
    except UsageError as error:
        return Explained(trial=trial.record.id, inputs=inputs, left_out=(*left_out, str(error)))
    given = {name: DrafterTime(time, stated=True) for name, time in (drafter_ms or {}).items()}
    drafters = {**profiled_drafters(folder, trial.record.arms), **given}
    told_modes = [mode for mode in map(graph_mode, trial.record.arms[1:]) if mode]
    if told_modes:
        known = known.model_copy(update={"graph_mode": told_modes[-1]})
        model = FittedModel(known)
    accounts = list(_accounts(trial, model, left_out, drafters, probed_here=not given_costs))
    accounts = _with_changes(trial, known, model, accounts, left_out)
    return Explained(
        trial=trial.record.id,
        inputs=inputs,
        accounts=tuple(accounts),
        left_out=tuple(dict.fromkeys(left_out)),
        summary=summary(accounts, trial.record.best, slower=says_slower(trial.record.comparison)),
        even_curves=even_curves(trial, accounts),
        curve=tuple(curve_points(known, model, accounts, trial)),
    )


def of_unfinished(found: Explained, record: TrialRecord) -> Explained:
    """Return the account of a trial that did not end, saying so; any other as it is."""
    if record.error is None:
        return found
    why = f"the trial did not end ({' '.join(record.error.split())}): this is of what was measured until then"
    cause = f"Of what was measured before the trial ended: {found.summary}"
    if not found.summary:
        cause = "The trial did not end and has no verdict; what was measured of its arms is below."
    left_out = tuple(dict.fromkeys([why, *found.left_out]))
    return found.model_copy(update={"left_out": left_out, "summary": cause if found.accounts else ""})


def _check_arms(record: TrialRecord, flag: str, named: Iterable[str]) -> None:
    """Refuse what is stated of something that is no variant of the trial."""
    there = [one.name for one in record.arms[1:]]
    strange = next((one for one in named if one not in there), None)
    if strange is not None:
        raise UsageError(f"{flag}: trial {record.id} has no variant {strange!r}; it has {', '.join(there) or 'none'}")


def summary(accounts: Sequence[Account], best: str | None, *, slower: bool | None = None) -> str:
    """Return the cause of the verdict: of the best variant, at the load where it did what the verdict says, and most.

    Args:
        accounts: of the trial's arms.
        best: the arm that the verdict is about.
        slower: whether the verdict says slower; None where it says neither.
    """
    candidates = [one for one in accounts if not one.diagnostic]
    # Where the record's best only measures (trials of earlier versions), that of the others which lost least.
    measures = any(one.arm == best and one.diagnostic for one in accounts)
    if measures and candidates:
        best, slower = min(candidates, key=lambda one: one.arm_ms / one.baseline_ms).arm, None
    real = [one for one in candidates if one.arm == best]
    first = foremost(real, slower=slower)
    return "" if first is None else " ".join([first.main_cause, *otherwise(first, real)])


def _worth_telling(told: Sequence[str], trial: str) -> list[str]:
    """Return what was said of modes, but that this trial has no arm for them: accounts tell where modes come from."""
    return [one for one in told if not (one.startswith(f"trial {trial}") and "no null-draft or synthetic arm" in one)]


def _strangers(records: Sequence[TrialRecord]) -> list[str]:
    """Return a line for each further trial whose server is not known to be the first one's."""
    own = server(records[0])
    return [
        f"trial {one.id}: its modes are not used: "
        + (
            "it was of another server"
            if own and server(one)
            else "it cannot be told that one server was measured in both"
        )
        for one in records[1:]
        if own is None or server(one) != own
    ]


def _accounts(
    trial: Measured,
    model: FittedModel,
    left_out: list[str],
    drafter_ms: Mapping[str, DrafterTime],
    *,
    probed_here: bool,
) -> list[Account]:
    fitted = {mode.source for mode in model.costs.modes}
    found = []
    for (name, label), load_ in trial.loads.items():
        if name == trial.baseline:
            continue
        where = f"{name} at {load_.where}"
        plain = trial.loads.get((trial.baseline, label))
        if not load_.place.speculation and is_diagnostic(load_.place):
            left_out.append(f"{where}: {_scheduling(load_, plain)}")
            continue
        if not load_.place.speculation and not load_.counts:
            left_out.append(f"{where}: no speculation, as far as the record tells; nothing to account for")
            continue
        if plain is None:
            left_out.append(f"{where}: its baseline was not measured at this load")
            continue
        prompts = sorted(load_.place.sums.prompts.keys() & plain.place.sums.prompts.keys())
        if not prompts:
            left_out.append(f"{where}: no prompt was answered by both arms")
            continue
        try:
            steps = steps_of(trial, load_, prompts)
            own = f"trial {trial.record.id}, arm "
            itself = f"{own}{name}" in fitted
            one = account(
                load_,
                plain,
                prompts,
                steps,
                model,
                itself=itself,
                fitted_here=bool(fitted) and all(source.startswith(own) for source in fitted),
                probed_here=probed_here,
                drafter=drafter_at(drafter_ms.get(name), load_),
                spread=spread_of(trial, name),
                drift=drift_of(trial.record, name),
            )
        except StatedTooMuchError:
            raise
        except UsageError as error:
            left_out.append(f"{where}: {error}")
            continue
        _compare_base(one, plain, model, left_out, where=where, probed_here=probed_here)
        found.append(one)
    return found


def _scheduling(load_: Load, plain: Load | None) -> str:
    """Return what an arm that gets only the scheduling of speculation tells, with what starts of a server differ by."""
    if plain is None:
        return "no speculation, only its scheduling; its baseline was not measured at this load"
    shared = load_.place.sums.tpot - plain.place.sums.tpot
    return f"no speculation; its scheduling alone adds {shared:+.2f} ms to a step of {plain.place.sums.tpot:.2f} ms"


def _compare_base(
    one: Account, plain: Load, model: FittedModel, left_out: list[str], *, where: str, probed_here: bool
) -> None:
    """Say where the points' own T is another than this trial's baseline: other text, another load, another day.

    Under load T is the points' own as far as prefills can be what TPOT has above it, so that nothing here contradicts
    them: what was taken for prefills is said instead.
    """
    told = model.base([1] * plain.place.batch, plain.place.context).ms
    own = one.baseline_step_ms
    if abs(own / told - 1) > _APART:
        left_out.append(
            f"{where}: this trial's baseline took {own:.2f} ms a step and the points say {told:.2f}: what verification "
            "adds was measured on another text, load or day"
        )
    elif one.prefill_ms > _APART * own and not probed_here:
        left_out.append(
            f"{where}: {one.prefill_ms:.2f} of the baseline's {one.baseline_ms:.2f} ms a token are taken for the "
            f"prefills of other requests, since the points say {told:.2f} ms a step; they are not of this trial, so a "
            "server that was slower in it would look the same: `probe` under diagnostics tells them apart"
        )


def _with_changes(
    trial: Measured, costs: Costs, model: FittedModel, accounts: Sequence[Account], left_out: list[str]
) -> list[Account]:
    by_drafter: dict[str | None, tuple[str | None, list[Predicted]]] = {}
    if not accounts:
        return []
    loads = sorted(
        {
            (one.batch, one.context, prefill_share(one, one.sums.tpot, costs.points))
            for one in (load_.place for (name, _), load_ in trial.loads.items() if name == trial.baseline)
        }
    )
    found = []
    for one in accounts:
        wanted = _drafter(trial, one)
        if wanted not in by_drafter:
            try:
                trace = open_trace(trial.folder / "requests.parquet", arm=trial.baseline)
                by_drafter[wanted] = settings_predicted(trace, costs, model, loads=loads, drafter=wanted)
            except UsageError as error:
                left_out.append(f"other settings were not predicted: {error}")
                by_drafter[wanted] = (None, [])
        drafter, predicted = by_drafter[wanted]
        here = [each for each in predicted if each.concurrency == one.concurrency]
        found.append(one.model_copy(update={"changes": changes(one, drafter, here)}))
    return found


def _drafter(trial: Measured, one: Account) -> str | None:
    """Return the drafter of an arm where it can be replayed; None for the engine's usual one."""
    place = trial.loads[one.arm, one.point].place
    try:
        found = replayable({**place.speculation, "method": place.method}, place.arm.runner)
    except UsageError:
        return None
    return found.drafter
