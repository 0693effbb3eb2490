"""One measured window of a server: requests between two scrapes of its counters, and what is remarkable about them."""

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import ClientHealth, Prompt, RequestRow, Sampling, Target
from draftworth.bench.points import Point
from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding, find

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

_SETTLE_S = 3.0
_CUT_OFF_SHARE = 0.01
_CUT_OFF_TOKENS = 2
_CPU_SHARE = 0.85
_LAG_MEDIAN_MS = 2.0
_LAG_P99_MS = 25.0
_LATE_MS = 50.0
_SHORTEST_S = 1.0  # below, a share of processor time is noise

Keep = Callable[[str, MetricsSnapshot], None]
"""Takes `before` or `after`, and a scrape, to be kept."""


@dataclass(slots=True)
class Window:
    """What was measured between two scrapes.

    Attributes:
        arm: whose.
        point: the sweep's point.
        rows: one a request, in the order they ended; failed ones too.
        client: how the client fared, None where the run was cut short.
        counts: the server's own counts of the window, None where it gave none.
        per_request: the same from the answers.
        cache: prompt tokens looked up in the prefix cache, and found there.
        seconds: from the first request to the end of the last.
        findings: what was remarkable.
        after: the closing scrape, which may open the next window.
    """

    arm: str
    point: Point
    rows: list[RequestRow] = field(default_factory=list)
    client: ClientHealth | None = None
    counts: AcceptanceCounts | None = None
    per_request: AcceptanceCounts | None = None
    cache: tuple[int, int] | None = None
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    after: MetricsSnapshot | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same in every window of a measurement.

    Attributes:
        target: the server.
        engine: reads its counters.
        sampling: temperature, seed, ignore_eos; the output length is the point's.
        repeats: how often each prompt is sent.
        retries: how often a refused request is sent again.
        answers: the servers' answers that later turns build on, shared by every arm.
        keep: takes every scrape.
        facts_version: the engine's version as its log told it, for per-request figures.
    """

    target: Target
    engine: "Engine"
    sampling: Sampling
    repeats: int
    retries: int
    answers: MutableMapping[str, str]
    keep: Keep
    facts_version: str | None = None


Run = Callable[..., Any]
"""Runs `bench.run.measure` with the given keywords to its end: `asyncio.run` with a deadline, in a trial."""


def warm_up(job: Job, count: int, point: Point, run: Run) -> None:
    """Send requests that are not counted."""
    if count:
        run(prompts=(), sampling=_sampling(job, point), arm="", block=0, load=point.load, warmup=count)


def send(
    job: Job,
    prompts: Sequence[Prompt],
    window: Window,
    *,
    block: int,
    start: int,
    run: Run,
    on_row: Callable[[RequestRow, int, int], None],
) -> None:
    """Send requests into `window`; what was measured so far stays in it when the rest is cut short.

    Args:
        job: the measurement.
        prompts: what to send.
        window: filled in; may be sent into several times.
        block: the block's number, for the rows.
        start: the start's number, for the rows.
        run: runs the requests.
        on_row: sees each row, how many have ended, how many there will be.
    """

    def took(row: RequestRow, done: int, total: int) -> None:
        window.rows.append(row)
        on_row(row, done, total)

    began = time.monotonic()
    measured = run(
        prompts=prompts,
        sampling=_sampling(job, window.point),
        arm=window.arm,
        block=block,
        start=start,
        point=window.point.label,
        load=window.point.load,
        repeats=job.repeats,
        warmup=0,
        retries=job.retries,
        answers=job.answers,
        on_row=took,
    )
    window.seconds += time.monotonic() - began
    window.client = together([window.client, measured.client])


def together(healths: Sequence[ClientHealth | None]) -> ClientHealth | None:
    """Return several windows of the client as one: times added, medians weighted by time, the largest of the rest."""
    known = [one for one in healths if one is not None]
    return reduce(_both, known) if known else None


def _both(one: ClientHealth, other: ClientHealth) -> ClientHealth:
    whole = one.wall_s + other.wall_s
    share = one.wall_s / whole if whole else 0.5
    late = [value for value in (one.late_ms, other.late_ms) if value is not None]
    return ClientHealth(
        wall_s=whole,
        cpu_s=one.cpu_s + other.cpu_s,
        lag_ms=(
            share * one.lag_ms[0] + (1 - share) * other.lag_ms[0],
            max(one.lag_ms[1], other.lag_ms[1]),
            max(one.lag_ms[2], other.lag_ms[2]),
        ),
        late_ms=max(late, default=None),
    )


def close(job: Job, window: Window, before: MetricsSnapshot | None) -> None:
    """Read the server's counters again and fill in the window's counts and findings.

    Args:
        job: the measurement.
        window: every request was sent.
        before: the scrape that opened the window, None where the server gave none.
    """
    if window.client is not None:
        window.findings += client_findings(window.arm, window.point.label, window.client)
    window.findings += retry_findings(window.arm, window.rows)
    window.after = _settled(job, window, before)
    _count(job, window, before)


def _sampling(job: Job, point: Point) -> Sampling:
    wanted = job.sampling
    return Sampling(point.max_tokens, wanted.temperature, wanted.seed, wanted.ignore_eos)


def scrape(job: Job, when: str) -> MetricsSnapshot | MeasureError:
    """Read and keep the server's counters; an error where that is not possible."""
    from draftworth.bench.run import fetch_text_sync  # noqa: PLC0415 - lazy: aiohttp

    try:
        page = fetch_text_sync(job.target.base_url, "/metrics", access=job.target.access)
        snapshot = job.engine.parse_metrics(page)
    except MeasureError as error:
        return error
    job.keep(when, snapshot)
    return snapshot


