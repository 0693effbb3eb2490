"""How the original is recognised among the machine's processes: by command, folder, environment and port."""

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from draftworth.services.base import Observed, ProcessId
from draftworth.services.processes import (
    argv_of,
    environment_hash,
    environment_of,
    everyone,
    family,
    identify,
    session_of,
)


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


def parents_of(process: ProcessId) -> list[ProcessId]:
    """Return a process and its ancestors below init, nearest first; what is gone meanwhile is left out."""
    try:
        chain = [process.pid, *(parent.pid for parent in psutil.Process(process.pid).parents())]
    except (psutil.Error, OSError):
        chain = [process.pid]
    return [found for pid in chain if pid > 1 and (found := identify(pid))]


def started_with(chain: Sequence[ProcessId], command: Sequence[str], *, exactly: bool = False) -> ProcessId | None:
    """Return the process of a chain of ancestors that was started with a command, or None.

    Args:
        chain: a process and its ancestors, nearest first.
        command: the command.
        exactly: the argv must be equal; otherwise `same_command` decides.
    """
    found: ProcessId | None = None
    for process in chain:
        argv = argv_of(process.pid)
        if found is None:
            if argv == tuple(command) if exactly else same_command(argv, command):
                found = process
        elif argv == argv_of(found.pid):
            found = process  # a worker forked without exec has its parent's argv; the parent is the service
        else:
            break
    return found


def alike(process: ProcessId, observed: Observed) -> bool:
    """Whether a process has exactly the original's argv, folder and environment."""
    if argv_of(process.pid) != observed.command:
        return False
    try:
        if observed.cwd is not None and str(Path(f"/proc/{process.pid}/cwd").readlink()) != observed.cwd:
            return False
        return observed.env_hash is None or environment_hash(environment_of(process.pid)) == observed.env_hash
    except OSError:
        return False


def parent_of(process: ProcessId) -> ProcessId | None:
    """Return a process's parent, or None."""
    try:
        return identify(psutil.Process(process.pid).ppid())
    except (psutil.Error, OSError):
        return None


def own_session(process: ProcessId) -> int:
    """Return the session a process leads, or 0: one it was started in may hold a person's shell."""
    return process.pid if session_of(process.pid) == process.pid else 0


def twins_of(original: ProcessId) -> tuple[ProcessId, ...]:
    """Return the other processes with the original's argv that are neither below nor above it: its replicas."""
    argv = argv_of(original.pid)
    own = family(original, own_session(original), None, ()) | set(parents_of(original))
    return tuple(process for process in everyone() if process not in own and argv_of(process.pid) == argv)


def waiting_with(command: Sequence[str]) -> ProcessId | None:
    """Return a process that runs a command, wherever it listens; the oldest, this tool left out."""
    found = [p for p in everyone() if p.pid != os.getpid() and same_command(argv_of(p.pid), command)]
    return min(found, key=lambda process: process.started, default=None)
