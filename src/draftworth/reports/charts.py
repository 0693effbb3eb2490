"""Drawing: lines along an axis and curves of one figure against another, as SVG that may stand in a page.

The same rows give the same bytes. Altair takes a second to import: whoever draws imports this module late. Colours are
those of a light page, told apart by colour-blind people; `DARK` replaces them where the reader's screen is dark.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

Row = Mapping[str, Any]
"""`x`, `y`, `series`, `what` (which figure), `load` (order and label), and perhaps `low` and `high`."""

_LOG_X, _LOG_Y = 4, 20
"""Spans above which an axis is logarithmic."""
_FEW = 8
_LIMIT_IN_SIGHT = 1.6
"""A limit is drawn where it is at most so many times the largest value; further off it would flatten the lines."""
FORE, SOFT, LINE = _FORE, _SOFT, _LINE = "#1c2024", "#5c656f", "#e3e7eb"
_COLOURS = {  # light: dark; after Okabe and Ito, contrast 3:1 or better on either page
    "#0068a8": "#58b0ee",
    "#c85200": "#f28e4c",
    "#00835f": "#3cc79c",
    "#a8478a": "#e08cc4",
    "#8a6d00": "#dcbb3c",
    "#4b5563": "#a9b4c0",
    _FORE: "#e5e8eb",
    _SOFT: "#9aa4ae",
    _LINE: "#2d333a",
}
PALETTE = _PALETTE = list(_COLOURS)[:6]
SHAPES = _SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
_LETTERS = 46
"""Letters of a legend's row in a plot as wide as a phone."""
_FRAME = re.compile(r"<svg\b[^>]*>")
_DASHES: list[Any] = [[1, 0], [6, 3], [1.5, 2.5]]
DARK = "".join(
    [
        "\n@media screen and (prefers-color-scheme: dark) {\n",
        *(
            f'svg.plot [{what}="{light}"] {{ {what}: {dark}; }}\n'
            for light, dark in _COLOURS.items()
            for what in ("fill", "stroke")
        ),
        "}\n",
    ]
)
"""CSS for a dark screen."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What the lines go along.

    Attributes:
        title: with its unit.
        places: where there are points, rising.
    """

    title: str
    places: Sequence[float]

    @property
    def log(self) -> bool:
        """Whether it spans so much that it is better drawn to the logarithm."""
        return self.places[-1] > _LOG_X * self.places[0] > 0


def lines(rows: Sequence[Row], axis: Axis, names: Sequence[str], title: str, limit: float | None = None) -> Any:
    """Return lines along an axis, with intervals where rows have them, and a limit where it is in sight.

    Args:
        rows: what is drawn.
        axis: what they go along.
        names: the series, one colour each.
        title: of the other axis, with its unit.
        limit: what a request must meet.
    """
    scale = (
        alt.Scale(type="log", base=2, nice=False, padding=14)
        if axis.log
        else alt.Scale(zero=False, nice=False, padding=14)
    )
    values = list(axis.places) if len(axis.places) <= _FEW else alt.Undefined
    name = f"{axis.title}, log scale" if axis.log else axis.title
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(values=values, format=",~f", grid=False, title=name))
    seen = limit if limit is not None and limit <= _LIMIT_IN_SIGHT * _highest(rows) else None
    layers = _layers(rows, x, names, title, seen)
    if seen is not None:
        base = alt.Chart(_data([{"y": seen}]))
        text = base.mark_text(align="left", baseline="bottom", dx=2, dy=-4, text=f"limit {seen:,g} ms", **_SMALL)
        layers += [base.mark_rule(**_DOTTED).encode(y="y:Q"), text.encode(y="y:Q", x=alt.value(0))]
    return alt.layer(*layers).properties(width=440, height=250)


