"""A benchmark for people, from its record alone: lines for a terminal, and a page that stands on its own."""

import textwrap
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from draftworth.bench.record import BenchRecord
from draftworth.bench.summary import PointSummary, Spread
from draftworth.findings import Finding
from draftworth.reports.page import Column, Row, Table, Tile, document, facts, figure, html_table, text_table, tiles
from draftworth.reports.plots import bench_plots, dark
from draftworth.reports.words import (
    NONE,
    cell,
    duration,
    ended,
    limits,
    machine,
    mean,
    moment,
    number,
    percent,
    plural,
    sentence,
    share,
    workload,
)

HTML = "report.html"
_BESIDE = "Beside this page: bench.json has every figure, requests.parquet a row for each request."
_WIDTH = 110
_SEVERITIES = ("breach", "warning", "info")

Figure = tuple[str, str, Callable[[PointSummary], str]]
"""A column: the heading it shares, its own, and what it shows of a point."""


def lines(record: BenchRecord) -> list[str]:
    """Return a benchmark for a terminal: server, figures, findings with their advice, files."""
    found = [
        f"{record.url}: {record.model}, {_engine(record)}; Draftworth {record.draftworth}, {moment(record.created)}",
        *_wrapped(workload(record.workload, record.source), ""),
    ]
    if record.error:
        found += ["", *_wrapped(f"Ended early: {ended(record.error)}", "")]
    for table in tables(record):
        found += ["", *text_table(table)]
    if record.findings:
        found.append("")
    for one in findings(record):
        found += _wrapped(f"{one.severity} ({one.code}): {ended(one.message)}", "")
        found += _wrapped(ended(one.advice), "  ")
    return [*found, "", f"Files of {record.id}: bench.json (this record), requests.parquet, {HTML}"]


def write_html(record: BenchRecord, folder: Path) -> Path:
    """Write the page of a benchmark whole or not at all. Returns its path."""
    path = folder / HTML
    temporary = path.with_name(f".{HTML}.new")
    temporary.write_text(html(record), encoding="utf-8")
    temporary.replace(path)
    return path


def html(record: BenchRecord) -> str:
    """Return the page of a benchmark: one file, nothing loaded from anywhere. The same record gives the same page."""
    plots = bench_plots(record)
    figures = "".join(figure(plot.svg, plot.caption) for plot in plots)
    body = [
        f"<header><h1>{escape(record.model)}</h1>",
        f'<p class="about">{escape(f"{_engine(record)} at {record.url}")}</p>',
        f'<p class="about">{escape(f"{moment(record.created)}, {duration(record.seconds)}")}</p></header>',
        f'<p class="ended"><b>Ended early.</b> {escape(sentence(record.error))}</p>' if record.error else "",
        tiles(_key_figures(record)),
        _findings_html(record),
        f'<h2>Plots</h2><div class="plots">{figures}</div>' if plots else "",
        *map(html_table, tables(record)),
        f"<h2>Conditions</h2>{facts(_conditions(record))}",
        f"<footer>Draftworth {escape(record.draftworth)}, benchmark {escape(record.id)}. {_BESIDE}</footer>",
    ]
    return document(f"{record.model}: benchmark {record.id}", "\n".join(body), dark() if plots else "")


def findings(record: BenchRecord) -> list[Finding]:
    """Return the findings, the gravest first."""
    return sorted(record.findings, key=lambda one: _SEVERITIES.index(one.severity))


