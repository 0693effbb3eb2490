"""The steps of a trial's execution that start, hold and stop servers, and the server at hand."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.errors import MeasureError, ServerDiedError, ServerStartError, TrialError
from draftworth.findings import Code, find
from draftworth.services.base import Running, Start
from draftworth.services.processes import tail
from draftworth.trials.history import last_load
from draftworth.trials.profiling import TRIAL
from draftworth.trials.ready import LogFollower, wait_ready
from draftworth.trials.watch import LoadWatch, signs_of

if TYPE_CHECKING:
    from draftworth.trials.execute import Execution
    from draftworth.trials.steps import Step

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


def log_of(folder: Path, step: "Step") -> Path:
    """Return where the server of a step that starts one writes its log."""
    return folder / "logs" / f"{step.id}.log"


def stop_original(run: "Execution", step: "Step") -> None:
    """Stop the original, as it was found or as it was restored."""
    if not run.guard.alive():
        raise TrialError("the trial's guard has ended; without it the original is not stopped")
    began = time.monotonic()
    run.service.away(run.downtime.left_s)
    run.downtime.away()
    run.server = None
    restored = run.outcome.restored
    with run.journal.step(step.id) as effect:
        if restored is None or restored.running is None:
            remarks = run.service.stop_original(run.observed, run.progress.now)
        else:  # it was put back in between and is another process now
            remarks = run.service.stop(run.service.refresh(restored.running), run.progress.now)
        effect["remarks"] = list(remarks)
    run.outcome.findings += [find(Code.LEFTOVERS, f"the original: {remark}") for remark in remarks]
    run.outcome.waited_s += time.monotonic() - began


def start(run: "Execution", step: "Step") -> None:
    """Start an arm's server and wait until it has generated a token."""
    log = log_of(run.folder, step)
    mark = run.marks[step.arm] = f"{run.scene.mark}{step.id}"
    command = tuple(word.replace(TRIAL, str(run.folder)) for word in step.command)
    wanted = Start(command=command, env=dict(step.env), mark=mark, log=log, arm=step.arm)
    began = time.monotonic()
    shown = list(redact.command(step.command))
    with run.journal.step(step.id, command=shown, mark=wanted.mark, env=redact.environment(step.env)) as effect:
        running = run.service.start(wanted, run.progress.now)
        run.started[running.leader] = running
        effect["running"] = running.model_dump(mode="json")
    follower = LogFollower(log, run.engine.log_reader())
    try:
        model, running = _ready(run, running, follower, _watch(run, running, log, step.command))
    finally:
        run.outcome.waited_s += time.monotonic() - began
    run.service.settled(running, run.progress.now)
    run.started[running.leader] = running
    run.journal.append("note", step.id, running=running.model_dump(mode="json"), model=model)
    run.server = Server(running, model, follower, time.monotonic() - began, str(log.relative_to(run.folder)))


def _watch(run: "Execution", running: Running, log: Path, command: Sequence[str]) -> LoadWatch:
    """Return what tells a slow load from a hung one, and how long the last one took."""
    return LoadWatch(
        lambda: signs_of(run.service.pids(running), log, run.service.gpu_bytes()),
        silent_s=run.config.limits.silent_s,
        last_s=last_load(command),
    )


def _ready(
    run: "Execution", running: Running, follower: LogFollower, watch: LoadWatch | None = None
) -> tuple[str, Running]:
    began = time.monotonic()
    try:
        return wait_ready(
            run.service,
            running,
            follower,
            url=run.config.url,
            access=run.access,
            model=run.config.service.model,
            deadline=min(began + run.config.limits.start_timeout_s, run.deadline),
            say=run.progress.now,
            hint=run.engine.failure_hint,
            life=watch.words if watch else lambda: "",
        )
    except ServerStartError as error:
        limits, now = run.config.limits, time.monotonic()
        if now >= run.downtime.deadline:
            limit = f"limits.downtime_s ({limits.downtime_s:g} s)"
        elif now >= began + limits.start_timeout_s:
            limit = f"limits.start_timeout_s ({limits.start_timeout_s:g} s)"
        else:
            raise
        raise ServerStartError(f"{limit} was reached: {error}", error.tail) from None


def original(run: "Execution") -> Server:
    """Return the original as the server at hand: as it was found, or as it was restored."""
    restored = run.outcome.restored
    if restored is not None and restored.running is not None:
        follower = LogFollower(restored.running.log, run.engine.log_reader(), restored.log_offset)
        follower.read()
        name = run.config.service.model or restored.model or ""
        return Server(restored.running, name, follower, restored.seconds, str(restored.running.log))
    running = run.service.as_found(run.observed)
    size = running.log.stat().st_size if running.log.is_file() else 0
    follower = LogFollower(running.log, run.engine.log_reader(), max(0, size - _LOG_READ))
    follower.read()
    model, running = _ready(run, running, follower)
    return Server(running, model, follower, None, str(running.log))


def hold(run: "Execution", step: "Step") -> None:
    """Leave a variant up for a person, until the time is over or a file in the trial's folder says so."""
    server = run.server
    if server is None:
        return
    began = time.monotonic()
    until = min(began + run.config.limits.hold_s, run.downtime.deadline)
    held = run.folder / "held"
    held.touch()
    with run.journal.step(step.id, seconds=run.config.limits.hold_s):
        while time.monotonic() < until and not (run.folder / "release").exists():
            run.interrupts.check()
            if not run.service.alive(server.running):
                raise ServerDiedError(f"{step.arm} died while it was held", tail(server.running.log))
            run.progress.now(f"{run.config.url} is {step.arm}, {until - time.monotonic():.0f} s left")
            time.sleep(0.5)
    held.unlink(missing_ok=True)
    run.outcome.waited_s += time.monotonic() - began


def stop(run: "Execution", step: "Step") -> None:
    """Stop the server at hand and wait until nothing of it is left."""
    server, run.server = run.server, None
    if server is None:
        return
    began = time.monotonic()
    running = run.service.refresh(server.running)
    run.started[running.leader] = running
    with run.journal.step(step.id, running=running.model_dump(mode="json")) as effect:
        remarks = run.service.stop(running, run.progress.now)
        effect["remarks"] = list(remarks)
    run.outcome.findings += [find(Code.LEFTOVERS, f"{step.arm}: {remark}", arm=step.arm) for remark in remarks]
    run.outcome.waited_s += time.monotonic() - began


def blame(run: "Execution", error: MeasureError) -> None:
    """Say that the server died, where that is why requests failed."""
    server = run.server
    if server is not None and died(run, server):
        lines = tail(server.running.log)
        raise ServerDiedError(f"the server died while it was measured; {error}", lines) from None
    raise error


def died(run: "Execution", server: Server) -> bool:
    """Whether a server that failed a request has ended; a big one takes a moment to do so."""
    deadline = time.monotonic() + _DYING_S
    while run.service.alive(server.running):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