def _settled(job: Job, window: Window, before: MetricsSnapshot | None) -> MetricsSnapshot | None:
    """Scrape until the server has counted every request of ours as finished, or a moment has passed."""
    if before is None:
        return None
    deadline = time.monotonic() + _SETTLE_S
    ours = sum(row.ok for row in window.rows)
    while True:
        after = scrape(job, "after")
        if isinstance(after, MeasureError):
            return None
        try:
            finished = job.engine.requests_finished(before, after)
        except MeasureError:
            return after  # the counters were reset; the count says so
        if finished is None or finished >= ours or time.monotonic() > deadline:
            return after
        time.sleep(0.1)


def _count(job: Job, window: Window, before: MetricsSnapshot | None) -> None:
    """Turn two scrapes and the answers into counts and findings."""
    arm, after, engine = window.arm, window.after, job.engine
    stats: list[Mapping[str, Any] | None] = [row.spec_stats for row in window.rows if row.ok]
    try:
        window.per_request = engine.request_counts(stats, job.facts_version)
    except MeasureError as error:
        window.findings.append(find(Code.PER_REQUEST_UNREADABLE, f"{arm}: {error}", arm=arm))
    _check_tokens(window)
    if before is None or after is None:
        if before is not None:
            message = f"{arm}: /metrics could not be read after the measurement"
            window.findings.append(find(Code.METRICS_MISSING, message, arm=arm))
        return
    try:
        window.counts = plausible(window, engine.counts(before, after))
        window.cache = engine.prefix_cache(before, after)
        finished = engine.requests_finished(before, after)
        generated = engine.generated_tokens(before, after)
    except MeasureError as error:
        window.findings.append(find(Code.COUNTER_RESET, f"{arm}: {error}", arm=arm))
        return
    foreign = foreign_use(window.rows, finished, generated)
    answered = sum(row.ok for row in window.rows)
    if finished is not None and finished < answered:
        # A page that shows one rank or replica of several, or a server behind a balancer.
        message = f"{arm}: the server counted {finished} finished requests and answered {answered} of ours"
        window.findings.append(find(Code.COUNTS_DISAGREE, message, arm=arm or None))
    if foreign:
        window.findings.append(find(Code.FOREIGN_REQUESTS, f"{arm}: {foreign}", arm=arm))
    _cross_check(window)


def plausible(window: Window, counts: AcceptanceCounts) -> AcceptanceCounts:
    """Return counts without those that contradict each other, which become a finding."""
    wrong = _contradiction(counts)
    if wrong is None:
        return counts
    arm = window.arm
    window.findings.append(find(Code.COUNTS_DISAGREE, f"{arm}: {wrong} ({counts.source})", arm=arm or None))
    lost = ("drafting_steps", "drafted", "accepted", "accepted_per_position")
    reasons = {**counts.not_given, **dict.fromkeys(lost, f"the server's counters contradict each other: {wrong}")}
    return counts.model_copy(update={**dict.fromkeys(lost), "not_given": reasons})


def _contradiction(counts: AcceptanceCounts) -> str | None:
    """Return what in the counts cannot be true together, or None."""
    if counts.accepted is not None and counts.drafted is not None and counts.accepted > counts.drafted:
        return f"{counts.accepted} drafted tokens were accepted of {counts.drafted}"
    if counts.accepted is None or not counts.steps or counts.emitted is None:
        return None
    # A step emits one token and the accepted ones; tokens cut off behind an end were counted as accepted.
    most = counts.steps + counts.accepted
    if counts.emitted > most * (1 + _CUT_OFF_SHARE) + _CUT_OFF_TOKENS:
        return f"{counts.steps} steps emitted {counts.emitted} tokens and accepted {counts.accepted}"
    return None


