"""A record held against its own trial: what was edited by hand, or what its trial no longer says."""

from draftworth.decisions.base import Decision
from draftworth.decisions.conclude import Conclusion, conclude
from draftworth.decisions.known import Known
from draftworth.decisions.records import Record
from draftworth.decisions.reported import conclude_reported, load_reported
from draftworth.errors import UsageError

_SAME = 1e-6
"""Relative difference up to which two ratios are one."""


def contradictions(record: Record, known: Known) -> list[str]:
    """Return what a record says that its own trial does not, or that it was edited and nothing is there to hold it to.

    The state counts first: a verdict that its trial does not have adopts or rules out nothing.
    """
    decision = record.decision
    if decision.by == "check" or not decision.arm:
        return [f"its record {record.path.name} was edited by hand"] if record.edited else []
    found, of = _concluded(decision, known)
    if found is None:
        told = f"{of} is not here to hold it against"
        return [f"its record {record.path.name} was edited by hand, and {told}"] if record.edited else []
    wrong = _wrong(decision, found)
    if not wrong:
        return []
    how = "was edited by hand and" if record.edited else "no longer agrees with its trial: it"
    return [f"its record {record.path.name} {how} says {'; '.join(wrong)} ({of}: {found.outcome[0]})"]


def _wrong(decision: Decision, found: Conclusion) -> list[str]:
    wrong = []
    careful = decision.by == "person" and decision.state != "adopted"
    if decision.state not in {found.state, "reopened"} and not careful:
        wrong.append(f"{decision.state}, the trial {found.state}")
    if decision.verdict != found.verdict:
        wrong.append(f"verdict {decision.verdict}, the trial {found.verdict}")
    ours, theirs = decision.ratio, found.ratio
    if (ours is None) != (theirs is None) or (
        ours is not None
        and theirs is not None
        and any(not _same(getattr(ours, name), getattr(theirs, name)) for name in ("value", "low", "high"))
    ):
        told = [f"{one.value:.3f}" if one else "none" for one in (ours, theirs)]
        wrong.append(f"ratio {told[0]} or another interval, the trial {told[1]}")
    return wrong


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _SAME * max(abs(one), abs(other))


def _concluded(decision: Decision, known: Known) -> tuple[Conclusion | None, str]:
    """Return what a decision's own evidence says, None where it is not here, and the evidence's name."""
    if decision.trial:
        trial = next((one for one in known.trials if one.id == decision.trial), None)
        try:
            return (conclude(trial, decision.arm) if trial else None), f"trial {decision.trial}"
        except UsageError:
            return None, f"an arm {decision.arm} that trial {decision.trial} can decide on"
    path = next((one.path for one in decision.evidence if one.kind == "reported" and one.path), "")
    try:
        return conclude_reported(load_reported(known.root / path), path), path
    except UsageError:
        return None, path or "what it rests on"
