"""A search as it goes: which setting is started next, when one is left, and when the search ends.

The plan has the steps of every setting. Here they are put into an order that `search.policy` chooses at each start,
from what was measured until then; settings that are not worth a start are left out. What a setting fails of is its own
end and not the trial's.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from draftworth.bench.base import Closed
from draftworth.search.base import Candidate, Choice, LogSpeed, NotTried, Observation
from draftworth.search.policy import cannot_beat, next_candidate, not_tried
from draftworth.search.record import SearchRecord, Tried
from draftworth.search.rules import Rules
from draftworth.trials.bugs import told
from draftworth.trials.config import BASELINE
from draftworth.trials.history import last_load
from draftworth.trials.judge import compare_arm
from draftworth.trials.outcome import pooled_tpot
from draftworth.trials.remarks import facts_of
from draftworth.trials.search_resume import still_valid
from draftworth.trials.search_steps import needs_it_away, nothing_started, numbered, stop_again, without_servers
from draftworth.trials.search_told import best_known, candidates_in, over_this_start, predicted, speeds
from draftworth.trials.steps import Kind, Step

if TYPE_CHECKING:
    from draftworth.trials.config_search import SearchConfig
    from draftworth.trials.execute import Execution

Coming = tuple[Step, Sequence[Step]]


class Searching:
    """One search within the execution of a trial.

    Attributes:
        settings: the candidates, with what is predicted of them once the baseline was measured.
        tried: what was started, in order; earlier trials' first.
        ended: why it ended; empty while it goes on.
    """

    def __init__(self, run: "Execution", search: "SearchConfig") -> None:
        self._run = run
        self._search = search
        self.settings: tuple[Candidate, ...] = ()
        self.tried: list[Tried] = list(run.before)
        self.ended = ""
        self._complete = False
        self._unpredicted: str | None = None
        self._began = 0.0
        self._away = True
        self._stops: list[Step] = []
        self._expired: dict[str, str] = {}
        self._parts: dict[str, int] = {}

    # ------------------------------------------------------------------ the order

    def steps(self) -> Iterator[Coming]:
        """Yield each step with those that are still to come for certain.

        The original is stopped once there is a setting that is worth it, and not before.
        """
        plan, names = self._run.plan.steps, self._run.config.searched
        first = next(at for at, step in enumerate(plan) if step.arm in names)
        pool = [step for step in plan if step.arm in names and step.kind is not Kind.HOLD]
        before, after = list(plan[:first]), [step for step in plan[first:] if step.arm not in names]
        self._stops = [before.pop()] if before and before[-1].kind is Kind.STOP_ORIGINAL else []
        self._away = not self._stops
        for at, step in enumerate(before, 1):
            yield step, [*before[at:], *self._stops, *after]
        self._begin()
        yield from self._chosen(pool, after)
        if not any(one.trial is None for one in self.tried):
            after = nothing_started(self._run, after, away=self._away)
        elif not self._away:
            if needs_it_away(self._run, after):
                yield self._stop(), after
                self._away = not self._no_time()
            if not self._away:
                after = without_servers(self._run, after)
        for at, step in enumerate(after, 1):
            yield self._numbered(step), after[at:]

    def _chosen(self, pool: Sequence[Step], after: Sequence[Step]) -> Iterator[Coming]:
        run, left = self._run, {step.arm for step in pool}
        while not self._no_time():
            choice = self._choose(after)
            if choice.next is None:
                self.ended = choice.why
                break
            run.progress.line(f"next is {choice.next}: {choice.why}")
            run.journal.append("note", "search", next=choice.next, why=choice.why)
            if not self._away:
                yield self._stop(), after
                if self._no_time():
                    break
                self._away = True
            left.discard(choice.next)
            yield from self._one(choice, [step for step in pool if step.arm == choice.next], after)
            if choice.next in run.timed_out:
                self.ended, self._complete = f"the time was up while {choice.next} was measured", False
                break
        if not self.ended:
            self.ended = "limits.downtime_s leaves no time for another absence of the original"
        run.progress.line(f"the search ends: {self.ended}")
        for step in pool:
            if step.arm in left:
                run.progress.skip()

    def _one(self, choice: Choice, mine: Sequence[Step], after: Sequence[Step]) -> Iterator[Coming]:
        """Yield the steps of one setting, and learn from them."""
        assert choice.next is not None, "there is one"
        began = time.monotonic()
        self.tried.append(self._tried(choice))
        for at, step in enumerate(mine, 1):
            yield self._numbered(step), [*mine[at:], *after]
        self._learn(choice.next, time.monotonic() - began)
        if choice.next in self._run.outcome.given_up and self._run.observed.unit is not None:
            # The host answers a variant that dies with the original: that is let be, and verified.
            yield next(step for step in after if step.kind is Kind.RESTORE), after
            self._away = False

    def _no_time(self) -> bool:
        """Whether there was no time for another absence of the original: it was not stopped."""
        return self._run.enough

    def _stop(self) -> Step:
        """Return the step that stops the original: the plan's own the first time."""
        return self._stops.pop() if self._stops else stop_again(len(self._run.outcome.blocks))

    def _numbered(self, step: Step) -> Step:
        return numbered(step, len(self._run.outcome.blocks))

    # ------------------------------------------------------------------ deciding

    def _begin(self) -> None:
        """Predict, once the baseline was measured."""
        run = self._run
        self._began = time.monotonic()
        rows = [row for block in run.outcome.blocks if block.arm == BASELINE for row in block.rows]
        runner = facts_of([block for block in run.outcome.blocks if block.arm == BASELINE]).runner
        tpot = pooled_tpot([row for row in rows if row.timed])
        self.tried = still_valid(self.tried, tpot, self._priors()[0], run.progress.line)
        kept = {one.name for one in self.tried}
        # What is not used is neither checked nor told: the setting may be measured anew.
        outcome = run.outcome
        outcome.earlier = {name: told for name, told in outcome.earlier.items() if name in kept}
        outcome.unchecked = {name: rows for name, rows in outcome.unchecked.items() if name in kept}
        run.progress.now("predicting every setting from the baseline's own answers")
        found = candidates_in(run.config, runner)
        try:
            found, self._unpredicted = predicted(
                found, rows, run.folder, run.sweep, runner=runner, target=run.model_path
            )
        except Exception as error:  # noqa: BLE001 - a bug in what only orders the search
            self._unpredicted = f"nothing is predicted: {told(error, run.folder)}"
        run.interrupts.check()
        commands = run.plan.commands
        self.settings = tuple(
            one.model_copy(update={"reload_s": last_load(commands[one.name]) or 0.0}) for one in found
        )

    def _choose(self, after: Sequence[Step]) -> Choice:
        run = self._run
        limit, sent = run.config.limits.requests, sum(len(block.rows) for block in run.outcome.blocks)
        each = max((len(block.rows) for block in run.outcome.blocks), default=0)
        coming = sum(step.kind is Kind.MEASURE for step in after)
        choice = next_candidate(
            self._timed(), self._observations(), self._rules(), time_left_s=self._left(after), given_up=self._failed()
        )
        if choice.next is not None and sent + (1 + coming) * each > limit:
            return choice.model_copy(update={"next": None, "why": f"limits.requests ({limit}) would be reached"})
        self._complete = choice.next is None and not choice.why.startswith("the time is up")
        return choice

    def _left(self, after: Sequence[Step]) -> float | None:
        """Return the seconds that may still be spent on settings; None for no bound."""
        run = self._run
        kept = run.pace.keep_back([one for one in after if one.arm not in run.may_fail], running=run.observed.running)
        away = run.downtime.deadline - time.monotonic() if self._away else run.downtime.left_s
        left = away - kept
        if self._search.minutes is not None:
            left = min(left, 60 * self._search.minutes - (time.monotonic() - self._began))
        return None if left == float("inf") else left

    def _timed(self) -> tuple[Candidate, ...]:
        """Return the settings with the seconds that a start will take, as far as is known by now."""
        typical = self._run.pace.longest(Kind.START)
        known = max([typical, *(one.reload_s for one in self.settings)])
        return tuple(one.model_copy(update={"reload_s": one.reload_s or known}) for one in self.settings)

    def _rules(self) -> Rules:
        run, search = self._run, self._search
        baseline, variant = self._priors()
        return Rules(
            loads=self._loads(),
            together=search.together,
            min_gain=search.min_gain,
            min_chance=search.min_chance,
            margin=run.config.verdict.margin,
            measure_s=run.pace.longest(Kind.MEASURE) + run.pace.longest(Kind.STOP),
            start_sd=variant,
            baseline_sd=baseline,
        )

    def _priors(self) -> tuple[float, float]:
        blocks = [block for block in self._run.outcome.blocks if block.arm == BASELINE]
        device = facts_of(blocks).device or self._run.arms[0].device
        return self._run.config.verdict.restart_priors(device)

    def _loads(self) -> tuple[int, ...]:
        return tuple(sorted({one.load.concurrency for one in self._run.sweep if isinstance(one.load, Closed)}))

    def _observations(self) -> tuple[Observation, ...]:
        return tuple(
            Observation(candidate=one.name, baseline=one.trial, measured=one.measured)
            for one in self.tried
            if one.failed is None and one.measured
        )

    def _failed(self) -> Mapping[str, str]:
        return {one.name: one.failed for one in self.tried if one.failed is not None}

    # ------------------------------------------------------------------ one setting

    def watch(self, arm: str) -> Callable[[int, int], bool] | None:
        """Return what tells behind each part whether a setting is measured on; None for what is no setting."""
        return partial(self.go_on, arm) if arm in self._run.config.searched else None

    def go_on(self, arm: str, part: int, parts: int) -> bool:
        """Whether a setting is measured on: false where it cannot beat the best known any more.

        Args:
            arm: its name.
            part: how many parts were measured.
            parts: how many there are.
        """
        self._parts[arm] = part
        if part == parts:
            return True
        baseline = self._priors()[0]
        measured = {one.candidate: over_this_start(one, baseline) for one in self._observations()}
        best = best_known(measured, self._loads(), baseline)
        try:
            left = cannot_beat(self._speeds(arm), best, look=part, looks=parts)
        except Exception as error:  # noqa: BLE001 - a bug in what only saves time
            self._run.progress.line(f"{arm} is measured to its end: {told(error, self._run.folder)}")
            return True
        if left:
            self._run.progress.line(f"{arm} is left behind part {part} of {parts}: it cannot beat the best any more")
            return False
        return True

    def _speeds(self, arm: str) -> dict[int, LogSpeed]:
        run = self._run
        info = next(one for one in run.arms if one.name == arm)
        found = compare_arm(run.outcome.blocks, info, run.config, variants=1, look=1, looks=1)
        return speeds(found, run.sweep, priors=self._priors())

    def _tried(self, choice: Choice) -> Tried:
        one = next(each for each in self.settings if each.name == choice.next)
        return Tried(
            name=one.name,
            why=choice.why,
            expected_gain=choice.expected_gain,
            chance=choice.chance,
            predicted=one.predicted,
            bounds=one.bounds,
            of_parts=max(self._run.parts),
        )

    def _learn(self, arm: str, seconds: float) -> None:
        run = self._run
        found: dict[str, object] = {"seconds": round(seconds, 3), "parts": self._parts.get(arm, 0)}
        why = run.failures.get(arm)
        if arm in run.timed_out:
            self._expired[arm] = why or "its time was up"
            self.tried.pop()
            return
        if why is None:
            try:
                found["measured"] = self._speeds(arm)
                why = None if found["measured"] else "no prompt was answered by both it and the baseline"
            except Exception as error:  # noqa: BLE001 - a bug in what only orders the search
                why = f"it could not be compared: {told(error, run.folder)}"
        run.outcome.complete = len(run.outcome.blocks)
        self.tried[-1] = self.tried[-1].model_copy(update={**found, "failed": why})
        self._run.journal.append("note", "search", tried=self.tried[-1].model_dump(mode="json"))

    def record(self, *, whole: bool) -> SearchRecord:
        """Return what the search has done so far.

        Args:
            whole: whether the trial came to its own end: where it did not, the search is to be gone on with.
        """
        if not self.settings:
            names = sorted(self._run.config.searched)
            why = "the trial ended before the search began"
            return SearchRecord(
                candidates=len(names), ended=why, not_tried=tuple(NotTried(name=one, why=why) for one in names)
            )
        cut = [one for one in self.tried if one.seconds is None]
        self.tried = [one for one in self.tried if one.seconds is not None]
        left = not_tried(self._timed(), self._observations(), self._rules(), given_up=self._failed())
        failed = self._failed()
        why = "it was interrupted" if cut else "the trial ended before it"
        unmeasured = {one.name: "it was being measured when the trial ended" for one in cut} | self._expired
        return SearchRecord(
            candidates=len(self.settings),
            together=self._search.together,
            loads=self._loads(),
            ended=self.ended or why,
            complete=self._complete and whole,
            tried=tuple(self.tried),
            not_tried=tuple(
                one.model_copy(update={"why": unmeasured.get(one.name, one.why)})
                for one in left
                if one.name not in failed
            ),
            mark=self._run.mark,
            unpredicted=self._unpredicted,
        )
