"""Stopping a variant or the original: down to its last process, with port, GPU memory and shared memory free."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth.errors import TrialError
from draftworth.gpus.freeing import ours
from draftworth.services.base import Observed, Running, Tell
from draftworth.services.ending import wait_for_free_port
from draftworth.services.systemd import control, reading
from draftworth.services.systemd.adoption import mode_for
from draftworth.services.systemd.freeing import drain, end_leftovers, free_shared_memory, wait_for_memory
from draftworth.services.systemd.known import remember, started_unix

if TYPE_CHECKING:
    from draftworth.services.systemd.scene import UnitScene


def stop(scene: "UnitScene", running: Running, tell: Tell) -> Sequence[str]:
    """Stop a variant, or the restored original, and wait until nothing of it is left."""
    if not running.mark:
        return _stop_own(scene, running, tell)
    found = scene.found_now()
    variant = next((one for one in scene.variants.values() if one.unit == running.unit), None)
    if variant is not None and variant.quiet is not None:
        # A planned stop is no reason to start the original yet: the next arm comes first.
        scene.host.write(variant.path, variant.quiet.encode(), mode_for(found.snapshot))
        scene.armed().reload()
    running = reading.refresh(scene, running)
    tell(f"stopping {running.unit}")
    if found.way == "drop-in":
        remarks = _stop_with_triggers(scene)
    else:
        remarks = control.stop_unit(scene.host, running.unit, patience_s=found.snapshot.timeout_stop_s)
    scene.logs.stop()
    lost = scene.logs.dropped(running.unit, running.invocation)
    if lost:
        remarks.append(f"{lost} lines of its output are missing: journald's rate limit (LogRateLimitBurst=)")
    return [*remarks, *_freed(scene, running, tell)]


def stop_original(scene: "UnitScene", observed: Observed, tell: Tell) -> Sequence[str]:
    """Stop the original as it was found: drained, with what would start it again, down to its last process."""
    scene.take(observed)
    return _stop_own(scene, reading.as_found(scene, observed), tell)


def _stop_own(scene: "UnitScene", running: Running, tell: Tell) -> Sequence[str]:
    found = scene.found_now()
    running = reading.refresh(scene, running)
    remarks = drain(scene.busy, scene.config.limits.drain_s, tell)
    remember(scene.host, scene.names, set(running.seen), "original")
    tell(f"stopping {', '.join((*found.triggers, scene.unit))}")
    remarks += _stop_with_triggers(scene)
    scene.logs.stop()
    return [*remarks, *_freed(scene, running, tell)]


def _stop_with_triggers(scene: "UnitScene") -> list[str]:
    """Stop the original's unit, and with it, by one command, what would start it again."""
    found = scene.found_now()
    patience = found.snapshot.timeout_stop_s
    return control.stop_unit(scene.host, scene.unit, patience_s=patience, first=found.triggers)


def _freed(scene: "UnitScene", running: Running, tell: Tell) -> list[str]:
    """See that processes, port, GPU memory and shared memory of a stopped server are free."""
    found = scene.found_now()
    remarks = end_leftovers(running.seen, lambda: reading.members_of(scene, running), tell)
    port = scene.config.service.port
    if not wait_for_free_port(port, scene.config.service.address, 10.0):
        raise TrialError(
            f"port {port} is taken right after the stop, by {reading.holder(scene)}: something restarts it"
        )
    held = ours(found.gpus, found.pids)
    service = held.model_copy(update={"pids": held.pids | {process.pid for process in running.seen}})
    remarks += wait_for_memory(scene.gpus, found.gpus, service, scene.config.limits.free_timeout_s, tell)
    seen = set(running.shm_seen) | (set(found.shm_ours) if not running.mark else set())
    pids = {process.pid for process in (running.leader, *running.seen)}
    uid = 0 if running.uid is None else running.uid
    return [*remarks, *free_shared_memory(started_unix(running.leader), pids, seen, uid)]