def tables(record: BenchRecord) -> list[Table]:
    """Return what was measured: times by point and category, then the rates of the server by point."""
    if not record.points:
        return []
    wholes = [point for point in record.points if point.category is None]
    times: list[Figure] = [
        ("requests", "sent", lambda p: f"{p.requests:,}"),
        ("requests", "failed", lambda p: f"{p.failed:,}"),
        ("requests", "retried", lambda p: f"{p.retried:,}"),
        ("TTFT ms", "p50", lambda p: cell(p.ttft_ms.p50)),
        ("TTFT ms", "p99", lambda p: cell(p.ttft_ms.p99)),
        ("TPOT ms", "mean (95 % interval)", lambda p: _mean(p.tpot_ms)),
        ("TPOT ms", "p50", lambda p: cell(p.tpot_ms.p50)),
        ("TPOT ms", "p99", lambda p: cell(p.tpot_ms.p99)),
        ("E2E ms", "p50", lambda p: cell(p.e2e_ms.p50)),
    ]
    rates: list[Figure] = [
        ("tokens/request", "in", lambda p: cell(p.prompt_tokens)),
        ("tokens/request", "out", lambda p: cell(_answer_tokens(p))),
        ("per second", "tokens", lambda p: cell(p.throughput)),
        ("per second", "requests", lambda p: cell(p.request_rate)),
    ]
    notes = ["Output tokens and requests per second are of the server as a whole, over the time of the point."]
    if any(point.in_flight is not None for point in wholes):
        rates.append(("requests", "under way", lambda p: cell(p.in_flight)))
        notes.append("Under way: requests on average over the time of the point.")
    if record.limits:
        rates += [
            ("in limits", "req/s", lambda p: cell(p.goodput)),
            ("in limits", "share", lambda p: share(p.good_share)),
        ]
        notes.append(f"In limits (goodput): requests with {limits(record.limits)}.")
    if any(point.acceptance and point.acceptance.speculated for point in wholes):
        rates += [
            ("speculation", "drafted", lambda p: share(p.acceptance.coverage if p.acceptance else None)),
            ("speculation", "accepted", lambda p: share(p.acceptance.acceptance_rate if p.acceptance else None)),
            ("speculation", "per step", lambda p: cell(p.acceptance.length_per_step if p.acceptance else None)),
        ]
        notes.append("Drafted: share of steps. Accepted: share of drafted tokens. Per step: output tokens.")
    if any(point.cached_share is not None for point in wholes):
        rates.append(("prefix", "cached", lambda p: share(p.cached_share)))
        notes.append("Cached: prompt tokens found in the prefix cache.")
    legend = (
        "TTFT: time to the first token. TPOT: time per output token after it; its interval is over prompts. E2E: the "
        "whole request. "
        "Failed and retried requests are in no time. "
        f"{NONE} is not known."
    )
    return [
        _table("Times", times, record.points, legend),
        _table("Rates", rates, wholes, " ".join(notes)),
    ]


def _table(title: str, figures: Sequence[Figure], points: Sequence[PointSummary], note: str) -> Table:
    rows = tuple(
        Row(
            point.category if point.category is not None else _label(point),
            tuple(show(point) for _, _, show in figures),
            part=point.category is not None,
        )
        for point in points
    )
    return Table(title, tuple(Column(group, name) for group, name, _ in figures), rows, note)


def _label(point: PointSummary) -> str:
    return point.label or "all requests"


def _mean(found: Spread) -> str:
    return mean(found.mean, found.low, found.high)


def _answer_tokens(point: PointSummary) -> float | None:
    answered = point.requests - point.failed
    return point.tokens / answered if point.tokens is not None and answered else None


def _engine(record: BenchRecord) -> str:
    return f"{record.engine} {record.version or '(version not told)'}"


