"""Reads TensorRT-LLM's `/prometheus/metrics` page and the counts of the window between two of them.

The page exists with `return_perf_metrics: true` in the options file. Two groups of counters tell of speculation
(`metrics/collector.py`, 1.3.0rc), and only releases from 1.3.0rc on have them:

- by position, `…drafted_tokens_total{token_position}` and `…accepted_tokens_total{token_position}`, position 0 first.
  They are raised when a request finishes, by the drafts that its steps verified, so the one at position 0 counts the
  drafting steps. This group is taken where it is there.
- `…num_draft_tokens_total` and `…num_accepted_tokens_total`, raised from the iteration statistics that the server
  polls (`enable_iter_perf_stats: true`): what a step accepted beside the draft that is held for the next one, padding
  included, and once for each rank under attention data parallelism. The server before PR #12545 handed on only the
  last iteration of each batch of statistics; which candidate first hands on every one could not be read.

The client library writes a series only once it was raised, so one that appears between two pages was at 0 before; a
restart shows in any other counter that fell. Series carry no time of creation (several processes share the page).
"""

from typing import Any

from draftworth.engines import prometheus
from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot
from draftworth.engines.trtllm import gauges, releases
from draftworth.engines.trtllm.gauges import (
    ACCEPTED,
    ACCEPTED_POSITION,
    CACHED,
    DRAFTED,
    DRAFTED_POSITION,
    FINISHED,
    FIRST_TOKENS,
    GENERATED,
    PROMPT,
)
from draftworth.errors import MeasureError
from draftworth.findings import Code

_HINT = (
    "does the URL lead to /prometheus/metrics of a trtllm-serve whose options file has return_perf_metrics: true "
    "(its /metrics is JSON)?"
)
_ACCEPTED_LAYOUT = prometheus.Layout(
    "TensorRT-LLM",
    "trtllm_",
    per_position=ACCEPTED_POSITION,
    position_label=gauges.POSITION_LABEL,
    gauges=gauges.GAUGES,
    hint=_HINT,
)
_DRAFTED_LAYOUT = prometheus.Layout(
    "TensorRT-LLM", "trtllm_", per_position=DRAFTED_POSITION, position_label=gauges.POSITION_LABEL, hint=_HINT
)
_NO_STEPS = "no counter of TensorRT-LLM counts decode steps; see /metrics, its iteration statistics"
_NO_SPECULATION = (
    "the page says nothing of speculation: it is off, or the release is older than 1.3.0rc, which counts it"
)
_NO_TOKENS = "the page has no count of generated tokens (releases before 1.3.0rc have none)"
_UNREADABLE = "a page was cut off or partly unreadable, so a missing counter says nothing"
_TOKENS_ONLY = "the counters from iterations count tokens only"
_CONTRADICT = "the counts by position contradict each other: a later one is larger, or more was accepted than drafted"
_BEFORE_FIX = "builds before PR #17082 (August 2026) count the padded draft of the next step, prefill included"
_HELD = "the draft held for the next step, padding included, and once for each rank under attention data parallelism"
_RANKS = "once for each rank under attention data parallelism"


def parse_metrics(text: str, model: str | None = None) -> MetricsSnapshot:
    """Read a page: every counter and histogram, summed over label sets; drafted tokens by position as counters.

    Args:
        text: the page.
        model: take only series of this model; None for all.

    Raises:
        MeasureError: the text is no metrics page, or not one of TensorRT-LLM, or has no series of that model.
    """
    page = prometheus.read(text, _ACCEPTED_LAYOUT, model=model)
    drafted = prometheus.read(text, _DRAFTED_LAYOUT, model=model).per_position or ()
    by_position = {_drafted_at(index): value for index, value in enumerate(drafted)}
    page = page.model_copy(update={"counters": {**page.counters, **by_position}})
    return page.model_copy(update={"findings": (*page.findings, *gauges.findings(page))})


def counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts of the window between two pages.

    Args:
        before: the page that opens the window.
        after: the page that closes it.
        version: the release, for the name of the source and the meaning of counts.

    Raises:
        MeasureError: a counter fell or went: the server was started anew.
    """
    return _counts(before, after, version, "difference of two scrapes")


def totals(snapshot: MetricsSnapshot, version: str | None = None) -> AcceptanceCounts:
    """Return the counts since the server's start."""
    return _counts(prometheus.since_start(snapshot), snapshot, version, "since the server's start")


