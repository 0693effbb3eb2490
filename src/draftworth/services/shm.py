"""Shared memory that a killed server leaves in /dev/shm: found without touching a neighbour's.

A file is removed only if all of this holds: it appeared during the server's life, it belongs to this user, no process
maps or has it open, and its name is one that servers make (vllm#54002: a killed server leaks its whole CPU cache).
"""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory, looked at and cleaned on purpose

_MADE_BY_SERVERS = re.compile(r"^(psm_|sem\.mp-|sem\.loky-|vllm_offload_|nccl-|torch_\d+_|sgl_shm_mm_)")
# Intel's OpenMP names the process that made it, so ours can be told from another's by the pid alone.
_OPENMP = re.compile(r"^__KMP_REGISTERED_LIB_(\d+)_")


def names() -> tuple[str, ...]:
    """Return the names there are now."""
    try:
        return tuple(sorted(path.name for path in SHM.iterdir()))
    except OSError:
        return ()


def stale(before: Collection[str], pids: Collection[int]) -> list[Path]:
    """Return what a start left.

    Args:
        before: names from before the start.
        pids: pids of the start, all of them ended.
    """
    found = []
    for name in names():
        made = _OPENMP.match(name)
        ours = int(made[1]) in pids if made else bool(_MADE_BY_SERVERS.match(name))
        if name in before or not ours:
            continue
        path = SHM / name
        try:
            if path.stat().st_uid == os.getuid() and path.is_file():
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
    used: set[str] = set()
    prefix = f"{SHM}/"
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
                if prefix in line:
                    used.add(line[line.index(prefix) :].removesuffix(" (deleted)"))
            for descriptor in (process / "fd").iterdir():
                target = str(descriptor.readlink())
                if target.startswith(prefix):
                    used.add(target.removesuffix(" (deleted)"))
        except OSError:
            continue
    return used
