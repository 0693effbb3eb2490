"""Latency of each arm by the load, where the trial measured several."""

from typing import Any

from draftworth.bench.summary import PointSummary
from draftworth.reports.page import Column, Row, Table
from draftworth.reports.plots import axis_of, series_of
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import panel, panels, section
from draftworth.reports.words import cell, mean

_DRAWN = 6
"""Arms in one plot, the baseline and the first variants; the others are in the table."""
_FEW = 3
_FIGURES = {
    "TPOT": ({"mean": "tpot_ms.mean"}, "tpot_ms", "TPOT (ms a token)", "Mean with its 95 % interval over prompts."),
    "TTFT": (
        {"p50": "ttft_ms.p50", "p99": "ttft_ms.p99"},
        "",
        "TTFT (ms)",
        "Median and 99th percentile over requests.",
    ),
}


def loads_html(subject: Subject) -> str:
    """Return the section of the loads; nothing where there is one."""
    arms = [arm for arm in subject.record.arms if arm.points]
    every = [point for arm in arms for point in arm.points if point.category is None]
    name = axis_of(every)
    if not arms or not every:
        return ""
    order = [subject.baseline, *subject.variants]
    arms.sort(key=lambda arm: order.index(arm.name) if arm.name in order else len(order))
    table = _table([(arm.name, point) for arm in arms for point in arm.points if point.category is None])
    if name is None:
        return section("Latency by load", panels([panel("Each arm at each load", "", "", table)]), key="loads")
    from draftworth.reports import charts  # noqa: PLC0415 - lazy: altair takes a while
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: the same

    axis, whole = series_of(name, every)
    drawn: list[str] = []
    for metric, (figures, interval, title, words) in _FIGURES.items():
        for group in whole.names:
            rows: list[dict[str, Any]] = []
            if len(arms) > _FEW and len(figures) > 1:
                figures, words = dict([next(iter(figures.items()))]), "Median over requests."  # noqa: PLW2901 - else lines upon lines
            for arm in arms[:_DRAWN]:
                some = [one for one in arm.points if one.category is None and whole.name_of(one) == group]
                rows += whole.rows(some, figures, arm.name, interval=interval)
            if len({row["x"] for row in rows}) < 2:  # noqa: PLR2004 - a line has two ends
                continue
            named = [arm.name for arm in arms[:_DRAWN] if any(row["series"] == arm.name for row in rows)]
            chart = charts.lines(rows, axis, named, title).properties(width=draw.WIDTH - 62, height=200)
            heading = f"{metric} by load{f', {group}' if group else ''}"
            left = f" The {_DRAWN} best arms; all are in the table." if len(arms) > _DRAWN else ""
            svg = draw.finished(chart, f"{heading}. {words}")
            drawn.append(panel(heading, f"{words}{left}", svg, table))
    if not drawn:
        drawn = [panel("Each arm at each load", "Nothing was measured at two loads.", "", table)]
    return section("Latency by load", panels(drawn), key="loads", wide=len(drawn) > 1)


def _table(points: list[tuple[str, PointSummary]]) -> Table:
    labels = list(dict.fromkeys(point.label for _, point in points))
    columns = (
        Column("", "arm"),
        Column("requests", "sent"),
        Column("requests", "failed"),
        Column("TPOT ms", "mean (95 % interval)"),
        Column("TPOT ms", "p99"),
        Column("TTFT ms", "p50"),
        Column("TTFT ms", "p99"),
        Column("per second", "tokens"),
    )
    rows = [
        Row(
            label,
            (
                name,
                f"{one.requests:,}",
                f"{one.failed:,}",
                mean(one.tpot_ms.mean, one.tpot_ms.low, one.tpot_ms.high),
                cell(one.tpot_ms.p99),
                cell(one.ttft_ms.p50),
                cell(one.ttft_ms.p99),
                cell(one.throughput),
            ),
        )
        for label in labels
        for name, one in points
        if one.label == label
    ]
    return Table("Table: each arm at each load", columns, tuple(rows))
