"""Whether the memory that a service held on its GPUs is free again after it was stopped.

"Free" is measured against the reading before the trial, never against zero: what neighbours hold is not the service's,
and they may grow or shrink meanwhile. Everything here is a pure function of two readings.
"""

from collections.abc import Collection, Mapping, Sequence

from draftworth.gpus.base import Gpu, GpuProcess, Gpus
from draftworth.gpus.hidden import label
from draftworth.models import Frozen

FLOOR_BYTES = 512 * 2**20
"""Bytes by which a GPU may stay above what is expected, at least: contexts that are being torn down, rounding."""

TOLERANCE = 0.02
"""The same as a share of the GPU's memory; the larger of both counts."""

_GIB = 2**30


class Held(Frozen):
    """A GPU that is not free yet."""

    gpu: str
    """Its name for a person."""
    uuid: str
    held_bytes: int | None
    """Bytes that should be free and are not; None: not told."""
    total_bytes: int | None
    pids: tuple[int, ...] = ()
    """The service's processes that are still on it; empty: nobody that can be seen."""

    @property
    def line(self) -> str:
        """One line for a person."""
        by = f"by pid {', '.join(map(str, self.pids))}" if self.pids else "by no process that can be seen"
        if self.held_bytes is None:
            return f"{self.gpu}: still in use {by}; how much is not told"
        of = f" of {self.total_bytes / _GIB:.1f}" if self.total_bytes else ""
        return f"{self.gpu}: {self.held_bytes / _GIB:.1f}{of} GiB still held {by}"


class Freeing(Frozen):
    """What two readings say about a service's memory."""

    held: tuple[Held, ...] = ()
    """GPUs to wait for."""
    notes: tuple[str, ...] = ()
    """What was decided by less than the memory in use, one line each."""
    unknown: tuple[str, ...] = ()
    """What cannot be told, one line each: waiting for it would be for nothing."""

    @property
    def free(self) -> bool:
        """Whether nothing is known to be still held."""
        return not self.held


class Ours(Frozen):
    """A service's part of a reading, taken while it ran."""

    pids: frozenset[int]
    used: dict[str, int | None]
    """UUID of each GPU (or MIG instance) that it was on to the bytes it held there; None: not told."""


def ours(before: Gpus, pids: Collection[int]) -> Ours:
    """Return which GPUs a service is on and what it holds there.

    Args:
        before: a reading while it runs.
        pids: all its processes.
    """
    used: dict[str, int | None] = {}
    for gpu in _whole(before):
        parts = [process.used_bytes for process in gpu.processes or () if process.pid in pids]
        if parts:
            used[gpu.uuid] = _sum(parts)
    return Ours(pids=frozenset(pids), used=used)


def still_used(before: Gpus, now: Gpus, service: Ours, floor_bytes: int = FLOOR_BYTES) -> Freeing:
    """Return which of a service's GPUs still have its memory in use.

    A GPU is free once none of the service's processes is on it and its memory in use is down to what others held
    before, plus what they took since where that can be seen, within the larger of `floor_bytes` and `TOLERANCE`.
    Where bytes are not told, having none of its processes on it is enough, and a note says so.

    Args:
        before: the reading before the service was stopped.
        now: the reading to judge.
        service: what `ours` said of `before`.
        floor_bytes: bytes that may stay in use at least.
    """
    later = {gpu.uuid: gpu for gpu in now.gpus}
    parts: list[Freeing] = []
    for gpu in _whole(before):
        name = label(gpu, before.gpus)
        if gpu.uuid in service.used and gpu.uuid in later:
            parts.append(_judged(name, gpu, later[gpu.uuid], service, floor_bytes))
        elif gpu.uuid in service.used:
            parts.append(_unknown(f"{name}: cannot be read now{': ' + now.why if now.why else ''}"))
        elif gpu.processes is None:
            parts.append(_unknown(f"{name}: whether the service is on it cannot be told; not waited for"))
    if not before.gpus:
        parts.append(_unknown(f"no GPU could be read before the stop: {before.why or 'none found'}; not waited for"))
    return Freeing(
        held=tuple(one for part in parts for one in part.held),
        notes=tuple(one for part in parts for one in part.notes),
        unknown=tuple(one for part in parts for one in part.unknown),
    )


def _unknown(line: str) -> Freeing:
    return Freeing(unknown=(line,))


def _judged(name: str, before: Gpu, now: Gpu, service: Ours, floor_bytes: int) -> Freeing:
    """Return what two readings say about one of the service's GPUs."""
    left = [process for process in now.processes or () if process.pid in service.pids]
    excess = _excess(before, now, service)
    if left:
        amount = _sum([process.used_bytes for process in left])
        return _held(name, now, excess if amount is None else amount, left)
    if excess is not None:
        allowed = max(floor_bytes, TOLERANCE * (before.total_bytes or 0))
        return _held(name, now, excess, left) if excess > allowed else Freeing()
    if now.processes is None:
        return _unknown(f"{name}: neither memory nor processes can be told; not waited for")
    return Freeing(
        notes=(f"{name}: memory is not told; taken for free since no process of the service is on it any more",)
    )


def _excess(before: Gpu, now: Gpu, service: Ours) -> int | None:
    """Return the bytes in use beyond what others hold, or None where that is not told."""
    own = service.used[before.uuid]
    if own is None or before.used_bytes is None or now.used_bytes is None:
        return None
    others = [_others(gpu.processes, service.pids) for gpu in (before, now)]
    grown = others[1] - others[0] if others[0] is not None and others[1] is not None else 0
    return max(0, now.used_bytes - max(0, before.used_bytes - own) - grown)


def _others(processes: Sequence[GpuProcess] | None, pids: Collection[int]) -> int | None:
    return None if processes is None else _sum([one.used_bytes for one in processes if one.pid not in pids])


def _held(name: str, gpu: Gpu, amount: int | None, left: Sequence[GpuProcess]) -> Freeing:
    pids = tuple(sorted(process.pid for process in left))
    return Freeing(held=(Held(gpu=name, uuid=gpu.uuid, held_bytes=amount, total_bytes=gpu.total_bytes, pids=pids),))


def _whole(gpus: Gpus) -> list[Gpu]:
    """Return the entries that hold memory of their own: MIG instances, and GPUs that are not divided."""
    divided: Mapping[str | None, None] = dict.fromkeys(gpu.parent for gpu in gpus.gpus)
    return [gpu for gpu in gpus.gpus if gpu.uuid not in divided]


def _sum(parts: Sequence[int | None]) -> int | None:
    """Return the sum, or None where a part is not told."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
