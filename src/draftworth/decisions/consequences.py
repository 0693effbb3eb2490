"""What comes with a trial's verdict: its categories, output, findings, and the account of its milliseconds."""

import shlex
from typing import TYPE_CHECKING

from draftworth.decisions.needs import concerning
from draftworth.explain.inputs import made_with
from draftworth.explain.words import whose
from draftworth.reports.trial.accounts import beats, told_of
from draftworth.reports.words import ended, interval, judged, plural
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import CategoryComparison, Interval
from draftworth.verdicts.rules import HIGHER_IS_BETTER

if TYPE_CHECKING:
    from draftworth.explain.base import Account, Change, Explained

_TELLING_PAIRS = 3
"""Fewer prompts of a category tell nothing, where their interval holds 1."""
_TELLING_WIDTH = 4.0
"""Nor does an interval that holds 1 and whose end is more than this many times its beginning."""


def with_level(found: Interval | None) -> str:
    """Return a ratio with its interval and the level of it: several arms share the error, so it is not always 95 %."""
    if found is None or found.low is None or found.high is None:
        return interval(found)
    return f"{found.estimate:.3f} ({100 * found.confidence:.4g} % interval {found.low:.3f} to {found.high:.3f})"


def _groups(found: ArmComparison) -> list[str]:
    """Return what categories and points say; those that say nothing are named together, by their number of prompts."""
    told, silent = [], dict[tuple[str, int], list[str]]()
    for one in found.categories:
        ratio = judged(one)
        word = _word(one, ratio)
        if word:
            figures = f"ratio {with_level(ratio)}, {plural(one.pairs, 'prompt')}"
            told.append(f"{one.kind} {one.category} {word}: {figures}.")
        else:
            silent.setdefault((one.kind, one.pairs), []).append(one.category)
    for (kind, pairs), names in silent.items():
        each = " each" if len(names) > 1 else ""
        told.append(f"{kind} {', '.join(names)}: {plural(pairs, 'prompt')}{each}: nothing can be said.")
    return told


def _word(one: CategoryComparison, ratio: Interval | None) -> str:
    """Return whether a category gains, loses or is open; empty where its few prompts, or its interval, say nothing."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return ""
    gain, loss = ratio.high < 1, ratio.low > 1
    if one.metric in HIGHER_IS_BETTER:
        gain, loss = loss, gain
    if gain or loss:
        return "gains" if gain else "loses"
    few = one.pairs < _TELLING_PAIRS or ratio.low <= 0 or ratio.high / ratio.low > _TELLING_WIDTH
    return "" if few else "is open"


def _outputs(found: ArmComparison) -> list[str]:
    """Return what the checks of an arm's output found."""
    checks = {"Output": found.output_check, "Sampled output": found.sampled_check}
    lines = [f"{name}: {check.status}: {ended(check.reason)}" for name, check in checks.items() if check is not None]
    return lines if found.output_check is not None else ["Output: not checked against the baseline's.", *lines]


def consequences(found: ArmComparison | None, record: TrialRecord, arm: ArmRecord | None) -> list[str]:
    """Return what comes with a verdict, each in a sentence: categories, TTFT, output, drift, findings, confounders."""
    if found is None:
        return []
    lines = _groups(found)
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


def cause(arm: str, record: TrialRecord, explained: "Explained | None") -> list[str]:
    """Return the account of an arm's milliseconds, or why there is none."""
    accounts = [one for one in explained.accounts if one.arm == arm] if explained else []
    if not accounts:
        told = "; ".join(told_of(explained, arm))
        why = f": {told.rstrip('.')}" if told else f": `draftworth explain {record.id}` makes it"
        return [f"There is no account of its milliseconds{why}."]
    made = [made_with(explained.inputs)] if explained and explained.inputs else []
    return [*(line for one in accounts for line in _account(one, several=len(accounts) > 1)), *made]


def _account(account: "Account", *, several: bool) -> list[str]:
    at = f"At {account.point or f'concurrency {account.concurrency}'}: " if several else ""
    lines = [f"{at}Cause: {ended(account.main_cause)}"]
    for part in account.parts:
        rests_on = f", {told}" if (told := whose(part)) else ""
        lines.append(
            f"{at}{part.cause}: {part.ms.value:+.2f} ms a token ({part.ms.low:+.2f} to {part.ms.high:+.2f}){rests_on}."
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
