"""What a variant drafted and had accepted, beside what it would have to reach to cost nothing and gain nothing."""

import shlex
from collections.abc import Sequence
from html import escape
from typing import Any

from draftworth.engines.base import AcceptanceCounts
from draftworth.explain.base import Account, BreakEven, Change
from draftworth.reports.page import Row, Table
from draftworth.reports.trial.accounts import beats, load_of
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import panel, plain_table
from draftworth.reports.words import NONE, cell, ended, number, percent, share

_HALVINGS = 60


def acceptance_panels(subject: Subject, name: str) -> list[str]:
    """Return the plots of a variant's drafts: acceptance by position, and its length against the break-even."""
    arm = subject.arm(name)
    accounts = subject.accounts(name)
    counts = _counts(arm.acceptance, arm.per_request) if arm is not None else None
    drawn = [] if counts is None else [_by_position(name, counts, accounts)]
    if any(one.break_even.length is not None for one in accounts):
        drawn.append(_lengths(name, accounts))
    return drawn


def _counts(*some: AcceptanceCounts | None) -> AcceptanceCounts | None:
    """Return the counts that tell positions; else those that tell drafts; None where nothing was drafted."""
    drafted = [one for one in some if one is not None and one.speculated]
    return next((one for one in drafted if one.survival), drafted[0] if drafted else None)


def even_share(accepted: float, positions: int) -> float | None:
    """Return the constant acceptance at each position with which so many tokens are accepted a drafting step.

    Solves a + a^2 + ... + a^k = accepted by halving, k being the positions.

    Returns:
        None where no acceptance gives so many.
    """
    if not 0 <= accepted <= positions or positions < 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**at for at in range(1, positions + 1)) < accepted else (low, middle)
    return (low + high) / 2


def _by_position(name: str, counts: AcceptanceCounts, accounts: Sequence[Account]) -> str:
    survival = counts.survival
    words = _drafting(counts)
    if not survival:
        why = counts.why_not("accepted_per_position" if counts.drafting_steps else "drafting_steps")
        return panel("Acceptance by position", f"{words} By position it is not known: {why}.", "", _table(counts, {}))
    lines: list[dict[str, Any]] = []
    evens: dict[str, float] = {}
    said = ""
    known = [one for one in accounts if one.break_even.length is not None]
    for one in dict.fromkeys([*known[:1], *known[-1:]]):
        at = f" at {load_of(one).removesuffix(' at a time')}" if len(known) > 1 else ""
        length = one.break_even.length
        even = even_share(length - 1, len(survival)) if length is not None else None
        if even is None:
            low = length is not None and length < 1
            said += f" Break-even{at}: " + ("below any acceptance." if low else "no acceptance is high enough.")
            continue
        if any(round(even, 2) == round(other, 2) for other in evens.values()):
            evens = {f"break-even: {percent(even)} at each": even}  # of every load: one line over another says nothing
            continue
        evens[f"break-even{at}: {percent(even)} at each"] = even
    for what, even in evens.items():
        lines += [{"position": at, "share": even**at, "what": what} for at in range(1, len(survival) + 1)]
    if evens:
        said += " The line: one acceptance at every position that would cost nothing and gain nothing."
    elif not accounts:
        said += " The break-even is not known: nothing was explained."
    from draftworth.reports.trial import curves  # noqa: PLC0415 - lazy: altair takes a while

    bars = [{"position": at, "share": value} for at, value in enumerate(survival, start=1)]
    text = f"Acceptance of {name} by draft position: {', '.join(percent(one) for one in survival[:12])}"
    svg = curves.finished(curves.positions(bars, lines), text, columns=1)
    return panel("Acceptance by position", words + said, svg, _table(counts, evens))


def _drafting(counts: AcceptanceCounts) -> str:
    return (
        f"Drafted in {percent(counts.coverage)} of steps; {percent(counts.acceptance_rate)} of drafted tokens "
        f"accepted; {number(counts.length_per_drafting_step)} tokens per drafting step, "
        f"{number(counts.length_per_step)} per step."
    )


