"""Where a process lives: in a systemd unit, in a container, or simply on this machine.

What a supervisor or a container runs cannot be put back as a plain process: it would live outside its unit, or with
the paths of another file system.
"""

import os
import re
from pathlib import Path

from draftworth.services.processes import argv_of

_USER_MANAGER = re.compile(r"user@\d+\.service")
# These hold a published port on the host on behalf of a container.
_FORWARDERS = {"docker-proxy", "rootlessport", "pasta", "slirp4netns"}

ADVICE = (
    'service.type = "process" starts and stops plain processes; for a unit write type = "systemd" and unit = "…" in '
    "[service] (`draftworth trial schema --systemd`); units of users and containers are not supported yet: stop it "
    "first and let the trial start the command"
)
"""What a person can do."""


def unit_of(cgroup: str) -> str | None:
    """Return the path of the innermost systemd service in a process's cgroups, or None.

    Args:
        cgroup: text of /proc/PID/cgroup, lines of `id:controllers:path` (cgroups(7)). The user's own manager
            (`user@1000.service`) is no service in this sense; a unit below it is.
    """
    for line in cgroup.splitlines():
        parts = line.split(":", 2)[-1].split("/")
        services = [
            i for i, part in enumerate(parts) if part.endswith(".service") and not _USER_MANAGER.fullmatch(part)
        ]
        if services:
            return "/".join(parts[: services[-1] + 1])
    return None


def obstacle(pid: int) -> str | None:
    """Return why a process cannot be treated as a plain one ("runs in a container"), or None where it can."""
    mine = os.getpid()
    if _differs(pid, mine, "pid"):
        return "runs in a container (another pid namespace)"
    unit = unit_of(_cgroup(pid))
    argv = argv_of(pid)
    if argv and Path(argv[0]).name in _FORWARDERS:
        return "forwards the port to a container"
    if unit and unit != unit_of(_cgroup(mine)):
        return f"belongs to the systemd unit {Path(unit).name}"
    if _differs(pid, mine, "mnt"):
        return "runs in a container (another mount namespace)"
    return None


def _cgroup(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _differs(one: int, other: int, namespace: str) -> bool:
    try:
        return Path(f"/proc/{one}/ns/{namespace}").readlink() != Path(f"/proc/{other}/ns/{namespace}").readlink()
    except OSError:
        # Another user's process; it is refused for that.
        return False
