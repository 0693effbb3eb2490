"""What takes a verdict back to inconclusive, besides its interval and the output check."""

from collections.abc import Sequence
from math import log
from typing import TypeVar

from draftworth.findings import Code, Finding
from draftworth.verdicts.base import CategoryComparison, Comparison, Verdict

C = TypeVar("C", bound=Comparison)

WEAKENS = {
    Code.FOREIGN_REQUESTS: "somebody else used the server during the trial",
    Code.SPECULATION_OFF: "the variant did not speculate",
    Code.BASELINE_SPECULATES: "the baseline speculates too",
    Code.PREFIX_CACHE_WARMER: "the prefix cache was warmer in one arm",
    Code.DRAFTS_REMEMBERED: "the drafter had met these prompts' answers before",
    Code.SAMPLED_DIVERGED: "its sampled answers come from another distribution than the baseline's",
    Code.SYNTHETIC_ACCEPTANCE: "drafts were accepted by a configured rate",
    Code.CLIENT_SATURATED: "the client could not keep up",
}
"""The findings that say that something else was measured than what the verdict would claim. Every other one leaves the
verdict: it explains a result, or takes from what is known beside the times."""
ONLY_SLOWER = {Code.PREFIX_CACHE_COLDER: "the baseline's prefix cache was warmer"}
"""Those that can only have made the variant slower: they leave *faster*."""
FROM_ANY_ARM = frozenset({Code.FOREIGN_REQUESTS})
"""Those that count whichever arm they were seen in: what befell one server may have befallen the others unseen."""
_CLAIMS = frozenset({Verdict.FASTER, Verdict.SLOWER})


def telling(comparison: Comparison, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those that cannot account for a comparison's ratio, all of them together.

    What they account for is told for TPOT over everything: a group, and another metric, keep all of them.

    Args:
        comparison: as measured.
        findings: those that concern it.
    """
    if comparison.metric != "tpot" or isinstance(comparison, CategoryComparison):
        return list(findings)
    bounded = [one for one in findings if one.accounts_for is not None]
    kinds = {one.code for one in bounded} - {one.code for one in findings if one.accounts_for is None}
    left = kinds if _beyond(comparison, bounded) else set()
    return [one for one in findings if one.code not in left]


def _beyond(comparison: Comparison, findings: Sequence[Finding]) -> bool:
    """Whether the whole interval lies further from 1 than what was found in both arms can have moved it."""
    ratio = comparison.ratio
    if ratio is None or ratio.low is None or ratio.high is None or ratio.low <= 0:
        return False
    arms: dict[tuple[str | None, Code], float] = {}
    for one in findings:
        arms[one.arm, one.code] = max(arms.get((one.arm, one.code), 0.0), one.accounts_for or 0.0)
    return max(log(ratio.low), -log(ratio.high)) > sum(arms.values())


def weaken(comparison: C, findings: Sequence[Finding]) -> C:
    """Return the comparison as the findings about its arms leave it; its figures always stay.

    Args:
        comparison: as measured, the output check considered.
        findings: those that concern it: of the trial, the baseline and its own variant, and those of `FROM_ANY_ARM`.

    Returns:
        The same with INCONCLUSIVE for FASTER or SLOWER, and why, where a finding of `WEAKENS` is among them that can
        account for it.
    """
    counts = {**WEAKENS, **(ONLY_SLOWER if comparison.verdict is Verdict.SLOWER else {})}
    why = list(dict.fromkeys(counts[one.code] for one in telling(comparison, findings) if one.code in counts))
    if not why or comparison.verdict not in _CLAIMS:
        return comparison
    reason = f"{comparison.verdict}, but {' and '.join(why)}. Measured speed: {comparison.reason}"
    return comparison.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reason": reason})
