"""The plots of a training: the walk by epoch, and what each step told. Altair takes a second: imported late."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from draftworth.reports.charts import FORE, PALETTE, SHAPES, SOFT
from draftworth.reports.trial.draw import WIDTH, Row, data, finished

__all__ = ["finished", "over_steps", "walks"]

_HEIGHT = 190
_INNER = WIDTH - 62
_MOST_POINTS = 40
_LABELS = 10


def walks(points: Sequence[Row], needed: Sequence[Row], epochs: int) -> Any:
    """Return the acceptance length by epoch, with what pays.

    Args:
        points: `epoch` (from 1), `length`, `best` (whether it is the longest).
        needed: `length`, `low`, `high`, `text`, from the lowest on.
        epochs: how far the axis goes.
    """
    x = alt.X(
        "epoch:Q",
        scale=alt.Scale(domain=[1, max(2, epochs)], nice=False, padding=14),
        axis=alt.Axis(title="epoch", values=_whole(max(2, epochs)), grid=False, format=",.0f"),
    )
    lengths = [row["length"] for row in points]
    ends = [*lengths, *(row[end] for row in needed for end in ("low", "length", "high"))]
    scale = alt.Scale(domain=[min(ends), max(ends)], nice=True, zero=False, padding=10)
    title = "tokens per drafting step"
    y = alt.Y("length:Q", scale=scale, axis=alt.Axis(title=title, tickCount=5, format=",~f"))
    layers: list[Any] = []
    bands = [row for row in needed if row["high"] > row["low"]]
    if bands:
        band = alt.Chart(data(bands)).mark_rect(color=PALETTE[1], opacity=0.15)
        layers.append(band.encode(y=alt.Y("low:Q", title=title), y2="high:Q"))
    if needed:
        # The words stand at the end that is further from the curve.
        left, right = (min(abs(row["length"] - end) for row in needed) for end in (lengths[0], lengths[-1]))
        at_left = left > right
        rules = alt.Chart(data(needed))
        layers.append(rules.mark_rule(color=PALETTE[1], strokeWidth=1.5, strokeDash=[5, 3]).encode(y=y))
        side: Any = "left" if at_left else "right"
        words = rules.mark_text(align=side, baseline="bottom", dx=2 if at_left else -2, dy=-3, fontSize=11, color=FORE)
        layers.append(words.encode(y=y, x=alt.value(0 if at_left else _INNER), text="text:N"))
    base = alt.Chart(data(points)).encode(x=x, y=y)
    layers.append(base.mark_line(color=PALETTE[0], strokeWidth=2, strokeJoin="round"))
    if len(points) <= _MOST_POINTS:
        layers.append(base.mark_point(filled=True, color=PALETTE[0], size=34, opacity=1))
    best = alt.Chart(data(row for row in points if row["best"])).encode(x=x, y=y)
    layers.append(best.mark_point(filled=True, color=PALETTE[2], size=120, opacity=1, shape="diamond"))
    return alt.layer(*layers).properties(width=_INNER, height=_HEIGHT)


def over_steps(
    points: Sequence[Row],
    names: Sequence[str],
    title: str,
    ends: Sequence[float],
    *,
    share: bool = False,
    zero: bool = False,
) -> Any:
    """Return curves by step.

    Args:
        points: `step`, `value`, `what` (one of the names), and perhaps `low` and `high`; a name with `dots` in every
            row is drawn as points.
        names: in the legend's order.
        title: of the axis upwards.
        ends: steps at which an epoch ended, as many as can be told apart.
        share: whether the values are shares of one.
        zero: whether the axis begins at zero whatever that hides.
    """
    far = max([row["step"] for row in points] + list(ends))
    x = alt.X(
        "step:Q",
        scale=alt.Scale(domain=[0, max(1, far)], nice=False),
        axis=alt.Axis(title="step", tickCount=6, tickMinStep=1, grid=False, format=",~f"),
    )
    values = [row[end] for row in points for end in ("value", "low", "high") if row.get(end) is not None]
    low, high = 0 if zero else min(values), max(values)
    scale = alt.Scale(domain=[0, max(high, 0.01)], nice=True) if share else _scale(low, high)
    axis = alt.Axis(title=title, tickCount=5, format="%" if share else ",~f")
    y = alt.Y("value:Q", scale=scale, axis=axis)
    legend = alt.Legend(title=None) if len(names) > 1 else None
    colours = [PALETTE[at % len(PALETTE)] for at in range(len(names))]
    colour = alt.Color("what:N", scale=alt.Scale(domain=list(names), range=colours), legend=legend)
    shapes = [SHAPES[at % len(SHAPES)] for at in range(len(names))]
    shape = alt.Shape("what:N", scale=alt.Scale(domain=list(names), range=shapes), legend=legend)
    layers: list[Any] = []
    rules = [{"step": end} for end in ends]
    if rules:
        layers.append(alt.Chart(data(rules)).mark_rule(color=SOFT, opacity=0.35, strokeWidth=1).encode(x=x))
    bounded = [row for row in points if row.get("low") is not None]
    if len(bounded) > 1:
        band = alt.Chart(data(bounded)).mark_area(color=PALETTE[0], opacity=0.2)
        layers.append(band.encode(x=x, y=alt.Y("low:Q", scale=scale, title=title), y2="high:Q"))
    lines = [row for row in points if not row.get("dots")]
    if lines:
        base = alt.Chart(data(lines)).encode(x=x, y=y, color=colour)
        layers.append(base.mark_line(strokeWidth=2, strokeJoin="round"))
    alone = {name for name in names if sum(row["what"] == name for row in points) == 1}
    dots = [row for row in points if row.get("dots") or row["what"] in alone]
    if dots or legend is not None:
        some = alt.Chart(data(dots or points[:1])).encode(x=x, y=y, color=colour, shape=shape)
        layers.append(some.mark_point(filled=True, size=44, opacity=1))
    return alt.layer(*layers).properties(width=_INNER, height=_HEIGHT)


def _whole(last: int) -> list[int]:
    """Return whole numbers from 1 on that an axis can be labelled with: each, or every second, fifth and so on."""
    every = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, last) if last / size <= _LABELS)
    return list(range(every, last + 1, every))


def _scale(low: float, high: float) -> alt.Scale:
    """Return an axis from zero where that hides nothing."""
    if low >= 0 and low < 0.6 * high:
        return alt.Scale(domain=[0, high], nice=True)
    return alt.Scale(domain=[low, high] if high > low else [low - 0.5, high + 0.5], nice=True, zero=False, padding=6)
