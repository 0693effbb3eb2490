"""Each prompt in both arms, by category and load: the ratios that the verdict rests on, with their intervals."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from draftworth.reports.page import Column, Row, Table
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import fold, panel, ratio
from draftworth.reports.words import METRICS, better, cell, judged, plural
from draftworth.trials.record import ArmComparison
from draftworth.verdicts.base import Comparison, Interval, Verdict

if TYPE_CHECKING:
    from draftworth.verdicts.rules import Metric

MOST_POINTS = 500
"""Prompts that are drawn one by one; of more, only how they are spread."""
MARGIN = 0.02
_WIDE = 2.5
_ROWS = 24
"""Categories in one plot."""
_LOWER = frozenset({"tpot", "ttft"})


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt in both arms: mean over its starts of the judged metric."""

    prompt: str
    category: str
    baseline: float
    variant: float

    @property
    def ratio(self) -> float:
        """Variant over baseline."""
        return self.variant / self.baseline


def pairs_of(subject: Subject, name: str, metric: str) -> list[Pair]:
    """Return the prompts of an arm, as a verdict pairs them; none of goodput, which one prompt has not."""
    if not subject.rows or metric == "goodput":
        return []
    from draftworth.verdicts.pairing import category_of, pair, starts_of  # noqa: PLC0415 - lazy: scipy

    arms: list[Sequence[Any]] = []
    for each in (subject.baseline, name):
        blocks: dict[int, list[Any]] = defaultdict(list)
        for row in subject.rows:
            if row.arm == each:
                blocks[row.block].append(row)
        arms.append(starts_of([blocks[number] for number in sorted(blocks)]))
    if not all(arms):
        return []
    paired = pair(arms[0], arms[1], cast("Metric", metric))
    categories = category_of(subject.rows)
    values = [paired.table.baseline, paired.table.variant]
    sums = [table.sum(axis=0) if metric == "throughput" else table.mean(axis=0) for table in values]
    if metric == "throughput":
        figures = [table[:, 0] / table[:, 1] for table in sums]
    else:
        figures = [table[:, 0] for table in sums]
    return [
        Pair(name, categories.get(name, ""), float(before), float(after))
        for name, before, after in zip(paired.ids, *figures, strict=True)
        if math.isfinite(before) and math.isfinite(after) and before > 0 and after > 0
    ]


def paired_panels(subject: Subject, name: str) -> list[str]:
    """Return the plots of a variant's ratios: by prompt and category, and by load where there are several."""
    found = subject.comparison(name)
    if found is None or judged(found) is None:
        return []
    pairs = pairs_of(subject, name, found.metric)
    groups = [one for one in found.categories if one.kind == "category"]
    loads = [one for one in found.categories if one.kind != "category"]
    drawn = [_by_category(subject, found, groups, pairs)]
    if len(loads) > 1:
        drawn.append(_by_load(subject, found, loads))
    return drawn


def unjudged_panels(subject: Subject, name: str) -> list[str]:
    """Return the prompts that an arm without a comparison answered beside the baseline: figures, and no verdict."""
    pairs = pairs_of(subject, name, "tpot")
    if not pairs:
        return []
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: altair takes a while

    middle = sum(one.variant for one in pairs) / sum(one.baseline for one in pairs)
    label = plural(len(pairs), "prompt")
    row = {"name": label, "value": middle, "low": None, "high": None, "how": "neither", "text": f"{middle:.2f}"}
    values = [one.ratio for one in pairs]
    dots = [{"name": label, "value": one} for one in values] if len(pairs) <= MOST_POINTS else [_spread(label, values)]
    chart = draw.forest([row], dots, "TPOT ratio", margin_of(subject))
    svg = draw.finished(chart, f"TPOT ratio of {name} to the baseline, of what was measured; the table has the figures")
    caption = "TPOT over the baseline's of what both answered. The arm was not judged, so there is no interval."
    return [panel("What was measured by prompt", caption, svg, None, _by_prompt_fold("tpot", pairs))]


