"""What the original or a variant is now: whether it runs, its processes, its port, the GPUs' memory.

No unit is changed; the way back is told of the processes that were seen.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import TrialError
from draftworth.hosts.base import HostError
from draftworth.services.base import Observed, ProcessId, Running
from draftworth.services.processes import describe, identify, is_alive, listener, listeners, port_taken
from draftworth.services.shm import used_by
from draftworth.services.systemd import control, look
from draftworth.services.systemd.known import remember, uid_of

if TYPE_CHECKING:
    from draftworth.services.systemd.scene import UnitScene


def observe(scene: "UnitScene") -> Observed:
    """Return the unit as it is. Raises RefusedError where a trial on it could not be undone."""
    observed = look.observed(scene.host, scene.config, scene.gpus)
    scene.take(observed)
    return observed


def as_found(scene: "UnitScene", observed: Observed) -> Running:
    """Return the original as it was observed."""
    found = scene.take(observed)
    state = control.now(scene.host, scene.unit)
    if not state.up or state.invocation != found.snapshot.invocation:
        raise TrialError(f"{scene.unit} was stopped or restarted by somebody else: it is {state.words}")
    return _running(scene, state)


def find_original(scene: "UnitScene", observed: Observed) -> Running | None:
    """Return the original where its unit runs with its own command."""
    found = scene.take(observed)
    state = control.now(scene.host, scene.unit)
    if not state.up or not state.pid or scene.host.read(scene.names.changed) is not None:
        return None
    log = None
    if state.invocation != found.snapshot.invocation:
        log = scene.logs.begin(found, scene.unit, state.invocation, "restored")
    return _running(scene, state, log=log)


def _running(scene: "UnitScene", state: control.Now, *, log: Path | None = None, mark: str = "") -> Running:
    leader = identify(state.pid) if state.pid else None
    if leader is None:
        raise TrialError(f"{scene.unit} has no main process: it is {state.words}")
    path = log or scene.logs.of_original(scene.found_now(), state.invocation)
    return Running(
        leader=leader,
        session=0,
        mark=mark,
        log=path,
        unit=scene.unit,
        invocation=state.invocation,
        uid=uid_of(leader),
    )


def exit_code(scene: "UnitScene", running: Running) -> int | None:
    """Return how a start's main process ended, as systemd has it, or as it has written into the journal."""
    state = control.now(scene.host, running.unit)
    if state.invocation in {"", running.invocation}:
        return None if state.up else state.exit_code
    # The unit runs again already, or something else does under its name.
    return scene.logs.ended(scene.found_now(), running.unit, running.invocation)


def alive(scene: "UnitScene", running: Running) -> bool:
    """Whether the unit still runs the same start."""
    state = control.now(scene.host, running.unit)
    living = state.up and state.invocation == running.invocation
    if not living:  # its last words say why, and the journal is a moment behind
        scene.logs.ended(scene.found_now(), running.unit, running.invocation)
    return living


def pids(scene: "UnitScene", running: Running) -> Sequence[int]:
    """Return the pids that a start has now; the way back learns of them, also while it only loads."""
    living = members_of(scene, running)
    if running.mark:
        with suppress(HostError):
            remember(scene.host, scene.names, living, "variant")
    return [process.pid for process in living]


def members_of(scene: "UnitScene", running: Running) -> set[ProcessId]:
    """Return the processes of a start that are alive."""
    group = control.now(scene.host, running.unit).group
    known = [process for process in (running.leader, *running.seen) if is_alive(process)]
    return control.processes_of(group, known)


def refresh(scene: "UnitScene", running: Running) -> Running:
    """Return the start with its present processes added; the way back learns of them too."""
    living = members_of(scene, running)
    members = sorted(living | set(running.seen), key=lambda process: process.pid)
    if running.mark:
        remember(scene.host, scene.names, living, "variant")
    used: set[str] = set()
    if running.shm_before is not None:
        used = used_by(process.pid for process in living) - set(running.shm_before)
    seen = tuple(sorted(used | set(running.shm_seen)))
    return running.model_copy(update={"seen": tuple(members), "shm_seen": seen})


def gpu_bytes(scene: "UnitScene") -> int | None:
    """Return the bytes in use on the GPUs; None where there are none or they do not tell."""
    if not scene.found_now().gpus.gpus:
        return None
    used = [gpu.used_bytes for gpu in scene.gpus.read().gpus]
    return sum(one for one in used if one is not None) if used and None not in used else None


def owns_port(scene: "UnitScene", running: Running) -> bool:
    """Whether somebody listens on the port, and every listener is of the unit."""
    holders = listeners(scene.config.service.port, scene.config.service.address)
    return bool(holders) and set(holders) <= members_of(scene, running)


def holder(scene: "UnitScene") -> str | None:
    """Return who holds the port, for a person; None where it is free or the original's own."""
    port, address = scene.config.service.port, scene.config.service.address
    if not port_taken(port, address):
        return None
    found = listener(port, address)
    if found is not None and found in control.in_group(control.now(scene.host, scene.unit).group):
        return None
    return describe(found) if found else "a process this user cannot see"
