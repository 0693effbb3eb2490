"""`draftworth bench`: every point of a sweep on one server, with its findings; returns a record, prints nothing."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import draftworth
from draftworth import redact
from draftworth.bench import record as records
from draftworth.bench import run as load_generator
from draftworth.bench.base import Access, Sampling, Target
from draftworth.bench.clocks import Clocks, ClockWatch, held_down
from draftworth.bench.config import WorkloadConfig
from draftworth.bench.machine import machine
from draftworth.bench.monitor import together
from draftworth.bench.points import Point
from draftworth.bench.pulse import Pulse
from draftworth.bench.record import BenchRecord, ClientRecord
from draftworth.bench.remarks import remarks
from draftworth.bench.requests import (
    Requests,
    load_workload,
    repeated_passages,
    requests_in,
    sweep_of,
    workload_findings,
)
from draftworth.bench.rows import drop_parts, write_part, write_rows
from draftworth.bench.server import check_fits, look_at
from draftworth.bench.summary import load_findings, summarise
from draftworth.bench.tally import Tally
from draftworth.bench.window import Job, Window, close, scrape, send, warm_up
from draftworth.engines import engine as engine_named
from draftworth.errors import DraftworthError, MeasureError
from draftworth.findings import Code, Finding, find
from draftworth.home import home, new_folder
from draftworth.verdicts.rules import Limits
from draftworth.workloads import Workload


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
        prompts: gives the requests of each point.
    """

    work: WorkloadConfig
    workload: Workload
    target: Target
    sweep: tuple[Point, ...]
    limits: Limits
    failed_share: float
    engine: str = "vllm"
    version: str | None = None
    prompts: Requests | None = None

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
    engine: str | None = None,
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
        engine: what runs there; None to recognise it.

    Raises:
        UsageError: the workload is wrong or does not fit the server's context, the URL leads to no such server, or the
            model is not served.
    """
    workload, sweep = load_workload(work), sweep_of(work)
    found = look_at(url, access=access, model=model, token_timeout_s=token_timeout_s, engine=engine)
    check_fits(found, workload.prompts, sweep)
    requests = Requests(work, workload.prompts)
    for point in sweep:
        if point.context_tokens is not None:
            # Filled up now: what cannot be is no measurement that failed.
            check_fits(found, requests.at(point, found.target), (point,))
    return BenchPlan(
        work,
        workload,
        found.target,
        sweep,
        limits or Limits(),
        failed_share,
        engine=found.engine,
        version=found.version,
        prompts=requests,
    )


@dataclass(slots=True)
class BenchRun:
    """A benchmark under way; what was measured so far is always there.

    Attributes:
        plan: what is done.
        windows: what was measured, the last may be incomplete.
        findings: remarks on the whole.
        error: why it ended early.
        clocks: the machine's, while it measured a server on it.
        folder: where each point's rows are put as soon as it is measured, should the process be killed.
    """

    plan: BenchPlan
    windows: list[Window] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    error: str | None = None
    clocks: Clocks | None = None
    folder: Path | None = None

    def measure(self, *, on_count: Callable[[int, int, str], None], on_point: Callable[[str], None]) -> None:
        """Measure every point.

        Args:
            on_count: takes requests done, requests in all and how it goes; called often, may raise to end it.
            on_point: takes the name of each point as it begins.

        Raises:
            DraftworthError: more requests failed than allowed. What was measured is kept in any case.
        """
        # The clocks seen here are the server's only where it runs on this machine.
        here = urlsplit(self.plan.target.base_url).hostname in {"127.0.0.1", "::1", "localhost"}
        try:
            with ClockWatch(self) if here else nullcontext():
                self._measure(on_count=on_count, on_point=on_point)
        finally:
            if why := held_down(self.clocks):
                self.findings.append(find(Code.CLOCKS_CHANGED, why))

    def _measure(self, *, on_count: Callable[[int, int, str], None], on_point: Callable[[str], None]) -> None:
        plan = self.plan
        engine = engine_named(plan.engine)
        engine.version = plan.version
        pulse = Pulse(on_count, plan.requests, Tally())

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
        requests = plan.prompts or Requests(plan.work, plan.workload.prompts)
        first = requests.at(plan.sweep[0], plan.target)
        self.findings += warm_up(job, plan.work.warmup, plan.sweep[0], running, first)
        before = scrape(job, "before")
        if isinstance(before, MeasureError):
            self.findings.append(find(Code.METRICS_MISSING, str(before)))
        opening = None if isinstance(before, MeasureError) else before
        self.findings += workload_findings(plan.work, plan.workload.prompts)

        for number, point in enumerate(plan.sweep, 1):
            window = Window(arm="", point=point)
            self.windows.append(window)
            on_point(point.label or point.load.label)
            prompts = requests.at(point, plan.target)
            if requests.repeated and not any(one.code is Code.PROMPTS_REPEAT for one in self.findings):
                self.findings.append(repeated_passages())
            pulse.begin(Tally())
            send(job, prompts, window, block=number, start=1, run=running, on_row=pulse.row)
            pulse.tell()
            close(job, window, opening)
            opening = window.after
            window.findings += load_findings(point, window.rows)
            if self.folder is not None:
                write_part(window.rows, self.folder, block=number, number=1)
            self._refuse_failed(window)

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
        found = [*self.findings, *remarks(self.windows, [some[0] for some in summaries])]
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
            findings=tuple(dict.fromkeys(map(_shown, found))),
            error=None if self.error is None else redact.text(self.error),
        )
        try:
            write_rows([row for window in self.windows for row in window.rows], folder)
            drop_parts(folder)
            records.write(record, folder)
        except OSError as error:
            raise DraftworthError(f"{folder}: the record cannot be written: {error.strerror or error}") from None
        return record


def _shown(finding: Finding) -> Finding:
    """Return a finding without what a server's error may have said of secrets."""
    return finding.model_copy(update={"message": redact.text(finding.message)})


def new_bench() -> Path:
    """Make the folder of a new benchmark.

    Raises:
        UsageError: it cannot be made.
    """
    return new_folder(home() / "benches")


def _iso(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))
