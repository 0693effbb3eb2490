"""Several trials side by side: a table for a terminal, a page, a result for scripts.

Ratios are each of its own trial's baseline. Trials of other models or engines stand in groups of their own: their
figures do not answer one question.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape

from draftworth.explain.base import Explained
from draftworth.explain.inputs import given, made_with
from draftworth.explain.words import otherwise
from draftworth.models import Frozen
from draftworth.reports.page import Column, Row, Table, document, html_table, text_table
from draftworth.reports.plots import dark
from draftworth.reports.trial.accounts import told_account
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.named import UNKNOWN, setting_of, told_model
from draftworth.reports.trial.parts import panel, panels, section
from draftworth.reports.trial.style import CSS
from draftworth.reports.trial.variants import forest_of
from draftworth.reports.words import METRICS, NONE, ended, interval, judged, machine, plural, several
from draftworth.trials.record import TrialRecord
from draftworth.verdicts.base import Interval, Verdict

SCHEMA_VERSION = 1


class ComparedArm(Frozen):
    """One arm of one trial."""

    trial: str
    created: str
    arm: str
    setting: str
    """What it was started with, in a few words; empty where the record does not tell."""
    diagnostic: bool = False
    """Whether it only measures and could not be adopted."""
    given_up: bool = False
    """Whether it only measures and was given up before its end."""
    verdict: Verdict
    metric: str
    ratio: Interval | None
    """Of the judged metric, the arm over its own trial's baseline."""
    load: str
    """Requests at a time, or a second."""
    cause: str = ""
    """Why it is faster or slower, where that was explained."""
    version: str
    machine: str
    restored: bool


class Group(Frozen):
    """Arms whose figures may stand beside each other: of one engine and one model."""

    engine: str
    model: str
    """As the trials name it; says so where they do not."""
    arms: tuple[ComparedArm, ...]


class Compared(Frozen):
    """Several trials side by side."""

    schema_version: int = SCHEMA_VERSION
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    """What keeps figures apart, or is missing."""


def compared(trials: Sequence[tuple[TrialRecord, Explained | None]]) -> Compared:
    """Return the arms of several trials, in groups of one engine and one model, in the order of the trials."""
    groups: dict[tuple[str, str], list[ComparedArm]] = defaultdict(list)
    notes: list[str] = []
    for record, explained in trials:
        subject = Subject(record, explained)
        baseline = record.arms[0] if record.arms else None
        key = (baseline.engine if baseline else "unknown", told_model(record))
        found = [_arm(subject, name) for name in subject.variants]
        kept = [one for one in found if one is not None]
        if not kept:
            notes.append(f"{record.id}: {record.verdict}; no arm was compared: {record.error or record.reason}")
        groups[key] += kept
        if kept and explained is not None and explained.inputs is not None and given(explained.inputs):
            notes.append(f"{record.id}, its causes: {made_with(explained.inputs)}")
    full = {key: arms for key, arms in groups.items() if arms}
    if len(full) > 1:
        names = "; ".join(f"{engine}, {model}" for engine, model in full)
        notes.append(f"These trials are of {len(full)} different engines or models, told apart below: {names}")
    notes += _unlike(full)
    notes += [
        f"The trials at {model.partition('(')[2].rstrip(')')} do not name their model: whether it is one is not known"
        for (_, model), arms in full.items()
        if model.startswith(UNKNOWN) and len({one.trial for one in arms}) > 1
    ]
    return Compared(
        groups=tuple(Group(engine=key[0], model=key[1], arms=tuple(arms)) for key, arms in full.items()),
        notes=tuple(ended(one) for one in notes),
    )


def _unlike(groups: dict[tuple[str, str], list[ComparedArm]]) -> list[str]:
    """Return what differs between the trials of a group, besides the arms."""
    found = []
    words = {"version": "engine versions", "machine": "machines", "load": "loads", "metric": "metrics"}
    for (engine, model), arms in groups.items():
        differ = [
            f"{words[name]} ({', '.join(values)})"
            for name in words
            if len(values := list(dict.fromkeys(str(getattr(one, name)) for one in arms))) > 1
        ]
        if differ:
            found.append(f"Trials of {engine}, {model} differ in {'; '.join(differ)}")
    return found


def _arm(subject: Subject, name: str) -> ComparedArm | None:
    found, arm, record = subject.comparison(name), subject.arm(name), subject.record
    if found is None:
        return None
    account = told_account(subject, name)
    cause = subject.diagnostic(name)
    if account is not None:
        cause = " ".join([ended(account.main_cause), *otherwise(account, subject.accounts(name))])
    work = record.config.get("workload") or {}
    rate = work.get("rate")
    load = f"{several(rate)} a second" if rate is not None else f"{several(work.get('concurrency'))} at a time"
    return ComparedArm(
        trial=record.id,
        created=record.created,
        arm=name,
        setting=setting_of(arm, subject),
        diagnostic=bool(subject.diagnostic(name)),
        given_up=subject.given_up(name),
        verdict=found.verdict,
        metric=found.metric,
        ratio=judged(found),
        load=load,
        cause=cause,
        version=(arm.version if arm else None) or "not known",
        machine=machine(record.machine) or "not known",
        restored=record.restored,
    )


