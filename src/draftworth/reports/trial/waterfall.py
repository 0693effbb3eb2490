"""Where the milliseconds went: from the baseline's TPOT through every cause to the variant's."""

from collections.abc import Sequence
from typing import Any

from draftworth.explain.base import Account, Detail, Part
from draftworth.explain.inputs import made_with
from draftworth.reports.page import Column, Row, Table
from draftworth.reports.trial.accounts import load_of
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import between, fold, panel
from draftworth.reports.words import NONE, number, percent

_DRAWN = 4
"""Loads with a plot of their own; the others are told in a sentence and have a table."""
_NOTHING = 0.0005
"""Milliseconds below which a part is nothing: what adding up leaves, and less than any clock here tells."""
_MINUS = "\u2212"
CAUSE_WORDS = {
    "engine mode": "engine mode",
    "verification": "verification",
    "drafter": "drafter",
    "tokens gained": "tokens gained",
    "rest": "not known",
}


def waterfall_panels(subject: Subject, name: str) -> list[str]:
    """Return the account of a variant at each load, the lowest first."""
    accounts = subject.accounts(name)
    if len(accounts) <= _DRAWN:
        drawn = {id(one) for one in accounts}
    else:
        step = (len(accounts) - 1) / (_DRAWN - 1)
        drawn = {id(accounts[round(at * step)]) for at in range(_DRAWN)}
    # What they were made with is the same of all.
    made = made_with(subject.explained.inputs) if subject.explained and subject.explained.inputs else ""
    return [
        _panel(one, several=len(accounts) > 1, draw=id(one) in drawn, made="" if at else made)
        for at, one in enumerate(accounts)
    ]


def _panel(account: Account, *, several: bool, draw: bool, made: str) -> str:
    title = f"Where the milliseconds went{f', {load_of(account)}' if several else ''}"
    svg = ""
    if draw:
        from draftworth.reports.trial import draw as drawing  # noqa: PLC0415 - lazy: altair takes a while

        chart = drawing.waterfall(_rows(account), "ms per output token")
        text = f"From {number(account.baseline_ms)} to {number(account.arm_ms)} ms per token: {_said(account.parts)}"
        svg = drawing.finished(chart, text)
    # Evidence is sentences: their column is the one that wraps.
    caption = f"{_caption(account)} {made}".rstrip()
    return panel(title, caption, svg, rest=f'<div class="words">{fold(_table(account))}</div>')


def _caption(account: Account) -> str:
    words = [account.main_cause]
    if account.of_difference is not None:
        words.append(f"{explained_share(account)} of the difference has a cause; the rest is not known.")
    carried = [
        CAUSE_WORDS[one.cause]
        for one in account.parts
        if one.cause != "rest" and one.evidence and not one.measured and not one.stated
    ]
    if carried:
        words.append(f"Carried over, not measured on this server at this setting: {', '.join(carried)}.")
    return " ".join(words)


def _rows(account: Account) -> list[dict[str, Any]]:
    at = account.baseline_ms
    rows = [_total("baseline", at)]
    for part in account.parts:
        end = at + part.ms.value
        rows.append(
            {
                "name": CAUSE_WORDS[part.cause],
                "start": at,
                "end": end,
                "low": at + part.ms.low,
                "high": at + part.ms.high,
                "how": "neither" if part.cause == "rest" else "slower" if part.ms.value > 0 else "faster",
                "text": signed(part.ms.value),
            }
        )
        at = end
    return [*rows, _total(account.arm, account.arm_ms)]


def _total(name: str, value: float) -> dict[str, Any]:
    return {
        "name": name,
        "start": 0.0,
        "end": value,
        "low": None,
        "high": None,
        "how": "total",
        "text": number(value),
    }


def explained_share(account: Account) -> str:
    """Return the share of the difference that has a cause; 0 % where the rest is larger than it."""
    return NONE if account.of_difference is None else percent(max(0.0, account.of_difference))


def rest_of(account: Account) -> Part | None:
    """Return what of the difference has no cause."""
    return next((one for one in account.parts if one.cause == "rest"), None)


def signed(value: float) -> str:
    """Return a difference with its sign."""
    if abs(value) < _NOTHING:
        return "0"
    return f"{_MINUS if value < 0 else '+'}{number(abs(value))}"


def _said(parts: Sequence[Part]) -> str:
    return ", ".join(f"{CAUSE_WORDS[one.cause]} {signed(one.ms.value)}" for one in parts)


def _table(account: Account) -> Table:
    columns = (
        Column("ms per output token", "value"),
        Column("ms per output token", "95 % interval"),
        Column("", "measured here"),
        Column("", "evidence"),
    )
    rows = [Row(f"baseline, {account.concurrency} at a time", (number(account.baseline_ms), NONE, "yes", "the trial"))]
    for part in account.parts:
        here = NONE if part.cause == "rest" else "stated by hand" if part.stated else "yes" if part.measured else "no"
        evidence = "; ".join(part.evidence) or NONE
        ms = signed(part.ms.value), between_signed(part)
        rows.append(Row(CAUSE_WORDS[part.cause], (*ms, here, evidence)))
        rows += [Row(one.name, (signed(one.ms.value), between_signed(one), "", ""), part=True) for one in part.details]
    found = account.difference
    rows.append(Row("difference", (signed(found.value), between(found.low, found.high), "yes", "the trial")))
    rows.append(Row(account.arm, (number(account.arm_ms), NONE, "yes", "the trial")))
    note = (
        f"{number(account.steps_per_token)} steps per token, by the arm's counts; a step takes "
        f"{number(account.baseline_step_ms)} ms in the baseline and {number(account.arm_step_ms)} ms in {account.arm}."
    )
    return Table("Table: every part and its evidence", columns, tuple(rows), note)


def between_signed(part: Part | Detail) -> str:
    """Return a part's interval with signs."""
    return f"{signed(part.ms.low)} to {signed(part.ms.high)}"
