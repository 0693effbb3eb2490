"""The Markdown of a decision record, from its conclusion alone; the sections are MADR's."""

from collections.abc import Sequence

from draftworth.decisions.assumptions import no_gpu
from draftworth.decisions.base import Assumptions, Decision, Evidence, Option, Tree
from draftworth.decisions.conclude import Conclusion
from draftworth.decisions.conditions import Gate
from draftworth.decisions.methods import is_head
from draftworth.decisions.states import State

_FIELDS = (
    ("engine", "Engine"),
    ("version", "Engine version"),
    ("runner", "Model runner"),
    ("hardware", "Hardware"),
    ("model", "Model"),
    ("workload", "Requests"),
    ("traffic", "Traffic's fingerprint"),
    ("head", "Head"),
    ("setting", "Setting"),
)


def body(decision: Decision, option: Option, tree: Tree, states: dict[str, State], found: Conclusion | None) -> str:
    """Return the Markdown of a record.

    Args:
        decision: its front matter.
        option: what it is about.
        tree: every option.
        states: state of each option, this change included.
        found: what the trial told; None where the record rests on none.
    """
    parts = [f"# {_plain(decision.title)}"]
    context = [f"Option {option.name}: {option.title}.", *(found.context if found else ())]
    parts.append("## Context and problem statement\n\n" + _list(context))
    considered = [*_considered(tree, states, option), *(found.beside if found else ())]
    parts.append("## Considered options\n\n" + _list(considered))
    changed = f"{decision.before} → {decision.state}"
    outcome = [*(found.outcome if found else ()), *decision.reasons]
    outcome += [f"Decided all the same: {decision.although}"] if decision.although else []
    outcome += [f"Against it: {one}" for one in decision.remarks]
    parts.append(f"## Decision outcome\n\nState: {changed}.\n\n" + _list(outcome))
    if found and found.consequences:
        parts.append("### Consequences\n\n" + _list(found.consequences))
    if decision.needs:
        parts.append("### What is needed\n\n" + _list(decision.needs))
    if decision.evidence:
        parts.append("## Evidence\n\n" + _list([evidence_line(one) for one in decision.evidence]))
    held = assumption_lines(decision.assumptions)
    if held:
        parts.append("## Assumptions\n\n" + _list(held))
    parts.append("## What would reopen it\n\n" + _list(_reopens(decision, option)))
    return "\n\n".join(parts)


def evidence_line(one: Evidence) -> str:
    """Return a piece of evidence in a line; what is not ours says whose it is."""
    what = {
        "trial": f"trial {one.trial}",
        "head": f"head {one.head}" + (f", trained for {one.trained_for}" if one.trained_for else ""),
        "break-even": f"break-even length at k = {one.k}" if one.k else "break-even length",
        "published": "measured by us" if one.ours else "published",
    }.get(one.kind, f"{one.kind} {one.path}")
    if one.length is not None:
        ends = f" ({one.length.low:g} to {one.length.high:g})" if one.length.low is not None else ""
        what += f": length {one.length.value:g}{ends}"
    says = f": {one.says}" if one.says else ""
    whose = "" if one.ours else f" [not ours: {one.source}, {one.date}]"
    return f"{what}{says}{whose}"


def assumption_lines(held: Assumptions) -> list[str]:
    """Return what is assumed, field by field; what is not known is left out."""
    lines = [f"{words}: {getattr(held, name)}" for name, words in _FIELDS if getattr(held, name)]
    lines = [
        f"{one}; GPU not recorded" if one.startswith("Hardware: ") and no_gpu(held.hardware) else one for one in lines
    ]
    if held.categories:
        lines.append("Prompts by category: " + ", ".join(f"{name} {count}" for name, count in held.categories.items()))
    return lines


def gate_lines(gate: Gate) -> list[str]:
    """Return a gate in words, and which one it replaced."""
    lines = [gate.words]
    if gate.instead_of:
        lines.append(f"Before: “{gate.instead_of}”, the wrong gate: {gate.because}")
    return lines


def _considered(tree: Tree, states: dict[str, State], option: Option) -> list[str]:
    return [
        f"{'**' if one.name == option.name else ''}{one.name}: {one.title}{'**' if one.name == option.name else ''} "
        f"({states[one.name]})"
        for one in tree.options
    ]


def _reopens(decision: Decision, option: Option) -> list[str]:
    held, lines = decision.assumptions, []
    if decision.state not in {"ruled out", "adopted"}:
        lines.append("It is not decided: a trial that measures what is needed decides it.")
    if held.version:
        lines.append(f"Another engine version than {held.engine} {held.version}.")
    if held.hardware:
        lines.append("Other hardware.")
    if held.traffic:
        lines.append(
            "Other traffic in a newer trial: a tenth of the prompts in other categories, other prompts than these, "
            "another temperature or way of sending, or loads or lengths more than a tenth beyond those measured."
        )
    if held.head:
        lines.append(f"Another head than {held.head}.")
    elif is_head(option.method):
        lines.append("A head that was not known then.")
    if decision.reopen_at_speed_up is not None:
        side = "above" if decision.state == "ruled out" else "below"
        lines.append(f"A prediction whose whole interval lies {side} a speed-up of {decision.reopen_at_speed_up:g}.")
    lines.append(f"A newer trial of {option.arm or option.name} with another verdict.")
    return lines


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _plain(line: str) -> str:
    """Return a text that is one line and no comment: only `records` writes a marker."""
    return " ".join(line.split()).replace("<!--", "&lt;!--")
