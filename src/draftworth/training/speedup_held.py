"""What a check of a head against a trial found, figure by figure, and how a person reads it."""

from typing import Literal

from draftworth.engines.base import AcceptanceCounts
from draftworth.models import Frozen
from draftworth.predict.base import Range
from draftworth.training.acceptance import WalkCounts

SCHEMA_VERSION = 1
ACCEPTANCE, SPEED = 0.02, 0.05
"""How far a walk and a predicted speed-up may be off."""

Walked = Literal["the arm's own answers", "held-out conversations"]
OWN: Walked = "the arm's own answers"
HELD_OUT: Walked = "held-out conversations"
SPEED_UP, SHARE = "speed-up", "accepted at"


class Held(Frozen):
    """One figure held against the trial's."""

    what: str
    """`tokens a step`, `tokens a drafting step`, `accepted at 1`, `speed-up`."""
    by: Walked
    """What was walked."""
    told: Range
    """What the walk or the prediction says; of counts without an interval."""
    measured: Range
    """What the trial measured."""
    off: float
    """Told over measured, less 1; of an accepted share told less measured."""
    limit: float
    """How far it may be off."""
    within: bool
    """Whether it is off by no more than that."""


def hold(what: str, by: Walked, told: Range | float, measured: Range | float) -> Held:
    """Return a figure held against the trial's; a speed-up by 5 %, other ratios by 2 %, a share by two points.

    Args:
        what: see `Held`.
        by: what was walked.
        told: what the walk or the prediction says.
        measured: above 0, unless it is a share.
    """
    mine, theirs = (one if isinstance(one, Range) else Range(value=one, low=one, high=one) for one in (told, measured))
    limit = SPEED if what == SPEED_UP else ACCEPTANCE
    off = mine.value - theirs.value if what.startswith(SHARE) else mine.value / theirs.value - 1
    return Held(what=what, by=by, told=mine, measured=theirs, off=off, limit=limit, within=abs(off) <= limit)


class PointCheck(Frozen):
    """One point of the trial's sweep."""

    point: str
    """Its label; empty where the trial had one."""
    concurrency: int
    """Requests at a time."""
    context: int
    """Tokens of a request in the KV cache half-way its answer, in the baseline."""
    answers: int
    """Answers of the arm."""
    walked: int
    """Those of them that were walked."""
    counts: AcceptanceCounts | None
    """The server's."""
    walk: WalkCounts | None
    """Over the arm's own answers; None where they were not walked."""
    held: tuple[Held, ...]
    """Everything that could be held against the trial."""
    missing: tuple[str, ...] = ()
    """What could not, and why."""


class TrialCheck(Frozen):
    """A head against one trial: `eval/trial-<id>.json`."""

    schema_version: int = SCHEMA_VERSION
    trial: str
    arm: str
    k: int
    model: str
    """What the arm drafted with, as the trial's record has it."""
    points: tuple[PointCheck, ...]
    notes: tuple[str, ...] = ()
    """What to be careful with."""


def lines(found: TrialCheck) -> list[str]:
    """Return a check for a person: each figure, how far it is off, and whether that is within what is promised."""
    rows = []
    for point in found.points:
        where = f"{point.point}, " if point.point else ""
        rows.append(
            f"trial {found.trial}, {found.arm} (k = {found.k}), {where}{point.concurrency} at a time, "
            f"{point.answers:,} answers:"
        )
        for by in (OWN, HELD_OUT):
            some = [one for one in point.held if one.by == by]
            if some:
                rows.append(f"  by {by}:")
                rows += [f"    {_line(one)}" for one in some]
        rows += [f"  {text}" for text in point.missing]
    return [*rows, *found.notes]


def _line(one: Held) -> str:
    word = "within" if one.within else "NOT within"
    if one.what.startswith(SHARE):
        return (
            f"{one.what}: walk {one.told.value:.1%}, server {one.measured.value:.1%}: {100 * one.off:+.1f} points, "
            f"{word} {100 * one.limit:.0f}"
        )
    if one.what == SPEED_UP:
        return (
            f"{one.what}: predicted {_range(one.told)}, measured {_range(one.measured)}: {one.off:+.1%}, {word} "
            f"{one.limit:.0%}"
        )
    return (
        f"{one.what}: walk {one.told.value:.3f}, server {one.measured.value:.3f}: {one.off:+.1%}, {word} "
        f"{one.limit:.0%}"
    )


def _range(one: Range) -> str:
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"
