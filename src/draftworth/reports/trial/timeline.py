"""What was done to the service, in order of time, and how it was left."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from draftworth.reports.markdown import on_endpoints
from draftworth.reports.page import Column, Row, Table, html_table
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import beside, fold, panel, plain_table, section, short
from draftworth.reports.words import duration, sentence
from draftworth.trials.journal import Event
from draftworth.trials.record import TrialRecord

_KINDS = ("stop", "start", "measure", "score", "restore", "probe", "profile", "other")
_NAMES = {"stop-original": "stop", "start-original": "start", "look": "other", "hold": "other"}
_GIVE_UP = "-give-up"
"""End of a step's name that ends what is left of an arm that was given up."""
_ORIGINAL = "original"
_MINUTES_FROM_S = 180.0
_OPEN = 24
"""Steps that stand unfolded."""


@dataclass(frozen=True, slots=True)
class Act:
    """One step as it went.

    Attributes:
        name: of the step, as the journal has it.
        kind: one of stop, start, measure, score, restore, probe, profile, other.
        server: whose server it was about: an arm's name, or `original`.
        begin: seconds since 1970.
        end: the same; None where nothing tells how it ended.
        result: what came of it, for a person.
        failed: whether it did not end as it should.
    """

    name: str
    kind: str
    server: str
    begin: float
    end: float | None
    result: str
    failed: bool = False


def acts_of(events: Sequence[Event]) -> list[Act]:
    """Return the steps of a journal: each intent with what followed it, a start up to its first generated token."""
    found: list[Act] = []
    open_: dict[str, Event] = {}
    running: set[str] = set()
    for event in events:
        if event.kind == "intent":
            if event.step in open_:
                found.append(_act(open_.pop(event.step), None, running=event.step in running))
            open_[event.step] = event
        elif event.step in open_:
            begun = open_[event.step]
            if event.kind == "effect" and _kind(event.step) == "start" and event.step != "start-original":
                running.add(event.step)
                continue  # its process runs; it is over with the note that names the served model
            if event.kind in {"effect", "failure", "note", "end"}:
                found.append(_act(begun, event))
                del open_[event.step]
    found += [_act(begun, None, running=begun.step in running) for begun in open_.values()]
    return sorted(found, key=lambda one: one.begin)


def _act(begun: Event, over: Event | None, *, running: bool = False) -> Act:
    kind = _kind(begun.step)
    server = _server(begun.step)
    if over is None:
        how = "its process ran and was not seen to generate a token" if running else "no end is in the journal"
        return Act(begun.step, kind, server, begun.unix, None, how, failed=True)
    return Act(begun.step, kind, server, begun.unix, over.unix, _result(over), failed=over.kind == "failure")


def _bare(step: str) -> str:
    """Return a step's name without its number."""
    head, dash, rest = step.partition("-")
    return rest if dash and head.isdigit() else step


def _kind(step: str) -> str:
    name = _bare(step)
    if name.endswith(_GIVE_UP):
        return "stop"
    for whole, kind in _NAMES.items():
        if name.startswith(whole):
            return kind
    return next((kind for kind in _KINDS if name.startswith(kind)), "other")


def _server(step: str) -> str:
    name = _bare(step).removesuffix(_GIVE_UP)
    if name.startswith(("restore", "stop-original", "start-original", "look", "hold")):
        return _ORIGINAL
    return name.partition("-")[2] or _ORIGINAL


def _result(event: Event) -> str:
    data = event.data
    if event.kind == "failure":
        return f"failed: {data.get('error', 'no reason is in the journal')}"
    told = [str(data[key]) for key in ("how", "error") if data.get(key)]
    if isinstance(data.get("requests"), int):
        told.append(f"{data['requests']:,} requests, {data.get('failed', 0)} failed")
    remarks = data.get("remarks")
    told += [str(one) for one in remarks] if isinstance(remarks, list) else []
    if data.get("model"):
        told.append(f"has generated a token with {data['model']}")
    return "; ".join(told) or "done"