def requests_finished(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many requests of anybody's finished between two pages, for whatever reason, or None.

    Raises:
        MeasureError: a counter fell or went.
    """
    return _grown(before, after, FINISHED)


def generated_tokens(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many tokens requests had that finished between two pages, first tokens included, or None.

    Requests with `n` above 1 are not in it.

    Raises:
        MeasureError: a counter fell or went.
    """
    return _grown(before, after, GENERATED)


def prefix_cache(before: MetricsSnapshot, after: MetricsSnapshot) -> tuple[int, int] | None:
    """Return how many prompt tokens finished requests had, and how many came from the cache, or None.

    Releases before 1.3.0rc count the cache in blocks and are not told here.

    Raises:
        MeasureError: a counter fell or went.
    """
    asked, found = _grown(before, after, PROMPT), _grown(before, after, CACHED)
    return None if asked is None or found is None else (asked, found)


def _counts(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None, scope: str) -> AcceptanceCounts:
    _check_restart(before, after)
    name = f"TensorRT-LLM {version}" if version else "TensorRT-LLM"
    values, reasons, meaning, how = _speculation(before, after, version)
    generated, first = _grown(before, after, GENERATED), _first_tokens(before, after)
    if generated is None or first is None or generated < first:
        reasons["emitted"] = _NO_TOKENS if _whole(before) and _whole(after) else _UNREADABLE
    else:
        values["emitted"] = generated - first
    return AcceptanceCounts(
        **values,
        source=f"/prometheus/metrics of {name}, {how}{scope}",
        not_given={"steps": _NO_STEPS, **reasons},
        meaning=meaning,
    )


_Found = tuple[dict[str, Any], dict[str, str], dict[str, str], str]


def _speculation(before: MetricsSnapshot, after: MetricsSnapshot, version: str | None) -> _Found:
    """Return the counts of speculation, why others are missing, what they mean and how they were counted."""
    fields = ("drafting_steps", "drafted", "accepted", "accepted_per_position")
    if not (_whole(before) and _whole(after)):
        return {}, dict.fromkeys(fields, _UNREADABLE), {}, ""
    if not gauges.drafts_counted(after):
        why = gauges.why_no_drafts(after) if gauges.speculates(after) else _NO_SPECULATION
        return {}, dict.fromkeys(fields, why), {}, ""
    drafted_at = _positions(_drafted_row(before), _drafted_row(after))
    if any(_drafted_row(after)):
        accepted_at = _positions(before.per_position or (), after.per_position or ())
        width = max(len(drafted_at), len(accepted_at))
        drafted_at, accepted_at = (_padded(row, width) for row in (drafted_at, accepted_at))
        if not _is_survival(drafted_at, accepted_at):
            return {}, dict.fromkeys(fields, _CONTRADICT), {}, ""
        values: dict[str, Any] = {
            "drafting_steps": drafted_at[0],
            "drafted": sum(drafted_at),
            "accepted": sum(accepted_at),
            "accepted_per_position": accepted_at,
            "drafted_per_position": drafted_at,
        }
        right = releases.counts_requests_right(version)
        meaning = {} if right else dict.fromkeys(("drafting_steps", "drafted", "drafted_per_position"), _BEFORE_FIX)
        return values, {}, meaning, "counted as requests finish, "
    drafted, accepted = _grown(before, after, DRAFTED), _grown(before, after, ACCEPTED)
    return (
        {"drafted": drafted, "accepted": accepted or 0},
        {"drafting_steps": _TOKENS_ONLY, "accepted_per_position": _TOKENS_ONLY},
        {"drafted": _HELD, "accepted": _RANKS},
        "counted by iteration, ",
    )


def _first_tokens(before: MetricsSnapshot, after: MetricsSnapshot) -> int | None:
    """Return how many first tokens there were: times to them, or finished requests where no time was taken."""
    times = _grown(before, after, FIRST_TOKENS)
    return _grown(before, after, FINISHED) if times is None else times


def _whole(snapshot: MetricsSnapshot) -> bool:
    broken = (Code.METRICS_CUT, Code.METRICS_UNREADABLE)
    return not any(finding.code in broken for finding in snapshot.findings)


def _check_restart(before: MetricsSnapshot, after: MetricsSnapshot) -> None:
    configured = {gauges.SPECULATES in snapshot.gauges for snapshot in (before, after)}
    if len(configured) > 1 and _whole(before) and _whole(after):
        raise MeasureError(
            f"{gauges.SPECULATES} is on one of two scrapes only; the server was restarted with another configuration"
        )
    for name in before.counters:
        _grown(before, after, name)


def _grown(before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> int | None:
    """Return by how much a counter grew; None where that is not told.

    Raises:
        MeasureError: it fell, or went.
    """
    old, new = before.counters.get(name), after.counters.get(name)
    if new is None:
        if old and _whole(after):
            raise MeasureError(f"{name} went between two scrapes; the server was restarted")
        return None
    if old is None:
        return round(new) if _whole(before) else None
    if new < old:
        raise MeasureError(f"{name} fell from {old:.0f} to {new:.0f} between two scrapes; the server was restarted")
    return round(new - old)


def _drafted_at(position: int) -> str:
    return f"{DRAFTED_POSITION}{{{position}}}"


def _drafted_row(snapshot: MetricsSnapshot) -> tuple[float, ...]:
    row: list[float] = []
    while (value := snapshot.counters.get(_drafted_at(len(row)))) is not None:
        row.append(value)
    return tuple(row)


def _positions(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[int, ...]:
    """Return by how much each position grew; a position appears once it was raised.

    Raises:
        MeasureError: one fell.
    """
    width = max(len(before), len(after))
    grown = tuple(round(new - old) for old, new in zip(_wide(before, width), _wide(after, width), strict=True))
    if any(value < 0 for value in grown):
        raise MeasureError("a count by position fell between two scrapes; the server was restarted")
    return grown


def _is_survival(drafted: tuple[int, ...], accepted: tuple[int, ...]) -> bool:
    """Whether every position is reached no more often than the one before, and accepted no more often than drafted."""
    falls = all(row[i] >= row[i + 1] for row in (drafted, accepted) for i in range(len(row) - 1))
    return falls and all(one <= other for one, other in zip(accepted, drafted, strict=True))


def _wide(row: tuple[float, ...], width: int) -> tuple[float, ...]:
    return (*row, *([0.0] * (width - len(row))))


def _padded(row: tuple[int, ...], width: int) -> tuple[int, ...]:
    return (*row, *([0] * (width - len(row))))