def _table(counts: AcceptanceCounts, evens: dict[str, float]) -> Table:
    heads = ["accepted", "survival", "of those that got there", *evens]
    chain, conditional = counts.accepted_per_position or (), counts.conditional
    rows = []
    for at, accepted in enumerate(chain):
        survival = counts.survival[at] if counts.survival else None
        here = conditional[at] if conditional else None
        rows.append(
            (
                str(at + 1),
                [
                    f"{accepted:,}",
                    share(survival),
                    share(here),
                    *(percent(even ** (at + 1)) for even in evens.values()),
                ],
            )
        )
    meant = "; ".join(f"{name.replace('_', ' ')}: {how}" for name, how in counts.meaning.items())
    note = f"Source: {counts.source}.{f' {meant}.' if meant else ''}"
    return plain_table("Table: acceptance by position", heads, rows, note)


def _lengths(name: str, accounts: Sequence[Account]) -> str:
    from draftworth.reports.trial import draw  # noqa: PLC0415 - lazy: altair takes a while

    rows = []
    for one in accounts:
        found = one.break_even
        if found.length is None and found.measured_length is None:
            continue
        pays = _pays(found)
        far = found.length is not None and found.length > 2 * found.longest
        rows.append(
            {
                "name": load_of(one),
                "least": min(1.0, found.length or 1.0),
                "longest": found.longest,
                "measured": found.measured_length,
                "needed": None if far else found.length,
                "how": "neither" if pays is None else "faster" if pays else "slower",
                "text": f"{cell(found.measured_length)} / {cell(found.length)}",
            }
        )
    caption = (
        "Dot: tokens per drafting step that were reached; grey where the break-even's interval holds them. Upright "
        "line: what costs nothing and gains nothing at this coverage. Grey: what is possible (k + 1). At the right: "
        "reached / break-even; the table has its 95 % interval."
    )
    svg = draw.finished(
        draw.against(rows, "acceptance length per drafting step"),
        f"Acceptance length of {name} against its break-even at each load",
    )
    table = Table(
        "Table: acceptance length",
        plain_table("", ["reached", "break-even", "at most"], []).columns,
        tuple(
            Row(
                load_of(one),
                (
                    cell(one.break_even.measured_length),
                    even_of(one.break_even),
                    f"{one.break_even.longest:g}",
                ),
            )
            for one in accounts
        ),
    )
    return panel("Acceptance against the break-even", caption, svg, table)


def _pays(found: BreakEven) -> bool | None:
    """Return whether drafts were accepted beyond the break-even; None where that is within its interval, or unknown."""
    reached, needed = found.measured_length, found.length
    if reached is None or needed is None:
        return None
    low, high = (needed if end is None else end for end in (found.low, found.high))
    return None if low <= reached <= high and low < high else reached > needed


def even_of(found: BreakEven) -> str:
    """Return a break-even with its interval, for a person."""
    if found.length is None:
        return NONE
    return cell(found.length) + ("" if found.ends is None else f" ({cell(found.ends[0])} to {cell(found.ends[1])})")


def changes_html(accounts: Sequence[Account]) -> str:
    """Return what would change the verdict, the best first, each once."""
    seen: dict[str, str] = {}
    for one in accounts:
        at = f"{load_of(one)}: " if len(accounts) > 1 else ""
        for change in (each for each in one.changes if beats(each, one)):
            gain = gain_of(change)
            words = f"{at}{ended(change.text)}{f' {gain}.' if gain else ''}"
            flags = f" <code>{escape(shlex.join(change.arguments))}</code>" if change.arguments else ""
            seen.setdefault(change.text, f"<li>{escape(words)}{flags}</li>")
    return f'<h3>What would change this</h3><ol class="plain">{"".join(seen.values())}</ol>' if seen else ""


def gain_of(change: Change) -> str:
    """Return what a change is predicted to gain; nothing where its text says so already."""
    found = change.speed_up
    if found is None or f"{found.value:.2f}" in change.text:
        return ""
    return f"Predicted: {found.value:.2f} times as fast as the baseline ({found.low:.2f} to {found.high:.2f})"
