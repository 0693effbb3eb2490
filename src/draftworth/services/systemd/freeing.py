"""Between a stop and a start: requests drained, processes gone, GPU memory free, stale shared memory removed."""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from draftworth.errors import TrialError
from draftworth.gpus.base import GpuReader, Gpus
from draftworth.gpus.freeing import Ours, still_used
from draftworth.services.base import ProcessId, Tell
from draftworth.services.ending import end
from draftworth.services.processes import describe, is_alive
from draftworth.services.shm import SHM, remove, stale

_POLL_S = 1.0
_PATIENCE_S = 5.0
_WORTH_A_REMARK = 2**20


def drain(running_now: Callable[[], int | None], patience_s: float, tell: Tell) -> list[str]:
    """Wait until no request of others is being answered, or the patience is over. Returns a remark where it was.

    Args:
        running_now: requests that are being answered or wait; None where the server does not tell.
        patience_s: most seconds.
        tell: takes what is happening.
    """
    deadline = time.monotonic() + patience_s
    while True:
        left = running_now()
        if not left:
            return []
        if time.monotonic() >= deadline:
            return [f"{left} requests of others were still being answered after limits.drain_s ({patience_s:g} s)"]
        tell(f"waiting for {left} requests of others to be answered")
        time.sleep(min(_POLL_S, max(0.05, deadline - time.monotonic())))


def end_leftovers(known: Collection[ProcessId], members: Callable[[], set[ProcessId]], tell: Tell) -> list[str]:
    """End what a stopped unit has left: in its control group, or outside of it. Returns remarks.

    Args:
        known: processes that were seen to be the unit's while it ran, by pid and start time.
        members: who of them, of the control group and of their children is alive now.
        tell: takes what is happening.

    Raises:
        TrialError: one stays although it was killed.
    """
    left = members()
    if not left:
        return []
    tell("ending what the stopped server left: " + "; ".join(sorted(map(describe, left))))
    remarks = [f"left behind by the stopped unit and ended: {'; '.join(sorted(map(describe, left)))}"]
    done = end(members, None, _PATIENCE_S)
    stuck = [one for one in done if one.startswith("LEFT")]
    if stuck:
        raise TrialError(f"processes stay although they were killed: {stuck[0].removeprefix('LEFT ')}")
    return [*remarks, *(one for one in done if any(is_alive(process) for process in known))]


def wait_for_memory(reader: GpuReader, before: Gpus, service: Ours, patience_s: float, tell: Tell) -> list[str]:
    """Wait until the GPU memory of a stopped server is free, measured against the reading before it stopped.

    Args:
        reader: reads the GPUs.
        before: the reading while the original served.
        service: what it held of it, and every pid that has to be gone: what others hold is not waited for.
        patience_s: most seconds.
        tell: takes what is happening.

    Returns:
        Remarks: what could not be told.

    Raises:
        TrialError: it is still not free.
    """
    if not before.gpus:
        return []
    deadline = time.monotonic() + patience_s
    while True:
        found = still_used(before, reader.read(), service)
        if found.free:
            return [*found.notes, *found.unknown]
        held = "; ".join(one.line for one in found.held)
        if time.monotonic() >= deadline:
            raise TrialError(f"GPU memory is not free after limits.free_timeout_s ({patience_s:g} s): {held}")
        tell(f"waiting for GPU memory: {held}")
        time.sleep(_POLL_S)


def free_shared_memory(started_unix: float, pids: Collection[int], seen: Collection[str], uid: int) -> list[str]:
    """Remove stale files of /dev/shm that an ended server has left. Returns a remark where that was worth one.

    All of it must hold: it appeared during the server's life, it is its user's, nobody maps or has it open, its name
    is one that servers make, and one of the server's processes was seen to use it or has its pid in the name.

    Args:
        started_unix: when the server started.
        pids: its pids, all ended.
        seen: names its processes were seen to use.
        uid: its user.
    """
    left = stale(_older_than(started_unix), pids, seen, uid)
    freed = remove(left)
    if freed < _WORTH_A_REMARK:
        return []
    return [f"left {freed / 2**20:.0f} MiB of shared memory in {len(left)} files of /dev/shm, which were removed"]


def _older_than(unix: float) -> set[str]:
    """Return the names in /dev/shm that were there before."""
    found = set()
    for path in _entries():
        try:
            status = path.stat()
        except OSError:
            continue
        # One that was written to since looks younger; then that its own processes used it decides.
        if status.st_ctime < unix and status.st_mtime < unix:
            found.add(path.name)
    return found


def _entries() -> Iterable[Path]:
    try:
        return list(SHM.iterdir())
    except OSError:
        return []
