"""Every gate and every decided option against what was measured since: what can be taken up, what should be reopened.

A decision is reopened by evidence that is newer than its own: a trial of its arm with another verdict; another engine
version, runner or hardware of the same service in a newer trial or costs file; other traffic; a head it did
not know; a prediction beyond the bound it states; a gate that no longer holds; or by its own trial, where that says
otherwise than a record that was edited. Files of another model or engine are no reason.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from draftworth.decisions.account import method_of
from draftworth.decisions.against import contradictions
from draftworth.decisions.assumptions import assumptions_of, changed, same_service
from draftworth.decisions.base import Assumptions, Decision, Evidence, Option
from draftworth.decisions.circles import waiting_circle
from draftworth.decisions.citing import dead_ends
from draftworth.decisions.conclude import Conclusion, conclude
from draftworth.decisions.conditions import Holds
from draftworth.decisions.decide import Wish, move_within
from draftworth.decisions.fits import unfit
from draftworth.decisions.gates import evaluate, wrong_gate
from draftworth.decisions.known import Known, costs_assumptions, in_order, made, with_arm
from draftworth.decisions.records import history_remarks, writing
from draftworth.decisions.refuse import with_figures
from draftworth.decisions.states import DECIDED, State
from draftworth.decisions.traffic import other_traffic
from draftworth.decisions.tree import load_tree
from draftworth.errors import UsageError
from draftworth.models import Frozen
from draftworth.trials.record import TrialRecord
from draftworth.verdicts.base import Verdict

_ID = re.compile(r"^(\d{8}-\d{6})(?:-(\d+))?$")


class Reason(NamedTuple):
    """Why a decision should be reopened."""

    text: str
    evidence: Evidence | None = None
    """What says so; None where that is the tree, or the record itself."""


class OptionCheck(Frozen):
    """One option against the evidence."""

    option: str
    title: str
    parent: str | None = None
    state: State
    record: str = ""
    """The file that says so; empty where tree.toml does."""
    gate: str = ""
    """In words."""
    holds: Holds | None = None
    """Whether its gate holds; None where it has none."""
    reopen: tuple[str, ...] = ()
    """Why it should be reopened."""
    cites: tuple[Evidence, ...] = ()
    """What says so."""
    remarks: tuple[str, ...] = ()
    """What else is new: it can be taken up, a trial confirms it or waits to be decided on."""


class Checked(Frozen):
    """Everything `draftworth decisions check` tells."""

    schema_version: int = 1
    title: str = ""
    options: tuple[OptionCheck, ...]
    """In the order of the tree."""
    history: tuple[str, ...] = ()
    """What is wrong with the records."""
    left_out: tuple[str, ...] = ()
    """Files that could not be read."""
    written: tuple[str, ...] = ()
    """Records that `--apply` wrote."""


def check(known: Known) -> Checked:
    """Hold every option against the evidence; nothing is written."""
    options = tuple(_one(option, known) for option in known.tree.options)
    # Once every gate has read what it names.
    left_out = dict.fromkeys([*dead_ends(known), *known.left_out])
    return Checked(
        title=known.tree.title,
        options=options,
        history=tuple(history_remarks(known.tree, known.records)),
        left_out=tuple(left_out),
    )


def apply(folder: Path, today: str) -> Checked:
    """Check, and write a record for everything that should be reopened; nobody else decides in between.

    Returns the check with the files that were written.

    Raises:
        UsageError: the tree or a record has a mistake, or a record cannot be written; names those that were.
    """
    load_tree(folder)  # no folder is begun where there is no tree
    files: list[str] = []
    with writing(folder):
        checked = check(Known.read(folder))
        for one in checked.options:
            if not one.reopen:
                continue
            wish = Wish(today=today, state="reopened", cites=one.cites)
            try:
                files += move_within(one.option, wish, folder, one.reopen, by="check").files
            except UsageError as error:
                before = f"; written before that: {', '.join(files)}" if files else ""
                raise UsageError(f"{error}{before}") from None
    return checked.model_copy(update={"written": tuple(files)})


def _one(option: Option, known: Known) -> OptionCheck:
    state, last = known.state(option.name), known.newest(option.name)
    holds = evaluate(option.gate, option, known) if option.gate else None
    reasons: list[Reason] = []
    remarks = [*wrong_gate(option, known), *waiting_circle(option, known)]
    if last is not None and last.decision.although:
        remarks.append(f"{last.path.name} rests on a trial of something else, although: {last.decision.although}")
    edits = contradictions(last, known) if last else []
    if last is not None and state in DECIDED:
        reasons, more = _since(option, last.decision, known)
        own = Evidence(kind="trial", trial=last.decision.trial) if last.decision.trial else None
        reasons = [*(Reason(one, own) for one in edits), *reasons]
        remarks += more
        if state == "adopted" and holds is not None and holds.holds is False:
            reasons.append(Reason(f"its gate no longer holds: {holds.reason}"))
    else:
        remarks += edits
        if holds is not None and holds.holds and state in {"open", "pending", "reopened"}:
            remarks.append(f"its gate holds: it can be taken up ({holds.reason})")
        decided = last.decision if last else None
        history = [one for one in known.records if one.decision.option == option.name]
        remarks += [
            f"trial {one.id} measured {known.arm_of(option)}, and nothing was decided on it: "
            f"`draftworth decide {one.id} --option {option.name}`"
            for one in _newer(_deciding(option, known, measured=with_figures(history) is not None), decided)[-1:]
        ]
    return OptionCheck(
        option=option.name,
        title=option.title,
        parent=option.parent,
        state=state,
        record=last.path.name if last else "",
        gate=option.gate.words if option.gate else "",
        holds=holds,
        reopen=tuple(dict.fromkeys(one.text for one in reasons)),
        cites=tuple({one.model_dump_json(): one for _, one in reasons if one is not None}.values()),
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _deciding(option: Option, known: Known, *, measured: bool) -> list[TrialRecord]:
    """Return the trials of an option's arm that it may be decided on; a failed one only where nothing was measured."""
    arm = known.arm_of(option)
    return [
        one
        for one in with_arm(known.trials_of(option), arm)
        if not unfit(option, arm, method_of(one, arm), assumptions_of(one, None, None))
        and not (measured and (one.error is not None or all(each.arm != arm for each in one.comparisons)))
    ]


