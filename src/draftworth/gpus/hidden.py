"""What a reading does not show: memory that nobody is named for, values that a driver keeps to itself."""

import re
from collections.abc import Iterable, Sequence

from draftworth.gpus.base import Gpu, Gpus

NOBODYS_BYTES = 2 * 2**30
"""Memory that may be in use on a GPU with no process: the driver's own share, at most about 1 GiB on large GPUs."""


def number(text: str) -> int | None:
    """Return a whole number as these tools print it, or None where a text is none."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def told(source: str, gpus: Iterable[Gpu], lost: Sequence[str] = ()) -> Gpus:
    """Return a reading with what it lacks named.

    Where a GPU has memory in use beyond `NOBODYS_BYTES` and no process is shown, its processes are hidden (a container
    sees none of other PID namespaces), so they become None.

    Args:
        source: as in `Gpus.source`.
        gpus: what was read.
        lost: what could not be read, a phrase each.
    """
    shown: list[Gpu] = []
    memory: list[Gpu] = []
    processes: list[Gpu] = []
    divided = {gpu.parent for gpu in gpus if gpu.parent}
    for gpu in gpus:
        seen = gpu
        if gpu.processes == () and (gpu.used_bytes or 0) > NOBODYS_BYTES and gpu.uuid not in divided:
            seen = gpu.model_copy(update={"processes": None})
        shown.append(seen)
        if seen.uuid in divided:
            continue  # its instances tell
        if seen.used_bytes is None:
            memory.append(seen)
        if seen.processes is None:
            processes.append(seen)
    reasons = list(lost)
    if memory:
        reasons.append(f"memory in use is not told for {_names(memory)}")
    if processes:
        reasons.append(
            f"processes are not shown for {_names(processes)} (no permission, or a container without the host's PIDs)"
        )
    return Gpus(source=source, gpus=tuple(shown), why="; ".join(reasons) or None)


def label(gpu: Gpu, gpus: Iterable[Gpu]) -> str:
    """Return a GPU's name for a person: `GPU 3`, or `GPU 3 MIG 1` for an instance of it."""
    if gpu.parent is None:
        return f"GPU {gpu.index}"
    parent = next((other for other in gpus if other.uuid == gpu.parent), None)
    return f"GPU {parent.index if parent else '?'} MIG {gpu.index}"


def _names(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"GPU {gpu.index}" if gpu.parent is None else gpu.uuid for gpu in gpus)