def _key_figures(record: BenchRecord) -> list[Tile]:
    """Return what an operator looks for first: of a single point its figures, of a sweep the best points."""
    wholes = [point for point in record.points if point.category is None]
    if not wholes:
        return []
    sweep = len(wholes) > 1
    fastest = min(wholes, key=lambda p: _known(p.tpot_ms.mean, worst=float("inf")))
    first = min(wholes, key=lambda p: _known(p.ttft_ms.p50, worst=float("inf")))
    most = max(wholes, key=lambda p: _known(p.throughput, worst=-1))
    best = max(wholes, key=lambda p: _known(p.goodput, worst=-1))
    found = []
    if fastest.tpot_ms.mean is not None:
        about = _label(fastest) if sweep else f"mean; {_interval(fastest.tpot_ms)}"
        found.append(Tile("Lowest mean TPOT" if sweep else "TPOT", number(fastest.tpot_ms.mean), "ms", about))
    if first.ttft_ms.p50 is not None:
        about = _label(first) if sweep else f"median; p99 {number(first.ttft_ms.p99)} ms"
        found.append(Tile("Lowest median TTFT" if sweep else "TTFT", number(first.ttft_ms.p50), "ms", about))
    if most.throughput is not None:
        about = _label(most) if sweep else f"{number(most.request_rate)} requests/s"
        title = "Highest throughput" if sweep else "Throughput"
        found.append(Tile(title, number(most.throughput), "tokens/s", about))
    if best.goodput is not None:
        about = f"{_label(best)}; {percent(best.good_share)} of requests" if sweep else percent(best.good_share)
        found.append(Tile("Highest goodput" if sweep else "Goodput", number(best.goodput), "requests/s", about))
    drafting = [p.acceptance for p in wholes if p.acceptance is not None and p.acceptance.speculated]
    lengths = [one.length_per_step for one in drafting if one.length_per_step is not None]
    shares = [one.coverage for one in drafting if one.coverage is not None]
    if lengths:
        about = f"{_between([percent(one) for one in (min(shares), max(shares))])} of steps drafted" if shares else ""
        figure = _between([number(one) for one in (min(lengths), max(lengths))])
        found.append(Tile("Tokens a step", figure, "", about))
    return found


def _known(value: float | None, *, worst: float) -> float:
    return worst if value is None else value


def _between(ends: list[str]) -> str:
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _interval(found: Spread) -> str:
    if found.low is None or found.high is None:
        return "too few prompts for an interval"
    return f"95 % interval {number(found.low)} to {number(found.high)}"


def _findings_html(record: BenchRecord) -> str:
    if not record.findings:
        return "<h2>Findings</h2><p>None: nothing was seen that puts the figures in doubt.</p>"
    counts = [
        plural(some, severity, {"breach": "breaches", "info": "info"}.get(severity, ""))
        for severity in _SEVERITIES
        if (some := sum(one.severity == severity for one in record.findings))
    ]
    items = "".join(
        f'<li class="{one.severity}"><b>{one.severity.capitalize()}:</b>{escape(ended(one.message))} '
        f'<span class="advice">{escape(sentence(one.advice))}</span> <code>{escape(one.code)}</code></li>'
        for one in findings(record)
    )
    return f'<h2>Findings: {", ".join(counts)}</h2><ul class="findings">{items}</ul>'


def _conditions(record: BenchRecord) -> list[tuple[str, str]]:
    work, client = record.workload, record.client
    health = ""
    if client is not None:
        middle, late, worst = client.lag_ms
        health = (
            f"{number(client.cpu_s)} s of processor time in {number(client.wall_s)} s; its clock was "
            f"{number(middle)} ms late in the median, {number(late)} ms at p99, {number(worst)} ms at most"
        )
        if client.late_ms is not None:
            health += f"; requests left up to {number(client.late_ms)} ms after they were due (p99)"
    sources = dict.fromkeys(p.acceptance.source for p in record.points if p.acceptance and p.acceptance.speculated)
    sent = f"{work.get('warmup')} requests before the first measured one; up to {work.get('retries')} retries"
    return [
        ("Server", f"{record.url}, model {record.model}, {_engine(record)}"),
        ("Workload", workload(work, record.source)),
        ("Sending", sent if work else ""),
        ("Goodput", limits(record.limits)),
        ("Speculation", f"counts from {'; '.join(sources)}" if sources else ""),
        ("Client", health),
        ("Client's machine", machine(record.machine)),
        ("Time", f"{moment(record.created)} to {moment(record.finished)}"),
        ("Draftworth", record.draftworth),
    ]


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
