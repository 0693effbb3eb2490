"""A trial between servers that run already: the same requests to each in turns, A B A B; nothing is stopped."""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.bench.base import RequestRow, Sampling, Target
from draftworth.bench.requests import Requests, repeated_passages, workload_findings
from draftworth.bench.window import Job, warm_up
from draftworth.engines import engine as engine_named
from draftworth.engines.base import MetricsSnapshot
from draftworth.errors import DraftworthError, InterruptedTrial, MeasureError, TrialError
from draftworth.trials.ask import bounded
from draftworth.trials.base import Outcome
from draftworth.trials.config import BASELINE
from draftworth.trials.diagnostics import is_diagnostic
from draftworth.trials.endpoints.config import EndpointsTrial
from draftworth.trials.endpoints.history import answered_before
from draftworth.trials.endpoints.parts import judge_client, measure_part
from draftworth.trials.endpoints.prepare import Arm, Prepared, prepare
from draftworth.trials.finish import Finished, finish, with_page
from draftworth.trials.home import all_trials, new_trial
from draftworth.trials.interrupts import Interrupt, Interrupts
from draftworth.trials.judge import checked_arms, decided
from draftworth.trials.measure import METRICS
from draftworth.trials.probing import loads_of, probe_baseline
from draftworth.trials.progress import Progress
from draftworth.trials.remarks import ArmInfo
from draftworth.trials.remembered import learns
from draftworth.trials.restore import Restored
from draftworth.trials.scoring import check_scores, score_all, spread, within_context
from draftworth.trials.steps import Kind, Plan, Step

if TYPE_CHECKING:
    from draftworth.bench.points import Point
    from draftworth.bench.pulse import Pulse

_NOTHING_DONE = Restored("nothing was started or stopped")


def run_endpoints(config: EndpointsTrial, *, show: Callable[[Plan], AbstractContextManager[Progress]]) -> Finished:
    """Run a trial between servers that run already.

    Args:
        config: the trial.
        show: opens the progress display for a plan.

    Raises:
        UsageError: a server, a model or the workload is wrong.
        RefusedError: too many requests.
    """
    began, began_unix = time.monotonic(), time.time()
    ready = prepare(config)
    folder = new_trial()
    interrupts = Interrupts(lambda _: None, first="what was measured is kept")
    arms = tuple(map(_info, ready.arms))
    with interrupts.installed(), show(ready.plan) as progress:
        interrupts.tell = progress.line
        outcome = Run(ready, arms, folder, progress, interrupts).run()
        done = finish(
            outcome,
            arms,
            config,
            ready.engine,
            shown_config=redact.endpoints(config),
            folder=folder,
            began=began,
            began_unix=began_unix,
        )
    # The record is written: from here on Ctrl-C ends it at once.
    return with_page(done, again=interrupts.received is not None)


def _info(arm: Arm) -> ArmInfo:
    declared: dict[str, Any] = {"url": arm.target.base_url}
    if arm.speculation is not None:
        declared["speculative_config"] = dict(arm.speculation)
    if arm.args:
        declared["args"] = list(redact.command(arm.args))
    return ArmInfo(
        arm.name,
        declared=declared,
        config=arm.speculation,
        speculates=arm.name != BASELINE and not is_diagnostic(None, args=arm.args),
        engine=arm.engine,
    )


