"""Variant against baseline: pair the prompts, estimate, decide, and say what weakens the answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from draftworth.findings import Code, Finding, find
from draftworth.verdicts.base import CategoryComparison, Comparison, Interval, OutputCheck, Verdict
from draftworth.verdicts.pairing import Block, Paired, category_of, means, pair, prompt_tpots, prompt_ttfts
from draftworth.verdicts.statistics import (
    BOOTSTRAP_PAIRS,
    PRIOR_LOG_SD_BASELINE,
    PRIOR_LOG_SD_VARIANT,
    STARTS_TO_ESTIMATE,
    hodges_lehmann,
    ratio_of_means,
    restart_log_sd,
)

__all__ = ["SEED", "Compared", "category_of", "compare", "decide", "override", "prompt_tpots", "prompt_ttfts"]

LENGTHS_APART = 0.02
"""Share by which the arms' tokens may differ before it is remarked."""
SEED = 20_260_101
"""Seed of every resampling, so that a record gives the same verdict again."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Everything a comparison tells.

    Attributes:
        comparison: over all prompts.
        categories: one a category, in order of name.
        findings: what weakens or explains the result.
        drift: TPOT of the baseline's last start over its first, paired by prompt, no restart spread added; None
            where the baseline was started once or shares no prompt between the two.
    """

    comparison: Comparison
    categories: tuple[CategoryComparison, ...]
    findings: tuple[Finding, ...]
    drift: Interval | None


@dataclass(frozen=True, slots=True)
class _Rule:
    """How an interval is made and judged."""

    margin: float
    confidence: float
    note: str
    tpot_log_sd: float
    ttft_log_sd: float
    seed: int


def compare(
    baseline_blocks: Sequence[Block],
    variant_blocks: Sequence[Block],
    *,
    margin: float = 0.02,
    confidence: float = 0.95,
    variants: int = 1,
    prior_baseline: float = PRIOR_LOG_SD_BASELINE,
    prior_variant: float = PRIOR_LOG_SD_VARIANT,
    seed: int = SEED,
) -> Compared:
    """Compare a variant with the baseline over the prompts measured in every start of both.

    A prompt's value in an arm is the mean over its starts, so a drift between the baseline before and the baseline
    after cancels to first order.

    The interval over all prompts and its verdict are at level 1 - (1 - confidence) / variants. A category shows its
    interval at `confidence`, as a description; its verdict is one of many and is taken at level
    1 - (1 - confidence) / (variants x categories).

    Args:
        baseline_blocks: rows of each start of the baseline, in order of time.
        variant_blocks: rows of each start of the variant.
        margin: half-width of the band around a ratio of 1 that counts as no difference.
        confidence: level over everything judged together.
        variants: how many variants the trial compares with this baseline.
        prior_baseline: sd of log TPOT between restarts without speculation, see `restart_log_sd`.
        prior_variant: the same with speculation.
        seed: of the resampling.

    Raises:
        ValueError: a margin or level outside (0, 1), or fewer than one variant.
    """
    if not (0 < margin < 1 and 0 < confidence < 1):
        raise ValueError(f"margin and confidence lie between 0 and 1, not at {margin} and {confidence}")
    if variants < 1:
        raise ValueError(f"at least one variant is compared, not {variants}")
    rows = [row for block in (*baseline_blocks, *variant_blocks) for row in block]
    categories = category_of(rows)
    names = sorted(set(categories.values()))
    tpot = pair(baseline_blocks, variant_blocks, prompt_tpots)
    ttft = pair(baseline_blocks, variant_blocks, prompt_ttfts)

    def rule(arms: int, groups: int) -> _Rule:
        """Return the rule at the level left for one of `arms` x `groups` comparisons."""
        level = 1 - (1 - confidence) / (arms * groups)
        parts = [f"{arms} variants"] * (arms > 1) + [f"{groups} categories"] * (groups > 1)
        note = f"; level corrected for {' x '.join(parts)} (Bonferroni)" if parts else ""

        def log_sd(paired: Paired) -> float:
            if not paired.ids:
                return 0.0
            return restart_log_sd(
                len(baseline_blocks),
                len(variant_blocks),
                paired.baseline_log_means,
                prior_baseline,
                prior_variant,
                observed_variant_log_means=paired.variant_log_means,
                confidence=level,
            )

        # The spread between restarts belongs to the server, so categories share what all prompts tell of it.
        return _Rule(margin, level, note, log_sd(tpot), log_sd(ttft), seed)

    overall = rule(variants, 1)
    comparison = _comparison(tpot, ttft, overall)
    shown, judged = rule(1, 1), rule(variants, max(1, len(names)))
    groups = tuple(
        CategoryComparison(category=name, **dict(_category(tpot.only(wanted), ttft.only(wanted), shown, judged)))
        for name in names
        for wanted in [{prompt for prompt, category in categories.items() if category == name}]
    )
    drift = _drift(baseline_blocks, confidence, seed)
    findings = (
        *_row_findings("baseline", baseline_blocks),
        *_row_findings("variant", variant_blocks),
        *_pair_findings(tpot, len(categories), groups),
        *_start_findings(len(baseline_blocks), len(variant_blocks), overall.tpot_log_sd),
        *_length_findings(baseline_blocks, variant_blocks, tpot.ids),
        *_drift_findings(drift, margin),
    )
    return Compared(comparison, groups, findings, drift)


