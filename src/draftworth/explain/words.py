"""The cause in a sentence."""

from collections.abc import Sequence

from draftworth.explain.base import Part
from draftworth.predict.base import Range

_SMALL = 0.02
"""A part below this share of the baseline's TPOT is not worth a word in a sentence."""
_TIMES = 1.995
"""From here on a ratio is told as so many times."""
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


def main_cause(arm: str, batch: int, baseline_ms: float, difference: Range, parts: Sequence[Part]) -> str:
    """Return why an arm is faster or slower: the difference, then its causes, the largest first.

    Args:
        arm: its name.
        batch: requests at a time.
        baseline_ms: TPOT of the baseline.
        difference: of TPOT.
        parts: the account's.
    """
    clear = difference.low > 0 or difference.high < 0
    word = "slower" if difference.value > 0 else "faster"
    ratio = 1 + difference.value / baseline_ms
    much = f"{ratio:.1f} times as slow" if ratio >= _TIMES else f"{abs(ratio - 1):.0%} {word}"
    first = f"{arm} is {much} a token at {batch} at a time ({difference.value:+.2f} ms"
    first += ")" if clear else f", {difference.low:+.2f} to {difference.high:+.2f}: it may be nothing)"
    named = [one for one in parts if one.cause != "rest" and abs(one.ms.value) >= _SMALL * baseline_ms]
    named.sort(key=lambda one: -abs(one.ms.value))
    causes = [
        (_NAMES if (one.ms.value > 0) != (one.cause == "tokens gained") else _LESS)[one.cause].format(abs(one.ms.value))
        for one in named
    ]
    rest = next(one for one in parts if one.cause == "rest").ms
    if abs(rest.value) >= _SMALL * baseline_ms:
        known = "" if rest.low <= 0 <= rest.high else ", and more than the measurements' errors"
        causes.append(f"{rest.value:+.2f} ms have no known cause{known}")
    return f"{first}: {_list(causes)}." if causes else f"{first}; no part of it is worth a word."


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