def _since(option: Option, decided: Decision, known: Known) -> tuple[list[Reason], list[str]]:
    """Return why a decided option should be reopened, and what else is new."""
    then = _with_requests(decided, known)
    arm = decided.arm or known.arm_of(option)
    reasons: list[Reason] = []
    remarks: list[str] = []
    newer = _newer(known.trials, decided)
    again = [(one, told) for one in with_arm(newer, arm) if (told := _told(one, arm, then)) is not None]
    if again:
        trial, found = again[-1]
        differs = "; ".join(changed(then, found.assumptions))
        under = f", under {differs}" if differs else ""
        if found.state in DECIDED and found.state != decided.state:
            reasons.append(_by_trial(trial, f"says otherwise{under}: {found.outcome[0]}"))
        else:
            word = "confirms it" if found.state == decided.state else "does not decide it"
            keep = f"`draftworth decide {trial.id} --option {option.name}` keeps it"
            remarks.append(f"trial {trial.id} {word}{under}: {found.outcome[0]} {keep}")
        if found.state == decided.state:
            then, newer = found.assumptions, [one for one in newer if one.created > trial.created]
    reasons += _elsewhere(then, newer)
    reasons += _by_costs(then, decided, known)
    reasons += _by_predictions(option, decided, known)
    reasons += _by_heads(option, decided)
    return reasons, remarks


def _by_trial(trial: TrialRecord, says: str) -> Reason:
    return Reason(f"trial {trial.id} {says}", Evidence(kind="trial", trial=trial.id))


def _with_requests(decided: Decision, known: Known) -> Assumptions:
    """Return what a decision was made under; records of earlier versions leave the requests to their trial's."""
    then = decided.assumptions
    trial = next((one for one in known.trials if one.id == decided.trial), None)
    if then.requests or trial is None:
        return then
    return then.model_copy(update={"requests": assumptions_of(trial, None, None).requests})