def decide(ratio: Interval | None, margin: float) -> tuple[Verdict, str]:
    """Return the verdict on a ratio of TPOT, and why, without figures."""
    if ratio is None:
        return Verdict.ERROR, "no prompt was measured in every start of both arms"
    if ratio.low is None or ratio.high is None:
        return Verdict.INCONCLUSIVE, "too few prompts for an interval"
    if 1 - margin < ratio.low and ratio.high < 1 + margin:
        return Verdict.NO_DIFFERENCE, f"the whole interval lies within {_percent(margin)} of no change"
    if ratio.high < 1:
        return Verdict.FASTER, "the whole interval lies below 1"
    if ratio.low > 1:
        return Verdict.SLOWER, "the whole interval lies above 1"
    return Verdict.INCONCLUSIVE, f"the interval holds 1 and reaches beyond {_percent(margin)}"


def override(comparison: Comparison, check: OutputCheck) -> Comparison:
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


def _comparison(tpot: Paired, ttft: Paired, rule: _Rule) -> Comparison:
    ratio = _ratio(tpot.baseline, tpot.variant, rule, rule.tpot_log_sd)
    verdict, why = decide(ratio, rule.margin)
    if ratio is None:
        return Comparison(
            ttft_ratio=_ratio(ttft.baseline, ttft.variant, rule, rule.ttft_log_sd), verdict=verdict, reason=why
        )
    pairs = len(tpot.ids)
    shift = hodges_lehmann(
        [v - b for b, v in zip(tpot.baseline, tpot.variant, strict=True)], confidence=rule.confidence
    )
    before, after = sum(tpot.baseline) / pairs, sum(tpot.variant) / pairs
    limits = (
        "no interval"
        if ratio.low is None or ratio.high is None
        else f"{_percent(ratio.confidence)} interval {ratio.low:.3f} to {ratio.high:.3f}"
    )
    count = "1 prompt" if pairs == 1 else f"{pairs} prompts"
    figures = f"TPOT {_ms(before)} → {_ms(after)} ms (ratio {ratio.estimate:.3f}, {limits}, {count})"
    return Comparison(
        tpot_ratio=ratio,
        shift_ms=shift.model_copy(update={"method": shift.method + rule.note}),
        ttft_ratio=_ratio(ttft.baseline, ttft.variant, rule, rule.ttft_log_sd),
        baseline_tpot_ms=before,
        variant_tpot_ms=after,
        pairs=pairs,
        verdict=verdict,
        reason=f"{figures}: {why}",
    )


def _category(tpot: Paired, ttft: Paired, shown: _Rule, judged: _Rule) -> Comparison:
    """Return a category's comparison at one level with the verdict of a stricter one."""
    found = _comparison(tpot, ttft, shown)
    strict = _comparison(tpot, ttft, judged)
    if strict.verdict is found.verdict:
        return found
    ratio = strict.tpot_ratio
    bounded = ratio is not None and ratio.low is not None and ratio.high is not None
    limits = f" ({ratio.low:.3f} to {ratio.high:.3f})" if ratio is not None and bounded else ""
    reason = f"{found.reason.rpartition(': ')[0]}: inconclusive at {_percent(judged.confidence)}{limits}{judged.note}"
    return found.model_copy(update={"verdict": strict.verdict, "reason": reason})


