"""What was explained of a trial, as text."""

from collections.abc import Iterator, Sequence

from draftworth.explain.base import Account, Explained, Part

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
    told = [f"Trial {explained.trial}", explained.summary or "No arm could be accounted for."]
    for one in explained.accounts:
        told += ["", *_account(one)]
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


def _account(one: Account) -> Iterator[str]:
    where = f"{one.arm}, {one.point or f'{one.concurrency} at a time'}"
    yield f"{where:{_WIDE}}  ms a token   95 % interval"
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
    yield from _evidence(one.parts)
    if one.changes:
        yield "What would change it:"
        for change in one.changes:
            yield f"- {change.text}"
            if change.arguments:
                yield f"    {' '.join(_quoted(change.arguments))}"


def _line(part: Part) -> str:
    name = f"  {_NAMES[part.cause]}"
    return f"{name:{_WIDE}}{part.ms.value:+12.3f}   {part.ms.low:+.3f} to {part.ms.high:+.3f}"


def _evidence(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        for text in part.evidence:
            carried = "" if part.measured or part.cause == "rest" else " (not all of it measured here)"
            yield f"  {_NAMES[part.cause]}: {text}{carried}"


def _quoted(words: Sequence[str]) -> list[str]:
    return [f"'{word}'" if set(word) & set(' {"') else word for word in words]
