"""The plots of a trial's page that have a lane for each name.

Each is 380 wide, so that it is as legible on a phone as beside others on a screen. Labels stand in columns of a fixed
width beside the plot, so that none can meet another or leave the picture. Altair takes a while to import: whoever draws
imports this module late.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import altair as alt

from draftworth.reports.charts import FORE, LINE, PALETTE, SOFT
from draftworth.reports.charts import svg as page_svg

Row = Mapping[str, Any]

WIDTH = 380
LEFT, _RIGHT = 122, 62
_INNER = WIDTH - LEFT - _RIGHT
_LETTERS = 16
_LAST = 7
"""Letters of the end of a name that is cut."""
_STEP = 25
_BLUE, _ORANGE, _GREEN, _PINK, _OLIVE, _GREY = PALETTE
COLOURS = {"faster": _BLUE, "slower": _ORANGE, "neither": _GREY}
_KINDS = {
    "stop": _GREY,
    "start": _ORANGE,
    "measure": _BLUE,
    "score": _OLIVE,
    "restore": _PINK,
    "probe": _GREEN,
    "profile": FORE,
    "other": SOFT,
}
"""The colour of each kind of step."""
LEGEND_COLUMNS = 4
"""Names of kinds that fit beside each other."""
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 4, 6, 10, 20, 50)
_BETWEEN_TICKS = 34
"""Pixels from one label of the logarithmic axis to the next."""
_REACH = 2.5
"""How many times further than the furthest estimate an interval is drawn before it is cut off."""


def finished(chart: Any, text: str, *, columns: int = 2) -> str:
    """Return a chart as SVG of the common width."""
    drawn = page_svg(chart, escape(text), columns=columns, short=True)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    if box is not None and float(box[1]) < WIDTH:
        drawn = drawn.replace(box[0], f'viewBox="0 0 {WIDTH} {box[2]}"', 1)
    return drawn


def forest(rows: Sequence[Row], dots: Sequence[Row], title: str, margin: float) -> Any:
    """Return estimates with their intervals on a logarithmic axis, one a row, over the single values behind them.

    Args:
        rows: `name`, `value`, `low`, `high` (None: no interval), `how` (a key of `COLOURS`), `text` (at the right).
        dots: `name`, and `value`; or, of many, `p5`, `p25`, `p75` and `p95`.
        title: of the axis.
        margin: what is no difference: 0.02.
    """
    names = [row["name"] for row in rows]
    low, high = _reach(rows, dots)
    scale = alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)
    axis = alt.Axis(values=_ticks(low, high), format=",~f", title=title, grid=True)
    x = alt.X("value:Q", scale=scale, axis=axis)
    y = _lanes(names)
    layers = [
        alt.Chart(data([{"from": max(low, 1 - margin), "to": min(high, 1 + margin)}]))
        .mark_rect(color=LINE, opacity=0.9)
        .encode(x=alt.X("from:Q", scale=scale, axis=axis), x2="to:Q"),
        alt.Chart(data([{"value": 1.0}])).mark_rule(color=SOFT, strokeWidth=1).encode(x=x),
    ]
    spread = [row for row in dots if "p5" in row]
    if spread:
        base = alt.Chart(data(spread)).encode(y=y)
        for ends, size in ((("p5", "p95"), 5), (("p25", "p75"), 11)):
            x_low = alt.X(f"{ends[0]}:Q", scale=scale, axis=axis)
            layers.append(base.mark_bar(color=SOFT, opacity=0.3, size=size).encode(x=x_low, x2=f"{ends[1]}:Q"))
    single = [row for row in dots if "value" in row]
    if single:
        layers.append(alt.Chart(data(single)).mark_circle(color=SOFT, opacity=0.4, size=16).encode(x=x, y=y))
    bounded = [
        {**row, "low": max(low, row["low"]), "high": min(high, row["high"])} for row in rows if row["low"] is not None
    ]
    colour = _colour(COLOURS)
    if bounded:
        bars = alt.Chart(data(bounded)).mark_rule(strokeWidth=2.5)
        layers.append(
            bars.encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q", y=y, color=colour),
        )
    points = alt.Chart(data(rows)).mark_point(filled=True, opacity=1, size=62)
    shape = alt.Shape(
        "how:N", scale=alt.Scale(domain=list(COLOURS), range=["circle", "square", "diamond"]), legend=None
    )
    layers += [points.encode(x=x, y=y, color=colour, shape=shape), _beside(rows, y)]
    return alt.layer(*layers).properties(width=_INNER, height=_STEP * len(rows))


def _reach(rows: Sequence[Row], dots: Sequence[Row]) -> tuple[float, float]:
    """Return from where to where the axis goes: over every value, and over intervals as far as they say anything."""
    values = [row["value"] for row in rows] + [row[end] for row in dots for end in ("value", "p5", "p95") if end in row]
    inner = min(*values, 1.0), max(*values, 1.0)
    low = min(
        inner[0], *(max(row["low"], min(row["value"], 1) / _REACH) for row in rows if row["low"] is not None), 1.0
    )
    high = max(
        inner[1], *(min(row["high"], max(row["value"], 1) * _REACH) for row in rows if row["high"] is not None), 1.0
    )
    room = max(0.06 * math.log(high / low), 0.02)
    return low * math.exp(-room), high * math.exp(room)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers with room between their labels, 1 first of all, then the rounder ones."""
    width = math.log(high / low)
    taken: list[float] = []
    ranked = sorted(_TICKS, key=lambda tick: (tick != 1, tick not in {0.5, 2}, tick not in {0.1, 0.2, 5, 10}, tick))
    for tick in ranked:
        near = min((abs(math.log(tick / other)) for other in taken), default=math.inf)
        if low <= tick <= high and near / width * _INNER >= _BETWEEN_TICKS:
            taken.append(tick)
    return sorted(taken)