def _ratio(baseline: Sequence[float], variant: Sequence[float], rule: _Rule, log_sd: float) -> Interval | None:
    if not baseline:
        return None
    ratio = ratio_of_means(baseline, variant, confidence=rule.confidence, log_sd_extra=log_sd, seed=rule.seed)
    return ratio.model_copy(update={"method": ratio.method + rule.note})


def _drift(blocks: Sequence[Block], confidence: float, seed: int) -> Interval | None:
    """Return TPOT of the last start over the first."""
    if len(blocks) < 2:  # noqa: PLR2004 - two ends
        return None
    ends = pair(blocks[:1], blocks[-1:], prompt_tpots)
    if not ends.ids:
        return None
    return ratio_of_means(ends.baseline, ends.variant, confidence=confidence, seed=seed)


def _row_findings(role: str, blocks: Sequence[Block]) -> list[Finding]:
    rows = [row for block in blocks for row in block]
    arm = rows[0].arm if rows else role
    failed = [row for row in rows if not row.ok]
    good = len(rows) - len(failed)
    rough = sum(row.ok and row.token_source == "chunks" for row in rows)  # noqa: S105 - a count's source, no secret
    findings = []
    if failed:
        why = next((row.error for row in failed if row.error), "no reason recorded")
        message = f"{len(failed)} of {len(rows)} requests failed; the first with a reason: {why}"
        findings.append(find(Code.REQUESTS_FAILED, message, arm=arm))
    if rough:
        message = f"{rough} of {good} answers have their tokens counted from chunks"
        findings.append(find(Code.APPROXIMATE_TOKENS, message, arm=arm))
    return findings


def _pair_findings(paired: Paired, prompts: int, groups: Sequence[CategoryComparison]) -> list[Finding]:
    pairs, findings = len(paired.ids), []
    if pairs < prompts:
        message = (
            f"{prompts - pairs} of {prompts} prompts were left out: they have no TPOT in some start of an arm "
            f"(failed, answered in one chunk, or not sent); {pairs} are compared"
        )
        findings.append(find(Code.FEW_PAIRS, message))
    if pairs < BOOTSTRAP_PAIRS:
        message = f"{pairs} prompts are paired; below {BOOTSTRAP_PAIRS} the interval rests on an approximation"
        findings.append(find(Code.FEW_PAIRS, message))
    lonely = [group.category for group in groups if group.tpot_ratio is None or group.tpot_ratio.low is None]
    if lonely and len(groups) > 1:
        findings.append(find(Code.FEW_PAIRS, f"no interval for the categories {', '.join(lonely)}"))
    return findings


def _start_findings(baseline: int, variant: int, log_sd: float) -> list[Finding]:
    if min(baseline, variant) >= STARTS_TO_ESTIMATE:
        return []
    message = f"the baseline was started {_times(baseline)} and the variant {_times(variant)}"
    if log_sd:
        reach = 100 * NormalDist().inv_cdf(0.975) * log_sd
        message += f"; restarts (sd {100 * log_sd:.2g} %) alone make a 95 % interval of about +/- {reach:.2g} %"
    return [find(Code.FEW_STARTS, message)]


def _length_findings(
    baseline_blocks: Sequence[Block], variant_blocks: Sequence[Block], ids: Sequence[str]
) -> list[Finding]:
    """Compare tokens an answer, so that arms with different numbers of starts or lost repeats stay comparable."""
    base, other = (
        means((row.prompt_id, row.tokens) for block in blocks for row in block if row.ok)
        for blocks in (baseline_blocks, variant_blocks)
    )
    both = [prompt for prompt in ids if prompt in base and prompt in other]
    before, after = sum(base[prompt] for prompt in both), sum(other[prompt] for prompt in both)
    if not before or abs(after / before - 1) <= LENGTHS_APART:
        return []
    message = f"tokens over the paired prompts: baseline {before:.0f}, variant {after:.0f} ({after / before - 1:+.1%})"
    return [find(Code.LENGTHS_DIFFER, message)]


def _drift_findings(drift: Interval | None, margin: float) -> list[Finding]:
    if drift is None or drift.low is None or drift.high is None:
        return []
    if drift.low <= 1 <= drift.high or abs(drift.estimate - 1) <= margin:
        return []
    message = (
        f"TPOT of the last baseline is {drift.estimate:.3f} times that of the first "
        f"({_percent(drift.confidence)} interval {drift.low:.3f} to {drift.high:.3f})"
    )
    return [find(Code.BASELINE_DRIFT, message)]


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ms(value: float) -> str:
    """Return milliseconds with about three digits."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
