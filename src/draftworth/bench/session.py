"""`draftworth bench`: every point of a sweep on one server, with its findings; returns a record, prints nothing."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import draftworth
from draftworth.bench import record as records
from draftworth.bench import run as load_generator
from draftworth.bench.base import Access, Sampling, Target
from draftworth.bench.clocks import changed, read_clocks
from draftworth.bench.config import WorkloadConfig
from draftworth.bench.machine import machine
from draftworth.bench.points import Point
from draftworth.bench.pulse import Pulse
from draftworth.bench.record import BenchRecord, ClientRecord
from draftworth.bench.requests import (
    Requests,
    load_workload,
    repeated_passages,
    requests_in,
    sweep_of,
    workload_findings,
)
from draftworth.bench.rows import write_rows
from draftworth.bench.server import look_at
from draftworth.bench.summary import PointSummary, Spread, spread, summarise
from draftworth.bench.window import Job, Window, close, scrape, send, together, warm_up
from draftworth.engines import engine as engine_named
from draftworth.errors import DraftworthError, MeasureError
from draftworth.findings import Code, Finding, find
from draftworth.home import home, new_folder
from draftworth.verdicts.rules import Limits
from draftworth.workloads import Workload

if TYPE_CHECKING:
    from draftworth.engines.base import MetricsSnapshot

_CACHE_APART = 0.05
_FEW_REQUESTS = 20
_SHORT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """A benchmark that could start now.

    Attributes:
        work: the requests as asked for.
        workload: the prompts.
        target: the server.
        sweep: its points.
        limits: what a request must meet to count for goodput.
        failed_share: the share of failed requests above which a point is not measured.
        engine: whose counters the server exports.
        version: what the server says its version is.
    """

    work: WorkloadConfig
    workload: Workload
    target: Target
    sweep: tuple[Point, ...]
    limits: Limits
    failed_share: float
    engine: str = "vllm"
    version: str | None = None

    @property
    def requests(self) -> int:
        """Measured requests in all."""
        return requests_in(self.workload.prompts) * self.work.repeats * len(self.sweep)


def prepare(
    url: str,
    work: WorkloadConfig,
    *,
    access: Access,
    model: str | None = None,
    limits: Limits | None = None,
    token_timeout_s: float = 120.0,
    failed_share: float = 0.1,
) -> BenchPlan:
    """Read the workload and ask the server what it serves.

    Args:
        url: the server's, with or without `/v1`.
        work: the requests.
        access: what lets the client in.
        model: the served name, None for the first there is.
        limits: what a request must meet to count for goodput.
        token_timeout_s: seconds without any event after which a request has failed.
        failed_share: the share of failed requests above which the benchmark counts as not measured.

    Raises:
        UsageError: the workload is wrong, the URL leads to no such server, or the model is not served.
    """
    workload = load_workload(work)
    found = look_at(url, access=access, model=model, token_timeout_s=token_timeout_s)
    return BenchPlan(
        work, workload, found.target, sweep_of(work), limits or Limits(), failed_share, version=found.version
    )


@dataclass(slots=True)
class BenchRun:
    """A benchmark under way; what was measured so far is always there.

    Attributes:
        plan: what is done.
        windows: what was measured, the last may be incomplete.
        findings: remarks on the whole.
        error: why it ended early.
    """

    plan: BenchPlan
    windows: list[Window] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    error: str | None = None

    def measure(self, *, on_count: Callable[[int, int, str], None], on_point: Callable[[str], None]) -> None:
        """Measure every point.

        Args:
            on_count: takes requests done, requests in all and how it goes; called often, may raise to end it.
            on_point: takes the name of each point as it begins.

        Raises:
            DraftworthError: more requests failed than allowed. What was measured is kept in any case.
        """
        plan = self.plan
        engine = engine_named(plan.engine)
        engine.version = plan.version
        pulse = Pulse(on_count, plan.requests, lambda: progress_note(self.windows[-1]) if self.windows else "")
        progress_note(Window("", plan.sweep[0]))  # what it imports is there before anything is timed

        def running(**options: Any) -> Any:
            return load_generator.measure_sync(plan.target, **options, on_tick=pulse.tick)

        job = Job(
            target=plan.target,
            engine=engine,
            sampling=Sampling(temperature=plan.work.temperature, seed=plan.work.seed, ignore_eos=plan.work.ignore_eos),
            repeats=plan.work.repeats,
            retries=plan.work.retries,
            answers={},
            keep=lambda _when, _snapshot: None,
            facts_version=plan.version,
        )
        requests = Requests(plan.work, plan.workload.prompts)
        clocks = read_clocks()
        warm_up(job, plan.work.warmup, plan.sweep[0], running)
        before = scrape(job, "before")
        if isinstance(before, MeasureError):
            self.findings.append(find(Code.METRICS_MISSING, str(before)))
        opening: MetricsSnapshot | None = None if isinstance(before, MeasureError) else before
        self.findings += workload_findings(plan.work, plan.workload.prompts)

        for number, point in enumerate(plan.sweep, 1):
            window = Window(arm="", point=point)
            self.windows.append(window)
            on_point(point.label or point.load.label)
            prompts = requests.at(point, plan.target)
            if requests.repeated and not any(one.code is Code.PROMPTS_REPEAT for one in self.findings):
                self.findings.append(repeated_passages())
            send(job, prompts, window, block=number, start=1, run=running, on_row=pulse.row)
            pulse.tell()
            close(job, window, opening)
            opening = window.after
            self._refuse_failed(window)
        changes = changed(clocks, read_clocks())
        if changes:
            self.findings.append(find(Code.CLOCKS_CHANGED, changes))

    def _refuse_failed(self, window: Window) -> None:
        failed = [row for row in window.rows if not row.ok]
        if failed and load_generator.failed_share(window.rows) > self.plan.failed_share:
            raise MeasureError(
                f"{len(failed)} of {len(window.rows)} requests failed"
                f"{f' at {window.point.label}' if window.point.label else ''}, more than --failed-share allows; "
                f"the first: {failed[0].error}"
            )

    def finish(self, *, began_unix: float, folder: Path) -> BenchRecord:
        """Judge what was measured and write requests.parquet and bench.json. Returns the record.

        Raises:
            DraftworthError: they cannot be written.
        """
        plan = self.plan
        summaries = [
            summarise(window.point, window.rows, limits=plan.limits, acceptance=window.counts, cache=window.cache)
            for window in self.windows
            if window.rows
        ]
        client = together([window.client for window in self.windows])
        record = BenchRecord(
            id=folder.name,
            draftworth=draftworth.__version__,
            created=_iso(began_unix),
            finished=_iso(time.time()),
            seconds=round(time.time() - began_unix, 3),
            url=plan.target.base_url,
            model=plan.target.model,
            engine=plan.engine,
            version=plan.version,
            machine=machine(),
            workload=plan.work.model_dump(mode="json"),
            source=f"{plan.workload.source} ({plan.workload.layout}), {len(plan.workload.prompts)} prompts",
            limits={name: value for name, value in asdict(plan.limits).items() if value is not None},
            points=tuple(one for some in summaries for one in some),
            client=None
            if client is None
            else ClientRecord(wall_s=client.wall_s, cpu_s=client.cpu_s, lag_ms=client.lag_ms, late_ms=client.late_ms),
            findings=tuple(dict.fromkeys([*self.findings, *self._remarks([some[0] for some in summaries])])),
            error=self.error,
        )
        try:
            write_rows([row for window in self.windows for row in window.rows], folder)
            records.write(record, folder)
        except OSError as error:
            raise DraftworthError(f"{folder}: the record cannot be written: {error.strerror or error}") from None
        return record

    def _remarks(self, points: list[PointSummary]) -> list[Finding]:
        """Return what is remarkable about the rows and between the points."""
        found = [finding for window in self.windows for finding in window.findings]
        rows = [row for window in self.windows for row in window.rows]
        failed = [row for row in rows if not row.ok]
        if failed:
            message = f"{len(failed)} of {len(rows)} requests failed; the first: {failed[0].error}"
            found.append(find(Code.REQUESTS_FAILED, message))
        rough = sum(row.ok and row.token_source == "chunks" for row in rows)  # noqa: S105 - a count's source
        if rough:
            message = f"{rough} of {len(rows) - len(failed)} answers have their tokens counted from chunks"
            found.append(find(Code.APPROXIMATE_TOKENS, message))
        few = [point for point in points if point.tpot_ms.n < _FEW_REQUESTS]
        if few:
            message = f"{few[0].label or 'the run'} has {few[0].tpot_ms.n} requests with a time per token"
            found.append(
                find(Code.FEW_PAIRS, f"{message}; below {_FEW_REQUESTS} a 99th percentile is the largest value")
            )
        shares = [point.cached_share for point in points if point.cached_share is not None]
        if len(shares) > 1 and max(shares) - min(shares) > _CACHE_APART:
            message = (
                f"prompt tokens found in the prefix cache: {min(shares):.0%} at one point, {max(shares):.0%} at another"
            )
            found.append(find(Code.PREFIX_CACHE_WARMER, message))
        lengths = {window.point.max_tokens for window in self.windows}
        if len(lengths) > 1:
            found += [find(Code.LENGTH_SHORT, text) for text in map(_short, self.windows) if text]
        return found


def _short(window: Window) -> str | None:
    answered = [row for row in window.rows if row.ok]
    ended = sum(row.finish_reason != "length" for row in answered)
    if not answered or ended / len(answered) <= _SHORT_SHARE:
        return None
    mean = sum(row.tokens or 0 for row in answered) / len(answered)
    return f"{window.point.label}: {ended} of {len(answered)} answers ended by themselves, {mean:.0f} tokens on average"


def progress_note(window: Window) -> str:
    """Return how a point goes: mean time per token with its interval so far."""
    timed = [row for row in window.rows if row.timed]
    found: Spread = spread([(row.prompt_id, row.tpot_ms) for row in timed])
    parts = []
    if found.mean is not None:
        limits = "" if found.low is None or found.high is None else f" ({found.low:.1f} to {found.high:.1f})"
        parts.append(f"{found.mean:.1f} ms a token{limits}")
    failed = sum(not row.ok for row in window.rows)
    return ", ".join([*parts, *([f"{failed} failed"] if failed else [])])


def new_bench() -> Path:
    """Make the folder of a new benchmark.

    Raises:
        UsageError: it cannot be made.
    """
    return new_folder(home() / "benches")


def _iso(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))