def foreign_use(rows: Sequence[RequestRow], finished: int | None, generated: int | None) -> str | None:
    """Return what the server did for somebody else in the window, or None.

    Requests are counted when they finish, so one that ran all through the window shows by its tokens alone. Tokens are
    compared only where every request of ours was answered and counted; 1 % and 2 tokens are allowed, since a server
    may count tokens that it cuts off behind the end of an answer.

    Args:
        rows: every request that was sent.
        finished: requests the server finished, None where it does not tell.
        generated: tokens the server generated, None where it does not tell.
    """
    parts = []
    sent = len(rows) + sum(row.retries for row in rows)
    if finished is not None and finished > sent:
        parts.append(f"the server finished {finished} requests in the window, {sent} of them ours")
    ours = _exact_tokens(rows)
    if generated is not None and ours is not None and generated > ours * (1 + _CUT_OFF_SHARE) + _CUT_OFF_TOKENS:
        parts.append(f"the server generated {generated} tokens in the window, {ours} of them ours")
    return "; ".join(parts) or None


def client_findings(arm: str, point: str, client: ClientHealth) -> list[Finding]:
    """Return whether the client itself was the bottleneck of a window."""
    where = f"{arm} {f'({point}) ' if point else ''}".strip()
    findings: list[Finding] = []
    if client.wall_s < _SHORTEST_S:
        return findings
    share = client.cpu_s / client.wall_s if client.wall_s > 0 else 0.0
    middle, high, _ = client.lag_ms
    if share > _CPU_SHARE or middle > _LAG_MEDIAN_MS or high > _LAG_P99_MS:
        message = (
            f"{where}: the client used {share:.0%} of a core and its clock was late by {middle:.1f} ms (median), "
            f"{high:.1f} ms (p99)"
        )
        findings.append(find(Code.CLIENT_SATURATED, message, arm=arm or None))
    if client.late_ms is not None and client.late_ms > _LATE_MS:
        message = f"{where}: one request in a hundred left {client.late_ms:.0f} ms or more after it was due"
        findings.append(find(Code.ARRIVALS_LATE, message, arm=arm or None))
    return findings


def retry_findings(arm: str, rows: Sequence[RequestRow]) -> list[Finding]:
    """Return whether requests had to be sent again."""
    again = [row for row in rows if row.retries]
    if not again:
        return []
    why = next((row.retry_reasons for row in again if row.retry_reasons), "no reason recorded")
    message = f"{arm}: {len(again)} of {len(rows)} requests were sent again; the first: {why}"
    return [find(Code.REQUESTS_RETRIED, message, arm=arm or None)]


def _exact_tokens(rows: Sequence[RequestRow]) -> int | None:
    """Return the tokens of all rows, or None where one failed or was not counted exactly."""
    total = 0
    for row in rows:
        if not row.ok or row.retries or row.tokens is None or row.token_source == "chunks":  # noqa: S105 - no secret
            return None
        total += row.tokens
    return total


def _check_tokens(window: Window) -> None:
    """Remark where the server's usage is not the number of token ids it sent."""
    both = [row for row in window.rows if row.ok and row.token_ids and row.token_source == "usage"]  # noqa: S105 - same
    apart = [row for row in both if row.tokens != len(row.token_ids)]
    if apart:
        one = apart[0]
        message = (
            f"{window.arm}: {len(apart)} of {len(both)} answers have another number of token ids than their usage "
            f"says; the first, {one.prompt_id}: {len(one.token_ids)} ids, usage {one.tokens}"
        )
        window.findings.append(find(Code.TOKENS_DISAGREE, message, arm=window.arm))


def _cross_check(window: Window) -> None:
    """Compare the server's totals with the answers' own figures, where every answer carried some."""
    totals, answers = window.counts, window.per_request
    if totals is None or answers is None or any(not row.ok or not row.spec_stats for row in window.rows):
        return
    for name in ("drafting_steps", "drafted", "accepted"):
        one, other = getattr(totals, name), getattr(answers, name)
        if one is not None and other is not None and one != other:
            message = f"{window.arm}: {name} is {one} by {totals.source} and {other} by {answers.source}"
            window.findings.append(find(Code.COUNTS_DISAGREE, message, arm=window.arm))
            return
