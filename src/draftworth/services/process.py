"""A service that is a plain process: a command Draftworth starts and stops itself.

Where the original runs already, it is recognised by its command line on the service's port, and every arm starts
from what the kernel says of it (argv, environment, folder), so that only the declared difference differs.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import psutil

from draftworth.errors import DraftworthError, RefusedError, TrialError
from draftworth.redact import command as redacted
from draftworth.services.base import MARK, Observed, ProcessId, Running, Start, Tell
from draftworth.services.conditions import streams_of
from draftworth.services.ending import end, wait_for_free_port
from draftworth.services.launch import Found, forget, launch, save, start_saved
from draftworth.services.observe import look
from draftworth.services.processes import (
    describe,
    everyone,
    exit_code,
    family,
    is_alive,
    listener,
    listeners,
    mark_of,
    port_taken,
    reap,
)
from draftworth.services.recognise import alike, own_session, parent_of, parents_of, started_with
from draftworth.services.shm import names, remove, stale, used_by

if TYPE_CHECKING:
    from draftworth.trials.config import ServiceConfig

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[Concatenate["ProcessService", _P], _R]

_WORTH_A_REMARK = 2**20  # every server leaves a few kilobytes


def _fails_as(error: type[DraftworthError]) -> Callable[[_Method[_P, _R]], _Method[_P, _R]]:
    """Turn what /proc and psutil raise (a process that ended meanwhile, another user's) into an expected failure."""

    def decorate(method: _Method[_P, _R]) -> _Method[_P, _R]:
        @wraps(method)
        def wrapped(self: "ProcessService", /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return method(self, *args, **kwargs)
            except (psutil.Error, OSError) as problem:
                raise error(f"the service on port {self.port} cannot be looked at or changed: {problem}") from None

        return wrapped

    return decorate


class ProcessService:
    """See `services.base.Service` for what each method promises."""

    def __init__(self, config: "ServiceConfig", command: tuple[str, ...], *, stop_timeout_s: float) -> None:
        self._config = config
        self._command = command
        self._patience_s = stop_timeout_s
        self._found: Found | None = None

    @property
    def port(self) -> int:
        """The service's port."""
        return self._config.port

    @_fails_as(RefusedError)
    def observe(self) -> Observed:
        """Return what holds the port now."""
        self._found = None
        observed, self._found = look(self.port, self._config.host, self._command)
        return observed

    def join(self, folder: Path, observed: Observed) -> None:
        """Nothing to do: what it needs it is given with each call."""

    def settled(self, running: Running, tell: Tell) -> None:
        """Nothing depends on a plain process that Draftworth knows of."""

    def exit_code(self, running: Running) -> int | None:
        """Return how a start's leader ended."""
        return exit_code(running.leader.pid)

    def pids(self, running: Running) -> Sequence[int]:
        """Return the pids that a start has now."""
        return [process.pid for process in self._members(running)]

    def gpu_bytes(self) -> int | None:
        """Return None: a plain process's GPUs are not looked at."""
        return None

    def away(self, seconds: float) -> None:
        """Nothing to do: the guard waits for the tool's death, and the tool keeps the time."""

    def verify_original(
        self,
        observed: Observed,  # noqa: ARG002 - the protocol's
        running: Running,  # noqa: ARG002
        tell: Tell,  # noqa: ARG002
    ) -> Sequence[str]:
        """Nothing beyond what its answer shows."""
        return ()

    def commands(self) -> Sequence[str]:
        """Nothing: the journal and the script beside it have it."""
        return ()

    @_fails_as(TrialError)
    def start(self, start: Start, tell: Tell) -> Running:
        """Start a server in a session of its own, its output in `start.log`."""
        found = self._found
        base = dict(os.environ) if found is None else found.env
        env = {**base, **self._config.env, **start.env, MARK: start.mark}
        tell(f"starting {Path(start.command[0]).name}, log {start.log}")
        before = names()
        cwd = str(self._config.cwd or ".") if found is None else found.cwd
        conditions = None if found is None else found.conditions
        running = launch(start.command, env, cwd, start.log, start.mark, conditions=conditions)
        return running.model_copy(update={"shm_before": before})

    @_fails_as(TrialError)
    def alive(self, running: Running) -> bool:
        """Whether the leader still runs."""
        reap()
        return is_alive(running.leader)

    @_fails_as(TrialError)
    def owns_port(self, running: Running) -> bool:
        """Whether somebody listens on the port, and every listener is of this start."""
        holders = listeners(self.port, self._config.host)
        return bool(holders) and set(holders) <= self._members(running)

    def _members(self, running: Running) -> set[ProcessId]:
        return family(running.leader, running.session, running.mark or None, running.seen)

    @_fails_as(TrialError)
    def refresh(self, running: Running) -> Running:
        """Return the start with its present children added to `seen`."""
        living = self._members(running)
        members = sorted(living | set(running.seen), key=lambda process: process.pid)
        used: set[str] = set()
        if running.shm_before is not None:
            used = used_by(process.pid for process in living) - set(running.shm_before)
        return running.model_copy(
            update={"seen": tuple(members), "shm_seen": tuple(sorted(used | set(running.shm_seen)))}
        )

    @_fails_as(TrialError)
    def stop(self, running: Running, tell: Tell) -> Sequence[str]:
        """End every process of a start and wait for the port."""
        tell(f"stopping pid {running.leader.pid}")
        running = self.refresh(running)
        remarks = self._stopped(end(lambda: self._members(running), running.leader, self._patience_s))
        return [*remarks, *_free_memory(running)]

    def _stopped(self, remarks: Sequence[str]) -> Sequence[str]:
        left = [remark for remark in remarks if remark.startswith("LEFT")]
        if left:
            raise TrialError(f"processes stay although they were killed: {left[0].removeprefix('LEFT ')}")
        if not wait_for_free_port(self.port, self._config.host, 10.0):
            raise TrialError(
                f"port {self.port} is taken again right after the stop, by {self.holder()}: "
                "something restarts the service; run the trial on what supervises it"
            )
        return remarks

    @_fails_as(TrialError)
    def stop_original(self, observed: Observed, tell: Tell) -> Sequence[str]:
        """End the original and everything that descends from it."""
        process = observed.process
        if process is None or not is_alive(process):
            return self._stopped(())
        tell(f"stopping the original, pid {process.pid}")
        session = own_session(process)
        known = family(process, session, None, ())
        return self._stopped(end(lambda: family(process, session, None, known), process, self._patience_s))

    @_fails_as(TrialError)
    def save_original(self, observed: Observed, folder: Path) -> None:
        """Write what starts the original again, readable by its owner only: the environment may hold keys."""
        if not observed.running or observed.process is None:
            return
        if self._found is None:
            raise TrialError("the original was not looked at by this run, so what puts it back is not known")
        save(observed, self._found, folder)

    @_fails_as(TrialError)
    def forget_original(self, folder: Path) -> None:
        """Remove what `save_original` wrote; called once the restore is verified."""
        forget(folder)

    @_fails_as(TrialError)
    def start_original(self, observed: Observed, folder: Path, tell: Tell) -> Running:
        """Start the original as it was: argv, environment, folder, logs, and all `Conditions`."""
        tell(f"starting the original: {shlex.join(redacted(observed.command))}")
        return start_saved(observed, folder)

    @_fails_as(TrialError)
    def as_found(self, observed: Observed) -> Running:
        """Return the original as it was observed."""
        process = observed.process
        if process is None or not is_alive(process):
            raise TrialError("the original ended by itself before it was measured")
        return self._running(process, observed)

    def _running(self, process: ProcessId, observed: Observed) -> Running:
        log = Path(observed.log or os.devnull)
        return Running(leader=process, session=own_session(process), mark="", log=log)

    @_fails_as(TrialError)
    def find_original(self, observed: Observed) -> Running | None:
        """Return the original if a process with its argv, folder and environment runs that no arm's start made."""
        for process in everyone():
            if process in observed.twins or not alike(process, observed) or mark_of(process.pid):
                continue
            # A fork of it, between fork and exec, has the same argv; the original itself is the older one.
            parent = parent_of(process)
            if parent and parent not in observed.twins and alike(parent, observed) and not mark_of(parent.pid):
                continue
            return self._running(process, observed)
        return None

    @_fails_as(TrialError)
    def find_holder(self, observed: Observed) -> Running | None:
        """Return the unmarked process that serves the port with the original's argv, or None."""
        for holder in listeners(self.port, self._config.host):
            found = started_with(parents_of(holder), observed.command, exactly=True) if holder else None
            if holder is None or found is None or mark_of(holder.pid) or mark_of(found.pid):
                continue
            log = streams_of(found.pid).log
            return self._running(found, observed).model_copy(update={"log": Path(log or os.devnull)})
        return None

    @_fails_as(TrialError)
    def holder(self) -> str | None:
        """Return who holds the port, for a person."""
        if not port_taken(self.port, self._config.host):
            return None
        found = listener(self.port, self._config.host)
        return describe(found) if found else "a process this user cannot see"

    @_fails_as(TrialError)
    def find_marked(self, prefix: str) -> Sequence[ProcessId]:
        """Return every process whose mark starts with `prefix`."""
        return [process for process in everyone() if (mark_of(process.pid) or "").startswith(prefix)]

    @_fails_as(TrialError)
    def clear(self, started: Sequence[Running], marked: Sequence[ProcessId], tell: Tell) -> Sequence[str]:
        """End what a dead trial left, with everything in a recorded session and every descendant."""
        started = [self.refresh(running) for running in started]

        def members() -> set[ProcessId]:
            found = family(None, None, None, marked)
            for running in started:
                found |= self._members(running)
            for process in list(found):
                found |= family(process, None, None, ())
            return found

        known = members()
        remarks: Sequence[str] = ()
        if known:
            tell("ending what the trial left: " + "; ".join(sorted(map(describe, known))))
            remarks = self._stopped(end(members, None, self._patience_s))
        return [*remarks, *(remark for running in started for remark in _free_memory(running))]


def _free_memory(running: Running) -> Sequence[str]:
    """Remove the shared memory an ended start left. Returns a remark where it was worth one."""
    if running.shm_before is None:
        return ()
    pids = {running.leader.pid, *(process.pid for process in running.seen)}
    left = stale(running.shm_before, pids, running.shm_seen, running.uid)
    freed = remove(left)
    if freed < _WORTH_A_REMARK:
        return ()
    return [f"left {freed / 2**20:.0f} MiB of shared memory in {len(left)} files of /dev/shm, which were removed"]
