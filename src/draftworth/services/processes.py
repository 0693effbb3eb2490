"""Processes and ports of this machine: who they are, who belongs together, how they end."""

import contextlib
import ctypes
import hashlib
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
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
    fields = text[text.rfind(")") + 2 :].split()
    return fields if len(fields) > _STAT_START else None


def born(pid: int) -> ProcessId | None:
    """Return the process that has this pid now, a zombie too, or None."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid=pid, started=int(stat[_STAT_START]), boot=boot_id())


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


def argv_of(pid: int) -> tuple[str, ...]:
    """Return a process's argv as the kernel has it, or nothing where it is gone or cannot be seen."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in raw.removesuffix(b"\0").split(b"\0")) if raw else ()


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment a process was started with, its mark left out.

    Bytes that are not UTF-8 stay as surrogate escapes. Where a name comes twice, the first counts, as for getenv(3).

    Raises:
        OSError: it is gone, or belongs to another user.
    """
    env: dict[str, str] = {}
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        name, equals, value = os.fsdecode(entry).partition("=")
        if name and equals and name != MARK:
            env.setdefault(name, value)
    return env


def environment_hash(env: Mapping[str, str]) -> str:
    """Return the SHA-256 (hex) of an environment: sorted `NAME=value`, joined by NUL, without the mark."""
    entries = sorted(os.fsencode(f"{name}={value}") for name, value in env.items() if name != MARK)
    return hashlib.sha256(b"\0".join(entries)).hexdigest()


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
        session: the session it leads; counts only while no other process than `leader` has that pid.
        mark: its mark; matches the mark itself or, where it ends in `/`, everything below it.
        known: processes seen before; only those still alive count.
    """
    members = {process for process in known if is_alive(process)}
    session_counts = _session_is_ours(session, leader)
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
        recent = leader is None or process.started >= leader.started
        in_session = session_counts and recent and int(stat[_STAT_SESSION]) == session
        if in_session or _is_marked(pid, mark):
            members.add(process)
    pids = {process.pid for process in members}
    grew = True
    while grew:
        children = {pid for pid, parent in parents.items() if parent in pids and pid not in pids}
        grew = bool(children)
        pids |= children
        members |= {table[pid] for pid in children}
    return members


def _session_is_ours(session: int | None, leader: ProcessId | None) -> bool:
    """Whether a recorded session id still means the session that was recorded.

    The kernel does not reuse a session's id while a member lives. So where another process than the recorded leader
    has that pid, every recorded member is gone and the session is a stranger's.
    """
    if not session or (leader is not None and leader.boot != boot_id()):
        return False
    holder = born(session)
    return holder is None or holder == leader


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


@lru_cache(maxsize=8)
def _resolved(host: str) -> frozenset[str]:
    # An error is not kept, an answer is: this is asked many times a second while a port becomes free.
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(str(address[4][0]).partition("%")[0] for address in found)


def addresses(host: str) -> frozenset[str] | None:
    """Return every local address at which a listener serves `host`, the wildcards included; None: any address."""
    try:
        found = _resolved(host)
    except (OSError, UnicodeError):
        found = frozenset({host})
    wildcards = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    if found & wildcards:
        return None
    return found | wildcards | {f"::ffff:{address}" for address in found if ":" not in address}


def listeners(port: int, host: str | None = None) -> list[ProcessId | None]:
    """Return every TCP listener on a port of this machine; None for one that this user cannot look into."""
    wanted = None if host is None else addresses(host)
    found: list[ProcessId | None] = []
    for connection in psutil.net_connections(kind="tcp"):
        local: Any = connection.laddr  # an empty tuple where there is none
        if connection.status != psutil.CONN_LISTEN or not local or local.port != port:
            continue
        if wanted is None or local.ip.partition("%")[0] in wanted:
            found.append(identify(connection.pid) if connection.pid else None)
    return found


def listener(port: int, host: str | None = None) -> ProcessId | None:
    """Return the process listening on a TCP port of this machine, or None where nobody does or it cannot be seen."""
    return next((found for found in listeners(port, host) if found), None)


def port_taken(port: int, host: str | None = None) -> bool:
    """Whether anything listens on the port, also a process that this user cannot look into."""
    return bool(listeners(port, host))


def describe(process: ProcessId) -> str:
    """Name a process for a person: pid, user, command line (secrets hidden, shortened)."""
    from draftworth import redact  # noqa: PLC0415 - lazy: only where something is told

    try:
        found = psutil.Process(process.pid)
        command = " ".join(redact.command(argv_of(process.pid))) or found.name()
        user = found.username()
    except (psutil.Error, OSError):
        return f"pid {process.pid}"
    shown = command if len(command) <= 100 else command[:97] + "..."  # noqa: PLR2004 - one line of a terminal
    shown = " ".join(shown.encode(errors="replace").decode().split())
    return f"pid {process.pid} of {user}: {shown}"


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
