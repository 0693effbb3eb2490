"""From an interval to a verdict, and what the output check leaves of it."""

from typing import TypeVar

from draftworth.verdicts.base import Comparison, Interval, OutputCheck, Verdict
from draftworth.verdicts.rules import HIGHER_IS_BETTER, Metric

C = TypeVar("C", bound=Comparison)


def decide(ratio: Interval | None, margin: float, metric: Metric = "tpot") -> tuple[Verdict, str]:
    """Return the verdict on a ratio variant / baseline, and why, without figures.

    *No difference*: the whole interval lies within 1 +/- margin. *Faster* (for goodput: better): it lies on the good
    side of 1, which is below for times and above for throughput and goodput. *Slower*: on the other side.
    """
    if ratio is None:
        return Verdict.ERROR, "no prompt was measured in every start of both arms"
    if ratio.low is None or ratio.high is None:
        return Verdict.INCONCLUSIVE, "too few prompts, or too far apart, for an interval"
    if 1 - margin < ratio.low and ratio.high < 1 + margin:
        return Verdict.NO_DIFFERENCE, f"the whole interval lies within {percent(margin)} of no change"
    below, above = (Verdict.SLOWER, Verdict.FASTER) if metric in HIGHER_IS_BETTER else (Verdict.FASTER, Verdict.SLOWER)
    if ratio.high < 1:
        return below, "the whole interval lies below 1"
    if ratio.low > 1:
        return above, "the whole interval lies above 1"
    return Verdict.INCONCLUSIVE, f"the interval holds 1 and reaches beyond {percent(margin)}"


def override(comparison: C, check: OutputCheck) -> C:
    """Return the comparison as the output check leaves it; its figures always stay.

    `diverged` makes every verdict an error: a fast wrong answer is no result. `suspect` and `unchecked` take a FASTER
    back to inconclusive and leave the rest.
    """
    if check.status == "diverged":
        reason = f"wrong output, whatever the speed: {check.reason}. Measured speed: {comparison.reason}"
        return comparison.model_copy(update={"verdict": Verdict.ERROR, "reason": reason})
    if check.status in {"suspect", "unchecked"} and comparison.verdict is Verdict.FASTER:
        state = "is in doubt" if check.status == "suspect" else "was not checked"
        reason = f"faster, but the output {state}: {check.reason}. Measured speed: {comparison.reason}"
        return comparison.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reason": reason})
    return comparison


def percent(share: float) -> str:
    """Return a share as a percentage with up to four digits."""
    return f"{100 * share:.4g} %"