class Run:
    """One run of one plan."""

    def __init__(
        self, ready: Prepared, arms: Sequence[ArmInfo], folder: Path, progress: Progress, interrupts: Interrupts
    ) -> None:
        self.ready = ready
        self.config = ready.config
        self.arms = arms
        self.folder = folder
        self.progress = progress
        self.interrupts = interrupts
        self.outcome = Outcome(looks=len(ready.segments), restored=_NOTHING_DONE)
        self.deadline = time.monotonic() + self.config.limits.downtime_s
        self.requests = Requests(self.config.workload, ready.prompts)
        self.answers: dict[str, str] = {}
        self.jobs = {arm.name: self._job(arm) for arm in ready.arms}
        self.pulse: Pulse | None = None
        self.turns: Counter[Point] = Counter()

    def run(self) -> Outcome:
        """Do every step. Never raises: what went wrong is in the outcome, and what was measured too."""
        try:
            self.outcome.findings += workload_findings(self.config.workload, self.ready.prompts)
            self.outcome.answered = self._answered()
            self._warm_up()
            enough = False
            for step in self.ready.plan.steps:
                if enough and not step.closing:
                    self.progress.skip()
                    continue
                self.interrupts.check()
                self.progress.step(step.about)
                began = time.monotonic()
                try:
                    enough = self._take(step) or enough
                finally:
                    self.outcome.waited_s += time.monotonic() - began
        except Interrupt as interrupt:
            self.outcome.error = InterruptedTrial(f"interrupted by {interrupt}")
        except DraftworthError as error:
            self.outcome.error = error
        except Exception as error:  # noqa: BLE001 - kept, and told as a bug once everything is written
            self.outcome.crash = error
        finally:
            self.interrupts.hold()
            judge_client(self)  # of a part that was cut short, too
        return self.outcome

    def _probe(self) -> None:
        """Measure what the baseline's steps cost."""
        arm = self.ready.arms[0]
        found = probe_baseline(
            arm.target.base_url,
            self.folder,
            [row for block in self.outcome.blocks if block.arm == arm.name for row in block.rows],
            access=arm.target.access,
            model=arm.target.model,
            log=None,
            loads=loads_of(self.ready.sweep),
            configs=[one.speculative_config for one in self.config.arms],
            seats=None,
            seconds=self.deadline - time.monotonic(),
            tell=lambda what, done, whole: self.progress.count(done, whole, what),
        )
        self.outcome.findings += [found] if found else []
        self.interrupts.check()

    def _answered(self) -> dict[str, frozenset[tuple[int, ...]]]:
        """Return the prompts of earlier trials that arms' servers may remember."""
        learning = {arm.name for arm in self.arms if learns(arm.config, arm.declared.get("args") or (), arm.engine)}
        urls = {arm.name: arm.target.base_url for arm in self.ready.arms if arm.name in learning}
        return answered_before(urls, [one for one in all_trials() if one != self.folder])

    def _take(self, step: Step) -> bool:
        """Do one step. Returns whether the evidence is enough now."""
        if step.kind is Kind.SCORE:
            self._score()
            return False
        if step.kind is Kind.PROBE:
            self._probe()
            return False
        measure_part(self, step.look)
        judge_client(self)
        self.outcome.look = step.look
        self.outcome.complete = len(self.outcome.blocks)
        if self.requests.repeated and step.look == 1:
            self.outcome.findings.append(repeated_passages())
        if step.look == self.outcome.looks:
            return False
        answered, looks = self.outcome.answered, self.outcome.looks
        done = decided(self.outcome.blocks, self.arms, self.config, look=step.look, looks=looks, answered=answered)
        self.progress.line("the evidence is enough" if done else "not enough yet")
        return done

    def running(self, target: Target) -> Callable[..., Any]:
        """Return what sends requests to a server within the time that is left."""
        from draftworth.bench import run  # noqa: PLC0415 - lazy: the load generator

        def running(**options: Any) -> Any:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TrialError(f"limits.downtime_s ({self.config.limits.downtime_s:g} s) was reached")
            return bounded(lambda: run.measure(target, **options, on_tick=self._tick), left)

        return running

    def _tick(self) -> None:
        self.interrupts.check()
        if self.pulse is not None:
            self.pulse.tick()

    def _job(self, arm: Arm) -> Job:
        work = self.config.workload

        def keep(when: str, snapshot: MetricsSnapshot) -> None:
            data = snapshot.model_dump(mode="json")
            line = json.dumps({"unix": time.time(), "arm": arm.name, "when": when, **data})
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

        return Job(
            target=arm.target,
            engine=engine_named(arm.engine),
            sampling=Sampling(temperature=work.temperature, seed=work.seed, ignore_eos=work.ignore_eos),
            repeats=work.repeats,
            retries=work.retries,
            answers=self.answers,
            keep=keep,
            facts_version=arm.version,
        )

    def _warm_up(self) -> None:
        began = time.monotonic()
        for arm in self.ready.arms:
            self.progress.now(f"warming up {arm.name}")
            point = self.ready.sweep[0]
            self.outcome.findings += warm_up(
                self.jobs[arm.name],
                self.config.workload.warmup,
                point,
                self.running(arm.target),
                self.ready.prompts,
                arm=arm.name,
            )
        self.outcome.waited_s += time.monotonic() - began

    def _score(self) -> None:
        scores = self.outcome.scores
        began = time.monotonic()
        arms = self.ready.arms
        try:
            check_scores(self.ready.engine)
            checked = checked_arms(self.arms)
            outputs = {arm.name: self._outputs(arm) for arm in arms if arm.name in checked}
            limit = within_context(self.config.service.output_check_tokens, arms[0].target)
            most = self.config.verdict.output_check_prompts
            scores.by_arm = score_all(
                arms[0].target,
                outputs,
                limit=limit,
                most=most,
                timeout_s=max(1.0, min(self.deadline - time.monotonic(), 1e6)),
                on_count=self.count,
            )
        except MeasureError as error:
            scores.refused = str(error)
        finally:
            scores.seconds = time.monotonic() - began

    def _outputs(self, arm: Arm) -> list[RequestRow]:
        """Return an arm's greedy answers; sampled ones are asked for again."""
        rows = [row for block in self.outcome.blocks if block.arm == arm.name for row in block.rows]
        if self.config.workload.temperature == 0:
            return rows
        greedy: list[RequestRow] = []
        some = spread(self.ready.prompts, self.config.verdict.output_check_prompts, category=lambda one: one.category)
        point = self.ready.sweep[0]
        self.running(arm.target)(
            prompts=some,
            sampling=Sampling(max_tokens=point.max_tokens, temperature=0.0, seed=self.config.workload.seed),
            arm=arm.name,
            block=0,
            load=point.load,
            warmup=0,
            answers=self.answers,
            on_row=lambda row, _done, _total: greedy.append(row),
        )
        for block in (one for one in self.outcome.blocks if one.arm == arm.name):
            # The first part stands for all: its block comes first.
            block.check_rows = greedy if block.number <= len(self.ready.arms) else []
        return greedy

    def count(self, done: int, total: int, text: str) -> None:
        """Show how far the step is. Raises Interrupt where one has come."""
        self.interrupts.check()
        self.progress.count(done, total, text)
