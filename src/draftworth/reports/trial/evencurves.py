"""What acceptance pays, measured: how fast arms of synthetic acceptance were, by the length at which they accepted."""

from typing import TYPE_CHECKING, Any

from draftworth.explain.base import EvenCurve
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import between, panel, panels, plain_table, section

if TYPE_CHECKING:
    from draftworth.reports.trial.draw import Row


def even_curves_html(subject: Subject) -> str:
    """Return the section of the measured break-even curves; nothing where no arm had synthetic acceptance."""
    found = subject.explained.even_curves if subject.explained else ()
    shown = [one for one in found if one.points]
    if not shown:
        return ""
    return section(
        "What acceptance pays",
        panels(_panel(one) for one in shown),
        "Arms whose drafts were accepted at a configured rate, whatever they were: the length at which a drafting step "
        "pays, as this service measured it.",
        key="acceptance-pays",
        wide=len(shown) > 1,
    )


def _panel(curve: EvenCurve) -> str:
    from draftworth.reports.trial import curves  # noqa: PLC0415 - lazy: altair takes a while

    rows: list[Row] = [
        {"length": one.length, "times": one.speed_up.value, "low": one.speed_up.low, "high": one.speed_up.high}
        for one in curve.points
    ]
    load = f"{curve.concurrency} at a time, k = {curve.k}"
    svg = curves.finished(
        curves.paying(rows, _crossing(curve)), f"Times as fast as the baseline by tokens per drafting step, {load}"
    )
    table = plain_table(
        f"Table: {load}",
        ["tokens per drafting step", "times as fast", "95 % interval"],
        (
            (
                one.arm,
                [f"{one.length:.2f}", f"{one.speed_up.value:.3f}", between(one.speed_up.low, one.speed_up.high)],
            )
            for one in curve.points
        ),
    )
    crosses = "" if curve.length is None else " Dashed: where that is, with its interval in grey."
    return panel(load, f"{curve.text}{crosses}", svg, table)


def _crossing(curve: EvenCurve) -> dict[str, Any] | None:
    """Return where a curve crosses 1, with the ends of its interval; None where it does not cross."""
    if curve.length is None:
        return None
    return {"length": curve.length, "low": curve.low, "high": curve.high}
