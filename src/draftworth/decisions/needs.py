"""What is missing where a trial does not decide: what a finding asks for, and the prompts and starts that would."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.findings import Code, Finding
from draftworth.reports.words import judged
from draftworth.trials.config import BASELINE
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord
from draftworth.verdicts.base import Interval, Verdict
from draftworth.verdicts.rules import MARGIN, restart_priors
from draftworth.verdicts.weaken import FROM_ANY_ARM, WEAKENS

TAKES_BACK = frozenset({*WEAKENS, Code.OUTPUT_DIVERGED, Code.OUTPUT_SUSPECT, Code.OUTPUT_UNCHECKED})
"""Findings that take a faster arm back to pending: something else was measured, or its output is in doubt."""
_ENOUGH_PAIRS = 10
"""From so many pairs on an interval tells the spread between prompts well enough to plan with."""


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
    return [
        one
        for one in concerning(record, arm)
        if (one.code in TAKES_BACK or one.severity == "breach")
        and not (one.code is Code.OUTPUT_UNCHECKED and switched_off)
    ]


def needs_of(
    record: TrialRecord,
    found: ArmComparison | None,
    arm: ArmRecord | None,
    verdict: Verdict,
    taken_back: Sequence[Finding],
) -> list[str]:
    """Return what is missing for a decision; nothing where the trial decides.

    Args:
        record: the trial.
        found: the arm's comparison; None where it was not measured.
        arm: the arm.
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
    return weakened if weakened and decided else [*weakened, *_power(record, found, arm)]


def _power(record: TrialRecord, found: ArmComparison, arm: ArmRecord | None) -> list[str]:
    """Return the prompts and starts that would show the difference that was seen, or the margin where it is smaller."""
    from draftworth.verdicts.power import PAIR_SD, needed  # noqa: PLC0415 - lazy: scipy

    ratio, rules = judged(found), rules_of(record)
    margin = float(rules.get("margin") or MARGIN)
    if ratio is None or not ratio.estimate > 0:
        return ["a trial whose prompts can be paired"]
    difference = max(math.expm1(abs(math.log(ratio.estimate))), margin)
    command = " ".join(record.arms[0].command) if record.arms else ""
    base, other = restart_priors("cpu" if "cpu" in command.lower() else None)
    base = float(rules.get("restart_sd_baseline") or base)
    other = float(rules.get("restart_sd_variant") or other)
    baseline = next((one for one in record.arms if one.name == BASELINE), None)
    starts = (_starts(baseline), _starts(arm))
    spread = _pair_sd(ratio, found.pairs, (base, other), starts)
    seen = needed(
        difference,
        pair_sd=spread or PAIR_SD,
        restart_sd_baseline=base,
        restart_sd_variant=other,
        starts=starts,
        confidence=ratio.confidence,
    )
    wanted = f"to show a difference of {100 * difference:.2g} % in 80 of 100 trials"
    given = (
        f"(spread between prompts {spread or PAIR_SD:.2g}{'' if spread else ', the usual one'}; between restarts "
        f"{100 * base:.2g} and {100 * other:.2g} %)"
    )
    if seen.prompts is not None:
        had = f"with {starts[0]} and {starts[1]} starts {given}; it had {found.pairs:,}"
        return [f"{wanted}: {seen.prompts:,} prompts {had}"]
    more = f"verdict.starts = {seen.starts_needed}" if seen.starts_needed else "another way to measure"
    return [f"{wanted}: {more}; {seen.reason.rstrip('.')} {given}"]


def _starts(arm: ArmRecord | None) -> int:
    return max((one.start for one in arm.starts), default=1) if arm else 1


def _pair_sd(ratio: Interval, pairs: int, sds: tuple[float, float], starts: tuple[int, int]) -> float | None:
    """Return the spread between prompts that an interval implies, once restarts are taken out; None for few prompts."""
    if ratio.low is None or ratio.high is None or ratio.low <= 0 or pairs < _ENOUGH_PAIRS:
        return None
    variance = (math.log(ratio.high / ratio.low) / 2 / 1.96) ** 2
    rest = variance - sum(sd**2 / count for sd, count in zip(sds, starts, strict=True))
    return math.sqrt(rest * pairs) if rest > 0 else None
