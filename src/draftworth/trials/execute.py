"""Running a plan: journal the intent, act, journal the effect; whatever happens, put the service back.

With `serving` the only module that changes anything on the machine, and both do so through `services` alone.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.base import Access, Prompt, Target
from draftworth.bench.clocks import ClockWatch
from draftworth.bench.requests import Requests, repeated_passages, requests_in, sweep_of, workload_findings
from draftworth.errors import (
    DraftworthError,
    InterruptedTrial,
    MeasureError,
    NotRestoredError,
    RefusedError,
    TrialError,
)
from draftworth.findings import Code, find
from draftworth.search.record import Tried
from draftworth.services.base import Observed, ProcessId, Running
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import TrialConfig
from draftworth.trials.downtime import Downtime
from draftworth.trials.enough import look, no_time_for
from draftworth.trials.interrupts import Interrupt, Interrupts
from draftworth.trials.measure import measure_block, parts_of
from draftworth.trials.only_measuring import probe, profile, take
from draftworth.trials.pace import Pace
from draftworth.trials.remarks import ArmInfo
from draftworth.trials.remembered import learns
from draftworth.trials.restore import Restored, Scene, forget, restore
from draftworth.trials.route import route
from draftworth.trials.score_step import score
from draftworth.trials.search_unchecked import check_again
from draftworth.trials.serving import Server, blame, hold, original, start, stop, stop_original
from draftworth.trials.steps import Kind, Plan, Step

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.base import Service
    from draftworth.trials.journal import Journal
    from draftworth.trials.progress import Shows
    from draftworth.trials.run import Watch
    from draftworth.trials.searching import Searching


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
        before: Sequence[Tried] = (),
        mark: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.arms = arms
        self.access = access
        self.before = before
        self.mark = dict(mark or {})
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
        self.may_fail = self.only_measure | config.searched
        self.failures: dict[str, str] = {}
        self.timed_out: set[str] = set()
        self.searching: Searching | None = None
        self.parts = (1,) * len(self.sweep)
        if config.search is not None:
            requests = requests_in(prompts) * config.workload.repeats
            self.parts = parts_of(requests, self.sweep, config.search.looks)
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
                for step, coming in route(self):
                    self.coming = coming
                    self._do(step)
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
        if self.searching is not None:
            whole = self.outcome.error is None and self.outcome.crash is None
            self.outcome.search = self.searching.record(whole=whole)
            self.outcome.earlier = check_again(self.outcome.earlier, self.outcome.unchecked, self.outcome, self.config)
        # Nothing above can skip this: a signal is only remarked on by now.
        if begun:
            if self.outcome.error is not None or self.outcome.crash is not None:
                self.progress.ending("putting the service back")
            self._restore(final=True)
        else:
            self.outcome.restored = Restored("nothing was changed", tuple(forget(self.scene)))
        return self.outcome

    def _do(self, step: Step) -> None:
        """Do a step, or leave it out."""
        self.enough = self.enough or no_time_for(self, step)
        # What only measures tells something else than the evidence that is enough.
        over = self.enough and step.arm not in self.only_measure and not step.closing
        if over or step.arm in self.outcome.given_up:
            self.progress.skip()
        elif step.arm in self.may_fail:
            take(self, step)
        else:
            began = time.monotonic()
            self.take(step)
            self.pace.took(step, time.monotonic() - began)

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
        take: dict[Kind, Callable[[Step], None]] = {
            Kind.STOP_ORIGINAL: lambda step: stop_original(self, step),
            Kind.START: lambda step: start(self, step),
            Kind.MEASURE: self._measure,
            Kind.LOOK: lambda step: look(self, step),
            Kind.SCORE: lambda step: score(self, step),
            Kind.HOLD: lambda step: hold(self, step),
            Kind.PROBE: lambda step: probe(self, step),
            Kind.PROFILE: lambda step: profile(self, step),
            Kind.STOP: lambda step: stop(self, step),
        }
        take[step.kind](step)

    def _measure(self, step: Step) -> None:
        if self.server is None:
            self.server = original(self)
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
                    on_count=self.count,
                    blocks=self.outcome.blocks,
                    check=block.start == 1,
                    once=self._once(step.arm),
                    parts=self.parts,
                    go_on=self.searching.watch(step.arm) if self.searching is not None else None,
                )
                effect.update(requests=len(block.rows), failed=sum(not row.ok for row in block.rows))
        except MeasureError as error:
            blame(self, error)
        finally:
            self.outcome.waited_s += time.monotonic() - began
            if self.requests.repeated and block.number == 1:
                self.outcome.findings.append(repeated_passages())
            server.follower.read()
            block.facts = server.follower.reader.facts()

    def _once(self, arm: str) -> bool:
        """Whether each prompt is sent once only to an arm's server: its drafter learns from every answer."""
        asked = next((one for one in self.config.variants if one.name == arm), None)
        if asked is None or len(self.prompts) < len(self.sweep):
            return False
        return learns(asked.speculative_config, asked.args, self.config.service.engine) is not None

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

    def count(self, done: int, total: int, note: str) -> None:
        """Show how far the step is; a signal that came ends it."""
        self.interrupts.check()
        self.progress.count(done, total, note)
