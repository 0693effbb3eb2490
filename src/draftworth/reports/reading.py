"""What was read from a server, a page or a log, as lines for a terminal."""

from collections.abc import Sequence

from draftworth.engines.base import AcceptanceCounts, Told, Window
from draftworth.engines.counts import FIELDS, WORDS, Figure, figure, figures
from draftworth.readings.base import Reading
from draftworth.reports.words import NONE, cell, number, percent, plural, share

NAMES = {
    "steps": "steps",
    "drafting_steps": "drafting steps",
    "drafted": "drafted tokens",
    "accepted": "accepted tokens",
    "accepted_per_position": "accepted by position",
    "emitted": "emitted tokens",
}
_SHARES = frozenset({"coverage", "acceptance_rate"})
_NEWEST = 10
_ZEROS_LISTED = 4


def lines(reading: Reading) -> list[str]:
    """Return a whole reading."""
    found = [heading(reading), ""]
    if reading.counts is not None:
        found += [*counts_lines(reading.counts), ""]
    if reading.told and not (reading.windows and reading.windows[-1].counts):
        found += ["The engine's own figures", *told_lines(reading.told), ""]
    if reading.windows:
        found += [*window_lines(reading.windows, reading.windows_seen), ""]
    found += findings_lines(reading)
    while found and not found[-1]:
        found.pop()
    return found


def heading(reading: Reading) -> str:
    """Return who wrote it and where it was read."""
    version = reading.version or "(version not told)"
    runner = f", {reading.facts.runner} runner" if reading.facts.runner else ""
    models = f", {', '.join(reading.models)}" if reading.models else ""
    size = f", {_size(reading.size)}" if reading.kind == "log" else ""
    kind = {"page": "JSON", "server": "live"}.get(reading.kind, reading.kind)
    return f"{reading.title} {version}{runner}{models}: {reading.source} ({kind}{size})"


def _size(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "KB", "MB"):
        if value < 1000:  # noqa: PLR2004 - the next unit
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def counts_lines(counts: AcceptanceCounts) -> list[str]:
    """Return raw counts, positions and derived figures, each with why it is missing or what it is made of."""
    width = max(map(len, WORDS.values()))
    found = [f"Counts: {counts.source}"]
    for name in FIELDS:
        value = getattr(counts, name)
        said = f"not given: {counts.why_not(name)}"
        if isinstance(value, int):
            said = f"{value:,}"
        elif value is not None:
            said = _positions_in_words(value)
        how = f"  ({counts.meaning[name]})" if name in counts.meaning and value is not None else ""
        found.append(f"  {NAMES[name]:<{width}}  {said}{how}")
    positions = _positions(counts)
    found += [*positions, "Figures"]
    found += [f"  {WORDS[one.name]:<{width}}  {_figure(one)}" for one in figures(counts)]
    return found


def _figure(one: Figure) -> str:
    shown = percent if one.name in _SHARES else number
    formula = f"= {one.formula}"
    if one.value is not None:
        return f"{shown(one.value):<8} {formula}"
    if one.low is not None and one.high is not None:
        ends = dict.fromkeys((shown(one.low), shown(one.high)))
        least = 1.0 if one.name == "length_per_drafting_step" else 0.0
        known = f"at most {shown(one.high)}" if one.low == least else " to ".join(ends)
        return f"{known:<8} {formula}; counts are only told rounded"
    why = f"without {' and '.join(one.missing)}" if one.missing else one.why_not
    return f"{'unknown':<8} {formula}; {why}"


def _positions_in_words(values: Sequence[int]) -> str:
    """Return counts by position; a long tail of zeros is said, not listed."""
    last = max((index for index, value in enumerate(values) if value), default=-1) + 1
    zeros = len(values) - last
    if zeros <= _ZEROS_LISTED:
        last, zeros = len(values), 0
    listed = ", ".join(f"{one:,}" for one in values[:last]) or "none"
    return f"{listed}, and {zeros} positions of 0" if zeros else listed


