"""Running a plan: journal the intent, act, journal the effect; whatever happens, put the service back.

The only module that changes anything on the machine, and it does so through `services` alone.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.base import Access, Prompt, RequestRow, Target
from draftworth.bench.clocks import ClockWatch
from draftworth.bench.requests import Requests, repeated_passages, sweep_of, workload_findings
from draftworth.errors import (
    DraftworthError,
    InterruptedTrial,
    MeasureError,
    NotRestoredError,
    RefusedError,
    ServerDiedError,
    ServerStartError,
    TrialError,
)
from draftworth.findings import Code, find
from draftworth.services.base import Observed, ProcessId, Running, Start
from draftworth.services.processes import tail
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import TrialConfig
from draftworth.trials.downtime import Downtime
from draftworth.trials.history import last_load
from draftworth.trials.interrupts import Interrupt, Interrupts
from draftworth.trials.judge import checked_arms, decided
from draftworth.trials.measure import measure_block
from draftworth.trials.only_measuring import probe, profile, take
from draftworth.trials.pace import Pace
from draftworth.trials.plan import Kind, Plan, Step
from draftworth.trials.profiling import TRIAL
from draftworth.trials.ready import LogFollower, wait_ready
from draftworth.trials.remarks import ArmInfo
from draftworth.trials.restore import Restored, Scene, forget, restore
from draftworth.trials.scoring import check_scores, score_all, score_limit
from draftworth.trials.watch import LoadWatch, signs_of

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.base import Service
    from draftworth.trials.journal import Journal
    from draftworth.trials.progress import Shows
    from draftworth.trials.run import Watch


_DYING_S = 1.0
_LOG_READ = 64 * 2**20
"""Bytes of a running original's log that are looked at, from its end."""


@dataclass(slots=True)
class Server:
    """The server at hand."""

    running: Running
    model: str
    follower: LogFollower
    start_seconds: float | None
    log: str


