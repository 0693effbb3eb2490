"""What earlier trials of the same service took, so that the remaining time is known from the first step on."""

from collections import defaultdict

from draftworth import redact
from draftworth.errors import DraftworthError
from draftworth.trials.home import all_trials
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Journal
from draftworth.trials.plan import Kind, Plan

_KINDS = ("stop-original", "start", "measure", "score", "stop", "restore")


def typical_seconds(plan: Plan) -> dict[str, float]:
    """Return seconds by kind of step, from the newest trial with the same commands; empty where there is none."""
    wanted = {step.id: list(redact.command(step.command)) for step in plan.steps if step.kind is Kind.START}
    for folder in reversed(all_trials()):
        try:
            with Journal(folder / JOURNAL) as journal:
                events = journal.events()
        except DraftworthError:
            continue
        intents = {event.step: event for event in events if event.kind == "intent"}
        if {name: e.data.get("command") for name, e in intents.items() if name in wanted} != wanted:
            continue
        took: dict[str, list[float]] = defaultdict(list)
        for event in events:
            if event.kind in {"effect", "note"} and event.step in intents:
                # A restore is journalled by its own name: it can happen outside of the plan too.
                name = event.step if event.step in _KINDS else event.step[3:]
                kind = next((kind for kind in _KINDS if name.startswith(kind)), None)
                # A start is over with the note that names the served model, not with its process's effect.
                if kind and (kind != "start" or event.kind == "note"):
                    took[kind].append(event.unix - intents[event.step].unix)
        return {kind: sum(some) / len(some) for kind, some in took.items()}
    return {}