def lines(found: Compared) -> list[str]:
    """Return trials side by side for a terminal."""
    out: list[str] = []
    for group in found.groups:
        out += ["", _heading(group), *text_table(_table(group, cause=False))]
        causes = [
            f"  {one.trial} {one.arm}: {ended(one.cause)}" for one in group.arms if one.cause and not one.diagnostic
        ]
        out += ["", *causes] if causes else []
    if not found.groups:
        out.append("No trial has an arm that was compared.")
    if found.notes:
        out += ["", *found.notes]
    return out[1:] if out and not out[0] else out


def page(found: Compared, draftworth: str) -> str:
    """Return trials side by side as a page that stands on its own.

    Args:
        found: the trials.
        draftworth: the version that makes the page.
    """
    trials = list(dict.fromkeys(one.trial for group in found.groups for one in group.arms))
    best = sum(one.verdict is Verdict.FASTER and not one.diagnostic for group in found.groups for one in group.arms)
    count = sum(not one.diagnostic for group in found.groups for one in group.arms)
    title = f"{plural(len(trials), 'trial')}: {best} of {plural(count, 'arm')} {'is' if best == 1 else 'are'} faster"
    notes = "".join(f"<p>{escape(one)}</p>" for one in found.notes)
    body = [
        f'<header class="{"good" if best else "flat"}"><h1>{escape(title)}</h1>',
        '<p class="lede">Each ratio is an arm over the baseline of its own trial.</p>',
        f'<div class="text">{notes}</div></header><main>',
        *(_section(group) for group in found.groups),
        f"</main><footer>Draftworth {escape(draftworth)}; trials {escape(', '.join(trials))}.</footer>",
    ]
    text = "\n".join(body)
    return document(title, text, CSS + (dark() if "<svg" in text else ""))


def _section(group: Group) -> str:
    ratios = [one for one in group.arms if one.ratio is not None]
    drawn: list[str] = []
    metrics = list(dict.fromkeys(one.metric for one in ratios))
    for metric in metrics:
        rows = [(_label(one, group), one.ratio, one.verdict) for one in ratios if one.metric == metric]
        svg = forest_of([(label, ratio, verdict) for label, ratio, verdict in rows if ratio is not None], metric)
        drawn.append(panel(f"{METRICS[metric]} ratio", "Each arm over its own baseline, with its interval.", svg))
    table = html_table(_table(group, cause=True), heading=False)
    kind = "words" if any(one.cause and not one.diagnostic for one in group.arms) else "plain-table"
    title, _, shared = _heading(group).partition("; ")
    return section(title, f'{panels(drawn)}<div class="{kind}">{table}</div>', shared)


def _numbers(group: Group) -> dict[str, str]:
    """Return a short name of each trial of a group; empty where it has one trial."""
    trials = list(dict.fromkeys(one.trial for one in group.arms))
    return {trial: f"({at})" for at, trial in enumerate(trials, start=1)} if len(trials) > 1 else {}


def _label(one: ComparedArm, group: Group) -> str:
    return f"{one.arm} {_numbers(group).get(one.trial, '')}".strip()


def _same(group: Group) -> dict[str, str]:
    """Return what all arms of a group share, for its heading."""
    found = {name: {str(getattr(one, name)) for one in group.arms} for name in ("version", "machine", "load")}
    return {name: next(iter(values)) for name, values in found.items() if len(values) == 1}


def _heading(group: Group) -> str:
    same = _same(group)
    version = f" {same['version']}" if same.get("version", "not known") != "not known" else ""
    shared = [value for name in ("load", "machine") if (value := same.get(name)) and value != "not known"]
    return "; ".join([f"{group.engine}{version}, {group.model}", *shared])


def _table(group: Group, *, cause: bool) -> Table:
    """Return the arms of a group; what all of them share has no column.

    Args:
        group: of one engine and one model.
        cause: whether it has a column of causes, which are sentences.
    """
    numbers = _numbers(group)
    shown: list[tuple[str, Callable[[ComparedArm], str]]] = [
        ("trial", lambda one: f"{numbers.get(one.trial, '')} {one.trial}".strip()),
        ("setting", lambda one: one.setting or NONE),
        ("load", lambda one: one.load),
        (
            "verdict",
            lambda one: f"only measures{', given up' if one.given_up else ''}" if one.diagnostic else str(one.verdict),
        ),
        ("ratio (interval)", lambda one: f"{METRICS[one.metric]} {interval(one.ratio)}"),
        ("version", lambda one: one.version),
        ("machine", lambda one: one.machine),
        ("left", lambda one: "restored" if one.restored else "NOT RESTORED"),
    ]
    same = set(_same(group)) | ({"left"} if all(one.restored for one in group.arms) else set())
    shown = [pair for pair in shown if pair[0] not in same]
    if cause and any(one.cause and not one.diagnostic for one in group.arms):
        shown.append(("cause", lambda one: NONE if one.diagnostic else one.cause or NONE))
    rows = tuple(Row(one.arm, tuple(show(one) for _, show in shown)) for one in group.arms)
    return Table("arm", tuple(Column("", title) for title, _ in shown), rows)
