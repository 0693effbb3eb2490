"""What follows from a trial for one option: its new state, and sentences that each carry a figure of the record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftworth.decisions.assumptions import assumptions_of
from draftworth.decisions.base import Assumptions, Evidence, Ratio
from draftworth.decisions.consequences import cause, consequences, with_level
from draftworth.decisions.needs import keeps_back, needs_of, rules_of
from draftworth.decisions.states import State
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.findings import Finding
from draftworth.reports.words import METRICS, ended, judged, percent, plural
from draftworth.trials.config import BASELINE
from draftworth.trials.diagnostics import is_diagnostic
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import Comparison, Interval, Verdict
from draftworth.verdicts.rules import MARGIN

if TYPE_CHECKING:
    from draftworth.explain.base import Explained

STATE_OF: dict[Verdict, State] = {
    Verdict.FASTER: "adopted",
    Verdict.SLOWER: "ruled out",
    Verdict.NO_DIFFERENCE: "ruled out",
    Verdict.INCONCLUSIVE: "pending",
    Verdict.ERROR: "pending",
}
"""What a verdict makes of an option, where no finding takes it back."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What follows for an option.

    Attributes:
        state: its new state.
        arm: the arm it is about; empty where the trial had none.
        verdict: of the arm, in the words of trials.
        by: `trial` or `reported`.
        trial: the trial's id; empty for what others reported.
        outcome: why, each sentence with its figure.
        consequences: what comes with it.
        context: what was measured, and how.
        needs: what is missing; empty where it is decided.
        ratio: what the verdict is on.
        pairs: prompts measured in both arms.
        reopen_at: a predicted speed-up beyond this reopens it.
        assumptions: what it was measured under.
        evidence: what it rests on.
        beside: the trial's other variants, each with what was said of it.
    """

    state: State
    arm: str
    verdict: str
    outcome: tuple[str, ...]
    context: tuple[str, ...]
    assumptions: Assumptions
    by: str = "trial"
    trial: str = ""
    consequences: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    ratio: Ratio | None = None
    pairs: int = 0
    reopen_at: float | None = None
    evidence: tuple[Evidence, ...] = ()
    beside: tuple[str, ...] = ()


def conclude(record: TrialRecord, arm: str | None = None, explained: "Explained | None" = None) -> Conclusion:
    """Return what follows from a trial for one of its arms.

    Args:
        record: the trial.
        arm: which arm; None takes the one its verdict is about, or its only one.
        explained: the account of its milliseconds, where there is one.

    Raises:
        UsageError: the trial has no such arm, or none that can be decided on.
    """
    name = arm or _usual_arm(record)
    seen = next((one for one in record.arms if one.name == name), None)
    found = next((one for one in record.comparisons if one.arm == name), None)
    declared = [str(one.get("name")) for one in record.config.get("arms") or () if isinstance(one, dict)]
    if name == BASELINE or (seen is None and found is None and name not in declared):
        known = dict.fromkeys([*_decidable(record), *_planned(record)])
        raise UsageError(f"trial {record.id} has no variant {name!r}; its variants: {', '.join(known) or 'none'}")
    why = diagnostic(seen)
    if why:
        raise UsageError(
            f"trial {record.id}: {name} {why}: it measures a cost and can be neither adopted nor ruled out"
        )
    verdict = Verdict.ERROR if record.error is not None or found is None else found.verdict
    taken_back = keeps_back(record, name) if verdict is Verdict.FASTER else []
    state: State = "pending" if taken_back else STATE_OF[verdict]
    ratio = judged(found) if found else None
    margin = float(rules_of(record).get("margin") or MARGIN)
    return Conclusion(
        state=state,
        arm=name,
        verdict=str(verdict),
        trial=record.id,
        outcome=tuple(_outcome(record, name, found, verdict, taken_back)),
        context=tuple(_context(record, seen)),
        consequences=(*consequences(found, record, seen), *cause(name, record, explained)),
        needs=tuple(needs_of(record, found, verdict, taken_back)),
        ratio=_ratio(found, ratio),
        pairs=found.pairs if found else 0,
        reopen_at={"ruled out": 1 + margin, "adopted": 1 - margin}.get(state),
        assumptions=assumptions_of(record, seen, found),
        evidence=(Evidence(kind="trial", trial=record.id, says=found.reason if found else record.reason),),
        beside=tuple(_beside(record, name)),
    )


def diagnostic(arm: ArmRecord | None) -> str:
    """Return why an arm is there to measure a cost and not to be adopted; empty for any other."""
    return _measures(arm.declared if arm else {})


def _measures(declared: Mapping[str, Any]) -> str:
    config, env = declared.get("speculative_config") or {}, declared.get("env") or {}
    args = declared.get("args") or ()
    if not isinstance(config, Mapping) or not is_diagnostic(config, env, args):
        return ""
    if synthetic_in(config, env):
        return "accepts drafts by a configured rate"
    if not config:
        return f"has no speculation, and only the scheduling that it gets ({' '.join(map(str, args))})"
    return f"drafts only where {config.get('prompt_lookup_min')} tokens repeat, a null draft"


def deciding_arms(record: TrialRecord) -> list[str]:
    """Return the variants of a trial that can be decided on, in its order."""
    return _decidable(record) or [one.arm for one in record.comparisons]


def _decidable(record: TrialRecord) -> list[str]:
    return [one.name for one in record.arms if one.name != BASELINE and not diagnostic(one)]


def _planned(record: TrialRecord) -> list[str]:
    """Return the variants of a trial's file that can be decided on."""
    listed = [one for one in record.config.get("arms") or () if isinstance(one, dict)]
    return [str(one.get("name")) for one in listed if not _measures(one)]


