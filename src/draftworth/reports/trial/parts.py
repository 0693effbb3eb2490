"""The building blocks of a trial's page: a plot with the table behind it, a list, a fold."""

from collections.abc import Iterable, Sequence
from html import escape

from draftworth.reports.page import Column, Row, Table, html_table
from draftworth.reports.words import NONE, number

MOST_ROWS = 200
"""Rows of a table on the page; the rest are in requests.parquet."""
_CUT = 90


def panel(title: str, caption: str, svg: str = "", table: Table | None = None, rest: str = "") -> str:
    """Return a plot: its title, what it shows, itself, and the table behind it, folded.

    Args:
        title: of the plot.
        caption: what is drawn, and how to read it.
        svg: our own and trusted; empty where nothing could be drawn.
        table: what is drawn, as figures.
        rest: HTML below the table.
    """
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<div class="panel"><figure><h3>{escape(title)}</h3>{svg}{words}</figure>'
        f"{fold(table) if table is not None else ''}{rest}</div>"
    )


def panels(some: Iterable[str]) -> str:
    """Return plots beside each other, as many as fit."""
    found = "".join(some)
    return f'<div class="plots">{found}</div>' if found else ""


def stack(some: Sequence[str]) -> list[str]:
    """Return plots one below the other, in the place of one; none of none."""
    return [f'<div class="stack">{"".join(some)}</div>'] if len(some) > 1 else [*some]


def fold(table: Table, where: str = "requests.parquet") -> str:
    """Return a table that a click unfolds, at most 200 rows of it.

    Args:
        table: the whole.
        where: the file that has every row.
    """
    more = len(table.rows) - MOST_ROWS
    shown = table if more <= 0 else Table(table.title, table.columns, table.rows[:MOST_ROWS], table.note)
    tail = f'<p class="note">{more:,} more in {escape(where)}</p>' if more > 0 else ""
    return f"<details><summary>{escape(table.title)}</summary>{html_table(shown, heading=False)}{tail}</details>"


def plain_table(title: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], note: str = "") -> Table:
    """Return a table without groups of columns: a name and one text a column in each row."""
    found = tuple(Row(name, tuple(cells)) for name, cells in rows)
    return Table(title, tuple(Column("", head) for head in heads), found, note)


def bullets(items: Iterable[str]) -> str:
    """Return sentences as a list."""
    found = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<ul class="plain">{found}</ul>' if found else ""


def beside(left: str, right: str) -> str:
    """Return a plot with what is told at its right, where the window is wide enough."""
    return f'<div class="side">{left}<div>{right}</div></div>' if left else right


def row(*sections: str) -> str:
    """Return sections beside each other, as many as fit."""
    found = "".join(sections)
    return f'<div class="row">{found}</div>' if found else ""


def section(title: str, body: str, about: str = "", key: str = "", *, wide: bool = False) -> str:
    """Return a part of the page under its heading; nothing where it has no body.

    Args:
        title: the heading.
        body: HTML.
        about: a sentence below the heading.
        key: what a link leads to.
        wide: whether it takes two places of a row.
    """
    if not body:
        return ""
    words = f'<p class="about">{escape(about)}</p>' if about else ""
    name = f' id="{escape(key)}"' if key else ""
    kind = ' class="two"' if wide else ""
    return f"<section{name}{kind}><h2>{escape(title)}</h2>{words}{body}</section>"


def short(text: str, most: int = _CUT) -> str:
    """Return a text that fits a table's cell."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def between(low: float | None, high: float | None) -> str:
    """Return an interval for a table."""
    return NONE if low is None or high is None else f"{number(low)} to {number(high)}"


def ratio(value: float | None) -> str:
    """Return a ratio for a table."""
    return NONE if value is None else f"{value:.3f}"
