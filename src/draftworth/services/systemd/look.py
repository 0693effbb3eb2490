"""Looking at a unit and everything around it, reads only: what a trial and its restore are made from."""

from typing import TYPE_CHECKING

import psutil

from draftworth.errors import RefusedError
from draftworth.gpus.base import GpuReader
from draftworth.hosts.base import Host
from draftworth.services.base import Observed
from draftworth.services.processes import identify
from draftworth.services.shm import names as shm_names
from draftworth.services.shm import used_by
from draftworth.services.systemd import control
from draftworth.services.systemd.found import UnitFound, Way
from draftworth.services.systemd.preflight import refusals, way
from draftworth.services.systemd.snapshot import UnitSnapshot, observe_unit

if TYPE_CHECKING:
    from draftworth.trials.config import SystemdTrial

_ONESHOT_AGAIN = 244
"""The first systemd that restarts a oneshot unit that failed."""
_ON_SUCCESS = 249
"""The first systemd with OnSuccess=."""
_ENABLED = frozenset({"enabled", "alias"})
_TARGET = "multi-user.target"
_OURS = "zz-draftworth"
"""What the name of a trial's drop-in begins with."""


def observed(host: Host, config: "SystemdTrial", gpus: GpuReader) -> Observed:
    """Return the unit as it is.

    Args:
        host: this machine.
        config: the trial's file.
        gpus: reads the GPUs.

    Raises:
        RefusedError: a trial on it could not be undone, or is not for this tool; nothing was changed.
    """
    snapshot = observe_unit(host, config.service.unit)
    refused = refusals(snapshot, host)
    if refused is not None:
        raise refused
    version = systemd_version(host)
    if 0 < version < _ONESHOT_AGAIN:
        raise RefusedError(
            f"systemd {version} cannot run a restore again until it has succeeded (Restart= of oneshot units came with "
            f"{_ONESHOT_AGAIN}): a trial here could end without the service"
        )
    how, why = _way(snapshot, config, version)
    later = [path for path in snapshot.drop_ins if path.rpartition("/")[2] > _OURS]
    if how == "drop-in" and later:
        raise RefusedError(
            f"{later[0]} is read after the drop-in of a trial, which could then change nothing for certain: give it a "
            f"name before {_OURS}, daemon-reload and restart"
        )
    leader = identify(snapshot.main_pid or 0)
    if leader is None:
        raise RefusedError(f"{snapshot.unit} is {snapshot.active} and has no main process; Type={snapshot.type}?")
    members = control.processes_of(snapshot.control_group or "", [leader])
    pids = tuple(sorted(process.pid for process in members))
    found = UnitFound(
        snapshot=snapshot,
        way=how,
        why=why,
        systemd=version,
        gpus=gpus.read(),
        pids=pids,
        shm=shm_names(),
        shm_ours=tuple(sorted(used_by(pids))),
        lasting=not starts_at_boot(snapshot),
    )
    process = psutil.Process(leader.pid)
    return Observed(
        running=True,
        process=leader,
        command=snapshot.exec_start[0].argv,
        cwd=snapshot.working_directory,
        user=process.username(),
        unit=found,
        notes=tuple(_notes(found)),
    )


def _way(snapshot: UnitSnapshot, config: "SystemdTrial", version: int) -> tuple[Way, str]:
    """Return how a variant is run: by rule, or as the file says where that can be undone."""
    how, why = way(snapshot)
    if how == "parallel" and 0 < version < _ON_SUCCESS:
        how, why = "drop-in", f"systemd {version} has no OnSuccess=, which hands a stopped variant over to the original"
    asked = config.service.way
    if asked == "parallel" and how != "parallel":
        raise RefusedError(f'service.way = "parallel": {why}; leave it out, or set it to "drop-in"')
    if asked == "drop-in" and how != "drop-in":
        return "drop-in", "service.way says so"
    return how, why


def starts_at_boot(snapshot: UnitSnapshot) -> bool:
    """Whether a reboot brings the unit back without help: it is enabled in a place that outlives it."""
    return snapshot.unit_file_state in _ENABLED


def systemd_version(host: Host) -> int:
    """Return systemd's version, 0 where it is not told."""
    done = host.run(["systemctl", "show", "--property=Version", "--value"])
    found = done.text.strip() if done.ok else ""
    digits = "".join(char if char.isdigit() else " " for char in found).split()
    return int(digits[0]) if digits else 0


def boot_target(host: Host) -> str:
    """Return the target that a boot ends in."""
    done = host.run(["systemctl", "get-default"])
    found = done.text.strip()
    return found if done.ok and found.endswith(".target") else _TARGET


def _notes(found: UnitFound) -> list[str]:
    """Return what a person should know before the trial, and a restore cannot change."""
    notes = []
    snapshot = found.snapshot
    if found.gpus.why and found.gpus.gpus:
        notes.append(f"GPUs: {found.gpus.why}")
    if snapshot.restart not in {"no", "on-success"} and found.way == "parallel":
        notes.append(f"a variant has Restart=no, the original keeps Restart={snapshot.restart}")
    if snapshot.standard_output == "null":
        notes.append("the unit's output goes nowhere: what a variant says while it loads is not seen")
    told = sorted({str(one) for name in ("OnFailure", "OnSuccess") for one in snapshot.properties.get(name) or ()})
    if told:
        notes.append(f"starts when a variant fails or is stopped, since the unit says so: {', '.join(told)}")
    if snapshot.n_restarts:
        notes.append(f"systemd has restarted the original {snapshot.n_restarts} times since it was started")
    return notes
