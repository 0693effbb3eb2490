"""The cause in a sentence."""

from collections.abc import Sequence

from draftworth.explain.base import Account, Part
from draftworth.explain.drift import Drift
from draftworth.predict.base import Range
from draftworth.verdicts.base import Comparison
from draftworth.verdicts.rules import HIGHER_IS_BETTER

_SMALL = 0.02
"""A part below this share of the baseline's TPOT is not worth a word in a sentence."""
_NAMES = {
    "engine mode": "switching speculation on adds {:.2f} ms to each token before anything is gained",
    "verification": "verifying drafts adds {:.2f} ms",
    "drafter": "drafting adds {:.2f} ms",
    "tokens gained": "accepted drafts save {:.2f} ms",
}
_LESS = {
    "engine mode": "speculation's own mode takes {:.2f} ms off each token",
    "verification": "steps of more tokens take {:.2f} ms less",
    "drafter": "drafting takes {:.2f} ms less",
    "tokens gained": "its steps for a token cost {:.2f} ms more",
}


def main_cause(
    arm: str,
    batch: int,
    baseline_ms: float,
    difference: Range,
    parts: Sequence[Part],
    *,
    drift: Drift | None = None,
) -> str:
    """Return why an arm is faster or slower: the difference, then its causes, the largest first.

    Args:
        arm: its name.
        batch: requests at a time.
        baseline_ms: TPOT of the baseline.
        difference: of TPOT.
        parts: the account's.
        drift: of the baseline, where it changed during the trial. Where that could be all of the difference, no cause
            is named.
    """
    clear = difference.low > 0 or difference.high < 0
    much = how_much(difference.value, baseline_ms)
    first = f"{arm} takes {much} a token at {batch} at a time ({difference.value:+.2f} ms"
    first += ")" if clear else f", {difference.low:+.2f} to {difference.high:+.2f}: it may be nothing)"
    moved = "" if drift is None or not drift.told else _drift(drift, drift.ms(baseline_ms))
    if drift is not None and abs(difference.value) <= drift.ms(baseline_ms):
        why = _drift(drift, drift.ms(baseline_ms))
        return f"{first}. No cause can be named: {why}, which can be all of the difference."
    stated = next((one for one in parts if one.stated), None)
    whole = [one if stated is None or one.cause != "engine mode" else _with(one, stated) for one in parts]
    named = [
        one for one in whole if one.cause != "rest" and not one.stated and abs(one.ms.value) >= _SMALL * baseline_ms
    ]
    named.sort(key=lambda one: -abs(one.ms.value))
    causes = [
        (_NAMES if (one.ms.value > 0) != (one.cause == "tokens gained") else _LESS)[one.cause].format(abs(one.ms.value))
        + (_of_it(stated) if stated is not None and one.cause == "engine mode" else "")
        for one in named
    ]
    rest = next(one for one in parts if one.cause == "rest").ms
    if abs(rest.value) >= _SMALL * baseline_ms:
        known = "" if rest.low <= 0 <= rest.high else ", and more than the measurements' errors"
        causes.append(f"{rest.value:+.2f} ms have no known cause{known}")
    told = f"{first}: {_list(causes)}." if causes else f"{first}; no part of it is worth a word."
    return f"{told} Every interval holds the baseline's own change: {moved}." if moved else told


def how_much(difference: float, baseline_ms: float) -> str:
    """Return how much more or less time a token takes: the scale of a verdict's headline, whichever the side."""
    ratio = 1 + difference / baseline_ms
    return f"{abs(ratio - 1):.0%} {'more' if difference > 0 else 'less'} time"


def less_time(speed_up: Range) -> str:
    """Return a speed-up on the scale of a cause, with the speed-up itself and its interval behind it."""
    return (
        f"{how_much(1 / speed_up.value - 1, 1.0)} a token than the baseline ({speed_up.value:.2f} times as fast, "
        f"{speed_up.low:.2f} to {speed_up.high:.2f})"
    )


def says_slower(found: Comparison | None) -> bool | None:
    """Return whether a comparison's own ratio says slower; None where it says nothing."""
    if found is None or found.ratio is None:
        return None
    return (found.ratio.estimate > 1) is (found.metric not in HIGHER_IS_BETTER)


def foremost(accounts: Sequence[Account], *, slower: bool | None = None) -> Account | None:
    """Return the account at the load where the arm differs most from the baseline; None of none.

    Args:
        accounts: of one arm.
        slower: whether the verdict says slower; accounts that say the same come first. None takes any.
    """
    agreeing = [one for one in accounts if slower is None or (one.difference.value > 0) is slower]
    return max(agreeing or accounts, key=lambda one: abs(one.difference.value) / one.baseline_ms, default=None)


def otherwise(told: Account, accounts: Sequence[Account]) -> list[str]:
    """Return at which loads an arm does the opposite of what is told of it, as a sentence; nothing where at none.

    Args:
        told: the account that is told.
        accounts: of the same arm.
    """
    other = [one for one in accounts if one.difference.value * told.difference.value < 0]
    if not other:
        return []
    each = [
        f"{how_much(one.difference.value, one.baseline_ms)} a token at {one.point or f'{one.concurrency} at a time'}"
        + ("" if one.difference.low > 0 or one.difference.high < 0 else " (it may be nothing)")
        for one in sorted(other, key=lambda one: -abs(one.difference.value) / one.baseline_ms)
    ]
    return [f"But it takes {_list(each)}."]


def whose(part: Part) -> str:
    """Return what a part rests on, as a clause; empty for the rest."""
    if part.cause == "rest":
        return ""
    if part.stated:
        return "stated by hand"
    return "measured here" if part.measured else "not all of it measured here"


def _with(mode: Part, stated: Part) -> Part:
    """Return the mode with the drafter in it, as it was measured before something was stated of that."""
    return mode.model_copy(
        update={"ms": mode.ms.model_copy(update={"value": mode.ms.value + stated.ms.value})},
    )


def _of_it(stated: Part) -> str:
    ms = stated.ms
    return f" (of it the drafter {ms.value:.2f} ms, {ms.low:.2f} to {ms.high:.2f}, stated by hand)"


def _drift(drift: Drift, ms: float) -> str:
    found = drift.ratio
    return (
        f"the baseline took {found.value:.3f} times as long ({found.low:.3f} to {found.high:.3f}) when it was measured "
        f"last as when it was measured first, {ms:.2f} ms a token"
    )


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