def trade_off(rows: Sequence[Row], names: Sequence[str], title: str, x_title: str, limit: float | None = None) -> Any:
    """Return curves of one figure against another, their points labelled by the load."""
    far = max(row["x"] for row in rows)
    seen = limit if limit is not None and limit <= _LIMIT_IN_SIGHT * far else None
    scale = alt.Scale(domain=[0, 1.08 * max(far, seen or 0)], nice=False)
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(format=",~f", grid=False, title=x_title))
    layers = _layers(rows, x, names, title)
    for number, name in enumerate(names):  # curves lie close: labels of every second one go to its other side
        above = number % 2 == 0
        text = alt.Chart(_data(row for row in rows if row["series"] == name)).mark_text(
            dx=-5 if above else 6,
            dy=-9 if above else 11,
            align="right" if above else "left",
            fontSize=11,
            color=_PALETTE[number % len(_PALETTE)],
        )
        layers.append(text.encode(x=x, y="y:Q", text=alt.Text("load:Q", format=",~f")))
    if seen is not None:
        base = alt.Chart(_data([{"x": seen}]))
        text = base.mark_text(align="left", baseline="bottom", dx=5, dy=-5, text=f"limit {seen:,g} ms", **_SMALL)
        layers += [base.mark_rule(**_DOTTED).encode(x=x), text.encode(x=x, y=alt.value("height"))]
    return alt.layer(*layers).properties(width=440, height=250)


def beside(*charts: Any) -> Any:
    """Return charts in a row."""
    return alt.hconcat(*charts, spacing=36).resolve_scale(strokeDash="independent")


def stacked(charts: Iterable[tuple[str, Any]]) -> Any:
    """Return charts above each other, each with its heading where it has one."""
    found = [
        chart.properties(title=alt.TitleParams(title, anchor="start", offset=16)) if title else chart
        for title, chart in charts
    ]
    return alt.vconcat(*found, spacing=30).resolve_scale(strokeDash="independent")


_SMALL: dict[str, Any] = {"fontSize": 11, "color": _SOFT}
_DOTTED: dict[str, Any] = {"strokeDash": [2, 3], "strokeWidth": 1.5, "color": _SOFT}


def _layers(
    rows: Sequence[Row], x: alt.X, names: Sequence[str], title: str, limit: float | None = None
) -> list[alt.Chart]:
    """Return lines, points and intervals; colour and shape tell the series, or, where there is one, the figures."""
    whats = list(dict.fromkeys(row["what"] for row in rows))
    several, many = len(names) > 1, len(whats) > 1
    field, domain = ("what:N", whats) if many and not several else ("series:N", list(names))
    legend = alt.Legend(title=None) if several or many else None
    colours = alt.Scale(domain=domain, range=[_PALETTE[number % len(_PALETTE)] for number in range(len(domain))])
    shapes = alt.Scale(domain=domain, range=[_SHAPES[number % len(_SHAPES)] for number in range(len(domain))])
    colour = alt.Color(field, scale=colours, legend=legend)
    dashes = alt.Legend(title=None, symbolSize=180, symbolStrokeColor=_FORE) if many and several else None
    dash = alt.StrokeDash("dash:N", scale=alt.Scale(domain=whats, range=_DASHES), legend=dashes)
    y = _upward(rows, title, limit)
    base = alt.Chart(_data(rows)).encode(x=x, y=y, color=colour)
    found = [
        base.mark_line(strokeWidth=2, strokeJoin="round").encode(strokeDash=dash, order="load:Q", detail="series:N"),
        base.mark_point(filled=True, size=46, opacity=1).encode(shape=alt.Shape(field, scale=shapes, legend=legend)),
    ]
    bounded = [row for row in rows if row.get("low") is not None and row.get("high") is not None]
    if bounded:
        bars = alt.Chart(_data(bounded)).mark_rule(strokeWidth=2)
        found.append(bars.encode(x=x, y="low:Q", y2="high:Q", color=colour))
    return found


def _upward(rows: Sequence[Row], title: str, limit: float | None) -> alt.Y:
    """Return the axis upwards: from zero, or, where figures span much, to the logarithm with ticks at 1, 2 and 5."""
    low, high = min(row["y"] for row in rows), max(_highest(rows), limit or 0)
    if not high > _LOG_Y * low > 0:
        axis = alt.Axis(title=title, format=",~f", tickCount=6)
        return alt.Y("y:Q", scale=alt.Scale(domainMin=0, nice=True), axis=axis)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    steps = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    first = max(step for step in steps if step <= low)
    last = min(step for step in [*steps, 10 * steps[-3]] if step >= high)
    ticks = [step for step in steps if first <= step <= last]
    axis = alt.Axis(title=f"{title}, log scale", format=",~f", values=ticks)
    return alt.Y("y:Q", scale=alt.Scale(type="log", domain=[first, last], nice=False), axis=axis)


