"""What earlier trials of the same service took, so that the remaining time is known from the first step on."""

from collections import defaultdict
from collections.abc import Sequence

from draftworth import redact
from draftworth.errors import DraftworthError
from draftworth.trials.home import all_trials
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Event, Journal
from draftworth.trials.steps import Kind, Plan

_KINDS = ("stop-original", "start", "measure", "score", "profile", "probe", "stop", "restore")


def typical_seconds(plan: Plan) -> dict[str, float]:
    """Return seconds by kind of step, from the newest trial with the same commands; empty where there is none."""
    wanted = {step.id: list(redact.command(step.command)) for step in plan.steps if step.kind is Kind.START}
    for folder in reversed(all_trials() if wanted else []):
        try:
            with Journal(folder / JOURNAL) as journal:
                events = journal.events()
        except DraftworthError:
            continue
        intents = {event.step: event for event in events if event.kind == "intent"}
        if {name: e.data.get("command") for name, e in intents.items() if name in wanted} != wanted:
            continue
        return _seconds(events)
    return {}


def last_load(command: Sequence[str]) -> float | None:
    """Return the seconds that the last start of this very command took, in any earlier trial here; None: there is none.

    Only a start that came as far as a generated token counts.
    """
    wanted = list(redact.command(command))
    for folder in reversed(all_trials()):
        try:
            with Journal(folder / JOURNAL) as journal:
                events = journal.events()
        except DraftworthError:
            continue
        began = {one.step: one.unix for one in events if one.kind == "intent" and one.data.get("command") == wanted}
        took = [one.unix - began[one.step] for one in events if one.kind == "note" and one.step in began]
        if took:
            return took[-1]
    return None


def _seconds(events: Sequence[Event]) -> dict[str, float]:
    """Return seconds by kind of step: from each intent to the effect that follows it."""
    took: dict[str, list[float]] = defaultdict(list)
    began: dict[str, float] = {}
    for event in events:
        if event.kind == "intent":
            began[event.step] = event.unix
        if event.kind not in {"effect", "note"} or event.step not in began:
            continue
        # A restore is journalled by its own name: it can happen outside of the plan too.
        name = event.step if event.step in _KINDS else event.step[3:]
        kind = next((kind for kind in _KINDS if name.startswith(kind)), None)
        # A start is over with the note that names the served model, not with its process's effect.
        if kind and (kind != "start" or event.kind == "note"):
            took[kind].append(event.unix - began[event.step])
    # The second restore of a trial only looks whether all is well; the first is the one that starts the original.
    return {kind: max(some) if kind == "restore" else sum(some) / len(some) for kind, some in took.items()}
