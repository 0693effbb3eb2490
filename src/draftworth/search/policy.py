"""Which candidate to start next, or that the search ends, and when an arm need not be measured to its end."""

import math
from collections.abc import Mapping, Sequence

from scipy import special

from draftworth.search.base import BASELINE, Candidate, Choice, LogSpeed, NotTried, Observation
from draftworth.search.rules import Rules
from draftworth.search.worth import Worth, worths
from draftworth.verdicts.sequential import nominal_levels


def next_candidate(
    candidates: Sequence[Candidate],
    observations: Sequence[Observation],
    rules: Rules,
    *,
    time_left_s: float | None = None,
    given_up: Mapping[str, str] | None = None,
) -> Choice:
    """Return which candidate to start next, or None to end, with the reason.

    Candidates that were measured or given up are never chosen. Those without a reload come first, then the largest
    expected gain a minute; of equal ones the first by name. The same input gives the same answer.

    Args:
        candidates: with distinct names, none of them the baseline.
        observations: what was measured so far.
        rules: what to decide by.
        time_left_s: seconds left for reloads and measuring; None for no bound.
        given_up: name to why, of candidates that could not be measured (their server did not start).

    Raises:
        ValueError: names are not distinct, or an observation is of no candidate.
    """
    left = worths(candidates, observations, rules, given_up or {})
    if not left:
        return Choice(next=None, why="every candidate was measured or given up")
    open_ = [one for one in left if _closed(one, rules) is None]
    fitting = [one for one in open_ if _fits(one.candidate, rules, time_left_s)]
    if fitting:
        one = min(fitting, key=_order)
        return _choice(one, one.candidate.name, _why(one, rules))
    top = min(open_ or left, key=lambda one: (-one.gain, one.candidate.name))
    if open_:
        return _choice(
            top, None, f"the time is up: {top.candidate.name} {_too_long(top.candidate, rules, time_left_s)}"
        )
    return _choice(
        top, None, f"no candidate is worth it; the best that is left, {top.candidate.name}, {_closed(top, rules)}"
    )


def not_tried(
    candidates: Sequence[Candidate],
    observations: Sequence[Observation],
    rules: Rules,
    *,
    time_left_s: float | None = None,
    given_up: Mapping[str, str] | None = None,
) -> tuple[NotTried, ...]:
    """Return every candidate that was never measured, with the reason in figures, the most promising first.

    Args and errors as `next_candidate` has them.
    """
    failed = given_up or {}
    measured = {one.candidate for one in observations}
    found = []
    for one in sorted(
        worths(candidates, observations, rules, failed), key=lambda each: (-each.gain, each.candidate.name)
    ):
        why = _closed(one, rules)
        if why is None and not _fits(one.candidate, rules, time_left_s):
            why = f"{_too_long(one.candidate, rules, time_left_s)}; it was {_expected(one)}"
        found.append(
            NotTried(name=one.candidate.name, why=why or f"the search was ended before it; it was {_expected(one)}")
        )
    names = (one.name for one in candidates if one.name in failed and one.name not in measured)
    return (*found, *(NotTried(name=name, why=failed[name]) for name in names))


def cannot_beat(
    so_far: Mapping[int, LogSpeed],
    best: Mapping[int, LogSpeed],
    *,
    look: int,
    looks: int,
    alpha: float = 0.05,
) -> bool:
    """Return whether an arm that is being measured can be stopped: everywhere its best end is below the best's low end.

    Intervals are one-sided. The error alpha of stopping an arm that is as fast as the best is split in halves: one for
    the best's low end, one for the arm's high end over all looks together, spent as `verdicts.sequential` spends it
    (linearly, Lan and DeMets). Every load has to agree, so their number costs nothing. Restarts have to be in both
    standard errors: more prompts of one start do not tell how another would be.

    Args:
        so_far: the arm's, over the prompts that it and the baseline have both answered, in an order that was drawn.
        best: the best known's, by load; the baseline's own is 0 with the standard error of its start.
        look: which look this is, from 1.
        looks: how many are planned, equally spaced over the prompts.
        alpha: error of stopping an arm that is as fast, at any look.

    Raises:
        ValueError: `look` is none of `looks`, or there is no load.
    """
    if not 1 <= look <= looks:
        raise ValueError(f"look {look} is none of {looks}")
    if not best:
        raise ValueError("a search needs a load")
    arm = -float(special.ndtri(nominal_levels(looks, alpha)[look - 1] / 2))
    other = -float(special.ndtri(alpha / 2))
    return all(
        load in so_far and so_far[load].value + arm * so_far[load].sd < one.value - other * one.sd
        for load, one in best.items()
    )


def _order(one: Worth) -> tuple[bool, float, str]:
    # Rounded, so that what is equal but for the last digit of a sum is a tie.
    return not one.candidate.free, -round(one.per_minute, 9), one.candidate.name


def _fits(one: Candidate, rules: Rules, time_left_s: float | None) -> bool:
    return time_left_s is None or rules.seconds(one) <= time_left_s


def _closed(one: Worth, rules: Rules) -> str | None:
    """Return why a candidate is not worth a start; None where it is."""
    if one.chance < rules.min_chance:
        least = f"{one.chance:.2%} only, less than {100 * rules.min_chance:g}%"
        return f"would beat {one.best} by {rules.margin:.0%} with a chance of {least}: {_expected(one)}"
    if one.gain < rules.min_gain:
        return f"would gain {one.gain:.2%} on average, less than {100 * rules.min_gain:g}%: {_expected(one)}"
    return None


def _expected(one: Worth) -> str:
    low, high = (math.exp(one.speed.value + side * 1.96 * one.speed.sd) for side in (-1, 1))
    speed = f"expected {math.exp(one.speed.value):.2f} times as fast as the baseline ({low:.2f} to {high:.2f})"
    best = "" if one.best == BASELINE else f", {one.best} {math.exp(one.best_value):.2f}"
    where = "over all loads" if one.load is None else f"at {one.load} at a time"
    return f"{speed} {where}{best}"


def _too_long(one: Candidate, rules: Rules, time_left_s: float | None) -> str:
    return f"takes {rules.seconds(one) / 60:.1f} min and {max(0.0, time_left_s or 0.0) / 60:.1f} are left"


def _why(one: Worth, rules: Rules) -> str:
    cost = "nothing has to be started" if one.candidate.free else f"{rules.seconds(one.candidate) / 60:.1f} min"
    beat = f"beats {one.best} by {rules.margin:.0%} with a chance of {one.chance:.0%}"
    return f"{_expected(one)}; {beat}, +{one.gain:.1%} on average; {cost}"


def _choice(one: Worth, name: str | None, why: str) -> Choice:
    return Choice(next=name, why=why, expected_gain=one.gain, per_minute=one.per_minute, chance=one.chance)
