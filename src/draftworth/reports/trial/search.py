"""The search of a trial: the best setting to paste, and every setting with what came of it."""

from html import escape

from draftworth.reports.page import Column, Row, Table, html_table
from draftworth.reports.search import SCHEDULE, adopting, flags, rows_of, schedule, setting, summary, where
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import fold, section
from draftworth.reports.words import sentence

_SPEEDS = "times as fast as the baseline (95 %)"
_OPEN = 12
"""Rows of a table that stand unfolded."""


def search_html(subject: Subject) -> str:
    """Return the section about a search; empty for any other trial."""
    record = subject.record
    search = record.search
    if search is None:
        return ""
    found = []
    for best in search.best:
        found.append(f"<p><b>Best {escape(where(best, search))}:</b> {escape(setting(best, record))}</p>")
        if best.flags:
            found.append(f"<pre>{escape(flags(best))}</pre>")
    if search.schedule is not None:
        found += [f"<p>{escape(SCHEDULE)}</p>", f"<pre>{escape(schedule(search))}</pre>"]
    found += [f"<p>{escape(one)}</p>" for one in adopting(record)]
    if search.unpredicted is not None:
        found.append(f"<p>{escape(search.unpredicted)}</p>")
    at = [Column(_SPEEDS, f"{load} at a time") for load in search.loads]
    rows = tuple(Row(name, cells) for name, cells in rows_of(search))
    table = Table("Settings", (*at, Column("", "what came of it, and why it was next or never")), rows)
    body = html_table(table, heading=False) if len(rows) <= _OPEN else fold(table, "trial.json")
    told = sentence(summary(search).removeprefix("Search: "))
    return section("Search", f'{"".join(found)}<div class="words">{body}</div>', told, key="search")
