"""The plots of a trial's page with an axis upwards: by draft position, by tokens, over time; as wide as the others."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from draftworth.reports.charts import PALETTE, SHAPES, SOFT
from draftworth.reports.trial.draw import LEFT, WIDTH, Row, data, finished, labels

__all__ = ["by_class", "finished", "over_time", "paying", "positions", "staircase"]


def positions(bars: Sequence[Row], lines: Sequence[Row]) -> Any:
    """Return shares by draft position as bars, with lines to compare them with.

    Args:
        bars: `position` (from 1), `share`.
        lines: `position`, `share`, `what` (the line's name).
    """
    every = sorted({row["position"] for row in bars})
    few = every if len(every) <= 12 else [one for one in every if one == 1 or one % (len(every) // 6) == 0]  # noqa: PLR2004
    wide = len(every) > 30  # noqa: PLR2004 - bars would be lines
    x = alt.X(
        "position:O",
        scale=alt.Scale(domain=every, paddingInner=0.35),
        axis=alt.Axis(title="position in the draft", labelAngle=0, values=few),
    )
    axis = alt.Axis(title="share of drafting steps that accept it", format="%", tickCount=5)
    y = alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    layers = [alt.Chart(data(bars)).mark_bar(color=PALETTE[0], opacity=0.85).encode(x=x, y=y)]
    if lines:
        names = list(dict.fromkeys(row["what"] for row in lines))
        colour = alt.Color(
            "what:N",
            scale=alt.Scale(domain=names, range=[PALETTE[1], PALETTE[3]][: len(names)]),
            legend=alt.Legend(title=None),
        )
        base = alt.Chart(data(lines)).encode(x=x, y=y, color=colour)
        layers.append(base.mark_line(strokeWidth=2, strokeDash=[5, 3]))
        if not wide:
            layers.append(base.mark_point(filled=True, size=34, opacity=1))
    return alt.layer(*layers).properties(width=WIDTH - 62, height=190)


def by_class(bars: Sequence[Row], arms: Sequence[str], title: str) -> Any:
    """Return milliseconds by class of kernel, the arms' bars below each other.

    Args:
        bars: `class`, `arm`, `ms`.
        arms: in the order in which they are drawn.
        title: of the axis.
    """
    classes = list(dict.fromkeys(row["class"] for row in bars))
    y = alt.Y("class:N", sort=classes, axis=labels())
    colour = alt.Color(
        "arm:N",
        sort=list(arms),
        scale=alt.Scale(domain=list(arms), range=[SOFT, PALETTE[1]]),
        legend=alt.Legend(title=None),
    )
    chart = alt.Chart(data(bars)).mark_bar(height=alt.RelativeBandSize(0.85))
    return chart.encode(
        x=alt.X("ms:Q", axis=alt.Axis(title=title, tickCount=5)),
        y=y,
        yOffset=alt.YOffset("arm:N", sort=list(arms)),
        color=colour,
    ).properties(width=WIDTH - LEFT - 12, height=alt.Step(14))


def paying(rows: Sequence[Row], crossing: Row | None) -> Any:
    """Return how fast arms were by the tokens that a drafting step gave, from 1 on, with where that is the baseline.

    Args:
        rows: `length`, `times` (as fast as the baseline), `low`, `high`.
        crossing: `length`, `low`, `high` (None: beyond what was measured): from where on a step pays for itself; None
            where that is nowhere between two points.
    """
    far = max(row["length"] for row in rows)
    end = far + max(0.08 * (far - 1), 0.05)
    along = alt.Scale(domain=[1, end], nice=False, clamp=True)
    axis = alt.Axis(title="tokens per drafting step", tickCount=6, grid=False, format=",~f")
    x = alt.X("length:Q", scale=along, axis=axis)
    title = "times as fast as the baseline"
    ends = [row[end] for row in rows for end in ("low", "high", "times")]
    scale = alt.Scale(domain=[min(*ends, 1.0), max(*ends, 1.0)], nice=True, zero=False, padding=6)
    y = alt.Y("times:Q", scale=scale, axis=alt.Axis(title=title, tickCount=5))
    base = alt.Chart(data(rows)).encode(x=x)
    layers: list[Any] = []
    if crossing is not None:
        low = 1 if crossing["low"] is None else crossing["low"]
        high = end if crossing["high"] is None else crossing["high"]
        at = alt.Chart(data([{"length": crossing["length"], "low": low, "high": high}]))
        if high > low:
            layers.append(
                at.mark_rect(color=SOFT, opacity=0.2).encode(x=alt.X("low:Q", scale=along, axis=axis), x2="high:Q")
            )
        layers.append(at.mark_rule(color=SOFT, strokeWidth=1.5, strokeDash=[4, 3]).encode(x=x))
    layers += [
        alt.Chart(data([{"times": 1.0}])).mark_rule(color=SOFT, strokeWidth=1).encode(y=y),
        base.mark_line(color=PALETTE[0], strokeWidth=1.5).encode(y=y),
        base.mark_rule(color=PALETTE[0], strokeWidth=2).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        base.mark_point(filled=True, color=PALETTE[0], size=70, opacity=1).encode(y=y),
    ]
    return alt.layer(*layers).properties(width=WIDTH - 62, height=190)


def staircase(steps: Sequence[Row], marks: Sequence[Row]) -> Any:
    """Return what a step costs by its tokens, with the arms' own steps on it.

    Args:
        steps: `tokens`, `ms`, `low`, `high`, `what` (`measured` or `model`).
        marks: the same with `name`, for the baseline and the arms.
    """
    every = [row["tokens"] for row in [*steps, *marks]]
    log = max(every) > 4 * max(1, min(every))
    scale = alt.Scale(type="log", base=2, nice=False, padding=10) if log else alt.Scale(zero=False, padding=10)
    values = [2**at for at in range(20) if min(every) <= 2**at <= max(every)] if log else alt.Undefined
    if isinstance(values, list) and len(values) > 8:  # noqa: PLR2004 - what fits the width
        values = values[:: math.ceil(len(values) / 8)]
    title = f"tokens in the step{', log scale' if log else ''}"
    x = alt.X("tokens:Q", scale=scale, axis=alt.Axis(title=title, values=values, format=",~f", grid=False))
    y = alt.Y("ms:Q", scale=alt.Scale(domainMin=0, nice=True), axis=alt.Axis(title="ms a step", tickCount=5))
    layers: list[Any] = []
    model = [row for row in steps if row["what"] == "model"]
    if model:
        band = alt.Chart(data(model)).mark_area(interpolate="step-after", color=SOFT, opacity=0.2)
        layers.append(band.encode(x=x, y=alt.Y("low:Q", title="ms a step"), y2="high:Q"))
        line = alt.Chart(data(model)).mark_line(interpolate="step-after", color=SOFT, strokeWidth=1.5)
        layers.append(line.encode(x=x, y=y))
    measured = [row for row in steps if row["what"] == "measured"]
    if measured:
        base = alt.Chart(data(measured)).encode(x=x)
        layers += [
            base.mark_rule(color=SOFT, strokeWidth=1.5).encode(y=alt.Y("low:Q", title="ms a step"), y2="high:Q"),
            base.mark_point(filled=True, color=SOFT, size=26, opacity=1).encode(y=y),
        ]
    if marks:
        names = list(dict.fromkeys(row["name"] for row in marks))
        colour, shape = _told_apart(names)
        base = alt.Chart(data(marks)).encode(x=x, color=colour)
        layers += [
            base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title="ms a step"), y2="high:Q"),
            base.mark_point(filled=True, size=95, opacity=1).encode(y=y, shape=shape),
        ]
    return alt.layer(*layers).properties(width=WIDTH - 62, height=210)


def over_time(rows: Sequence[Row], baseline: str, title: str) -> Any:
    """Return what each block measured, in order of time; the baseline's joined by a line.

    Args:
        rows: `minutes`, `value`, `low`, `high` (or None), `arm`.
        baseline: the baseline's name.
        title: of the axis upwards.
    """
    names = list(dict.fromkeys([baseline, *(row["arm"] for row in rows)]))
    colour, shape = _told_apart(names, "arm")
    x = alt.X(
        "minutes:Q",
        scale=alt.Scale(nice=False, padding=14),
        axis=alt.Axis(title="minutes from the first request", tickCount=6, grid=False, format=",~f"),
    )
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=True, padding=6), axis=alt.Axis(title=title, tickCount=5))
    same = alt.Chart(data(row for row in rows if row["arm"] == baseline))
    layers = [same.mark_line(strokeWidth=1.5, strokeDash=[4, 3], color=PALETTE[0]).encode(x=x, y=y)]
    bounded = [row for row in rows if row["low"] is not None]
    if bounded:
        bars = alt.Chart(data(bounded)).mark_rule(strokeWidth=2)
        layers.append(bars.encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour))
    points = alt.Chart(data(rows)).mark_point(filled=True, size=64, opacity=1)
    layers.append(points.encode(x=x, y=y, color=colour, shape=shape))
    return alt.layer(*layers).properties(width=WIDTH - 62, height=190)


def _told_apart(names: Sequence[str], field: str = "name") -> tuple[alt.Color, alt.Shape]:
    """Return colours and shapes; with more names than colours, the shape tells those of one colour apart."""
    legend = alt.Legend(title=None)
    colours = [PALETTE[at % len(PALETTE)] for at in range(len(names))]
    shapes = [SHAPES[(at + at // len(PALETTE)) % len(SHAPES)] for at in range(len(names))]
    return (
        alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names), range=colours), legend=legend),
        alt.Shape(f"{field}:N", scale=alt.Scale(domain=list(names), range=shapes), legend=legend),
    )
