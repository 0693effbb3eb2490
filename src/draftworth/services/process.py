"""A service that is a plain process: a command Draftworth starts and stops itself.

Where the original runs already, it is recognised by its command line on the service's port, and every arm starts
from what the kernel says of it (argv, environment, folder), so that only the declared difference differs.
"""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from draftworth.errors import RefusedError, TrialError
from draftworth.redact import command as redacted
from draftworth.services.base import MARK, Observed, ProcessId, Running, Start, Tell
from draftworth.services.launch import forget, launch, save, start_saved
from draftworth.services.processes import (
    describe,
    end,
    everyone,
    family,
    identify,
    is_alive,
    listener,
    mark_of,
    port_taken,
    reap,
    session_of,
    wait_for_free_port,
)
from draftworth.services.shm import names, remove, stale

if TYPE_CHECKING:
    from draftworth.trials.config import ServiceConfig


_WORTH_A_REMARK = 2**20  # every server leaves a few kilobytes


class ProcessService:
    """See `services.base.Service` for what each method promises."""

    def __init__(self, config: "ServiceConfig", command: tuple[str, ...], *, stop_timeout_s: float) -> None:
        self._config = config
        self._command = command
        self._patience_s = stop_timeout_s
        self._base_env: dict[str, str] | None = None
        self._base_cwd: str | None = None

    def observe(self) -> Observed:
        """Return what holds the port now."""
        port, host = self._config.port, self._config.host
        if not port_taken(port, host):
            return Observed(running=False)
        holder = listener(port, host)
        if holder is None:
            raise RefusedError(f"port {port} is taken by a process this user cannot see; run as its user, or as root")
        if mark := mark_of(holder.pid):
            trial = mark.split("/")[0]
            raise RefusedError(
                f"port {port} is held by what trial {trial} left behind ({describe(holder)}); "
                f"run `draftworth trial restore {trial}` first"
            )
        original = self._match(holder)
        if original is None:
            argv = _argv(holder)
            raise RefusedError(
                f"port {port} is taken by {describe(holder)}; if that is the service, set service.command to exactly "
                f"{json.dumps(list(argv))}, otherwise stop it or choose another port"
            )
        process = psutil.Process(original.pid)
        try:
            self._base_env = {k: v for k, v in process.environ().items() if k != MARK}
            self._base_cwd = process.cwd()
        except psutil.AccessDenied:
            raise RefusedError(
                f"{describe(original)} cannot be inspected by this user, so it could not be put back; "
                f"run as {process.username()}, or as root"
            ) from None
        return Observed(
            running=True,
            process=original,
            command=_argv(original),
            cwd=self._base_cwd,
            log=_stdout_file(original.pid),
            user=process.username(),
        )

    def _match(self, holder: ProcessId) -> ProcessId | None:
        """Return the process among the port's holder and its ancestors that was started with our command."""
        try:
            chain = [psutil.Process(holder.pid), *psutil.Process(holder.pid).parents()]
        except psutil.Error:
            return None
        for process in chain:
            if process.pid > 1 and same_command(_cmdline(process), self._command):
                return identify(process.pid)
        return None

    def start(self, start: Start, tell: Tell) -> Running:
        """Start a server in a session of its own, its output in `start.log`."""
        base = dict(os.environ) if self._base_env is None else self._base_env
        env = {**base, **self._config.env, **start.env, MARK: start.mark}
        tell(f"starting {Path(start.command[0]).name}, log {start.log}")
        before = names()
        running = launch(start.command, env, self._base_cwd or str(self._config.cwd or "."), start.log, start.mark)
        return running.model_copy(update={"shm_before": before})

    def alive(self, running: Running) -> bool:
        """Whether the leader still runs."""
        reap()
        return is_alive(running.leader)

    def owns_port(self, running: Running) -> bool:
        """Whether the listener on the port is of this start."""
        holder = listener(self._config.port, self._config.host)
        return holder is not None and holder in self._members(running)

    def _members(self, running: Running) -> set[ProcessId]:
        return family(running.leader, running.session, running.mark or None, running.seen)

    def refresh(self, running: Running) -> Running:
        """Return the start with its present children added to `seen`."""
        members = self._members(running) | set(running.seen)
        return running.model_copy(update={"seen": tuple(sorted(members, key=lambda process: process.pid))})

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
        if not wait_for_free_port(self._config.port, self._config.host, 10.0):
            raise TrialError(
                f"port {self._config.port} is taken again right after the stop, by {self.holder()}: "
                "something restarts the service; run the trial on what supervises it"
            )
        return remarks

    def stop_original(self, observed: Observed, tell: Tell) -> Sequence[str]:
        """End the original and everything that descends from it."""
        process = observed.process
        if process is None or not is_alive(process):
            return self._stopped(())
        tell(f"stopping the original, pid {process.pid}")
        session = self._running(process, observed).session
        known = family(process, session, None, ())
        return self._stopped(end(lambda: family(process, session, None, known), process, self._patience_s))

    def save_original(self, observed: Observed, folder: Path) -> None:
        """Write what starts the original again, readable by its owner only: the environment may hold keys."""
        if observed.running and observed.process is not None:
            save(observed, self._base_env or {}, folder)

    def forget_original(self, folder: Path) -> None:
        """Remove what `save_original` wrote; called once the restore is verified."""
        forget(folder)

    def start_original(self, observed: Observed, folder: Path, tell: Tell) -> Running:
        """Start the original as it was: argv, environment, folder, log, user, nice value and processors."""
        tell(f"starting the original: {shlex.join(redacted(observed.command))}")
        return start_saved(observed, folder)

    def as_found(self, observed: Observed) -> Running:
        """Return the original as it was observed."""
        process = observed.process
        if process is None or not is_alive(process):
            raise TrialError("the original ended by itself before it was measured")
        return self._running(process, observed)

    def _running(self, process: ProcessId, observed: Observed) -> Running:
        session = session_of(process.pid)
        log = Path(observed.log or os.devnull)
        # Only a session it leads is its own; one it was started in may hold a person's shell.
        return Running(leader=process, session=process.pid if session == process.pid else 0, mark="", log=log)

    def find_original(self, observed: Observed) -> Running | None:
        """Return the original if a process with its exact argv and folder runs, not started for a trial's arm."""
        for process in everyone():
            if not same_process(process, observed) or mark_of(process.pid):
                continue
            parent = psutil.Process(process.pid).ppid()
            # A fork of it, between fork and exec, has the same argv; the original itself is the older one.
            found = identify(parent)
            if found and same_process(found, observed):
                continue
            return self._running(process, observed)
        return None

    def holder(self) -> str | None:
        """Return who holds the port, for a person."""
        port, host = self._config.port, self._config.host
        if not port_taken(port, host):
            return None
        found = listener(port, host)
        return describe(found) if found else "a process this user cannot see"

    def find_marked(self, prefix: str) -> Sequence[ProcessId]:
        """Return every process whose mark starts with `prefix`."""
        return [process for process in everyone() if (mark_of(process.pid) or "").startswith(prefix)]

    def clear(self, started: Sequence[Running], marked: Sequence[ProcessId], tell: Tell) -> Sequence[str]:
        """End what a dead trial left, with everything in a recorded session and every descendant."""

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
    left = stale(running.shm_before, {running.leader.pid, *(process.pid for process in running.seen)})
    freed = remove(left)
    if freed < _WORTH_A_REMARK:
        return ()
    return [f"left {freed / 2**20:.0f} MiB of shared memory in {len(left)} files of /dev/shm, which were removed"]