def _told(trial: TrialRecord, arm: str, then: Assumptions) -> Conclusion | None:
    """Return what a trial says of an arm, where it could be measured, is of the same service and decides anything."""
    try:
        found = conclude(trial, arm)
    except UsageError:
        return None  # a diagnostic arm decides nothing
    measured = found.verdict != Verdict.ERROR
    return found if measured and same_service(then, found.assumptions) else None


def _elsewhere(then: Assumptions, newer: Sequence[TrialRecord]) -> Iterator[Reason]:
    """Yield what the newest trial of the same service ran on that a decision did not."""
    same = [(one, now) for one in newer if same_service(then, now := assumptions_of(one, None, one.comparison))]
    if not same:
        return
    trial, now = same[-1]
    for clause in changed(then, now.model_copy(update={"traffic": "", "head": ""})):
        yield _by_trial(trial, f"is of other conditions: {clause}")
    for clause in other_traffic(then, now):
        yield _by_trial(trial, f"has other traffic: {clause}")


def _by_costs(then: Assumptions, decided: Decision, known: Known) -> Iterator[Reason]:
    since = _moment(decided, known)
    for path, costs in known.costs[::-1]:
        now = costs_assumptions(costs)
        if _later(costs.created, since) and same_service(then, now):
            by = Evidence(kind="costs", path=path)
            yield from (Reason(f"{path} is of other conditions: {clause}", by) for clause in changed(then, now))
            return


def _by_predictions(option: Option, decided: Decision, known: Known) -> Iterator[Reason]:
    limit = decided.reopen_at_speed_up
    cited = {one.path for one in decided.evidence}
    fresh = [
        (path, read)
        for path, read in known.predictions(option)
        if path not in cited and read.settings and _later(made(read), _moment(decided, known))
    ]
    if limit is None or not fresh:
        return
    path, prediction = fresh[-1]
    sure = [one for one in prediction.settings if not one.at_best]
    if not sure:
        return
    best = max(sure, key=lambda one: one.speed_up.low)
    most = max(sure, key=lambda one: one.speed_up.high)
    shown = best if decided.state == "ruled out" else most
    found = shown.speed_up
    beyond = found.low > limit if decided.state == "ruled out" else found.high < limit
    if beyond:
        side = "above" if decided.state == "ruled out" else "below"
        said = (
            f"{path} predicts a speed-up of {found.value:.3f} ({found.low:.3f} to {found.high:.3f}) at k = {shown.k}, "
            f"concurrency {shown.concurrency}: {side} {limit:g}"
        )
        yield Reason(said, Evidence(kind="prediction", path=path))


def _by_heads(option: Option, decided: Decision) -> Iterator[Reason]:
    before = {one.head for one in decided.evidence} | {decided.assumptions.head}
    for one in option.evidence:
        if one.kind == "head" and one.head not in before and _later(one.date, decided.date):
            yield Reason(f"a head that was not known then: {one.head}, {one.date}", one)


def _newer(trials: Sequence[TrialRecord], decided: Decision | None) -> list[TrialRecord]:
    """Return the trials that a decision did not know, oldest first."""
    if decided is None:
        return list(trials)
    then = _ID.fullmatch(decided.trial)
    if then is None:
        return [one for one in trials if _later(one.created, decided.date)]
    key = (then[1], int(then[2] or 1))
    return [one for one in trials if (now := _ID.fullmatch(one.id)) and (now[1], int(now[2] or 1)) > key]


def _moment(decided: Decision, known: Known) -> str:
    """Return when a decision's own evidence was made: its trial's moment, else the record's day."""
    return next((one.created for one in known.trials if one.id == decided.trial), decided.date)


def _later(moment: str, since: str) -> bool:
    """Whether a moment is later; of moments told less exactly, only as far as both are told."""
    one, other = in_order(moment), in_order(since)
    length = min(len(one), len(other))
    return one[:length] > other[:length]
