"""What to do with a prediction: the answer in words, what to do first, and which arms deserve a reload.

There are three answers, by the 95 % interval of the speed-up and what counts as no difference (within 2 % of 1): it
pays (the interval lies above), none pays (no interval reaches above), and it cannot be told without measuring. All
lines are of one answer: arms to reload are named where it pays or cannot be told, and nowhere else.
"""

import math
from collections.abc import Mapping, Sequence

from draftworth.drafters.base import Drafter, Setting
from draftworth.predict.base import Predicted, Reload
from draftworth.predict.settings import describe

__all__ = ["AT_BEST", "MARGIN", "MOST_RELOADS", "describe", "duration", "pays", "reloads", "undecided", "verdict"]

MARGIN = 0.02
"""A speed-up within this share of 1 is no difference (design: `margin`)."""
MOST_RELOADS = 3
AT_BEST = "at best, without engine mode"
_SECONDS_BELOW = 120.0


def pays(one: Predicted) -> bool:
    """Whether it is faster beyond doubt: its whole interval lies above what is no difference."""
    return not one.at_best and one.speed_up.low > 1 + MARGIN


def undecided(one: Predicted) -> bool:
    """Whether it may pay and may not."""
    return one.speed_up.high > 1 + MARGIN and not pays(one)


def reloads(
    predicted: Sequence[Predicted], drafters: Drafter | Mapping[str, Drafter], reload_s: float | None
) -> tuple[Reload, ...]:
    """Return the settings worth a reload, the best first, at most three, each of another k or drafter.

    A setting is worth one where its best value is beyond the margin, its engine mode included: where nothing is known
    of that, nothing is worth a reload before it was measured. Of settings of one k only the best is kept: measuring two
    neighbours tells little. Loads at which the baseline's own step was measured go before others.

    Args:
        predicted: every setting at every load.
        drafters: whose settings they are, by name where there are several.
        reload_s: seconds of one start of the baseline.
    """
    chosen: list[Predicted] = []
    for one in sorted(_told_best(predicted), key=lambda one: (-pays(one), -one.speed_up.value)):
        worth = _gains(one) and not one.at_best
        if worth and not any(_like(one, other) for other in chosen):
            chosen.append(one)
    return tuple(
        Reload(
            k=one.k,
            min=one.min,
            max=one.max,
            more=one.more,
            arguments=(drafters[one.drafter] if isinstance(drafters, Mapping) else drafters).arguments(
                Setting(one.k, one.min, one.max, one.more)
            ),
            at=one.concurrency,
            speed_up=one.speed_up,
            seconds=None if reload_s is None else 2 * reload_s,
            drafter=one.drafter,
        )
        for one in chosen[:MOST_RELOADS]
    )


def verdict(
    predicted: Sequence[Predicted],
    *,
    chosen: Sequence[Reload] | None = None,
    arms: Sequence[str] = (),
    reload_s: float | None = None,
) -> str:
    """Return the answer in a sentence or three, what to do first.

    The best is looked for at loads at which the baseline's own step was measured, where there are any.

    Args:
        predicted: every setting at every load.
        chosen: settings worth a reload; None where it is not asked for what to reload.
        arms: names of arms that would measure the engine's mode, where it was not measured on this server.
        reload_s: seconds of one start of the baseline.
    """
    sure = _told_best(predicted)
    paying = [one for one in sure if pays(one)]
    if paying:
        top = max(paying, key=_speed)
        said = f"It pays: {describe(top, predicted)} is predicted {_times(top)} at {top.concurrency} at a time"
        return f"{said}{_elsewhere(predicted, some=True)}."
    top = max(sure, key=_speed)
    nearest = f"{describe(top, predicted)} at {top.concurrency} at a time"
    if not any(undecided(one) for one in sure):
        end = _elsewhere(predicted, some=False)
        if top.speed_up.value >= 1 - MARGIN:
            return f"None of them pays. The nearest, {nearest}, is predicted to make no difference: {_times(top)}{end}."
        said = f"None of them pays. The nearest, {nearest}, is predicted {_times(top)}{end}"
        return f"{said}; {_missing(top)}"
    # One whose mode is known and that is expected to gain goes before what is only told at best.
    top = max((one for one in sure if undecided(one)), key=lambda one: (_gains(one) and not one.at_best, _speed(one)))
    nearest = f"{describe(top, predicted)} at {top.concurrency} at a time"
    if top.at_best:
        how = f": {_needs(arms, reload_s)} measure it" if arms else ""
        return (
            f"It cannot be told: what speculation itself adds to a step is not known{how}. The nearest, {nearest}, is "
            f"predicted {_times(top)}."
        )
    if _gains(top):
        names = [describe(one, predicted) for one in chosen or ()]
        which = f"without {_needs(names, reload_s)}" if names else "yet"
        return (
            f"It cannot be told {which}. The best, {nearest}, is predicted {_times(top)}: its interval reaches below "
            f"{1 + MARGIN:g}, so a trial decides."
        )
    missing = _missing(top)
    lack = "" if top.speed_up.value >= 1 - MARGIN else f" {missing[0].upper()}{missing[1:]}"
    which = "yet" if chosen is None else f"without {_needs(arms or [describe(top, predicted)], reload_s)}"
    what = ", which measure the engine's mode" if arms and chosen is not None else ""
    return (
        f"It cannot be told {which}{what}; by its best value none pays. The nearest, {nearest}, is predicted "
        f"{_times(top)}.{lack}"
    )


