"""What to do with a prediction: which arms deserve a reload, and the answer in one sentence."""

import math
from collections.abc import Sequence

from draftworth.predict.base import Predicted, Reload
from draftworth.predict.speculation import config_of, flags_of

MARGIN = 0.02
"""A speed-up within this share of 1 is no difference (design: `margin`)."""
MOST_RELOADS = 3


def reloads(predicted: Sequence[Predicted], drafter: str, reload_s: float | None) -> tuple[Reload, ...]:
    """Return the settings worth a reload, the best first, at most three.

    A setting is worth one where its speed-up can be above the margin by its interval and its best value is above 1.
    Of settings whose intervals cannot tell them apart from the best of the same load, those of another k are kept:
    measuring two neighbours tells little.

    Args:
        predicted: every setting at every load.
        drafter: the drafter's name.
        reload_s: seconds of one start of the server.
    """
    best_at: dict[tuple[int, int | None, int | None], Predicted] = {}
    for one in predicted:
        known = best_at.get((one.k, one.min, one.max))
        if known is None or one.speed_up.value > known.speed_up.value:
            best_at[one.k, one.min, one.max] = one
    ranked = sorted(best_at.values(), key=lambda one: -one.speed_up.value)
    worth = [one for one in ranked if one.pays and one.speed_up.high > 1 + MARGIN]
    chosen: list[Predicted] = []
    for one in worth:
        if len(chosen) < MOST_RELOADS and all(one.k != other.k for other in chosen):
            chosen.append(one)
    return tuple(
        Reload(
            k=one.k,
            min=one.min,
            max=one.max,
            more=one.more,
            speculative_config=config_of(drafter, one.k, one.min, one.max, one.more),
            flags=flags_of(drafter, one.k, one.more),
            at=one.concurrency,
            speed_up=one.speed_up,
            seconds=None if reload_s is None else 2 * reload_s,
        )
        for one in chosen
    )


def verdict(predicted: Sequence[Predicted]) -> str:
    """Return the answer in one sentence: which setting pays at which loads, or that none does and how far it is."""
    loads = sorted({one.concurrency for one in predicted})
    best = {at: max((one for one in predicted if one.concurrency == at), key=_speed) for at in loads}
    paying = [at for at in loads if best[at].pays]
    sure = [at for at in loads if best[at].speed_up.low > 1]
    if not paying:
        near = max(best.values(), key=_speed)
        told = (
            f"None of them pays. The nearest, {describe(near)} at {near.concurrency} at a time, is predicted "
            f"{near.speed_up.value:.2f} times as fast ({_interval(near)}); {_missing(near)}"
        )
        if near.speed_up.high > 1 + MARGIN:
            told += " The interval includes a gain: a null-draft arm, one reload, measures the engine's mode."
        return told
    top = max((best[at] for at in paying), key=_speed)
    fast = f"{top.speed_up.value:.2f} times as fast ({_interval(top)})"
    said = f"{describe(top)} is predicted {fast} at {top.concurrency} at a time"
    if len(paying) < len(loads):
        said += f"; nothing pays at {_list([at for at in loads if at not in paying])} at a time"
    if top.concurrency not in sure:
        said += "; the interval includes no gain, so a trial decides"
    return said[0].upper() + said[1:] + "."


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
            return f"only {one.coverage or 0:.0%} of the steps draft; its drafting steps would pay."
        case _:
            needed = one.break_even_length or math.nan
            return f"an acceptance length of {needed:.2f} is needed, and it has {has or 1:.2f}."


def _speed(one: Predicted) -> float:
    return one.speed_up.value


def _interval(one: Predicted) -> str:
    return f"{one.speed_up.low:.2f} to {one.speed_up.high:.2f}"


def _list(loads: Sequence[int]) -> str:
    words = [str(at) for at in loads]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def describe(one: Predicted) -> str:
    """Return a setting in words: `k = 3 (n-grams of 2 to 4)`."""
    if one.min is None and one.max is None:
        return f"k = {one.k}"
    low, high = one.min or one.max, one.max or one.min
    return f"k = {one.k} (n-grams of {low} to {high})" if low != high else f"k = {one.k} (n-grams of {low})"
