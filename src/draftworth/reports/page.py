"""The building blocks of a report: tables as text and as HTML, and a page that stands on its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Column:
    """One column of figures.

    Attributes:
        group: what it shares a heading with its neighbours by; empty for none.
        title: its own heading.
    """

    group: str
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        name: what it is about.
        cells: one text a column.
        part: whether it is a part of the row above that is none.
    """

    name: str
    cells: tuple[str, ...]
    part: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Figures by point.

    Attributes:
        title: what it shows.
        columns: all but the first, which has the names.
        rows: in order.
        note: what its words mean.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure: its title, itself, its unit, and what it is about."""

    title: str
    figure: str
    unit: str
    about: str


def text_table(table: Table) -> list[str]:
    """Return a table as aligned lines of plain text: headings of groups, headings, rows."""
    names = [f"  {row.name}" if row.part else row.name for row in table.rows]
    first = max(len(table.title), *map(len, names)) if names else len(table.title)
    widths = [
        max(len(column.title), *(len(row.cells[number]) for row in table.rows)) if table.rows else len(column.title)
        for number, column in enumerate(table.columns)
    ]
    for group, some in _groups(table.columns):  # a group's heading may be wider than its columns
        short = len(group) - sum(widths[number] for number in some) - 2 * (len(some) - 1)
        widths[some[-1]] += max(0, short)
    head = " " * first
    for group, some in _groups(table.columns):
        width = sum(widths[number] for number in some) + 2 * (len(some) - 1)
        head += "  " + (f" {group} ".center(width, "-") if group and len(some) > 1 else group.rjust(width))
    lines = [head.rstrip()] if head.strip() else []
    lines.append(_line(table.title.ljust(first), [column.title for column in table.columns], widths))
    lines += [_line(name.ljust(first), row.cells, widths) for name, row in zip(names, table.rows, strict=True)]
    return lines


def _line(name: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join([name, *(text.rjust(width) for text, width in zip(cells, widths, strict=True))]).rstrip()


def _groups(columns: Sequence[Column]) -> list[tuple[str, list[int]]]:
    """Return each run of columns of one group, by their numbers."""
    found = groupby(enumerate(columns), key=lambda pair: pair[1].group)
    return [(group, [number for number, _ in some]) for group, some in found]


def html_table(table: Table, *, heading: bool = True) -> str:
    """Return a table as HTML; it scrolls sideways where the window is narrow. Its title is always its label."""
    groups = _groups(table.columns)
    starts = {some[0] for _, some in groups}
    heads = "".join(f'<th colspan="{len(some)}" class="g">{escape(group)}</th>' for group, some in groups)
    titles = "".join(_tag("th", column.title, number in starts) for number, column in enumerate(table.columns))
    rows = "".join(
        f'<tr{" class=part" if row.part else ""}><th scope="row">{escape(row.name)}</th>'
        + "".join(_tag("td", text, number in starts) for number, text in enumerate(row.cells))
        + "</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    title = f"<h2>{escape(table.title)}</h2>" if heading else ""
    return (
        f"{title}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}"><table><thead>'
        f"<tr><td></td>{heads}</tr><tr><td></td>{titles}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _tag(name: str, text: str, first: bool) -> str:  # noqa: FBT001 - of its group
    return f"<{name}{' class=g' if first else ''}>{escape(text)}</{name}>"


def tiles(some: Iterable[Tile]) -> str:
    """Return key figures side by side."""
    found = "".join(
        f"<div><dt>{escape(one.title)}</dt><dd><b>{escape(one.figure)} <small>{escape(one.unit)}</small></b>"
        f"<span>{escape(one.about)}</span></dd></div>"
        for one in some
    )
    return f'<dl class="tiles">{found}</dl>' if found else ""


def facts(some: Iterable[tuple[str, str]]) -> str:
    """Return names with their values; those without a value are left out."""
    found = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in some if value)
    return f'<dl class="facts">{found}</dl>'


def figure(svg: str, caption: str) -> str:
    """Return a plot with its caption; the SVG is our own and trusted."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def document(title: str, body: str, extra_css: str = "") -> str:
    """Return a whole page that needs nothing else and may load nothing."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}{extra_css}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


_CSS = """
:root { color-scheme: light dark; --back: #fff; --fore: #1c2024; --soft: #5c656f; --line: #dfe3e8; --tint: #f6f7f9;
  --warn: #b45309; --warn-tint: #fff8ec; --info: #0b63a5; --info-tint: #f1f7fd; --bad: #b42318; --bad-tint: #fef3f2; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #14171a; --fore: #e5e8eb; --soft: #9aa4ae;
  --line: #2d333a; --tint: #1b1f24; --warn: #f0a840; --warn-tint: #241d10; --info: #6cb6f5; --info-tint: #122030;
  --bad: #f58a80; --bad-tint: #2a1614; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 76rem; background: var(--back); color: var(--fore);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.65rem; line-height: 1.25; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .75rem; font-size: 1.1rem; }
p { margin: .25rem 0; }
.about { color: var(--soft); overflow-wrap: anywhere; }
.ended { margin: 1.25rem 0 0; padding: .75rem 1rem; border-left: 4px solid var(--bad); background: var(--bad-tint);
  border-radius: 0 6px 6px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: 1px; margin: 1.75rem 0 0;
  border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tiles div { padding: .8rem 1rem .9rem; box-shadow: 1px 1px 0 var(--line); }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; }
.tiles b { display: block; font-size: 1.35rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tiles small { font-size: .9rem; font-weight: 400; color: var(--soft); }
.tiles span { color: var(--soft); font-size: .85rem; }
.findings { list-style: none; margin: 0; padding: 0; display: grid; gap: .5rem; }
.findings li { padding: .55rem .9rem; border-left: 4px solid var(--info); background: var(--info-tint);
  border-radius: 0 6px 6px 0; }
.findings .warning { border-color: var(--warn); background: var(--warn-tint); }
.findings .breach { border-color: var(--bad); background: var(--bad-tint); }
.findings b { color: var(--info); margin-right: .4rem; }
.findings .warning b { color: var(--warn); }
.findings .breach b { color: var(--bad); }
code { font: .85em/1.4 ui-monospace, monospace; color: var(--soft); }
.advice { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1.75rem 2rem; }
figure { margin: 0; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { margin-top: .4rem; color: var(--soft); font-size: .87rem; }
.scroll { width: fit-content; max-width: 100%; overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
.scroll:focus-visible { outline: 2px solid var(--info); }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .75rem; text-align: right; white-space: nowrap; font-weight: 400; }
thead { background: var(--tint); color: var(--soft); }
thead tr:first-child th { text-align: left; font-weight: 600; color: var(--fore); padding-bottom: 0; }
thead tr:last-child > * { border-bottom: 1px solid var(--line); padding-top: .1rem; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody tr.part > * { border-top: 0; color: var(--soft); padding-top: .1rem; }
tbody th { position: sticky; left: 0; background: var(--back); text-align: left; font-weight: 600; }
tbody .part th { padding-left: 1.5rem; font-weight: 400; }
.g { border-left: 1px solid var(--line); }
.note { margin-top: .5rem; color: var(--soft); font-size: .87rem; max-width: 62rem; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.25rem; margin: 0; font-size: .93rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .87rem; }
@media (max-width: 40rem) { .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: .5rem; } }
@media print { @page { size: landscape; margin: 12mm; } body { max-width: none; padding: 0; font-size: 11px; }
  .plots { grid-template-columns: 1fr 1fr; } .scroll { overflow: visible; }
  th, td { padding: .2rem .35rem; } h2 { break-after: avoid; margin-top: 1.5rem; }
  tr, .findings li { break-inside: avoid; } }
"""
