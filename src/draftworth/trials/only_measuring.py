"""The steps of a trial's execution that may fail: the probe, profiles, arms of `verdict.diagnostics`, and of a search.

None of them can lose the trial. Each arm that only measures begins only where it fits beside what the verdict still
needs, and has a deadline of its own; a search has looked at the time before it chose its setting. One that fails or
hangs is given up: a finding says so, its server is ended, and the trial goes on.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import DraftworthError, ServerError
from draftworth.findings import Code, find
from draftworth.trials.bugs import told
from draftworth.trials.probing import loads_of, probe_baseline, seats_in
from draftworth.trials.profiling import profile_server
from draftworth.trials.serving import log_of
from draftworth.trials.steps import Kind

if TYPE_CHECKING:
    from draftworth.services.base import Running
    from draftworth.trials.execute import Execution
    from draftworth.trials.steps import Step

LEAST_S = 60.0
"""A start of an arm that only measures may take three times the longest of the trial so far, and at least this."""
_TIMES = 3.0
_LIKELY = 1.5
"""How much longer than a variant's start and measurement those of such an arm are taken to be."""


def take(run: "Execution", step: "Step") -> None:
    """Do a step of an arm that may fail. Raises nothing but interrupts."""
    began = time.monotonic()
    weighed = step.arm in run.config.searched
    try:
        why = _no_room(run) if step.kind is Kind.START and not weighed else None
        if why is not None:
            run.progress.skip()
            _leave_out(run, step, f"{step.arm} was left out: {why}")
            return
        run.own_deadline = began + _may_take(run, step, weighed=weighed)
        run.take(step)
        if weighed:
            run.pace.took(step, time.monotonic() - began)
    except Exception as error:  # noqa: BLE001 - a bug in what the verdict does not need
        _give_up(run, step, error)
    finally:
        run.own_deadline = float("inf")
        run.downtime.aside(time.monotonic() - began)


def _left(run: "Execution") -> float:
    """Return the seconds that the verdict's own steps, and the stop of the arm at hand, leave."""
    kept = run.pace.keep_back(_needed(run), running=run.observed.running) + run.pace.longest(Kind.STOP)
    return run.downtime.deadline - time.monotonic() - kept


def _needed(run: "Execution") -> "list[Step]":
    """Return the steps to come that the verdict needs."""
    return [step for step in run.coming if step.arm not in run.may_fail]


def _no_room(run: "Execution") -> str | None:
    """Return why an arm must not begin, or None."""
    expected = _LIKELY * (run.pace.longest(Kind.START) + run.pace.longest(Kind.MEASURE))
    left = _left(run)
    if expected <= left:
        return None
    return (
        f"it would take about {expected:.0f} s, and of limits.downtime_s the verdict's own steps leave "
        f"{max(0.0, left):.0f} s"
    )


def _may_take(run: "Execution", step: "Step", *, weighed: bool) -> float:
    """Return the most seconds a step may take: of a setting of a search, all that the rest of the trial leaves."""
    if step.kind is Kind.STOP:
        return float("inf")
    if weighed:
        return _left(run)
    longest = run.pace.longest(Kind.START)
    if step.kind is not Kind.START:
        longest = max(longest, run.pace.longest(Kind.MEASURE))
    return min(max(LEAST_S, _TIMES * longest), _left(run))