def _positions(counts: AcceptanceCounts) -> list[str]:
    survival, conditional = counts.survival, counts.conditional
    if not survival:
        return []
    reached = max((index for index, value in enumerate(survival) if value), default=0) + 2
    survival, conditional = survival[:reached], None if conditional is None else conditional[:reached]
    rows = [
        ("position", [str(i + 1) for i in range(len(survival))]),
        ("survival", [share(value) for value in survival]),
    ]
    if conditional is not None:
        rows.append(("conditional", [share(value) for value in conditional]))
    width = max(len(text) for _, row in rows for text in row)
    return [f"  {name:<12}{'  '.join(f'{text:>{width}}' for text in row)}" for name, row in rows]


def told_lines(told: Sequence[Told]) -> list[str]:
    """Return an engine's own figures, each with what it computes."""
    width = max(len(one.name) for one in told)
    scopes = list(dict.fromkeys(one.scope for one in told))
    found = []
    for scope in scopes:
        found.append(f"  of {scope}:")
        found += [f"    {one.name:<{width}}  {one.value:<8.4g} = {one.formula}" for one in told if one.scope == scope]
    return found


def window_lines(windows: Sequence[Window], seen: int) -> list[str]:
    """Return the newest windows as a table."""
    newest = windows[-_NEWEST:]
    of = f" of {seen:,}" if seen > len(newest) else ""
    # An engine's own figures are shown where there are no counts to derive better ones from.
    names = _told_names([window for window in newest if window.counts is None])
    rows = [("time", "drafted", "accepted", "rate", "per drafting step", *names)]
    for window in newest:
        told = {one.name: one.value for one in window.told}
        rows.append((window.at or NONE, *_cells(window.counts), *(cell(told.get(name)) for name in names)))
    if all(window.counts is None for window in newest):
        rows = [(row[0], *row[5:]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  " + "  ".join([f"{row[0]:<{widths[0]}}", *(f"{t:>{w}}" for t, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return [f"Newest {plural(len(newest), 'window')}{of}", *table]


def watch_line(reading: Reading | None) -> str:
    """Return one line of what happened between two readings; None gives the titles."""
    titles = ("steps", "drafting", "drafted", "accepted", "rate", "per step", "per drafting step")
    if reading is None:
        return " " * 10 + "  ".join(f"{title:>{max(9, len(title))}}" for title in titles)
    counts = reading.counts
    if counts is None:
        return "; ".join(one.message for one in reading.findings) or "no counts"
    numbers = [counts.steps, counts.drafting_steps, counts.drafted, counts.accepted]
    cells = [NONE if value is None else f"{value:,}" for value in numbers]
    cells += [share(counts.acceptance_rate), cell(counts.length_per_step), cell(counts.length_per_drafting_step)]
    told = "".join(f"  {one.name} {one.value:.3g}" for one in reading.told)
    return "  ".join(f"{text:>{max(9, len(title))}}" for text, title in zip(cells, titles, strict=True)) + told


def _told_names(windows: Sequence[Window]) -> list[str]:
    return list(dict.fromkeys(one.name for window in windows for one in window.told))


def _cells(counts: AcceptanceCounts | None) -> tuple[str, str, str, str]:
    if counts is None:
        return NONE, NONE, NONE, NONE
    length = figure(counts, "length_per_drafting_step")
    shown = cell(length.value)
    if length.low is not None and length.high is not None:
        shown = f"{number(length.low)} to {number(length.high)}"
    drafted, accepted = ("-" if value is None else f"{value:,}" for value in (counts.drafted, counts.accepted))
    return drafted, accepted, share(counts.acceptance_rate), shown


def findings_lines(reading: Reading) -> list[str]:
    """Return findings and the log's warnings, each with what to do."""
    found = []
    for one in reading.findings:
        found += [f"{one.severity}: {one.message}", f"  {one.advice}"]
    for warning in reading.facts.warnings:
        found += [f"log: {warning.line}", f"  {warning.advice}"]
    return found