def duration(seconds: float) -> str:
    """Return how long something takes, for a person: seconds below two minutes, else minutes."""
    return f"{seconds:.0f} s" if seconds < _SECONDS_BELOW else f"{seconds / 60:.0f} min"


def _needs(arms: Sequence[str], reload_s: float | None) -> str:
    """Return what arms cost in one trial, and their names: one start each, and the way back."""
    each = "" if reload_s is None else f" of {duration(reload_s)}"
    return f"{len(arms) + 1} reloads{each} ({'; '.join(arms)}; and back)"


def _told_best(predicted: Sequence[Predicted]) -> list[Predicted]:
    """Return the predictions at loads at which the baseline was measured; all where there is none."""
    return [one for one in predicted if one.base_measured] or list(predicted)


def _elsewhere(predicted: Sequence[Predicted], *, some: bool) -> str:
    """Return at which loads it is otherwise: nothing pays (where something does elsewhere), or it cannot be told."""
    loads = sorted({one.concurrency for one in predicted})
    here = {at: [one for one in predicted if one.concurrency == at] for at in loads}
    none = [at for at in loads if not any(pays(one) or undecided(one) for one in here[at])]
    # Loads that were not probed do not make the headline: where that is that none pays, they may still be open.
    unsure = [at for at in loads if at not in none and not (some and any(map(pays, here[at])))]
    said = f"; nothing pays at {_list(none)} at a time" if none and some else ""
    return said + (f"; it cannot be told at {_list(unsure)} at a time" if unsure else "")


def _times(one: Predicted) -> str:
    best = f"{AT_BEST}, " if one.at_best else ""
    return f"{best}{one.speed_up.value:.2f} times as fast ({one.speed_up.low:.2f} to {one.speed_up.high:.2f})"


def _missing(one: Predicted) -> str:
    has = one.length_per_drafting_step
    match one.limit:
        case "engine mode":
            added = one.parts.mode_ms or 0.0
            return (
                f"the engine's mode adds {added:.2f} ms to a step of {one.parts.base_ms:.2f} ms, which no acceptance "
                "at this coverage brings back."
            )
        case "verification":
            return f"even with every drafted token accepted, a step of {one.parts.step_ms:.2f} ms costs too much."
        case "coverage":
            return f"only {one.coverage:.0%} of the steps draft; its drafting steps would pay."
        case _:
            needed = one.break_even_length or math.nan
            return f"an acceptance length of {needed:.2f} is needed, and it has {has or 1:.2f}."


def _like(one: Predicted, other: Predicted) -> bool:
    """Whether one says little beside the other: the same k, or the same steps with a k that drafts never reach."""
    if one.drafter != other.drafter:
        return False
    ends = [
        (each.concurrency, *(round(one, 4) for one in (each.length_per_step, each.coverage, each.speed_up.value)))
        for each in (one, other)
    ]
    return one.k == other.k or ends[0] == ends[1]


def _gains(one: Predicted) -> bool:
    return one.speed_up.value > 1 + MARGIN


def _speed(one: Predicted) -> float:
    return one.speed_up.value


def _list(loads: Sequence[int]) -> str:
    words = [str(at) for at in loads]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