def probe(run: "Execution", step: "Step") -> None:
    """Measure what the baseline's steps cost, while it is up."""
    server = run.server
    if server is None:
        return
    began = time.monotonic()
    log = Path(server.log)
    rows = [row for block in run.outcome.blocks if block.arm == step.arm for row in block.rows]
    kept = run.pace.keep_back(_needed(run), running=False) if run.downtime.deadline < float("inf") else 0.0
    with run.journal.step(step.id) as effect:
        found = probe_baseline(
            run.config.url,
            run.folder,
            rows,
            access=run.access,
            model=server.model,
            log=log if log.is_absolute() else run.folder / log,
            loads=loads_of(run.sweep),
            configs=[arm.speculative_config for arm in run.config.variants],
            seats=seats_in(run.plan.commands.get(step.arm, ()), server.follower.reader.facts().config),
            seconds=run.downtime.deadline - time.monotonic() - kept,
            tell=lambda what, done, whole: run.progress.count(done, whole, what),
        )
        effect["probed"] = found is None
    run.outcome.findings += [found] if found else []
    run.outcome.waited_s += time.monotonic() - began
    run.interrupts.check()


def profile(run: "Execution", step: "Step") -> None:
    """Run a few requests under the engine's profiler. What it wrote is read once the trial is over."""
    server = run.server
    if server is None:
        return
    began = time.monotonic()
    target = run.target_of(server)
    with run.journal.step(step.id) as effect:
        why = profile_server(
            target,
            run.requests.at(run.sweep[0], target),
            run.folder,
            step.arm,
            at_once=max(loads_of(run.sweep), default=1),
            seconds=run.deadline - time.monotonic(),
            tell=run.progress.now,
        )
        effect["profiled"] = why is None
    run.outcome.findings += [why] if why else []
    run.outcome.waited_s += time.monotonic() - began
    run.interrupts.check()


def _leave_out(run: "Execution", step: "Step", message: str) -> None:
    if step.kind is not Kind.STOP:  # what was measured before a stop that failed is whole
        run.outcome.given_up.add(step.arm)
        run.failures[step.arm] = message
    code = Code.SETTING_FAILED if step.arm in run.config.searched else Code.DIAGNOSTIC_FAILED
    run.outcome.findings.append(find(code, message, arm=step.arm))
    run.progress.line(message)


def _give_up(run: "Execution", step: "Step", error: Exception) -> None:
    """Say what an arm failed of, and end what is left of it."""
    log = _log_of(run, step)
    run.server = None
    why = told(error, run.folder)
    if isinstance(error, DraftworthError) and time.monotonic() >= run.own_deadline:
        why = f"its time was up: {step.about}"
        run.timed_out.add(step.arm)
    last = error.tail[-1:] if isinstance(error, ServerError) else ()
    where = f" (log: {log})" if log is not None and log.is_file() else ""
    _leave_out(run, step, ": ".join([f"{step.arm} was given up: {why}", *last]) + where)
    began = time.monotonic()
    try:
        _end(run, step)
    except Exception as failure:  # noqa: BLE001 - the next start, or the restore, ends it or says why not
        message = f"{step.arm} could not be ended: {told(failure, run.folder)}"
        run.outcome.findings.append(find(Code.LEFTOVERS, message, arm=step.arm))
    run.outcome.waited_s += time.monotonic() - began


def _log_of(run: "Execution", step: "Step") -> Path | None:
    """Return the log of the server that a step is about."""
    if step.kind is Kind.START:
        return log_of(run.folder, step)
    return None if run.server is None else run.folder / run.server.log


def _end(run: "Execution", step: "Step") -> None:
    """End this arm's own processes: those of its start, and whatever else has its mark."""
    mark = run.marks.get(step.arm)
    if mark is None:
        return
    running: Running | None = next((one for one in run.started.values() if one.mark == mark), None)
    if running is not None and run.observed.unit is not None and not run.service.alive(running):
        return  # the host has answered its end with the original
    now = run.service.refresh(running) if running is not None else None
    data = {} if now is None else {"running": now.model_dump(mode="json")}
    with run.journal.step(f"{step.id}-give-up", **data) as effect:
        remarks: list[str] = []
        if now is not None:
            run.started[now.leader] = now
            remarks += run.service.stop(now, run.progress.now)
        marked = run.service.find_marked(mark)
        if marked:
            remarks += run.service.clear((), marked, run.progress.now)
        effect["remarks"] = remarks
