"""The search of a trial: the best setting to paste, and every setting with what came of it."""

from html import escape

from draftworth.reports.page import html_table
from draftworth.reports.search import SCHEDULE, adopting, flags, rows_of, schedule, setting, summary, where
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.parts import fold, plain_table, section

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
    rows = rows_of(search)
    table = plain_table("Settings", ["what came of it", "why"], rows)
    body = html_table(table, heading=False) if len(rows) <= _OPEN else fold(table, "trial.json")
    return section("Search", f'{"".join(found)}<div class="words">{body}</div>', f"{summary(search)}.", key="search")
