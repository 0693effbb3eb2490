"""One measured window of a server: requests between two scrapes of its counters, and what is remarkable about them."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import ClientHealth, Closed, Prompt, RequestRow, Sampling, Target
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
_LAG_MS = 25.0
_LAGGING_SHARE = 0.02
_LAGGING_TICKS = 3  # a hiccup or two are no busy client
_TICK_S = 0.05
_LATE_MS = 50.0
_SHORTEST_S = 2.0  # below, a share of processor time and of 40 ticks is noise
_WARMUP_AT_ONCE = 8

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
        after: the closing scrape, or, where that failed, a later one: it opens the next window.
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


def warm_up(
    job: Job, count: int, point: Point, run: Run, prompts: Sequence[Prompt] = (), *, arm: str = ""
) -> list[Finding]:
    """Send requests that are not counted, of the kind of the measured ones.

    Args:
        job: the measurement.
        count: how many.
        point: the first to be measured: so many at a time.
        run: runs the requests.
        prompts: what will be measured; where all are token ids, the warm-up is token ids, too.
        arm: whose server it is, for the remark.

    Returns:
        A remark where none of them was answered: the server is measured cold.
    """
    from draftworth.bench.run import _warm_up  # noqa: PLC0415 - lazy: aiohttp

    if not count:
        return []
    made = [_warm_up(number, prompts, _sampling(job, point)) for number in range(count)]
    at_once = point.load.concurrency if isinstance(point.load, Closed) else _WARMUP_AT_ONCE
    rows = run(
        prompts=[prompt for prompt, _ in made],
        sampling=made[0][1],
        arm=arm,
        block=0,
        load=Closed(at_once),
        warmup=0,
        retries=0,
    ).rows
    if any(row.ok for row in rows):
        return []
    why = next((row.error for row in rows if row.error), "no reason told")
    text = f"all {count} warm-up requests failed, so the server is measured cold; the first: {why}"
    return [find(Code.REQUESTS_FAILED, _named(arm, text), arm=arm or None)]


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
    """Return several windows of the client as one: times added, their ticks in one heap."""
    known = [one for one in healths if one is not None]
    return reduce(_both, known) if known else None


def _both(one: ClientHealth, other: ClientHealth) -> ClientHealth:
    late = [value for value in (one.late, other.late) if value is not None]
    return ClientHealth(
        wall_s=one.wall_s + other.wall_s,
        cpu_s=one.cpu_s + other.cpu_s,
        lags=_added(one.lags, other.lags),
        late=_added(*late) if late else None,
    )


def _added(*counts: Mapping[float, int]) -> Counter[float]:
    whole: Counter[float] = Counter()
    for one in counts:
        whole.update(one)
    return whole


def close(job: Job, window: Window, before: MetricsSnapshot | None) -> None:
    """Read the server's counters again and fill in the window's counts and findings.

    Where they cannot be read, or could not before, a further try opens the next window: one page that was not to be had
    costs the counts of one window.

    Args:
        job: the measurement.
        window: every request was sent.
        before: the scrape that opened the window, None where the server gave none.
    """
    if window.client is not None:
        window.findings += client_findings(window.arm, window.point.label or window.point.load.label, window.client)
    window.findings += retry_findings(window.arm, window.rows)
    window.after = None if before is None else _had(_settled(job, window, before), window)
    _count(job, window, before)
    if window.after is None:
        window.after = _had(scrape(job, "before"), window)


def _had(found: MetricsSnapshot | MeasureError, window: Window) -> MetricsSnapshot | None:
    """Return a scrape, or remark why there is none."""
    if not isinstance(found, MeasureError):
        return found
    remark = find(Code.METRICS_MISSING, _named(window.arm, str(found)), arm=window.arm or None)
    if remark not in window.findings:
        window.findings.append(remark)
    return None


def _named(arm: str, text: str) -> str:
    """Return what is said of an arm; a benchmark has none."""
    return f"{arm}: {text}" if arm else text


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


def _settled(job: Job, window: Window, before: MetricsSnapshot) -> MetricsSnapshot | MeasureError:
    """Scrape until the server has counted every request of ours as finished, or a moment has passed."""
    deadline = time.monotonic() + _SETTLE_S
    ours = sum(row.ok for row in window.rows)
    while True:
        after = scrape(job, "after")
        if isinstance(after, MeasureError):
            return after
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
        window.findings.append(find(Code.PER_REQUEST_UNREADABLE, _named(arm, str(error)), arm=arm or None))
    _check_tokens(window)
    if before is None or after is None:
        return
    try:
        window.counts = plausible(window, engine.counts(before, after))
        window.cache = engine.prefix_cache(before, after)
        finished = engine.requests_finished(before, after)
        generated = engine.generated_tokens(before, after)
    except MeasureError as error:
        window.findings.append(find(Code.COUNTER_RESET, _named(arm, str(error)), arm=arm or None))
        return
    foreign = foreign_use(window.rows, finished, generated)
    answered = sum(row.ok for row in window.rows)
    if finished is not None and finished < answered:
        # A page that shows one rank or replica of several, or a server behind a balancer.
        message = _named(arm, f"the server counted {finished} finished requests and answered {answered} of ours")
        window.findings.append(find(Code.COUNTS_DISAGREE, message, arm=arm or None))
    if foreign:
        window.findings.append(find(Code.FOREIGN_REQUESTS, _named(arm, foreign), arm=arm or None))
    _cross_check(window)


def plausible(window: Window, counts: AcceptanceCounts) -> AcceptanceCounts:
    """Return counts without those that contradict each other, which become a finding."""
    wrong = _contradiction(counts)
    if wrong is None:
        return counts
    arm = window.arm
    window.findings.append(find(Code.COUNTS_DISAGREE, _named(arm, f"{wrong} ({counts.source})"), arm=arm or None))
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
    """Return whether the client itself was the bottleneck.

    Args:
        arm: whose server was measured; empty in a benchmark.
        point: the point's name.
        client: how the client fared, all that was measured at the point together.
    """
    where = f"{arm} ({point})" if arm and point else arm or point
    findings: list[Finding] = []
    if client.wall_s < _SHORTEST_S:
        return findings
    share = client.cpu_s / client.wall_s
    if share > _CPU_SHARE or _lags(client):
        late = sum(count for lag, count in client.lags.items() if lag > _LAG_MS)
        middle, high, _ = client.lag_ms
        message = _named(
            where,
            f"the client used {share:.0%} of a core and its clock was late by {middle:.1f} ms (median), {high:.1f} ms "
            f"(p99), in {late} of {client.ticks} ticks by more than {_LAG_MS:g} ms",
        )
        findings.append(find(Code.CLIENT_SATURATED, message, arm=arm or None))
    if client.late_ms is not None and client.late_ms > _LATE_MS:
        message = _named(where, f"one request in a hundred left {client.late_ms:.0f} ms or more after it was due")
        findings.append(find(Code.ARRIVALS_LATE, message, arm=arm or None))
    return findings


def _lags(client: ClientHealth) -> bool:
    """Whether the client's clock shows that it could not keep up.

    A client that is blocked has fewer ticks in the same time, so it is the time they stand for that must be enough.
    """
    watched_s = sum(count * (_TICK_S + lag / 1000) for lag, count in client.lags.items())
    if watched_s < _SHORTEST_S:
        return False
    late = sum(count for lag, count in client.lags.items() if lag > _LAG_MS)
    often = late >= _LAGGING_TICKS and late >= _LAGGING_SHARE * client.ticks
    return often or client.lag_ms[0] > _LAG_MEDIAN_MS


def retry_findings(arm: str, rows: Sequence[RequestRow]) -> list[Finding]:
    """Return whether requests had to be sent again."""
    again = [row for row in rows if row.retries]
    if not again:
        return []
    why = next((row.retry_reasons for row in again if row.retry_reasons), "no reason recorded")
    message = _named(arm, f"{len(again)} of {len(rows)} requests were sent again; the first: {why}")
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
        message = _named(
            window.arm,
            f"{len(apart)} of {len(both)} answers have another number of token ids than their usage says; the first, "
            f"{one.prompt_id}: {len(one.token_ids)} ids, usage {one.tokens}",
        )
        window.findings.append(find(Code.TOKENS_DISAGREE, message, arm=window.arm or None))


def _cross_check(window: Window) -> None:
    """Compare the server's totals with the answers' own figures, where every answer carried some."""
    totals, answers = window.counts, window.per_request
    if totals is None or answers is None or any(not row.ok or not row.spec_stats for row in window.rows):
        return
    for name in ("drafting_steps", "drafted", "accepted"):
        one, other = getattr(totals, name), getattr(answers, name)
        if one is not None and other is not None and one != other:
            message = _named(window.arm, f"{name} is {one} by {totals.source} and {other} by {answers.source}")
            window.findings.append(find(Code.COUNTS_DISAGREE, message, arm=window.arm or None))
            return