def _beside(record: TrialRecord, arm: str) -> list[str]:
    """Return the other variants that can be decided on, each with its verdict: they were options of this trial too."""
    compared = {one.arm: one for one in record.comparisons}
    lines = []
    for name in dict.fromkeys([*_decidable(record), *_planned(record)]):
        if name == arm:
            continue
        one = compared.get(name)
        told = f"{one.verdict}, {METRICS[one.metric]} ratio {with_level(judged(one))}" if one else "not measured"
        lines.append(f"Variant {name} of the same trial: {told}")
    return lines


def _usual_arm(record: TrialRecord) -> str:
    arms = deciding_arms(record)
    if record.best in arms:
        return str(record.best)
    if len(arms) == 1:
        return arms[0]
    if arms:
        raise UsageError(f"trial {record.id} has several variants: name one with --arm: {', '.join(arms)}")
    planned = _planned(record)
    if len(planned) == 1:
        return planned[0]
    raise UsageError(f"trial {record.id} measured no variant; name one it planned with --arm: {', '.join(planned)}")


def _outcome(
    record: TrialRecord, arm: str, found: ArmComparison | None, verdict: Verdict, taken_back: Sequence[Finding]
) -> list[str]:
    if verdict is Verdict.ERROR or found is None:
        # A reason can quote a server over several lines.
        return [
            f"{arm} is pending: it could not be measured. {ended(' '.join((record.error or record.reason).split()))}"
        ]
    ratio = f"{METRICS[found.metric]} ratio to the baseline {with_level(judged(found))}"
    figures = f"{ratio} over {plural(found.pairs, 'prompt')}"
    said = {
        Verdict.FASTER: f"{arm} is adopted: {figures}: the whole interval is a gain.",
        Verdict.SLOWER: f"{arm} is ruled out for this setting: {figures}: the whole interval is a loss.",
        Verdict.NO_DIFFERENCE: (
            f"{arm} is ruled out for this setting: {figures}: the whole interval lies within the margin of "
            f"{percent(float(rules_of(record).get('margin') or MARGIN))}, so it gains nothing that pays for a change."
        ),
        Verdict.INCONCLUSIVE: f"{arm} is pending: {figures}: the interval does not decide.",
    }
    if taken_back:
        reasons = "; ".join(f"{one.code}: {one.message}" for one in taken_back)
        return [f"{arm} is pending: {figures} is a gain, and is taken back by a finding: {ended(reasons)}"]
    weakened = keeps_back(record, arm)
    if verdict is Verdict.INCONCLUSIVE and weakened:
        codes = ", ".join(dict.fromkeys(weakened_by.code for weakened_by in weakened))
        said[verdict] = f"{arm} is pending: {figures}: {codes} keeps it from deciding."
    return [said[verdict], ended(f"As the trial says: {found.reason}")]


def _context(record: TrialRecord, arm: ArmRecord | None) -> list[str]:
    lines = [f"Trial {record.id} of {record.created[:10]}, written by Draftworth {record.draftworth}."]
    if arm is not None and arm.acceptance is not None and arm.acceptance.speculated:
        counts, derived = arm.acceptance, arm.derived
        parts = [
            f"{counts.drafting_steps:,} of {counts.steps:,} steps drafted ({percent(derived.get('coverage'))})"
            if counts.drafting_steps is not None and counts.steps is not None
            else "",
            f"{counts.accepted:,} of {counts.drafted:,} drafted tokens accepted "
            f"({percent(derived.get('acceptance_rate'))})"
            if counts.accepted is not None and counts.drafted is not None
            else "",
            f"acceptance length {derived['length_per_drafting_step']:.2f} per drafting step"
            if derived.get("length_per_drafting_step") is not None
            else "",
        ]
        lines.append(f"Counts of {arm.name}: {'; '.join(part for part in parts if part)} ({counts.source}).")
    elif arm is not None:
        lines.append(f"Counts of {arm.name}: not known.")
    return lines


def _ratio(found: Comparison | None, ratio: Interval | None) -> Ratio | None:
    if found is None or ratio is None:
        return None
    return Ratio(metric=found.metric, value=ratio.estimate, low=ratio.low, high=ratio.high, confidence=ratio.confidence)
