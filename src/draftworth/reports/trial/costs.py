"""What a step costs by its tokens: the staircase that was measured, with the arms' own steps on it."""

from collections.abc import Sequence

from draftworth.explain.base import CurvePoint
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import between, panel, panels, plain_table, section
from draftworth.reports.words import number

_MOST = 500
"""Points of a plot; of more, every so many-th is drawn."""


def costs_html(subject: Subject) -> str:
    """Return the section of the steps' costs; nothing where none are known."""
    curve = subject.explained.curve if subject.explained else ()
    if not curve:
        return ""
    from draftworth.reports.trial import curves  # noqa: PLC0415 - lazy: altair takes a while

    steps = [one for one in curve if one.what in {"measured", "model"}]
    marks = [one for one in curve if one.what in {"baseline", "arm"}]
    rows = [_row(one) for one in sorted(_thin(steps), key=lambda one: one.tokens)]
    named = [{**_row(one), "name": one.name or one.what} for one in marks]
    svg = curves.finished(curves.staircase(rows, named), "Milliseconds of a step by the tokens it carries")
    known = {one.what for one in steps}
    words = [
        "Small grey points were probed on the baseline" if "measured" in known else "",
        "the grey line is the model through them, with its interval" if "model" in known else "",
        "the marks are the arms' own steps" if marks else "",
    ]
    caption = "; ".join(word for word in words if word)
    caption = (
        f"{caption[:1].upper()}{caption[1:]}. A mark above the line is what the engine's mode and the drafter add."
    )
    table = plain_table(
        "Table: step costs",
        ["tokens", "ms", "95 % interval"],
        (
            (f"{one.what}{f': {one.name}' if one.name else ''}", _cells(one))
            for one in sorted(curve, key=lambda one: (one.what in {"measured", "model"}, one.what, one.tokens))
        ),
    )
    return section("What a step costs", panels([panel("Step by tokens", caption, svg, table)]), key="costs")


def _thin(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    every = -(-len(points) // _MOST)
    return list(points[:: max(1, every)])


def _row(point: CurvePoint) -> dict[str, float | str]:
    return {
        "tokens": point.tokens,
        "ms": point.ms.value,
        "low": point.ms.low,
        "high": point.ms.high,
        "what": point.what,
    }


def _cells(point: CurvePoint) -> list[str]:
    return [f"{point.tokens:,}", number(point.ms.value), between(point.ms.low, point.ms.high)]
