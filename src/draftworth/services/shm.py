"""Shared memory that a killed server leaves in /dev/shm: found without touching a neighbour's.

A file is removed only if all of this holds: it appeared during the server's life, it belongs to the server's user, no
process maps or has it open, its name is one that servers make (vllm#54002: a killed server leaks its whole CPU cache),
and a process of the server was seen to use it or has its pid in the name. Where not every process can be seen (a
container that shares the host's IPC), a neighbour's file looks unused, so the last condition decides.
"""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory, looked at and cleaned on purpose

_MADE_BY_SERVERS = re.compile(r"^(psm_|sem\.mp-|sem\.loky-|vllm_offload_|nccl-|torch_\d+_|sgl_shm_mm_)")
# These name the process that made them, so ours can be told from another's by the pid alone.
_WITH_PID = re.compile(r"^(?:__KMP_REGISTERED_LIB|torch|sgl_shm_mm)_(\d+)_")


def names() -> tuple[str, ...]:
    """Return the names there are now."""
    try:
        return tuple(sorted(path.name for path in SHM.iterdir()))
    except OSError:
        return ()


def used_by(pids: Iterable[int]) -> set[str]:
    """Return the names of the files in /dev/shm that any of these processes maps or has open."""
    used = (path.removeprefix(f"{SHM}/") for pid in pids for path in _paths(Path(f"/proc/{pid}")))
    return {name for name in used if "/" not in name}


def stale(before: Collection[str], pids: Collection[int], seen: Collection[str], uid: int | None = None) -> list[Path]:
    """Return what a start left.

    Args:
        before: names from before the start.
        pids: pids of the start, all of them ended.
        seen: names its processes were seen to use.
        uid: the user it ran as; None: the tool's own.
    """
    owner = os.getuid() if uid is None else uid
    found = []
    for name in names():
        made = _WITH_PID.match(name)
        ours = (made and int(made[1]) in pids) or (name in seen and (made or _MADE_BY_SERVERS.match(name)))
        if name in before or not ours:
            continue
        path = SHM / name
        try:
            if path.stat().st_uid == owner and path.is_file():
                found.append(path)
        except OSError:
            continue
    if not found:
        return []
    used = _in_use()
    return [path for path in found if str(path) not in used]


def remove(paths: Iterable[Path]) -> int:
    """Remove files. Returns the bytes that became free."""
    freed = 0
    for path in paths:
        try:
            size = path.stat().st_blocks * 512
            path.unlink()
        except OSError:
            continue
        freed += size
    return freed


def _in_use() -> set[str]:
    """Return every path under /dev/shm that a process maps or has open.

    A process that cannot be looked into belongs to another user, and so do the files it made.
    """
    return {path for process in Path("/proc").iterdir() if process.name.isdigit() for path in _paths(process)}


def _paths(process: Path) -> set[str]:
    """Return what one process (its folder in /proc) maps or has open under /dev/shm; nothing where it is gone."""
    prefix = f"{SHM}/"
    used: set[str] = set()
    try:
        for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            if prefix in line:
                used.add(line[line.index(prefix) :].removesuffix(" (deleted)"))
    except OSError:
        pass
    try:
        for descriptor in (process / "fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except OSError:  # closed meanwhile
                continue
            if target.startswith(prefix):
                used.add(target.removesuffix(" (deleted)"))
    except OSError:
        pass
    return used