def timeline_html(subject: Subject) -> str:
    """Return the section of what was done to the service, and how it was left."""
    record = subject.record
    left = _left(record)
    acts = acts_of(subject.events)
    if acts:
        return section(
            "What was done to the service", f"{left}{beside(_drawn(subject, acts), _whole(acts))}", key="timeline"
        )
    return section("What was done to the service", f"{left}{_starts(subject)}", key="timeline")


def _left(record: TrialRecord) -> str:
    """Return how the service was left; where it is not back, how to put it back."""
    if record.restored:
        words = record.restore if on_endpoints(record) else f"restored: {record.restore}"
        words = words if on_endpoints(record) else f"The service is {words}"
        return f'<p class="left">{escape(sentence(words))}</p>'
    return not_restored(record)


def not_restored(record: TrialRecord) -> str:
    """Return that the service is not back, with the commands to put it back; nothing where it is."""
    if record.restored:
        return ""
    commands = "\n".join(record.restore_commands)
    how = f"<p>Restore it by hand with:</p><pre>{escape(commands)}</pre>" if commands else ""
    return (
        f'<div class="ended"><p><b>The service is NOT RESTORED.</b> {escape(sentence(record.restore))}</p>{how}'
        f"<p>Or: <code>draftworth trial restore {escape(record.id)}</code></p></div>"
    )


def _drawn(subject: Subject, acts: Sequence[Act]) -> str:
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: altair takes a while

    began = acts[0].begin
    last = max(one.end or one.begin for one in acts)
    unit, size = ("minutes", 60.0) if last - began > _MINUTES_FROM_S else ("seconds", 1.0)
    rows: list[dict[str, Any]] = [
        {
            "lane": subject.lane(one.server),
            "kind": one.kind,
            "from": (one.begin - began) / size,
            "to": ((one.end or last) - began) / size,
        }
        for one in acts
    ]
    lanes = list(dict.fromkeys(subject.lane(one.server) for one in acts))
    kinds = [kind for kind in _KINDS if any(one.kind == kind for one in acts)]
    svg = ""
    if last > began:
        svg = draw.finished(
            draw.spans(rows, lanes, kinds, unit),
            "What was done to which server, by time",
            columns=min(len(kinds), draw.LEGEND_COLUMNS),
        )
    count = {kind: sum(one.kind == kind for one in acts) for kind in kinds}
    words = ", ".join(f"{count[kind]} {kind}" for kind in kinds if kind != "other")
    failed = sum(one.failed for one in acts)
    caption = f"{words}. {f'{failed} failed. ' if failed else ''}It took {duration(last - began)}."
    caption += subject.lanes_note([one.server for one in acts])
    return panel("Steps by time", caption, svg)


def _whole(acts: Sequence[Act]) -> str:
    began = acts[0].begin
    columns = (Column("", "from, s"), Column("", "took, s"), Column("", "result"))
    rows = tuple(
        Row(
            one.name,
            (
                f"{one.begin - began:.1f}",
                "-" if one.end is None else f"{one.end - one.begin:.1f}",
                short(one.result, 160),
            ),
        )
        for one in acts
    )
    table = Table("Table: every step", columns, rows)
    body = html_table(table, heading=False) if len(rows) <= _OPEN else fold(table, "journal.db")
    return f'<div class="words">{body}</div>'


def _starts(subject: Subject) -> str:
    """Return the starts that the record itself has, where there is no journal."""
    if on_endpoints(subject.record):
        return ""
    rows = [
        (
            f"{arm.name}, block {one.block}",
            ["ran already" if one.seconds is None else f"{one.seconds:.1f}", f"{one.rows:,}" if one.rows else "-"],
        )
        for arm in subject.record.arms
        for one in arm.starts
    ]
    if not rows:
        return "<p>Nothing was started.</p>"
    table = plain_table("Table: starts", ["s to the first token", "requests"], rows)
    return f"<p>There is no journal; these are the starts that the record has.</p>{fold(table, 'trial.json')}"