def waterfall(rows: Sequence[Row], title: str) -> Any:
    """Return how milliseconds add up from one total to another, one cause a row.

    Args:
        rows: `name`, `start`, `end`, `how` (a key of `COLOURS`, or `total`), `low` and `high` (of `end`, or None), and
            `text` (at the right).
        title: of the axis.
    """
    ends = [row[end] for row in rows for end in ("start", "end", "low", "high") if row[end] is not None]
    totals = [row["end"] for row in rows if row["how"] == "total"]
    span = max(ends) - min(totals + [row["end"] for row in rows]) or max(ends)
    least = min([row["end"] for row in rows] + [row["low"] for row in rows if row["low"] is not None])
    cut = least > 3 * (max(ends) - least)  # from 0, nobody would see the parts
    floor = least - 0.25 * (max(ends) - least) if cut else min(0.0, least)
    shown = [{**row, "start": floor if row["how"] == "total" and cut else row["start"]} for row in rows]
    scale = alt.Scale(domain=[floor, max(ends) + 0.02 * span], nice=False, zero=False)
    axis = alt.Axis(title=title + (", not from 0" if cut else ""), tickCount=4, format=",~f", labelFlush=False)
    y = _lanes([row["name"] for row in rows])
    kinds = {**COLOURS, "total": SOFT}
    x = alt.X("start:Q", scale=scale, axis=axis)
    bars = alt.Chart(data(shown)).mark_bar(size=13, opacity=0.85)
    layers = [bars.encode(x=x, x2="end:Q", y=y, color=_colour(kinds))]
    joints = [
        {"name": row["name"], "below": below["name"], "at": row["end"]} for row, below in itertools.pairwise(rows)
    ]
    if joints:
        joined = alt.Chart(data(joints)).mark_rule(color=SOFT, strokeWidth=1, strokeDash=[2, 2])
        layers.append(joined.encode(x=alt.X("at:Q", scale=scale, axis=axis), y=y, y2="below:N"))
    bounded = [row for row in rows if row["low"] is not None]
    if bounded:
        spread = alt.Chart(data(bounded)).encode(y=y)
        layers.append(
            spread.mark_rule(color=FORE, strokeWidth=1.5).encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
        )
        layers += [
            spread.mark_tick(color=FORE, thickness=1.5, size=7).encode(x=alt.X(f"{end}:Q", scale=scale, axis=axis))
            for end in ("low", "high")
        ]
    layers.append(_beside(rows, y))
    return alt.layer(*layers).properties(width=_INNER, height=_STEP * len(rows))


