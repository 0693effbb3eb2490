"""What is plotted: figures against the load, from the points of a record. The same record gives the same bytes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftworth.bench.record import BenchRecord
from draftworth.bench.summary import PointSummary
from draftworth.trials.record import TrialRecord

if TYPE_CHECKING:
    from draftworth.reports.charts import Axis

TRIAL_PLOT = "latency.svg"
"""The file beside report.md that `trial_plot` is for."""
_AXES = {
    "concurrency": "requests at a time",
    "rate": "requests a second, as asked for",
    "context_tokens": "prompt filled up to, tokens",
    "max_tokens": "most tokens of an answer",
}
_BY = {**_AXES, "rate": "requests a second", "context_tokens": "context length", "max_tokens": "output length"}
_WORDS = {"concurrency": "at a time", "rate": "a second", "context_tokens": "in", "max_tokens": "out"}


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with what it shows."""

    svg: str
    caption: str


def axis_of(points: Sequence[PointSummary]) -> str | None:
    """Return the field that points lie along: the load where it varies, else a length; None where nothing varies."""
    for name in _AXES:
        values = [getattr(point, name) for point in points]
        if None not in values and len(set(values)) > 1:
            return name
    return None


def bench_plots(record: BenchRecord) -> list[Plot]:
    """Return the plots of a sweep; none where there is one point, or nothing was measured at two of them."""
    points = [point for point in record.points if point.category is None]
    name = axis_of(points)
    if name is None:
        return []
    from draftworth.reports import charts  # noqa: PLC0415 - lazy: altair takes a second

    axis, series, limits = _axis(name, points), Series(name, points), record.limits
    words = _BY[name]
    found = []
    rows = series.rows(points, {"p50": "ttft_ms.p50", "p90": "ttft_ms.p90", "p99": "ttft_ms.p99"})
    if _worth(rows):
        text = f"Time to the first token by {words}: median, 90th and 99th percentile."
        chart = charts.lines(rows, axis, series.names, "TTFT (ms)", limits.get("ttft_ms"))
        found.append(Plot(charts.svg(chart, text), text))
    rows = series.rows(points, {"mean": "tpot_ms.mean"}, interval="tpot_ms")
    if _worth(rows):
        text = f"Time per output token by {words}: mean with its 95 % interval over prompts."
        chart = charts.lines(rows, axis, series.names, "TPOT (ms a token)", limits.get("tpot_ms"))
        found.append(Plot(charts.svg(chart, text), text))
    rows = series.rows(points, {"throughput": "throughput"}, x="tpot_ms.mean")
    if _worth(rows) and name in {"concurrency", "rate"}:
        text = (
            "What throughput costs each user: output tokens a second of the whole server against the mean TPOT. "
            f"Numbers are {words}; up and to the left is better."
        )
        title, x_title = "output tokens a second", "mean TPOT (ms a token)"
        chart = charts.trade_off(rows, series.names, title, x_title, limits.get("tpot_ms"))
        found.append(Plot(charts.svg(chart, text), text))
    rows = series.rows(points, {"answered": "request_rate", "within the limits": "goodput"})
    if _worth([row for row in rows if row["what"] != "answered"]):
        text = f"Requests a second by {words}: all that were answered, and those within every stated limit (goodput)."
        chart = charts.lines(rows, axis, series.names, "requests a second")
        found.append(Plot(charts.svg(chart, text), text))
    return found


def dark() -> str:
    """Return the CSS that gives plots in a page the colours of a dark screen."""
    from draftworth.reports.charts import DARK  # noqa: PLC0415 - lazy: altair takes a second

    return DARK


def series_of(name: str, points: Sequence[PointSummary]) -> "tuple[Axis, Series]":
    """Return an axis, and the lines along it, of points that vary by one field; imports altair."""
    return _axis(name, points), Series(name, points)