class Execution:
    """One run of one plan."""

    def __init__(
        self,
        *,
        plan: Plan,
        config: TrialConfig,
        observed: Observed,
        scene: Scene,
        prompts: Sequence[Prompt],
        journal: "Journal",
        progress: "Shows",
        model_path: Path | None,
        interrupts: Interrupts,
        guard: "Watch",
        started: dict[ProcessId, Running],
        arms: Sequence[ArmInfo],
        access: Access,
    ) -> None:
        self.plan = plan
        self.arms = arms
        self.access = access
        self.sweep = sweep_of(config.workload)
        self.requests = Requests(config.workload, prompts)
        self.answers: dict[str, str] = {}
        self.config = config
        self.observed = observed
        self.scene = scene
        self.service: Service = scene.service
        self.engine: Engine = scene.engine
        self.folder = scene.folder
        self.prompts = prompts
        self.journal = journal
        self.progress = progress
        self.model_path = model_path
        self.interrupts = interrupts
        self.guard = guard
        self.started = started
        self.outcome = Outcome(looks=config.verdict.starts)
        self.server: Server | None = None
        self.starts: Counter[str] = Counter()
        self.enough = False
        self.only_measure = {arm.name for arm in (*config.diagnostic_arms, *config.profiled_arms)}
        self.coming: Sequence[Step] = ()
        self.pace = Pace(config.limits.hold_s)
        self.marks: dict[str, str] = {}
        self.own_deadline = float("inf")
        self.downtime = Downtime(config.limits.downtime_s + config.limits.hold_s, running=observed.running)

    def run(self) -> Outcome:
        """Execute every step, then put the service back and verify it, whatever happened.

        Signals must be handled by `interrupts` already, and until the record is written. Never raises: what went
        wrong is in the outcome, a bug too.
        """
        begun = False
        try:
            try:
                # The journal first: what a death leaves behind from here on is found, and removed, by a restore.
                self._begin()
                begun = True
                self.service.save_original(self.observed, self.folder)
                self.outcome.findings += workload_findings(self.config.workload, self.prompts)
                for number, step in enumerate(self.plan.steps, 1):
                    self.coming = self.plan.steps[number:]
                    self.enough = self.enough or self._no_time_for(step)
                    if (self.enough and not step.closing) or step.arm in self.outcome.given_up:
                        self.progress.skip()
                    elif step.arm in self.only_measure:
                        take(self, step)
                    else:
                        began = time.monotonic()
                        self.take(step)
                        self.pace.took(step, time.monotonic() - began)
            finally:
                self.interrupts.hold()
        except Interrupt as interrupt:
            self.outcome.error = InterruptedTrial(f"interrupted by {interrupt}")
        except RefusedError as error:
            self.outcome.error = error
            self.outcome.refused = None if self.outcome.blocks or self.started else error
        except DraftworthError as error:
            self.outcome.error = error
        except Exception as error:  # noqa: BLE001 - kept, and told as a bug once the service is back
            self.outcome.crash = error
        # Nothing above can skip this: a signal is only remarked on by now.
        if begun:
            if self.outcome.error is not None or self.outcome.crash is not None:
                self.progress.ending("putting the service back")
            self._restore(final=True)
        else:
            self.outcome.restored = Restored("nothing was changed", tuple(forget(self.scene)))
        return self.outcome

    def _begin(self) -> None:
        self.journal.append(
            "begin",
            observed=self.observed.model_dump(mode="json"),
            config=redact.config(self.config),
            mark=self.scene.mark,
            steps=[{"id": step.id, "about": step.about, "undo": step.undo} for step in self.plan.steps],
        )

    def _restore(self, *, final: bool) -> None:
        """Put the service back; what it was found like at last is what the outcome says."""
        began = time.monotonic()
        try:
            found = restore(self.scene, final=final)
        except NotRestoredError as error:
            self.outcome.restore_error = error
            self.outcome.restored = None
        else:
            self.outcome.restore_error = None
            self.outcome.restored = found
            self.outcome.findings += [find(Code.LEFTOVERS, remark) for remark in found.remarks]
        self.outcome.waited_s += time.monotonic() - began

    @property
    def deadline(self) -> float:
        """`time.monotonic()` until which the step at hand may take."""
        return min(self.downtime.deadline, self.own_deadline)

    def take(self, step: Step) -> None:
        """Do a step.

        Raises:
            DraftworthError: it failed, or the time was up before it began.
        """
        self.interrupts.check()
        self.progress.step(step.about)
        if step.kind is not Kind.RESTORE and time.monotonic() > self.deadline:
            raise TrialError(f"limits.downtime_s ({self.config.limits.downtime_s:g} s) was reached before {step.id}")
        if step.kind is Kind.RESTORE:
            self._restore(final=False)
            if self.outcome.restore_error is not None:
                raise self.outcome.restore_error
            self.downtime.back()
            return
        take = {
            Kind.STOP_ORIGINAL: self._stop_original,
            Kind.START: self._start,
            Kind.MEASURE: self._measure,
            Kind.LOOK: self._look,
            Kind.SCORE: self._score,
            Kind.HOLD: self._hold,
            Kind.PROBE: lambda step: probe(self, step),
            Kind.PROFILE: lambda step: profile(self, step),
            Kind.STOP: self._stop,
        }
        take[step.kind](step)

    def _no_time_for(self, step: Step) -> bool:
        """Whether the original would be stopped again with too little time left to measure and put it back."""
        why = self.downtime.too_short() if step.kind is Kind.STOP_ORIGINAL and not self.enough else None
        if why is not None:
            self.outcome.findings.append(find(Code.ROUNDS_LEFT_OUT, why))
        return why is not None

    def _stop_original(self, step: Step) -> None:
        if not self.guard.alive():
            raise TrialError("the trial's guard has ended; without it the original is not stopped")
        began = time.monotonic()
        self.service.away(self.downtime.left_s)
        self.downtime.away()
        self.server = None
        restored = self.outcome.restored
        with self.journal.step(step.id) as effect:
            if restored is None or restored.running is None:
                remarks = self.service.stop_original(self.observed, self.progress.now)
            else:  # it was put back in between and is another process now
                remarks = self.service.stop(self.service.refresh(restored.running), self.progress.now)
            effect["remarks"] = list(remarks)
        self.outcome.findings += [find(Code.LEFTOVERS, f"the original: {remark}") for remark in remarks]
        self.outcome.waited_s += time.monotonic() - began

    def _start(self, step: Step) -> None:
        log = self.folder / "logs" / f"{step.id}.log"
        mark = self.marks[step.arm] = f"{self.scene.mark}{step.id}"
        command = tuple(word.replace(TRIAL, str(self.folder)) for word in step.command)
        start = Start(command=command, env=dict(step.env), mark=mark, log=log, arm=step.arm)
        began = time.monotonic()
        shown = list(redact.command(step.command))
        with self.journal.step(step.id, command=shown, mark=start.mark, env=redact.environment(step.env)) as effect:
            running = self.service.start(start, self.progress.now)
            self.started[running.leader] = running
            effect["running"] = running.model_dump(mode="json")
        follower = LogFollower(log, self.engine.log_reader())
        try:
            model, running = self._ready(running, follower, self._watch(running, log, step.command))
        finally:
            self.outcome.waited_s += time.monotonic() - began
        self.service.settled(running, self.progress.now)
        self.started[running.leader] = running
        self.journal.append("note", step.id, running=running.model_dump(mode="json"), model=model)
        self.server = Server(running, model, follower, time.monotonic() - began, str(log.relative_to(self.folder)))

    def _watch(self, running: Running, log: Path, command: Sequence[str]) -> LoadWatch:
        """Return what tells a slow load from a hung one, and how long the last one took."""
        return LoadWatch(
            lambda: signs_of(self.service.pids(running), log, self.service.gpu_bytes()),
            silent_s=self.config.limits.silent_s,
            last_s=last_load(command),
        )

    def _ready(self, running: Running, follower: LogFollower, watch: LoadWatch | None = None) -> tuple[str, Running]:
        try:
            return wait_ready(
                self.service,
                running,
                follower,
                url=self.config.url,
                access=self.access,
                model=self.config.service.model,
                deadline=min(time.monotonic() + self.config.limits.start_timeout_s, self.deadline),
                say=self.progress.now,
                hint=self.engine.failure_hint,
                life=watch.words if watch else lambda: "",
            )
        except ServerStartError as error:
            if time.monotonic() < self.downtime.deadline:
                raise
            limit = f"limits.downtime_s ({self.config.limits.downtime_s:g} s) was reached: {error}"
            raise ServerStartError(limit, error.tail) from None

    def _original(self) -> Server:
        """Return the original as the server at hand: as it was found, or as it was restored."""
        restored = self.outcome.restored
        if restored is not None and restored.running is not None:
            follower = LogFollower(restored.running.log, self.engine.log_reader(), restored.log_offset)
            follower.read()
            name = self.config.service.model or restored.model or ""
            return Server(restored.running, name, follower, restored.seconds, str(restored.running.log))
        running = self.service.as_found(self.observed)
        size = running.log.stat().st_size if running.log.is_file() else 0
        follower = LogFollower(running.log, self.engine.log_reader(), max(0, size - _LOG_READ))
        follower.read()
        model, running = self._ready(running, follower)
        return Server(running, model, follower, None, str(running.log))

    def _measure(self, step: Step) -> None:
        if self.server is None:
            self.server = self._original()
        server = self.server
        server.follower.read()
        self.starts[step.arm] += 1
        block = Block(
            arm=step.arm,
            number=step.block,
            start=self.starts[step.arm],
            facts=server.follower.reader.facts(),
            start_seconds=server.start_seconds,
            log=server.log,
        )
        self.outcome.blocks.append(block)
        began = time.monotonic()
        try:
            with self.journal.step(step.id) as effect, ClockWatch(block):
                measure_block(
                    block,
                    self.config,
                    self.engine,
                    lambda point: self.requests.at(point, self.target_of(server)),
                    target=self.target_of(server),
                    sweep=self.sweep,
                    answers=self.answers,
                    folder=self.folder,
                    timeout_s=max(1.0, min(self.deadline - time.monotonic(), 1e6)),
                    on_count=self._count,
                    blocks=self.outcome.blocks,
                    check=block.start == 1,
                )
                effect.update(requests=len(block.rows), failed=sum(not row.ok for row in block.rows))
        except MeasureError as error:
            self._blame(error)
        finally:
            self.outcome.waited_s += time.monotonic() - began
            if self.requests.repeated and block.number == 1:
                self.outcome.findings.append(repeated_passages())
            server.follower.read()
            block.facts = server.follower.reader.facts()

    def target_of(self, server: Server) -> Target:
        """Return how a server is asked."""
        return Target(
            self.config.url,
            server.model,
            self.config.limits.token_timeout_s,
            self.access,
            fields=self.engine.request_fields(),
            stats_of=self.engine.request_stats,
        )

    def _look(self, step: Step) -> None:
        """Judge what is measured; end the measuring where it is enough. The last look is the verdict's own."""
        self.outcome.look = step.look
        self.outcome.complete = len(self.outcome.blocks)
        if step.look == self.outcome.looks:
            return
        looks = self.outcome.looks
        self.enough = decided(
            self.outcome.blocks,
            self.arms,
            self.config,
            look=step.look,
            looks=looks,
            given_up=frozenset(self.outcome.given_up),
        )
        self.journal.append("note", step.id, enough=self.enough)
        self.progress.line("the evidence is enough" if self.enough else "not enough yet")

    def _count(self, done: int, total: int, note: str) -> None:
        self.interrupts.check()
        self.progress.count(done, total, note)

    def _blame(self, error: MeasureError) -> None:
        """Say that the server died, where that is why requests failed."""
        server = self.server
        if server is not None and self._died(server):
            lines = tail(server.running.log)
            raise ServerDiedError(f"the server died while it was measured; {error}", lines) from None
        raise error

    def _died(self, server: Server) -> bool:
        """Whether a server that failed a request has ended; a big one takes a moment to do so."""
        deadline = time.monotonic() + _DYING_S
        while self.service.alive(server.running):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _score(self, step: Step) -> None:
        if self.server is None:
            self.server = self._original()
        began = time.monotonic()
        scores = self.outcome.scores
        try:
            with self.journal.step(step.id):
                check_scores(self.engine)
                running = self.service.refresh(self.server.running)
                limit = score_limit(
                    self.server.follower.reader.facts().config.get("device_config"),
                    [process.pid for process in running.seen],
                    self.model_path,
                    self.target_of(self.server),
                )
                scores.by_arm = score_all(
                    self.target_of(self.server),
                    self._outputs(),
                    limit=limit,
                    most=self.config.verdict.output_check_prompts,
                    timeout_s=max(1.0, min(self.downtime.deadline - time.monotonic(), 1e6)),
                    on_count=self._count,
                )
        except MeasureError as error:
            if self._died(self.server):
                self._blame(error)
            # The speed was measured; an output that could not be checked is a finding of its own.
            scores.refused = str(error)
        finally:
            scores.seconds = time.monotonic() - began
            self.outcome.waited_s += scores.seconds

    def _hold(self, step: Step) -> None:
        """Leave a variant up for a person, until the time is over or a file in the trial's folder says so."""
        server = self.server
        if server is None:
            return
        began = time.monotonic()
        until = min(began + self.config.limits.hold_s, self.downtime.deadline)
        held = self.folder / "held"
        held.touch()
        with self.journal.step(step.id, seconds=self.config.limits.hold_s):
            while time.monotonic() < until and not (self.folder / "release").exists():
                self.interrupts.check()
                if not self.service.alive(server.running):
                    raise ServerDiedError(f"{step.arm} died while it was held", tail(server.running.log))
                self.progress.now(f"{self.config.url} is {step.arm}, {until - time.monotonic():.0f} s left")
                time.sleep(0.5)
        held.unlink(missing_ok=True)
        self.outcome.waited_s += time.monotonic() - began

    def _outputs(self) -> dict[str, Sequence[RequestRow]]:
        """Return the outputs of each arm that is checked; the baseline's are those of its first block."""
        outputs: dict[str, Sequence[RequestRow]] = {}
        checked = checked_arms(self.arms)
        for block in self.outcome.blocks:
            if block.arm in checked:
                outputs.setdefault(block.arm, block.check_rows)
        return outputs

    def _stop(self, step: Step) -> None:
        server, self.server = self.server, None
        if server is None:
            return
        began = time.monotonic()
        running = self.service.refresh(server.running)
        self.started[running.leader] = running
        with self.journal.step(step.id, running=running.model_dump(mode="json")) as effect:
            remarks = self.service.stop(running, self.progress.now)
            effect["remarks"] = list(remarks)
        self.outcome.findings += [find(Code.LEFTOVERS, f"{step.arm}: {remark}", arm=step.arm) for remark in remarks]
        self.outcome.waited_s += time.monotonic() - began
