"""The curves of a training's page as panels: which there are, what is drawn in each, and its words."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from draftworth.reports.training.base import Subject
from draftworth.reports.training.figures import Bin, binned
from draftworth.reports.trial.parts import panel, panels, section
from draftworth.reports.words import number, percent

_MOST_NEEDED = 3
_RULES = 12
"""Ends of epochs that are marked in a plot; of more, every second, every third …"""
_DOTS = 24
"""Held-out figures that are drawn as dots; more are a line."""
_MANY = 10_000
"""Tokens a second above which they are told by the thousand: labels have little room."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A plot with its words.

    Attributes:
        title: what it shows.
        caption: how to read it.
        told: the figures that matter, for who cannot see it.
        chart: draws it; imports altair.
    """

    title: str
    caption: str
    told: str
    chart: Callable[[], Any]


def curves_of(subject: Subject) -> list[Curve]:
    """Return the plots that there is something for; nothing is drawn yet."""
    made = (_walk(subject), _loss(subject), _accuracy(subject), _speed(subject), _waiting(subject))
    return [one for one in made if one is not None]


def drawn(subject: Subject) -> str:
    """Return the section of the plots, drawn; takes some tenths of a second of a processor."""
    curves = curves_of(subject)
    if not curves:
        return ""
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: altair takes a second

    found = [
        panel(one.title, one.caption, draw.finished(one.chart(), f"{one.title}. {one.told}", columns=4))
        for one in curves
    ]
    return section("Curves", panels(found), key="curves")


def _walk(subject: Subject) -> Curve | None:
    walked = [(one, one.length) for one in subject.epochs if one.length is not None]
    best = subject.best
    if not walked or best is None:
        return None
    points = [{"epoch": one.epoch + 1, "length": length, "best": one is best} for one, length in walked]
    some = sorted(subject.needs.lengths, key=lambda one: one.length)[:_MOST_NEEDED]
    needed = [
        {
            "length": one.length,
            "low": one.low,
            "high": one.high,
            "text": "pays" if one.concurrency is None else f"pays at {one.concurrency} at a time",
        }
        for one in some
    ]
    words = f"Acceptance length of a walk over held-out conversations with k = {best.k}; the diamond is the best epoch."
    if needed:
        words += " Dashed: the length that pays"
        words += ", the shade its interval." if any(one.high > one.low for one in some) else "."
    told = f"Best: {best.length:.2f} at epoch {best.epoch + 1}; last: {walked[-1][1]:.2f}."
    if some:
        told += f" Pays from {some[0].length:.2f}."

    def chart() -> Any:
        from draftworth.reports.training import plots  # noqa: PLC0415 - lazy: altair takes a second

        return plots.walks(points, needed, walked[-1][0].epoch + 1)

    return Curve("Walk acceptance length by epoch", words, told, chart)


def _loss(subject: Subject) -> Curve | None:
    bins = binned((one.step, one.loss) for one in subject.steps)
    held_out = [
        {"step": one.step, "value": one.loss, "what": "held out", "dots": len(subject.epochs) <= _DOTS}
        for one in subject.epochs
        if one.loss is not None and math.isfinite(one.loss)
    ]
    if not bins:
        return None
    rows = [{**_row(one, "training"), "low": one.low, "high": one.high} for one in bins]
    words = _smoothing(bins)
    words += " The shade is their 10th to 90th percentile." if bins[0].count > 1 else ""
    told = f"From {bins[0].mean:.3f} to {bins[-1].mean:.3f}."
    if held_out:
        words += " Held out: after each epoch, on samples that are not trained on."
        told += f" Held out: {held_out[-1]['value']:.3f}."
    names = ["training", *(["held out"] if held_out else [])]
    return Curve("Loss by step", words + _ends(subject), told, _steps(subject, [*rows, *held_out], names, "loss"))


def _accuracy(subject: Subject) -> Curve | None:
    depth = max((len(one.accuracy) for one in subject.steps), default=0)
    rows: list[dict[str, Any]] = []
    ends: list[tuple[str, Sequence[Bin]]] = []
    for at in range(depth):
        bins = binned((one.step, one.accuracy[at]) for one in subject.steps if len(one.accuracy) > at)
        rows += [_row(one, f"step {at + 1}") for one in bins]
        if bins:
            ends.append((f"step {at + 1}", bins))
    if not ends:
        return None
    words = "The trainer's accuracy by step of the training-time test, on all positions: no acceptance."
    told = ", ".join(f"{name}: {percent(bins[-1].mean)}" for name, bins in ends) + "."
    names = [name for name, _ in ends]
    chart = _steps(subject, rows, names, "accuracy", share=True)
    return Curve("Accuracy of the training-time test", f"{words} {_smoothing(ends[0][1])}", told, chart)


def _speed(subject: Subject) -> Curve | None:
    bins = binned((one.step, one.tokens_per_s) for one in subject.steps)
    if not bins:
        return None
    each = " of each process" if subject.recipe.fit.processes > 1 else ""
    words = f"Tokens a second{each}, padding left out, within steps: walks and checkpoints are not in it."
    told = f"Last: {number(bins[-1].mean)} tokens a second."
    size, unit = (1000, "thousand tokens") if max(one.mean for one in bins) >= _MANY else (1, "tokens")
    rows = [{"step": one.middle, "value": one.mean / size, "what": "speed"} for one in bins]
    return Curve("Speed", words, told, _steps(subject, rows, ["speed"], f"{unit} a second", zero=True))


def _waiting(subject: Subject) -> Curve | None:
    bins = binned((one.step, one.fetch_share) for one in subject.steps)
    if not bins:
        return None
    words = "Share of a step's time in which it waits for its samples and their states."
    told = f"Last: {percent(bins[-1].mean)}."
    rows = [_row(one, "waiting") for one in bins]
    chart = _steps(subject, rows, ["waiting"], "share of the time", share=True)
    return Curve("Waiting for data", words, told, chart)


def _row(one: Bin, what: str) -> dict[str, Any]:
    return {"step": one.middle, "value": one.mean, "what": what}


def _smoothing(bins: Sequence[Bin]) -> str:
    most = max(one.count for one in bins)
    return "Each line of progress.jsonl." if most == 1 else f"Means of {most:,} lines of progress.jsonl each."


def _ends(subject: Subject) -> str:
    every = _every(subject)
    told = "of epochs" if every == 1 else f"of each {every} epochs"
    return f" Vertical lines: ends {told}." if len(subject.epochs) >= every else ""


def _every(subject: Subject) -> int:
    return max(1, math.ceil(len(subject.epochs) / _RULES))


def _steps(
    subject: Subject,
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    title: str,
    *,
    share: bool = False,
    zero: bool = False,
) -> Callable[[], Any]:
    every = _every(subject)
    ends = [one.step for one in subject.epochs][every - 1 :: every]

    def chart() -> Any:
        from draftworth.reports.training import plots  # noqa: PLC0415 - lazy: altair takes a second

        return plots.over_steps(rows, names, title, ends, share=share, zero=zero)

    return chart
