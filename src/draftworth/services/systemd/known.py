"""What is known of a unit's processes beyond their names: written down for the way back, their user, their age."""

import psutil

from draftworth.hosts.base import Host
from draftworth.services.base import ProcessId
from draftworth.services.systemd.names import Names


def remember(host: Host, names: Names, processes: set[ProcessId], whose: str) -> None:
    """Write down processes that must be gone before the original starts; those known already stay.

    Args:
        host: this machine.
        names: the trial's.
        processes: who.
        whose: `variant`, or `original`: its own are ended only where its unit is down.
    """
    if not processes or host.read(names.script) is None:
        return
    lines = (host.read(names.pids) or b"").decode().splitlines()
    more = [f"{one.pid} {one.started} {whose}" for one in processes]
    wanted = list(dict.fromkeys([*lines, *more]))
    if wanted != lines:
        host.write(names.pids, ("\n".join(wanted) + "\n").encode())


def uid_of(process: ProcessId) -> int | None:
    """Return the effective user of a process, or None where it is gone."""
    try:
        return int(psutil.Process(process.pid).uids().effective)
    except psutil.Error:
        return None


def started_unix(process: ProcessId) -> float:
    """Return when a process started, in Unix time; its start is counted in ticks of a hundredth second since boot."""
    return psutil.boot_time() + process.started / 100.0
