"""The engine's mode as a part, what it consists of, and the drafter that is taken out of it."""

import math
from collections.abc import Sequence

from draftworth.costs.mixed_steps import KindCost
from draftworth.errors import UsageError
from draftworth.explain.base import Detail, Part
from draftworth.explain.beside import DrafterTime
from draftworth.predict.base import Range
from draftworth.predict.trialrows import Load

_KINDS = {
    "idle": "steps that draft nothing",
    "drafting": "steps that verify drafts",
    "mixed": "steps in which some draft",
}
IN_THE_MODE = "the drafter's own time is in it"
STATED = "stated by hand (--drafter-ms), not measured: from half of it to twice is taken"
LESS_STATED = "less what was stated of the drafter"


class StatedTooMuchError(UsageError):
    """A drafter was stated to take more than its arm's steps can."""


def check_stated(ms: float, load: Load, more: float, error: float) -> None:
    """Refuse a stated drafter that takes more than all that a step of its arm takes beyond the baseline's.

    Args:
        ms: as stated.
        load: the arm at its point.
        more: what its step takes beyond the baseline's.
        error: upward, of that.

    Raises:
        StatedTooMuchError: it cannot be.
    """
    most = max(0.0, more + error)
    if ms > most:
        raise StatedTooMuchError(
            f"--drafter-ms {load.arm.name}={ms:g}: at {load.where} a step of {load.arm.name} takes {more:.2f} ms more "
            f"than the baseline's, at most {most:.2f}: its drafter cannot take {ms:g}"
        )


def mode_part(kinds: Sequence[KindCost], r: float, scheduling: Range | None, *, graphs: bool) -> Part:
    """Return what switching speculation on adds to each token, the drafter's own time in it.

    Its interval is that of the modes alone.

    Args:
        kinds: the steps by kind.
        r: steps per token.
        scheduling: F, what the scheduling that speculation gets adds to a step by itself; None where nothing told it.
        graphs: whether steps of some kinds leave the full graph.
    """
    causes = _by_cause(kinds, r, scheduling, graphs=graphs)
    lost = "" if causes or scheduling is None else _no_split(kinds, scheduling)
    why = [reason for one in kinds for reason in one.why]
    value, low, high = (r * sum(one.mode[end] for one in kinds) for end in range(3))
    details = list(causes) or [
        Detail(name=_KINDS[one.kind], ms=times(Range(value=one.mode[0], low=one.mode[1], high=one.mode[2]), r))
        for one in kinds
        if one.share > 0
    ]
    return Part(
        cause="engine mode",
        ms=Range(value=value, low=low, high=high),
        evidence=tuple(dict.fromkeys([*why, *([lost] if lost else []), IN_THE_MODE])),
        measured=all(one.mode_measured for one in kinds),
        details=tuple(details) if len(details) > 1 else (),
    )


def less_drafter(mode: Part, drafter: DrafterTime, r: float) -> Part:
    """Return the mode without its drafter, whose error is then in both."""
    taken = times(drafter.ms, r)
    value = mode.ms.value - taken.value
    low = value - math.hypot(mode.ms.value - mode.ms.low, taken.high - taken.value)
    high = value + math.hypot(mode.ms.high - mode.ms.value, taken.value - taken.low)
    less = Detail(name="less the drafter", ms=Range(value=-taken.value, low=-taken.high, high=-taken.low))
    whole = mode.details or (Detail(name="with the drafter", ms=mode.ms),)
    evidence = tuple(one for one in mode.evidence if one != IN_THE_MODE)
    return mode.model_copy(
        update={
            "ms": Range(value=value, low=low, high=high),
            "evidence": (*evidence, LESS_STATED) if drafter.stated else evidence,
            "measured": mode.measured and not drafter.stated,
            "details": (*whole, less),
        }
    )


def drafter_part(drafter: DrafterTime, r: float) -> Part:
    """Return the drafter's own time a token."""
    return Part(
        cause="drafter",
        ms=times(drafter.ms, r),
        evidence=(STATED if drafter.stated else "a profile of the arm",),
        measured=not drafter.stated,
        stated=drafter.stated,
    )


def drifted(part: Part, by: float) -> Part:
    """Return a part whose intervals hold what the baseline changed by, in milliseconds a token."""
    details = tuple(one.model_copy(update={"ms": wider(one.ms, by)}) for one in part.details)
    return part.model_copy(update={"ms": wider(part.ms, by), "details": details})


def wider(one: Range, by: float) -> Range:
    """Return an interval with another, independent error in it."""
    if by == 0:
        return one
    return Range(
        value=one.value,
        low=one.value - math.hypot(one.value - one.low, by),
        high=one.value + math.hypot(one.high - one.value, by),
    )


def _by_cause(kinds: Sequence[KindCost], r: float, plain: Range | None, *, graphs: bool) -> list[Detail]:
    """Return the mode by what makes it; nothing where F is not beyond its error, or no step drafts nothing."""
    of = {one.kind: one for one in kinds}
    idle, mixed = of.get("idle"), of.get("mixed")
    if plain is None or plain.low <= 0 <= plain.high or idle is None or idle.share <= 0:
        return []
    total = sum(one.mode[0] for one in kinds)
    width = max(sum(one.mode[2] for one in kinds) - total, total - sum(one.mode[1] for one in kinds))
    f_width = max(plain.high - plain.value, plain.value - plain.low)
    scheduling = Detail(name="no asynchronous scheduling", ms=times(plain, r))
    if not graphs:
        return [scheduling, _detail("everything else", r * (total - plain.value), r * math.hypot(width, f_width))]
    share = idle.share + (mixed.share if mixed is not None else 0.0)
    outside = share * (idle.mode[0] / idle.share - plain.value)
    apart = share * math.hypot((idle.mode[2] - idle.mode[1]) / 2 / idle.share, f_width)
    return [
        scheduling,
        _detail("outside the full graph", r * outside, r * apart),
        _detail("sampling and drafting", r * (total - plain.value - outside), r * math.hypot(width, f_width, apart)),
    ]


def _no_split(kinds: Sequence[KindCost], plain: Range) -> str:
    """Return why the mode is told by kind of step, and not by what makes it, though an arm measured the scheduling."""
    found = f"scheduling alone adds {plain.value:+.2f} ms to a step ({plain.low:+.2f} to {plain.high:+.2f})"
    if plain.low <= 0 <= plain.high:
        return f"{found}, which may be nothing: so the mode is not split into scheduling and the rest"
    if all(one.share <= 0 for one in kinds if one.kind == "idle"):
        return f"{found}; no step of this arm drafts nothing, so the mode is not split further"
    return ""


def _detail(name: str, value: float, width: float) -> Detail:
    return Detail(name=name, ms=Range(value=value, low=value - width, high=value + width))


def times(one: Range, by: float) -> Range:
    """Return a figure and its interval by a factor above 0."""
    return Range(value=one.value * by, low=one.low * by, high=one.high * by)