def against(rows: Sequence[Row], title: str) -> Any:
    """Return what was reached beside what pays and what is possible, one load a row.

    Args:
        rows: `name`, `least`, `longest`, `measured`, `needed` (either may be None), `how` and `text` (at the right).
        title: of the axis.
    """
    y = _lanes([row["name"] for row in rows])
    top = max([row["longest"] for row in rows] + [row["needed"] for row in rows if row["needed"] is not None])
    scale = alt.Scale(domain=[min(row["least"] for row in rows), top * 1.04], nice=False, zero=False)
    axis = alt.Axis(title=title, tickCount=5, format=",~f")
    base = alt.Chart(data(rows)).encode(y=y)
    layers = [
        base.mark_bar(color=SOFT, opacity=0.25, size=9).encode(
            x=alt.X("least:Q", scale=scale, axis=axis), x2="longest:Q"
        )
    ]
    needed = [row for row in rows if row["needed"] is not None]
    if needed:
        ticks = alt.Chart(data(needed)).mark_tick(color=FORE, thickness=2.5, size=19)
        layers.append(ticks.encode(x=alt.X("needed:Q", scale=scale, axis=axis), y=y))
    reached = [row for row in rows if row["measured"] is not None]
    if reached:
        points = alt.Chart(data(reached)).mark_point(filled=True, opacity=1, size=70)
        layers.append(points.encode(x=alt.X("measured:Q", scale=scale, axis=axis), y=y, color=_colour(COLOURS)))
    layers.append(_beside(rows, y, _INNER - 26))
    return alt.layer(*layers).properties(width=_INNER - 26, height=_STEP * len(rows))


def spans(rows: Sequence[Row], lanes: Sequence[str], kinds: Sequence[str], unit: str) -> Any:
    """Return what was done when, one lane for each server.

    Args:
        rows: `lane`, `from`, `to` (in `unit`, from the trial's begin), `kind`.
        lanes: from top to bottom.
        kinds: in the legend's order.
        unit: of the axis: `minutes` or `seconds`.
    """
    long = max(row["to"] for row in rows)
    shown = [{**row, "name": row["lane"], "to": max(row["to"], row["from"] + long / 250)} for row in rows]
    colours = {kind: _KINDS.get(kind, _GREY) for kind in kinds}
    colour = alt.Color(
        "kind:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=alt.Legend(title=None)
    )
    x = alt.X("from:Q", scale=alt.Scale(domain=[0, long * 1.01], nice=False), axis=_along(unit))
    bars = alt.Chart(data(shown)).mark_bar(size=14)
    chart = bars.encode(x=x, x2="to:Q", y=_lanes(list(lanes)), color=colour)
    return chart.properties(width=WIDTH - LEFT - 12, height=_STEP * len(lanes))


def _along(unit: str) -> alt.Axis:
    return alt.Axis(title=f"{unit} from the trial's begin", tickCount=6, format=",~f")


def _lanes(names: Sequence[str]) -> alt.Y:
    return alt.Y("name:N", sort=list(names), scale=alt.Scale(domain=list(names)), axis=labels())


def labels() -> alt.Axis:
    """Return an axis of names beside a plot, in a column of a width that is the same in every plot."""
    # Fonts differ between who draws and who reads, so that letters are counted: no label is wider than its column.
    # Names of a search differ at their ends (draft_model-k3-cut), so they are cut in the middle.
    ends = f"slice(datum.label, 0, {_LETTERS - _LAST - 1}) + '…' + slice(datum.label, -{_LAST})"
    cut = f"length(datum.label) > {_LETTERS} ? {ends} : datum.label"
    return alt.Axis(
        title=None,
        labelLimit=0,
        labelExpr=cut,
        minExtent=LEFT,
        maxExtent=LEFT,
        labelColor=FORE,
        grid=False,
        labelPadding=8,
    )


def _beside(rows: Sequence[Row], y: alt.Y, width: int = _INNER) -> Any:
    """Return the figures at the right of a plot of this width."""
    text = alt.Chart(data(rows)).mark_text(align="left", baseline="middle", fontSize=12, color=FORE, clip=False)
    return text.encode(x=alt.value(width + 8), y=y, text="text:N")


def _colour(colours: Mapping[str, str]) -> alt.Color:
    return alt.Color("how:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=None)


def data(rows: Iterable[Row]) -> Any:
    """Return rows as a chart takes them."""
    return alt.InlineData(values=[dict(row) for row in rows])
