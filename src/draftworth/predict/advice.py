"""What to do with a prediction: which arms deserve a reload, and the answer in one sentence."""

import math
from collections.abc import Sequence

from draftworth.drafters.base import Drafter, Setting
from draftworth.predict.base import Predicted, Reload

MARGIN = 0.02
"""A speed-up within this share of 1 is no difference (design: `margin`)."""
MOST_RELOADS = 3
MODE_UNKNOWN = "At best, as if speculation cost nothing but verification (its engine mode is not known): "


def reloads(predicted: Sequence[Predicted], drafter: Drafter, reload_s: float | None) -> tuple[Reload, ...]:
    """Return the settings worth a reload, the best first, at most three, each of another k.

    A setting is worth one where its best value is beyond the margin. Of settings of one k only the best is kept:
    measuring two neighbours tells little.

    Args:
        predicted: every setting at every load.
        drafter: whose settings they are.
        reload_s: seconds of one start of the baseline.
    """
    chosen: list[Predicted] = []
    for one in sorted(predicted, key=lambda one: -one.speed_up.value):
        if one.speed_up.value <= 1 + MARGIN or len(chosen) == MOST_RELOADS:
            break
        if all(one.k != other.k for other in chosen):
            chosen.append(one)
    return tuple(
        Reload(
            k=one.k,
            min=one.min,
            max=one.max,
            more=one.more,
            arguments=drafter.arguments(Setting(one.k, one.min, one.max, one.more)),
            at=one.concurrency,
            speed_up=one.speed_up,
            seconds=None if reload_s is None else 2 * reload_s,
        )
        for one in chosen
    )


def verdict(predicted: Sequence[Predicted]) -> str:
    """Return the answer in one sentence: which setting pays at which loads, or that none does and how far it is.

    The best is looked for at loads at which the baseline's own step was measured, where there are any.
    """
    loads = sorted({one.concurrency for one in predicted})
    best = {at: max((one for one in predicted if one.concurrency == at), key=_speed) for at in loads}
    paying = [at for at in loads if best[at].speed_up.value > 1 + MARGIN]
    sure = [best[at] for at in loads if best[at].base_measured] or list(best.values())
    top = max(sure, key=_speed)
    where = f"{describe(top)} at {top.concurrency} at a time"
    speed = top.speed_up
    if speed.value <= 1 + MARGIN and speed.high > 1 + MARGIN:
        lack = "" if speed.value >= 1 - MARGIN else f" By its best value {_missing(top)}"
        return f"It cannot be told yet. The nearest, {where}, is predicted {_times(top)}.{lack}"
    if 1 - MARGIN <= speed.value <= 1 + MARGIN:
        return f"None of them pays. The nearest, {where}, is predicted to make no difference: {_times(top)}."
    if speed.value <= 1:
        return f"None of them pays. The nearest, {where}, is predicted {_times(top)}; {_missing(top)}"
    said = f"{describe(top)} is predicted {_times(top)} at {top.concurrency} at a time"
    if len(paying) < len(loads):
        said += f"; nothing pays at {_list([at for at in loads if at not in paying])} at a time"
    if speed.low <= 1:
        said += "; the interval reaches below 1, so a trial decides"
    return said[0].upper() + said[1:] + "."


def _times(one: Predicted) -> str:
    return f"{one.speed_up.value:.2f} times as fast ({one.speed_up.low:.2f} to {one.speed_up.high:.2f})"


def _missing(one: Predicted) -> str:
    has = one.length_per_drafting_step
    match one.limit:
        case "engine mode":
            added = one.parts.mode_ms
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


def _speed(one: Predicted) -> float:
    return one.speed_up.value


def _list(loads: Sequence[int]) -> str:
    words = [str(at) for at in loads]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def describe(one: Predicted) -> str:
    """Return a setting in words: `k = 3 (n-grams of 2 to 4)`."""
    if one.min is None and one.max is None:
        return f"k = {one.k}"
    low, high = one.min or one.max, one.max or one.min
    return f"k = {one.k} (n-grams of {low} to {high})" if low != high else f"k = {one.k} (n-grams of {low})"