def _by_category(subject: Subject, found: ArmComparison, groups: Sequence[Comparison], pairs: Sequence[Pair]) -> str:
    named = [(str(getattr(one, "category", "")), one) for one in groups]
    named = sorted(((label, one) for label, one in named if judged(one) is not None), key=_estimate)
    if len(named) > _ROWS:
        named = named[: _ROWS // 2] + named[-_ROWS // 2 :]
    whole = f"all {found.pairs:,} prompts"
    shown = [(whole, cast("Comparison", found)), *named]
    known = {label for label, _ in named}
    if len(pairs) <= MOST_POINTS:
        dots = [{"name": whole, "value": one.ratio} for one in pairs]
        dots += [{"name": one.category, "value": one.ratio} for one in pairs if one.category in known]
        points = "Each pale point is a prompt" if pairs else ""
    else:
        dots = [_spread(whole, [one.ratio for one in pairs])]
        dots += [_spread(label, some) for label in known if (some := _of(pairs, label))]
        points = "Pale bars: where 50 % and 90 % of the prompts lie"
    cut = any(reaches_beyond(one) for _, one in shown)
    left_out = sum(judged(one) is not None for one in groups) - len(named)
    words = [
        _reading(found.metric),
        f"{points}." if points else "",
        "An interval that meets the edge goes on beyond it." if cut else "",
        f"{left_out} categories in the middle are only in the table." if left_out > 0 else "",
    ]
    return panel(
        f"{METRICS[found.metric]} by prompt and category",
        " ".join(word for word in words if word),
        _forest(subject, found, shown, dots),
        _table(found, named),
        _by_prompt_fold(found.metric, pairs),
    )


def _by_load(subject: Subject, found: ArmComparison, loads: Sequence[Comparison]) -> str:
    named = [(str(getattr(one, "category", "")), one) for one in loads if judged(one) is not None]
    svg = _forest(subject, found, named, []) if named else ""
    return panel(f"{METRICS[found.metric]} by load", _reading(found.metric), svg, _table(found, named, "load"))


def _reading(metric: str) -> str:
    return (
        f"{METRICS[metric]} of the variant over the baseline's, with its interval: {better(metric)} is a gain. "
        "The grey band is no difference."
    )


def _forest(
    subject: Subject, found: ArmComparison, shown: Sequence[tuple[str, Comparison]], dots: Sequence[dict[str, Any]]
) -> str:
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: altair takes a while

    rows = []
    for label, one in shown:
        value = cast("Interval", judged(one))
        ends = (value.low, value.high) if value.low is not None and value.high is not None else (None, None)
        rows.append(
            {
                "name": label,
                "value": value.estimate,
                "low": ends[0],
                "high": ends[1],
                "how": how(one.verdict),
                "text": f"{value.estimate:.2f}",
            }
        )
    title = f"{METRICS[found.metric]} ratio"
    chart = draw.forest(rows, dots, title, margin_of(subject))
    return draw.finished(chart, f"{title} of {found.arm} to the baseline; the table below has the figures")


def reaches_beyond(found: Comparison) -> bool:
    """Whether an interval is so wide that the plot may cut it off."""
    ratio = judged(found)
    if ratio is None or ratio.low is None or ratio.high is None:
        return False
    return ratio.high > _WIDE * max(ratio.estimate, 1) or ratio.low * _WIDE < min(ratio.estimate, 1)


def margin_of(subject: Subject) -> float:
    """Return up to what change the trial calls it no difference."""
    asked = subject.record.config.get("verdict")
    margin = asked.get("margin") if isinstance(asked, dict) else None
    return margin if isinstance(margin, float) and 0 < margin < 1 else MARGIN


def how(verdict: Verdict) -> str:
    """Return the colour of a verdict."""
    return {Verdict.FASTER: "faster", Verdict.SLOWER: "slower"}.get(verdict, "neither")


def _estimate(pair: tuple[str, Comparison]) -> float:
    found = judged(pair[1])
    value = found.estimate if found else math.inf
    return value if pair[1].metric in _LOWER else -value


def _of(pairs: Sequence[Pair], category: str) -> list[float]:
    return [one.ratio for one in pairs if one.category == category]


def _spread(name: str, values: Sequence[float]) -> dict[str, Any]:
    from draftworth.bench.summary import quantile  # noqa: PLC0415 - lazy: with its numbers

    ordered = sorted(values)
    return {"name": name, **{f"p{share}": quantile(ordered, share / 100) for share in (5, 25, 75, 95)}}


def _table(found: ArmComparison, named: Sequence[tuple[str, Comparison]], what: str = "category") -> Table:
    suffix = "_ms" if found.metric in _LOWER else ""
    columns = [Column("", "prompts"), Column("", "baseline"), Column("", "variant"), Column("", "ratio")]
    columns += [Column("", "interval"), Column("", "verdict")]
    rows = []
    for label, one in [("all", cast("Comparison", found)), *named]:
        value = cast("Interval", judged(one))
        interval = "-" if value.low is None or value.high is None else f"{value.low:.3f} to {value.high:.3f}"
        cells = (
            f"{one.pairs:,}",
            cell(getattr(one, f"baseline_{found.metric}{suffix}")),
            cell(getattr(one, f"variant_{found.metric}{suffix}")),
            ratio(value.estimate),
            interval,
            str(one.verdict),
        )
        rows.append(Row(label, cells))
    method = judged(found)
    note = f"All: {method.method}." if method and method.method else ""
    return Table(f"Table: ratios by {what}", tuple(columns), tuple(rows), note)


def _by_prompt_fold(metric: str, pairs: Sequence[Pair]) -> str:
    if not pairs:
        return ""
    unit = " ms" if metric in _LOWER else ""
    columns = (
        Column("", "category"),
        Column("", f"baseline{unit}"),
        Column("", f"variant{unit}"),
        Column("", "ratio"),
    )
    ordered = sorted(pairs, key=lambda one: (-abs(math.log(one.ratio)), one.prompt))
    rows = tuple(
        Row(one.prompt, (one.category, cell(one.baseline), cell(one.variant), ratio(one.ratio))) for one in ordered
    )
    note = "The prompts that differ most come first."
    return fold(Table(f"Table: {len(pairs):,} prompts, one by one", columns, rows, note))