def _highest(rows: Sequence[Row]) -> float:
    return max(float(row.get("high") or row["y"]) for row in rows)


def _data(rows: Iterable[Row]) -> Any:
    # A field of its own for the dashes: with the one of the colours, the symbols of the legend would be dashed too.
    return alt.InlineData(values=[{**row, "dash": row.get("what")} for row in rows])


def svg(chart: Any, text: str, *, columns: int | None = None, short: bool = False) -> str:
    """Return a chart as SVG that may stand in a page, without what differs from one drawing to the next.

    Args:
        chart: what to draw.
        text: what it shows, for who cannot see it; no quotes and nothing from outside.
        columns: of the legend at most, in a plot as wide as a phone: fewer where names are long; default: as many as
            fit in one row.
        short: write places to a tenth of a pixel: a third less to load where there are many marks.
    """
    look = chart.configure(
        font="system-ui, sans-serif",
        background="transparent",
        padding=2,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            domainColor=_SOFT,
            tickColor=_SOFT,
            gridColor=_LINE,
            labelColor=_SOFT,
            titleColor=_FORE,
            labelFontSize=11,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
        ),
        axisY=alt.AxisConfig(
            domain=False, ticks=False, labelPadding=6, titleAngle=0, titleAlign="left", titleY=-14, titleX=-36
        ),
        legend=alt.LegendConfig(
            orient="bottom",
            direction="horizontal",
            labelColor=_FORE,
            labelFontSize=11,
            labelLimit=300,
            symbolSize=60,
            columnPadding=16,
            offset=12,
        ),
        title=alt.TitleConfig(color=_FORE, fontSize=13, fontWeight="bold"),
    )
    spec = look.to_dict()
    if columns is not None:
        longest = max(map(len, _legend_names(spec)), default=0)
        fit = (many for many in range(columns, 1, -1) if longest <= _LETTERS // many - 2)
        spec["config"]["legend"]["columns"] = next(fit, 1)
        spec["config"]["legend"]["labelLimit"] = 0
    spec["config"]["legend"]["layout"] = {"bottom": {"margin": 28, "anchor": "start"}}  # altair's schema has it wrong
    drawn = vl_convert.vegalite_to_svg(spec)
    drawn = re.sub(r' (?:aria-[a-z]+|role|xmlns(?::xlink)?|version)="[^"]*"', "", drawn)
    ids = {old: f"clip{number}" for number, old in enumerate(dict.fromkeys(re.findall(r'<clipPath id="(\w+)"', drawn)))}
    drawn = re.sub(r"\bclip\d+\b", lambda match: ids.get(match[0], match[0]), drawn)
    if short:
        drawn = re.sub(r"<[^<>]+>", lambda tag: re.sub(r"(\d\.\d)\d{2,}", r"\1", tag[0]), drawn)
    return _FRAME.sub(lambda tag: _framed(tag[0], text), drawn, count=1)


def _legend_names(spec: Any) -> list[str]:
    """Return the names in the legends of a chart, cut to what a row of them holds."""
    if isinstance(spec, list):
        return [name for one in spec for name in _legend_names(one)]
    if not isinstance(spec, dict):
        return []
    found = [name for one in spec.values() for name in _legend_names(one)]
    domain = (spec.get("scale") or {}).get("domain") if isinstance(spec.get("legend"), dict) else None
    if not isinstance(domain, list):
        return found
    # Fonts differ between who draws and who reads, so letters are counted.
    cut = f"length(datum.label) > {_LETTERS - 4} ? slice(datum.label, 0, {_LETTERS - 5}) + '…' : datum.label"
    spec["legend"] = {**spec["legend"], "labelExpr": cut}
    return [*found, *(str(name) for name in domain)]


def _framed(tag: str, text: str) -> str:
    """Return a drawing's first tag as of a plot of the page: as wide as its place, told to who cannot see it."""
    # Of any width and height: a step of lanes makes them 387.0.
    kept = re.sub(r' (?:class|width|height)="[^"]*"', "", tag)
    return f'<svg class="plot" role="img" aria-label="{text}"{kept.removeprefix("<svg")}'