def same_command(argv: Sequence[str], command: Sequence[str]) -> bool:
    """Whether a running process's argv is what a command starts.

    The kernel shows a script as `[interpreter, script, …]` and keeps whatever argv[0] the caller gave, so the
    program is compared by its last path part and everything after it exactly.
    """
    if not argv or not command:
        return False
    for skip in (0, 1):
        rest = argv[skip:]
        same_name = bool(rest) and Path(rest[0]).name == Path(command[0]).name
        if same_name and tuple(rest[1:]) == tuple(command[1:]):
            return True
    return False


def same_process(process: ProcessId, observed: Observed) -> bool:
    """Whether a process has exactly the original's argv and folder."""
    if _argv(process) != observed.command:
        return False
    try:
        return observed.cwd is None or psutil.Process(process.pid).cwd() == observed.cwd
    except psutil.Error:
        return False


def _argv(process: ProcessId) -> tuple[str, ...]:
    try:
        return _cmdline(psutil.Process(process.pid))
    except psutil.Error:
        return ()


def _cmdline(process: psutil.Process) -> tuple[str, ...]:
    try:
        return tuple(process.cmdline())
    except psutil.Error:
        return ()


def _stdout_file(pid: int) -> str | None:
    try:
        target = Path(f"/proc/{pid}/fd/1").readlink()
        return str(target) if target.is_file() else None
    except OSError:
        return None
