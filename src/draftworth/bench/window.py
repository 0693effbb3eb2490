"""One measured window of a server: requests between two scrapes of its counters."""

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import ClientHealth, Closed, Prompt, RequestRow, Sampling, Target
from draftworth.bench.doubts import (
    check_tokens,
    client_findings,
    cross_check,
    foreign_use,
    named,
    plausible,
    retry_findings,
)
from draftworth.bench.monitor import together
from draftworth.bench.points import Point
from draftworth.engines.answers import answers_counts
from draftworth.engines.base import AcceptanceCounts, MetricsSnapshot
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding, find

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

_SETTLE_S = 3.0
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
    return [find(Code.REQUESTS_FAILED, named(arm, text), arm=arm or None)]


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
    remark = find(Code.METRICS_MISSING, named(window.arm, str(found)), arm=window.arm or None)
    if remark not in window.findings:
        window.findings.append(remark)
    return None


def _sampling(job: Job, point: Point) -> Sampling:
    wanted = job.sampling
    return Sampling(point.max_tokens, wanted.temperature, wanted.seed, wanted.ignore_eos)


def scrape(job: Job, when: str) -> MetricsSnapshot | MeasureError:
    """Read and keep the server's counters; an error where that is not possible."""
    from draftworth.bench.run import fetch_text_sync  # noqa: PLC0415 - lazy: aiohttp

    try:
        page = fetch_text_sync(job.target.base_url, job.engine.metrics_path, access=job.target.access)
        snapshot = job.engine.parse_metrics(page)
        if len(snapshot.models) > 1:  # a gateway's page, or a router's
            snapshot = job.engine.parse_metrics(page, job.target.model)
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
    window.per_request, wrong = answers_counts(engine, stats, job.facts_version)
    if wrong:
        message = f"{len(wrong)} of {len(stats)} answers: {wrong[0]}"
        window.findings.append(find(Code.PER_REQUEST_UNREADABLE, named(arm, message), arm=arm or None))
    check_tokens(window)
    lost = [one for page in (before, after) if page is not None for one in page.findings]
    window.findings += [one.model_copy(update={"arm": arm or None}) for one in dict.fromkeys(lost)]
    if before is None or after is None:
        return
    try:
        window.counts = plausible(window, engine.counts(before, after))
        window.cache = engine.prefix_cache(before, after)
        finished = engine.requests_finished(before, after)
        generated = engine.generated_tokens(before, after)
    except MeasureError as error:
        window.findings.append(find(Code.COUNTER_RESET, named(arm, str(error)), arm=arm or None))
        return
    foreign = foreign_use(window.rows, finished, generated)
    answered = sum(row.ok for row in window.rows)
    if finished is not None and finished < answered:
        # A page that shows one rank or replica of several, or a server behind a balancer.
        message = named(arm, f"the server counted {finished} finished requests and answered {answered} of ours")
        window.findings.append(find(Code.COUNTS_DISAGREE, message, arm=arm or None))
    if foreign:
        window.findings.append(find(Code.FOREIGN_REQUESTS, named(arm, foreign), arm=arm or None))
    cross_check(window)
