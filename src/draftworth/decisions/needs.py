"""What is missing where a trial does not decide: what a finding asks for, and the prompts and starts that would."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.decisions.more import more_evidence
from draftworth.findings import Code, Finding
from draftworth.reports.words import judged
from draftworth.trials.config import BASELINE
from draftworth.trials.record import ArmComparison, TrialRecord
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.weaken import FROM_ANY_ARM, WEAKENS, telling

TAKES_BACK = frozenset({*WEAKENS, Code.OUTPUT_DIVERGED, Code.OUTPUT_SUSPECT, Code.OUTPUT_UNCHECKED})
"""Findings that take a faster arm back to pending: something else was measured, or its output is in doubt."""


def rules_of(record: TrialRecord) -> Mapping[str, Any]:
    """Return the rules a trial was judged by, as its record has them."""
    rules = record.config.get("verdict")
    return rules if isinstance(rules, Mapping) else {}


def concerning(record: TrialRecord, arm: str) -> list[Finding]:
    """Return the findings that concern an arm: of the trial, the baseline and itself, and those of any server."""
    return [one for one in record.findings if one.arm in {None, BASELINE, arm} or one.code in FROM_ANY_ARM]


def keeps_back(record: TrialRecord, arm: str) -> list[Finding]:
    """Return the findings that keep an arm from being adopted or ruled out."""
    switched_off = rules_of(record).get("output_check") is False
    found = next((one for one in record.comparisons if one.arm == arm), None)
    concerned = concerning(record, arm)
    return [
        one
        for one in (concerned if found is None else telling(found, concerned))
        if (one.code in TAKES_BACK or one.severity == "breach")
        and not (one.code is Code.OUTPUT_UNCHECKED and switched_off)
    ]


def needs_of(
    record: TrialRecord,
    found: ArmComparison | None,
    verdict: Verdict,
    taken_back: Sequence[Finding],
) -> list[str]:
    """Return what is missing for a decision; nothing where the trial decides.

    Args:
        record: the trial.
        found: the arm's comparison; None where it was not measured.
        verdict: of the arm.
        taken_back: findings that keep a faster arm from being adopted.
    """
    if taken_back:
        return [f"{one.code}: {one.advice}" for one in taken_back]
    if verdict is Verdict.ERROR or found is None:
        tail = f"; the server's last line: {record.error_tail[-1]}" if record.error_tail else ""
        return [f"a trial that can be measured: {' '.join((record.error or record.reason).split())}{tail}"]
    if verdict is not Verdict.INCONCLUSIVE:
        return []
    weakened = [f"{one.code}: {one.advice}" for one in keeps_back(record, found.arm)]
    ratio = judged(found)
    decided = (
        ratio is not None and ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high
    )
    # An interval that leaves 1 out needs no more prompts: the finding has to be mended.
    if weakened and decided:
        return weakened
    more = more_evidence(record, found)
    return [*weakened, more.text if more else "a trial whose prompts can be paired"]