def has_trial_plot(record: TrialRecord) -> bool:
    """Whether `trial_plot` draws something."""
    name = axis_of([point for arm in record.arms for point in arm.points])
    if name is None:
        return False
    return all(_worth(Series(name, arm.points).rows(arm.points, _TPOT)) for arm in record.arms)


def trial_plot(record: TrialRecord) -> str | None:
    """Return the SVG of a trial with several load points: TPOT and TTFT of each arm by load; None where there is one.

    It stands on its own, and follows the reader's light or dark screen.
    """
    if not has_trial_plot(record):
        return None
    from draftworth.reports import charts  # noqa: PLC0415 - lazy: altair takes a second

    every = [point for arm in record.arms for point in arm.points]
    name = str(axis_of(every))
    whole, arms = Series(name, every), [arm.name for arm in record.arms]
    panels = []
    for group in whole.names:
        tpot: list[dict[str, Any]] = []
        ttft: list[dict[str, Any]] = []
        for arm in record.arms:
            some = [point for point in arm.points if whole.name_of(point) == group]
            tpot += whole.rows(some, _TPOT, arm.name, interval="tpot_ms")
            ttft += whole.rows(some, {"p50": "ttft_ms.p50", "p99": "ttft_ms.p99"}, arm.name)
        if _worth(tpot) and _worth(ttft):
            axis = _axis(name, every)
            left = charts.lines(tpot, axis, arms, "TPOT (ms a token)")
            panels.append((group, charts.beside(left, charts.lines(ttft, axis, arms, "TTFT (ms)"))))
    if not panels:
        return None
    text = f"TPOT (mean with its 95 % interval over prompts) and TTFT (median and 99th percentile) by {_BY[name]}"
    drawn = charts.svg(charts.stacked(panels), text)
    drawn = drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return drawn.replace("><", f"><style>{charts.DARK}</style><", 1)


_TPOT = {"mean": "tpot_ms.mean"}


def _axis(name: str, points: Sequence[PointSummary]) -> "Axis":
    from draftworth.reports.charts import Axis  # noqa: PLC0415 - lazy: altair takes a second

    return Axis(_AXES[name], sorted({getattr(point, name) for point in points}))


def _worth(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is more than one place on the axis."""
    return len({row["x"] for row in rows}) > 1


class Series:
    """Points along an axis, one line for each combination of what else varies."""

    def __init__(self, name: str, points: Sequence[PointSummary]) -> None:
        self.axis = name
        self.others = [
            field for field in _WORDS if field != name and len({getattr(point, field) for point in points}) > 1
        ]
        self.names = list(dict.fromkeys(map(self.name_of, points)))

    def name_of(self, point: PointSummary) -> str:
        """Return the name of a point's line."""
        values = [(getattr(point, field), _WORDS[field]) for field in self.others]
        return ", ".join(f"{value:,} {word}" for value, word in values if value is not None)

    def rows(
        self,
        points: Iterable[PointSummary],
        figures: Mapping[str, str],
        name: str | None = None,
        *,
        x: str = "",
        interval: str = "",
    ) -> list[dict[str, Any]]:
        """Return a row for each figure of each point; what is not known has none.

        Args:
            points: in order.
            figures: name of a figure to where a point has it.
            name: of the line; default: what else varies.
            x: where a point has its place; default: the axis.
            interval: where a point has `low` and `high`.
        """
        found = []
        for what, path in figures.items():
            for point in points:
                at, value = _get(point, x or self.axis), _get(point, path)
                if at is None or value is None:
                    continue
                series = self.name_of(point) if name is None else name
                row = {"x": at, "y": value, "what": what, "series": series, "load": getattr(point, self.axis)}
                if interval:
                    row |= {end: _get(point, f"{interval}.{end}") for end in ("low", "high")}
                found.append(row)
        return found


def _get(point: PointSummary, path: str) -> Any:
    found: Any = point
    for name in path.split("."):
        found = getattr(found, name)
    return found
