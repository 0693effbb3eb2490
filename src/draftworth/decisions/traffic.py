"""Whether a trial was sent other requests than the one a decision rests on."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from draftworth.decisions.base import Assumptions

MIX_SHIFT = 0.1
"""Share of prompts that has to move to another category before traffic is another: a tenth."""
_BEYOND = 0.1
"""How far beyond what was measured then a length or a load has to lie: a tenth."""
_SENT = {"replay_speed": "replayed, times as fast", "rate": "requests a second", "concurrency": "at a time"}
"""How requests are sent, the first of these that a record has; in the order of `reports.words.workload`."""
_NUMBERS = {"max_tokens": "most tokens of an answer", "context_tokens": "tokens that prompts are filled up to"}
_FLAGS = {"ignore_eos": "answers past their end", "recorded_lengths": "answers no longer than recorded"}
_NONE = "none"


def requests_of(work: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a record's `workload` decides what its requests cost; several numbers are joined by commas.

    Keys: one of `replay_speed`, `rate` and `concurrency`; `max_tokens`, `context_tokens`, `temperature`; `ignore_eos`,
    `recorded_lengths`; `prompts`, `builtin` or `own`. What the record does not tell is left out.
    """
    sent = next((name for name in _SENT if work.get(name) is not None), None)
    told = [*([sent] if sent else ()), *(name for name in (*_NUMBERS, "temperature", *_FLAGS) if name in work)]
    found = {name: _words(work[name]) for name in told}
    source = work.get("source")
    return found | ({"prompts": "builtin" if source == "builtin" else "own"} if source else {})


def _words(value: Any) -> str:
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(f"{one:g}" for one in value) if isinstance(value, list | tuple) else f"{value:g}"


def other_traffic(then: Assumptions, now: Assumptions) -> Iterator[str]:
    """Yield what of the requests is another now; what either does not tell is no change.

    A load or length within those measured then, or a tenth beyond them, is none.
    """
    moved = mix_shift(then.categories, now.categories)
    if moved is not None and moved >= MIX_SHIFT:
        yield f"{100 * moved:.0f} % of the prompts moved to other categories"
    had, has = then.requests, now.requests
    sent, sends = (next((name for name in _SENT if name in one), "") for one in (had, has))
    if sent and sends and (sent != sends or _outside(had[sent], has[sends], _BEYOND)):
        yield f"{had[sent]} {_SENT[sent]} then, {has[sends]} {_SENT[sends]} now"
    for name, words in (_NUMBERS | {"temperature": "temperature"}).items():
        beyond = 0.0 if name == "temperature" else _BEYOND
        if name in had and name in has and _outside(had[name], has[name], beyond):
            yield f"{words}: {had[name]} then, {has[name]} now"
    for name, words in (_FLAGS | {"prompts": "prompts"}).items():
        if name in had and name in has and had[name] != has[name]:
            yield f"{words}: {had[name]} then, {has[name]} now"


def _outside(then: str, now: str, beyond: float) -> bool:
    """Whether any number of now lies outside of those of then."""
    before, after = _numbers(then), _numbers(now)
    if not before or not after:
        return then != now
    low, high = min(before) * (1 - beyond), max(before) * (1 + beyond)
    return any(not low <= one <= high for one in after)


def _numbers(text: str) -> list[float]:
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        return []
    return found if all(map(math.isfinite, found)) else []


def mix_shift(then: Mapping[str, int], now: Mapping[str, int]) -> float | None:
    """Return the share of prompts that is in other categories (total variation); None where either has none."""
    before, after = sum(then.values()), sum(now.values())
    if not before or not after:
        return None
    return sum(abs(then.get(name, 0) / before - now.get(name, 0) / after) for name in {*then, *now}) / 2
