"""The conditions a process runs under, read from a running one and given to the next.

The original gets them back when it is put back, and every arm starts with them, so that only the declared difference
differs: an original under `taskset` is not compared with a variant on all processors.
"""

import contextlib
import os
import resource
from pathlib import Path
from typing import Any

from draftworth.models import Frozen

_LIMITS = {name: value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}
del _LIMITS["RLIMIT_OFILE"]  # another name of RLIMIT_NOFILE


class Conditions(Frozen):
    """What a process inherits besides argv, environment and folder; None where it could not be read."""

    uid: int | None = None
    """Effective user."""
    gid: int | None = None
    """Effective group."""
    groups: tuple[int, ...] | None = None
    """Supplementary groups."""
    nice: int | None = None
    affinity: tuple[int, ...] | None = None
    """Processors its threads may use, all threads together: a library may bind a single thread to one processor."""
    umask: int | None = None
    oom_score_adj: int | None = None
    limits: dict[str, tuple[int, int]] = {}
    """Soft and hard limit by name in `resource`; -1 is infinite."""

    def account(self) -> tuple[int, int, tuple[int, ...]] | None:
        """Return (user, group, other groups) to switch to, or None where the tool has them or may not switch."""
        if os.geteuid() != 0 or self.uid is None or self.gid is None or self.groups is None:
            return None
        mine = (os.geteuid(), os.getegid(), sorted(os.getgroups()))
        return None if (self.uid, self.gid, sorted(self.groups)) == mine else (self.uid, self.gid, self.groups)

    def enter(self) -> None:
        """Give the calling thread, and what is started from it, the processors and the nice value.

        Both belong to a thread in Linux (sched(7)), so a thread that ends afterwards needs no way back.
        """
        if self.affinity:
            with contextlib.suppress(OSError, ValueError):
                os.sched_setaffinity(0, self.affinity)
        if self.nice is not None:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, self.nice)

    def apply(self, pid: int) -> None:
        """Give a process that was just started the limits and the OOM score; what is not allowed is left out."""
        for name, (soft, hard) in self.limits.items():
            if name in _LIMITS:
                _limit(pid, _LIMITS[name], soft, hard)
        if self.oom_score_adj is not None:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(self.oom_score_adj), encoding="ascii")

    def unread(self) -> tuple[str, ...]:
        """Return what could not be read, in a person's words."""
        words = {
            "user and groups": self.uid is not None and self.gid is not None and self.groups is not None,
            "nice value": self.nice is not None,
            "processors": self.affinity is not None,
            "umask": self.umask is not None,
            "OOM score": self.oom_score_adj is not None,
            "resource limits": bool(self.limits),
        }
        return tuple(word for word, known in words.items() if not known)


def _limit(pid: int, which: int, soft: int, hard: int) -> None:
    try:
        resource.prlimit(pid, which, (soft, hard))
    except (OSError, ValueError):
        # The hard limit is above the tool's own, which only root may raise: as much as is allowed.
        with contextlib.suppress(OSError, ValueError):
            highest = resource.prlimit(pid, which)[1]
            resource.prlimit(pid, which, (_lower(soft, highest), highest))


def _lower(one: int, other: int) -> int:
    finite = [limit for limit in (one, other) if limit != resource.RLIM_INFINITY]
    return min(finite, default=resource.RLIM_INFINITY)


def conditions_of(pid: int) -> Conditions:
    """Read the conditions of a running process (proc_pid_status(5), prlimit(2)); what cannot be read is None."""
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
        status = _status(pid)
        found["uid"] = int(status["Uid"][1])
        found["gid"] = int(status["Gid"][1])
        found["groups"] = tuple(int(group) for group in status["Groups"])
        found["umask"] = int(status["Umask"][0], 8)
    with contextlib.suppress(OSError):
        found["nice"] = os.getpriority(os.PRIO_PROCESS, pid)
    with contextlib.suppress(OSError):
        found["affinity"] = _affinity(pid)
    with contextlib.suppress(OSError, ValueError):
        found["oom_score_adj"] = int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))
    limits: dict[str, tuple[int, int]] = {}
    for name, which in _LIMITS.items():
        with contextlib.suppress(OSError, ValueError):
            limits[name] = resource.prlimit(pid, which)
    return Conditions(**found, limits=limits)


def _status(pid: int) -> dict[str, list[str]]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    return {name: value.split() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _affinity(pid: int) -> tuple[int, ...]:
    found = set(os.sched_getaffinity(pid))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            found |= os.sched_getaffinity(int(thread.name))
    return tuple(sorted(found))


class Streams(Frozen):
    """Where a process's output goes."""

    log: str | None = None
    """The regular file that is its standard output, or None."""
    errors: str | None = None
    """The regular file that is its standard error, where that is another one than `log`, or None."""
    notes: tuple[str, ...] = ()
    """What a restore cannot keep, one line each."""


def streams_of(pid: int) -> Streams:
    """Read where a process's standard output and error go."""
    output, errors = _target(pid, 1), _target(pid, 2)
    log, own = _file(output), _file(errors)
    notes = []
    if log is None:
        notes.append(
            f"its standard output went to {_kind(output)}; after the restore it goes to the trial's logs/original.log"
        )
    if own is None and errors != output:
        notes.append(
            f"its standard error went to {_kind(errors)}; after the restore it goes where its standard output goes"
        )
    return Streams(log=log, errors=own if own != log else None, notes=tuple(notes))


def _target(pid: int, descriptor: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except OSError:
        return None


def _file(target: str | None) -> str | None:
    """Return the target where it is a regular file whose name a journal can hold."""
    try:
        return target if target and target.encode() and Path(target).is_file() else None
    except (OSError, UnicodeEncodeError):
        return None


def _kind(target: str | None) -> str:
    if target is None:
        return "nothing that can be seen"
    for start, kind in (
        ("pipe:", "a pipe"),
        ("socket:", "a socket"),
        ("/dev/pts/", "a terminal"),
        ("/dev/tty", "a terminal"),
    ):
        if target.startswith(start):
            return kind
    if target.endswith(" (deleted)"):
        return "a file that was deleted"
    return target.encode(errors="replace").decode()
