"""Processes and ports of this machine: who they are, who belongs together, how they end."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from draftworth.services.base import MARK, ProcessId

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_STAT_START = 19  # field 22 of proc_pid_stat(5), counted from the field after the command's closing parenthesis
_STAT_SESSION = 3  # field 6
_STAT_STATE = 0  # field 3


@cache
def boot_id() -> str:
    """Return the kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text[text.rfind(")") + 2 :].split()


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this pid now, or None; a zombie counts as gone."""
    stat = _stat(pid)
    if stat is None or stat[_STAT_STATE] in {"Z", "X"}:
        return None
    return ProcessId(pid=pid, started=int(stat[_STAT_START]), boot=boot_id())


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def session_of(pid: int) -> int | None:
    """Return the session id of a pid."""
    stat = _stat(pid)
    return int(stat[_STAT_SESSION]) if stat else None


def everyone() -> list[ProcessId]:
    """Return every process of the machine that this user can see."""
    return [found for pid in psutil.pids() if (found := identify(pid))]


def mark_of(pid: int) -> str | None:
    """Return the mark in a process's environment, or None.

    A process that rewrites its title may overwrite its environment, so a missing mark proves nothing.
    """
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    key = f"{MARK}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(key):
            return entry[len(key) :].decode(errors="replace")
    return None


def family(
    leader: ProcessId | None, session: int | None, mark: str | None, known: Iterable[ProcessId]
) -> set[ProcessId]:
    """Return every living process of a start: by session, by descent, by mark, and those seen before.

    Args:
        leader: the process that was started, or None where only its mark is known.
        session: the session it leads.
        mark: its mark; matches the mark itself or, where it ends in `/`, everything below it.
        known: processes seen before; only those still alive count.
    """
    members = {process for process in known if is_alive(process)}
    if leader is not None and is_alive(leader):
        members.add(leader)
    myself = os.getpid()
    parents: dict[int, int] = {}
    table = {process.pid: process for process in everyone()}
    for pid, process in table.items():
        stat = _stat(pid)
        if stat is None or pid == myself:
            continue
        parents[pid] = int(stat[1])
        if _in_session(process, int(stat[_STAT_SESSION]), session, leader) or _is_marked(pid, mark):
            members.add(process)
    pids = {process.pid for process in members}
    grew = True
    while grew:
        children = {pid for pid, parent in parents.items() if parent in pids and pid not in pids}
        grew = bool(children)
        pids |= children
        members |= {table[pid] for pid in children}
    return members


def _in_session(process: ProcessId, actual: int, session: int | None, leader: ProcessId | None) -> bool:
    # A session id is its leader's pid, and is not reused while any member lives.
    return bool(session) and actual == session and (leader is None or process.started >= leader.started)


def _is_marked(pid: int, mark: str | None) -> bool:
    if not mark:
        return False
    found = mark_of(pid)
    return found is not None and (found == mark or (mark.endswith("/") and found.startswith(mark)))


def become_subreaper() -> None:
    """Make orphans of our children our own, so that none escapes by losing its parent (prctl(2))."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_ended: dict[int, int] = {}


def reap() -> None:
    """Collect children that ended, so that no zombie of ours stays."""
    with contextlib.suppress(ChildProcessError):
        while (result := os.waitpid(-1, os.WNOHANG))[0]:
            _ended[result[0]] = os.waitstatus_to_exitcode(result[1])


def exit_code(pid: int) -> int | None:
    """Return how a child of ours ended (negative: by that signal), or None where that is not known."""
    reap()
    return _ended.get(pid)


def _listeners(port: int, host: str | None) -> list[int | None]:
    """Return the pid of every TCP listener on a port; None where this user cannot see it."""
    wanted = None if host is None else {host, "0.0.0.0", "::", f"::ffff:{host}"}  # noqa: S104 - compared, not bound
    pids: list[int | None] = []
    for connection in psutil.net_connections(kind="tcp"):
        local: Any = connection.laddr  # an empty tuple where there is none
        if connection.status != psutil.CONN_LISTEN or not local or local.port != port:
            continue
        if wanted is None or local.ip in wanted:
            pids.append(connection.pid)
    return pids


def listener(port: int, host: str | None = None) -> ProcessId | None:
    """Return the process listening on a TCP port of this machine, or None where nobody does or it cannot be seen."""
    pid = next((pid for pid in _listeners(port, host) if pid), None)
    return identify(pid) if pid else None


def port_taken(port: int, host: str | None = None) -> bool:
    """Whether anything listens on the port, also a process that this user cannot look into."""
    return bool(_listeners(port, host))


def describe(process: ProcessId) -> str:
    """Name a process for a person: pid, user, command line (shortened)."""
    try:
        found = psutil.Process(process.pid)
        command = " ".join(found.cmdline()) or found.name()
        user = found.username()
    except psutil.Error:
        return f"pid {process.pid}"
    shown = command if len(command) <= 100 else command[:97] + "..."  # noqa: PLR2004 - one line of a terminal
    return f"pid {process.pid} of {user}: {shown}"


def end(members: Callable[[], set[ProcessId]], leader: ProcessId | None, patience_s: float) -> tuple[str, ...]:
    """End a family: SIGTERM to its leader first, then to the rest, then SIGKILL until nobody is left.

    Args:
        members: returns who is alive now; asked again and again, since a family can grow while it ends.
        leader: gets SIGTERM alone first, so that a server can end its own workers in order; None: all at once.
        patience_s: seconds before SIGKILL.

    Returns:
        Remarks for a person: who had to be killed, and who is left (that one starts with `LEFT`).
    """
    deadline = time.monotonic() + patience_s
    if leader is not None:
        _signal(leader, signal.SIGTERM)
        if _wait(lambda: not members() or leader not in members(), deadline) and not members():
            return ()
        # The leader is gone and left these behind (vllm#55510): they get a chance to end in order too.
        deadline = min(deadline, time.monotonic() + 5.0)
    if time.monotonic() < deadline:
        for process in members():
            _signal(process, signal.SIGTERM)
        if _wait(lambda: not members(), deadline):
            return ()
    stubborn = members()
    remarks = (
        ["did not end on SIGTERM and was killed: " + "; ".join(sorted(map(describe, stubborn)))] if stubborn else []
    )
    last = time.monotonic() + 10.0
    while (stubborn := members()) and time.monotonic() < last:
        for process in stubborn:
            _signal(process, signal.SIGKILL)
        time.sleep(0.05)
        reap()
    if stubborn:
        remarks.append("LEFT running after SIGKILL: " + "; ".join(sorted(map(describe, stubborn))))
    return tuple(remarks)


def _wait(done: Callable[[], bool], deadline: float) -> bool:
    """Poll until done or the deadline of the monotonic clock. Returns whether it was done."""
    while True:
        reap()
        if done():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _signal(process: ProcessId, number: signal.Signals) -> None:
    # Checked again right before, so that a recycled pid is not hit.
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def wait_for_free_port(port: int, host: str, patience_s: float) -> bool:
    """Wait until nobody listens on the port. Returns whether that was so in time."""
    deadline = time.monotonic() + patience_s
    while port_taken(port, host):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def tail(path: Path, lines: int = 15, limit: int = 65536) -> Sequence[str]:
    """Return the last non-empty lines of a log, or nothing where there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
