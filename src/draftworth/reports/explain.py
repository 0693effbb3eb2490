"""What was explained of a trial, as text."""

from collections.abc import Container, Iterator, Sequence

from draftworth.explain.base import CAUSES, Account, Change, Explained, Part
from draftworth.explain.inputs import made_with
from draftworth.explain.words import whose

_NAMES = {
    "engine mode": "engine mode",
    "verification": "verification of more tokens",
    "drafter": "drafter",
    "tokens gained": "tokens gained",
    "rest": "rest, not known",
}
_WIDE = 30


def lines(explained: Explained) -> list[str]:
    """Return an account of every arm, the trial's cause first."""
    told = [f"Trial {explained.trial}", explained.summary or _no_summary(explained), made_with(explained.inputs)]
    shared = _shared(explained.accounts)
    for one in explained.accounts:
        told += ["", *_account(one, shared)]
    if shared:
        told += ["", "Of several arms:"]
        for text, names in shared.items():
            where = "all" if len(names) == len(explained.accounts) else "; ".join(names)
            first, *more = text.split("\n")
            told += [f"- {first} [{where}]", *more]
    if explained.even_curves:
        told += ["", "What acceptance pays, measured with synthetic acceptance:"]
        for curve in explained.even_curves:
            told.append(f"- {curve.text}")
            for point in curve.points:
                speed = point.speed_up
                times = f"{speed.value:.3f} times as fast ({speed.low:.3f} to {speed.high:.3f})"
                told.append(f"    {point.length:.2f} tokens per drafting step: {times}; {point.arm}")
    if explained.left_out:
        told += ["", "Left out, or to be known:", *(f"- {text}" for text in explained.left_out)]
    return told


def _no_summary(explained: Explained) -> str:
    """Return what stands in place of the verdict's cause where there is none."""
    if not explained.accounts:
        return "No arm could be accounted for."
    if all(one.diagnostic for one in explained.accounts):
        return "Its arms only measure, and no verdict is about them: what each costs is below."
    return "The trial's verdict is about none of these arms: the account of each is below."


def _shared(accounts: Sequence[Account]) -> dict[str, list[str]]:
    """Return what is told of several accounts alike, with where: it is told once, below them."""
    found: dict[str, list[str]] = {}
    one_load = len({(one.point, one.concurrency) for one in accounts}) == 1
    for cause in (*CAUSES, None):
        for one in accounts:
            parts = [part for part in one.parts if part.cause == cause]
            for text in dict.fromkeys(_changes(one) if cause is None else _evidence(parts)):
                found.setdefault(text, []).append(one.arm if one_load else _where(one))
    return {text: names for text, names in found.items() if len(names) > 1}


def _where(one: Account) -> str:
    return f"{one.arm}, {one.point or f'{one.concurrency} at a time'}"


def _account(one: Account, shared: Container[str]) -> Iterator[str]:
    yield f"{_where(one):{_WIDE}}  ms a token   95 % interval"
    yield f"{'baseline':{_WIDE}}{one.baseline_ms:12.3f}"
    for part in one.parts:
        yield _line(part)
        for detail in part.details:
            ends = f"{detail.ms.low:+.3f} to {detail.ms.high:+.3f}"
            yield f"    {detail.name:{_WIDE - 4}}{detail.ms.value:+12.3f}   {ends}"
    yield f"{one.arm:{_WIDE}}{one.arm_ms:12.3f}"
    share = "" if one.of_difference is None else f"; {max(0.0, one.of_difference):.0%} of it has a cause"
    ends = f"{one.difference.low:+.3f} to {one.difference.high:+.3f}"
    yield f"Difference {one.difference.value:+.3f} ms ({ends}){share}."
    step = f"{one.steps_per_token:.3f} steps per token; a step takes {one.arm_step_ms:.2f} ms, the baseline's "
    yield f"{step}{one.baseline_step_ms:.2f} ms."
    yield from (f"  {text}" for text in _evidence(one.parts) if text not in shared)
    own = [text for text in _changes(one) if text not in shared]
    if own:
        yield "What would change it:"
        yield from (f"- {text}" for text in own)


def _changes(one: Account) -> list[str]:
    """Return what would change it; of an arm that only measures, what is to be measured yet."""
    return [_change(each) for each in one.changes if not one.diagnostic or each.kind == "measure"]


def _change(one: Change) -> str:
    return "\n    ".join([one.text, *([" ".join(_quoted(one.arguments))] if one.arguments else [])])


def _line(part: Part) -> str:
    name = f"  {_NAMES[part.cause]}"
    # What was measured here needs no word.
    rests_on = "" if part.measured else whose(part)
    line = f"{name:{_WIDE}}{part.ms.value:+12.3f}   {part.ms.low:+.3f} to {part.ms.high:+.3f}"
    return f"{line}   ({rests_on})" if rests_on else line


def _evidence(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        for text in part.evidence:
            yield f"{_NAMES[part.cause]}: {text}"


def _quoted(words: Sequence[str]) -> list[str]:
    return [f"'{word}'" if set(word) & set(' {"') else word for word in words]
