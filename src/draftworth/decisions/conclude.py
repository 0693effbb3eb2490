"""What follows from a trial for one option: its new state, and sentences that each carry a figure of the record."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftworth.decisions.assumptions import assumptions_of
from draftworth.decisions.base import Assumptions, Evidence, Ratio
from draftworth.decisions.needs import concerning, keeps_back, needs_of, rules_of
from draftworth.decisions.states import State
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.findings import Finding
from draftworth.reports.trial.accounts import beats, told_of
from draftworth.reports.words import METRICS, ended, interval, judged, percent, plural
from draftworth.trials.config import BASELINE
from draftworth.trials.diagnostics import is_diagnostic
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import Comparison, Interval, Verdict
from draftworth.verdicts.rules import HIGHER_IS_BETTER, MARGIN

if TYPE_CHECKING:
    from draftworth.explain.base import Account, Change, Explained

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
    known = dict.fromkeys([*(one.name for one in record.arms if one.name != BASELINE), *declared])
    if name == BASELINE or (seen is None and found is None and name not in declared):
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
        consequences=(*_consequences(found, record, seen), *_cause(name, record, explained)),
        needs=tuple(needs_of(record, found, seen, verdict, taken_back)),
        ratio=_ratio(found, ratio),
        pairs=found.pairs if found else 0,
        reopen_at={"ruled out": 1 + margin, "adopted": 1 - margin}.get(state),
        assumptions=assumptions_of(record, seen, found),
        evidence=(Evidence(kind="trial", trial=record.id, says=found.reason if found else record.reason),),
    )


def diagnostic(arm: ArmRecord | None) -> str:
    """Return why an arm is there to measure a cost and not to be adopted; empty for any other."""
    declared = arm.declared if arm else {}
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
    kept = [one.name for one in record.arms if one.name != BASELINE and not diagnostic(one)]
    return kept or [one.arm for one in record.comparisons]


def _usual_arm(record: TrialRecord) -> str:
    arms = deciding_arms(record)
    if record.best in arms:
        return str(record.best)
    if len(arms) == 1:
        return arms[0]
    if arms:
        raise UsageError(f"trial {record.id} has several variants: name one with --arm: {', '.join(arms)}")
    planned = [str(one.get("name")) for one in record.config.get("arms") or () if isinstance(one, dict)]
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


def with_level(found: Interval | None) -> str:
    """Return a ratio with its interval and the level of it: several arms share the error, so it is not always 95 %."""
    if found is None or found.low is None or found.high is None:
        return interval(found)
    return f"{found.estimate:.3f} ({100 * found.confidence:.4g} % interval {found.low:.3f} to {found.high:.3f})"


def _outputs(found: ArmComparison) -> list[str]:
    """Return what the checks of an arm's output found."""
    checks = {"Output": found.output_check, "Sampled output": found.sampled_check}
    lines = [f"{name}: {check.status}: {ended(check.reason)}" for name, check in checks.items() if check is not None]
    return lines if found.output_check is not None else ["Output: not checked against the baseline's.", *lines]


def _consequences(found: ArmComparison | None, record: TrialRecord, arm: ArmRecord | None) -> list[str]:
    if found is None:
        return []
    lines = []
    for one in found.categories:
        ratio = judged(one)
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            gain, loss = ratio.high < 1, ratio.low > 1
            if one.metric in HIGHER_IS_BETTER:
                gain, loss = ratio.low > 1, ratio.high < 1
            word = "gains" if gain else "loses" if loss else "is open"
            lines.append(f"{one.kind} {one.category} {word}: ratio {with_level(ratio)}, {plural(one.pairs, 'prompt')}.")
    if found.ttft_ratio is not None and found.metric != "ttft":
        lines.append(f"TTFT ratio: {with_level(found.ttft_ratio)}.")
    lines += _outputs(found)
    if found.drift is not None:
        lines.append(f"The baseline's second TPOT over its first: {interval(found.drift)}.")
    mine = concerning(record, found.arm)
    lines += [f"{one.severity} {one.code}: {ended(one.message)}" for one in mine if one.severity != "info"]
    lines += [
        f"Not declared, but different: {one.name}: {one.baseline} and {one.variant}"
        + (f" ({one.note})." if one.note else ".")
        for one in record.confounders
    ]
    if not record.restored:
        lines.append(f"The service was NOT RESTORED: {ended(record.restore)}")
    if arm is not None:
        lines += [
            f"The server warned ({one.code}): {ended(one.advice)}"
            for one in arm.warnings
            if one.code == "sampling_params_ignored"
        ]
    return lines


def _cause(arm: str, record: TrialRecord, explained: "Explained | None") -> list[str]:
    accounts = [one for one in explained.accounts if one.arm == arm] if explained else []
    if not accounts:
        told = "; ".join(told_of(explained, arm))
        why = f": {told.rstrip('.')}" if told else f": `draftworth explain {record.id}` makes it"
        return [f"There is no account of its milliseconds{why}."]
    return [line for one in accounts for line in _account(one, several=len(accounts) > 1)]


def _account(account: "Account", *, several: bool) -> list[str]:
    at = f"At {account.point or f'concurrency {account.concurrency}'}: " if several else ""
    lines = [f"{at}Cause: {ended(account.main_cause)}"]
    for part in account.parts:
        whose = "" if part.cause == "rest" else ", measured here" if part.measured else ", not all of it measured here"
        lines.append(
            f"{at}{part.cause}: {part.ms.value:+.2f} ms a token ({part.ms.low:+.2f} to {part.ms.high:+.2f}){whose}."
        )
    changes = [one for one in account.changes if beats(one, account)]
    return [*lines, *(f"{at}Would change it: {change_line(one)}" for one in changes)]


def change_line(one: "Change") -> str:
    """Return something that would change a verdict, with its prediction and what the engine is started with."""
    found, words = one.speed_up, shlex.join(one.arguments)
    # Most say it already.
    told = found is not None and f"{found.value:.2f}" in one.text
    ends = f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})" if found else ""
    predicted = f" Predicted speed-up {ends}." if ends and not told else ""
    return f"{ended(one.text)}{predicted}{f' Start it with: {words}' if words else ''}"


def _ratio(found: Comparison | None, ratio: Interval | None) -> Ratio | None:
    if found is None or ratio is None:
        return None
    return Ratio(metric=found.metric, value=ratio.estimate, low=ratio.low, high=ratio.high, confidence=ratio.confidence)
