"""From what was found and asked for to what the restore script does. Pure."""

from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.bench.base import Access
from draftworth.gpus.base import Gpus
from draftworth.gpus.freeing import FLOOR_BYTES, TOLERANCE, ours
from draftworth.services.systemd.found import UnitFound
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.net import finisher
from draftworth.services.systemd.script import Ask, Recipe, completion

if TYPE_CHECKING:
    from draftworth.trials.config import SystemdTrial

_MIB = 2**20


def recipe_for(
    config: "SystemdTrial", found: UnitFound, names: Names, access: Access | None, folder: Path | None
) -> Recipe:
    """Return what a restore does.

    Args:
        config: the trial's file.
        found: what was found.
        names: the trial's.
        access: what lets the question in; None: it is not asked.
        folder: the trial's, for the record of a trial whose driver died; None: no record.
    """
    own = [config.baseline.name] if config.baseline.args else []
    arms = tuple(dict.fromkeys([*own, *(arm.name for arm in config.variants)]))
    unit = found.snapshot.unit
    stop_s = found.snapshot.timeout_stop_s
    ask = None
    if access is not None and found.model is not None:
        body = completion(found.model)
        headers = {str(name): str(value) for name, value in access.headers.items()}
        ca_file = None if config.service.ca_file is None else str(config.service.ca_file)
        ask = Ask(f"{config.url}/v1/completions", body, headers, ca_file)
    parallel = found.way == "parallel"
    return Recipe(
        names=names,
        unit=unit,
        group=found.snapshot.control_group or "",
        variants=tuple(names.variant(arm) for arm in arms) if parallel else (),
        files=tuple(names.path(names.variant(arm)) for arm in arms) if parallel else (names.drop_in(unit),),
        triggers=found.triggers,
        dependents=found.dependents,
        stop_s=int(2 * (600 if stop_s is None else stop_s)) + 30,
        start_s=int(config.limits.start_timeout_s),
        gpu_mib=most_mib(found.gpus, found.pids),
        gpu_wait_s=int(config.limits.free_timeout_s),
        ask=ask,
        finisher=() if folder is None else finisher(folder),
    )


def most_mib(before: Gpus, pids: tuple[int, ...]) -> dict[str, int]:
    """Return GPU UUID to the most MiB that may be in use before the original starts again.

    That is what was in use without its own processes, and a tolerance. Where a driver does not tell how much each
    process holds, nothing is waited for: a guess would wait for neighbours.
    """
    most = {}
    held = ours(before, pids).used
    for gpu in before.gpus:
        own = held.get(gpu.uuid)
        if own is not None and gpu.used_bytes is not None and gpu.parent is None:
            allowed = max(FLOOR_BYTES, int(TOLERANCE * (gpu.total_bytes or 0)))
            most[gpu.uuid] = (max(0, gpu.used_bytes - own) + allowed) // _MIB
    return most
