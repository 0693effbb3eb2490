"""Variant against baseline: pair the prompts, estimate, decide, and say what weakens the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from draftworth.findings import Finding
from draftworth.verdicts.base import CategoryComparison, Comparison, Interval
from draftworth.verdicts.decision import decide, override, percent
from draftworth.verdicts.measures import Level, judged, level, measure, restart_parts
from draftworth.verdicts.pairing import Block, Paired, Start, category_of, starts_of
from draftworth.verdicts.remarks import baseline_drift, remarks
from draftworth.verdicts.restarts import Restarts
from draftworth.verdicts.rules import SEED, Limits, Metric, Rules
from draftworth.verdicts.sequential import enough

__all__ = [
    "SEED",
    "Compared",
    "Limits",
    "Rules",
    "category_of",
    "compare",
    "decide",
    "enough",
    "override",
]


@dataclass(frozen=True, slots=True)
class Compared:
    """Everything a comparison tells.

    Attributes:
        comparison: over all prompts.
        categories: one a category, in order of name, then one a point of a sweep, in order of name.
        findings: what weakens or explains the result.
        drift: TPOT of the baseline's last start over its first, paired by prompt, no restart spread added; None
            where the baseline was started once or shares no prompt between the two.
    """

    comparison: Comparison
    categories: tuple[CategoryComparison, ...]
    findings: tuple[Finding, ...]
    drift: Interval | None


def compare(baseline_blocks: Sequence[Block], variant_blocks: Sequence[Block], rules: Rules | None = None) -> Compared:
    """Compare a variant with the baseline over the requests measured in every start of both.

    Blocks whose rows share `row.start` are one start. A start weighs as much as any other of its arm, so a drift
    between the baseline before and the baseline after cancels to first order. Only rows with `row.timed` have times;
    the others count against goodput.

    The interval over all prompts and its verdict are at level 1 - (1 - confidence) / variants, shared by the looks
    (`sequential`). A category or point shows its interval at `confidence`, as a description; its verdict is one of
    many and is taken at level 1 - (1 - confidence) / (variants x groups), shared by the looks. So the verdicts over all
    prompts share 1 - confidence, and those of the groups share as much again. Groups are the categories and the points
    of a sweep, where there are at least two of a kind.

    Args:
        baseline_blocks: rows of each block of the baseline.
        variant_blocks: rows of each block of the variant.
        rules: how to judge; the defaults of `Rules` where None.
    """
    rules = rules or Rules()
    baseline, variant = starts_of(baseline_blocks), starts_of(variant_blocks)
    rows = [row for block in (*baseline_blocks, *variant_blocks) for row in block]
    measured = measure(baseline, variant, rules)
    between = restart_parts(measured, rules)
    comparison = judged(measured, between, rules, level(rules, rules.variants, 1))

    categories = category_of(rows)
    names = sorted(set(categories.values()))
    points = sorted({row.point for row in rows if row.point})
    count = max(1, len(names) * (len(names) > 1) + len(points) * (len(points) > 1))
    shown, strict = level(rules, 1, 1, looks=False), level(rules, rules.variants, count)
    group = partial(_group, between=between, rules=rules, shown=shown, strict=strict)
    groups: list[CategoryComparison] = []
    for name in names:
        wanted = {prompt for prompt, category in categories.items() if category == name}
        part = {metric: paired.only(wanted) for metric, paired in measured.items()}
        groups.append(group(part, category=name, kind="category"))
    for point in points:
        part = measure(_at(baseline, point), _at(variant, point), rules)
        groups.append(group(part, category=point, kind="point"))
    drift = baseline_drift(baseline, rules)
    findings = remarks(
        baseline,
        variant,
        measured,
        groups=groups,
        between=between[rules.metric],
        prompts=len(categories),
        drift=drift,
        rules=rules,
    )
    return Compared(comparison, tuple(groups), findings, drift)


def _at(starts: Sequence[Start], point: str) -> list[Start]:
    """Return the starts with the rows of one point only."""
    return [tuple([row for row in block if row.point == point] for block in start) for start in starts]


def _group(
    measured: Mapping[Metric, Paired],
    *,
    category: str,
    kind: str,
    between: Mapping[Metric, Restarts],
    rules: Rules,
    shown: Level,
    strict: Level,
) -> CategoryComparison:
    """Return a group's comparison at one level with the verdict of a stricter one."""
    found = judged(measured, between, rules, shown)
    exact = judged(measured, between, rules, strict)
    reason = found.reason
    if exact.verdict is not found.verdict:
        ratio = exact.ratio
        bounded = ratio is not None and ratio.low is not None and ratio.high is not None
        limits = f" ({ratio.low:.3f} to {ratio.high:.3f})" if ratio is not None and bounded else ""
        reason = (
            f"{found.reason.rpartition(': ')[0]}: {exact.verdict} at {percent(strict.confidence)}{limits}{strict.note}"
        )
    told = {**dict(found), "verdict": exact.verdict, "reason": reason}
    return CategoryComparison(category=category, kind=kind, **told)
