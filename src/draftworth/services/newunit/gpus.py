"""Which GPUs the unit waits for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from draftworth.errors import UsageError
from draftworth.services.newunit.base import Asked, Check, Machine
from draftworth.services.newunit.command import Known

_GPU = re.compile(r"\d+|GPU-[0-9a-fA-F-]+")


@dataclass(frozen=True, slots=True)
class Waited:
    """The GPUs a start waits for.

    Attributes:
        possible: whether there is anything to wait for that can be told.
        gpus: their indices or UUIDs; empty for all.
        about: which, for a comment: `GPUs 0 to 7 have`.
        used: indices of the GPUs that the engine uses whole; empty where that is not known.
        checks: what is to be said about it.
    """

    possible: bool
    gpus: tuple[str, ...]
    about: str
    used: frozenset[int]
    checks: tuple[Check, ...]


def waited(asked: Asked, machine: Machine, known: Known) -> Waited:
    """Return which GPUs to wait for: those asked for, else those made visible, else as many as the command uses.

    Raises:
        UsageError: a GPU that was named is none, or is not there.
    """
    visible = asked.env.get("CUDA_VISIBLE_DEVICES")
    named = asked.gpus or _listed(visible)
    what = "--gpus" if asked.gpus else "CUDA_VISIBLE_DEVICES"
    if machine.nvidia_smi is None or not machine.gpus:
        return _left_out(machine.why_no_gpus or "no GPU is told")
    if any(gpu.startswith("MIG-") for gpu in named):
        return _left_out("nvidia-smi does not tell the memory of a MIG instance by its UUID")
    for gpu in named:
        if not _GPU.fullmatch(gpu):
            raise UsageError(f"{what}: {gpu!r} is neither an index nor a UUID of a GPU (see nvidia-smi -L)")
        if not any(gpu in {seen.index, seen.uuid} for seen in machine.gpus):
            there = ", ".join(seen.index for seen in machine.gpus)
            raise UsageError(f"{what}: there is no GPU {gpu}; there are {there}")
    if not named and known.gpus is not None and known.gpus < len(machine.gpus):
        # An engine takes the first ones it sees.
        named = tuple(seen.index for seen in machine.gpus[: known.gpus])
    chosen = [seen for seen in machine.gpus if not named or seen.index in named or seen.uuid in named]
    used = frozenset(int(seen.index) for seen in chosen)
    if any(seen.mig for seen in chosen):
        return _left_out("a GPU is cut into MIG instances, and what others use on it would count")
    if all(seen.used_mib is None for seen in chosen):
        return _left_out("nvidia-smi does not tell how much memory is in use ([N/A])", used)
    about = _about([seen.index for seen in chosen])
    checks = tuple(_checks(asked, machine, known, named))
    return Waited(possible=True, gpus=named, about=about, used=used, checks=checks)


def _listed(visible: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (visible or "").split(",") if word.strip())


def _left_out(why: str, used: frozenset[int] = frozenset()) -> Waited:
    check = Check(severity="note", text=f"no wait for GPU memory is in the unit: {why}")
    return Waited(possible=False, gpus=(), about="", used=used, checks=(check,))


def _about(indices: list[str]) -> str:
    if len(indices) == 1:
        return f"GPU {indices[0]} has"
    if [int(i) for i in indices] == list(range(int(indices[0]), int(indices[0]) + len(indices))):
        return f"GPUs {indices[0]} to {indices[-1]} have each"
    return f"GPUs {', '.join(indices)} have each"


def _checks(asked: Asked, machine: Machine, known: Known, named: tuple[str, ...]) -> Iterator[Check]:
    there = len(machine.gpus)
    if known.gpus is not None and known.gpus > there:
        yield Check(severity="warning", text=f"the command uses {known.gpus} GPUs and {there} are here")
    if asked.gpus and "CUDA_VISIBLE_DEVICES" not in asked.env and len(named) < there:
        yield Check(
            severity="warning",
            text="--gpus says which to wait for only; the engine sees all of them: add "
            f"--env CUDA_VISIBLE_DEVICES={','.join(named)}",
        )
    names = {seen.name for seen in machine.gpus}
    by_index = any(gpu.isdecimal() for gpu in named)
    if by_index and len(names) > 1 and asked.env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield Check(
            severity="warning",
            text="the GPUs are of different kinds, and CUDA numbers the fastest first: add --env "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    busy = [seen for seen in machine.gpus if seen.used_mib is not None and seen.used_mib > asked.gpu_floor_mib]
    chosen = [seen for seen in busy if not named or seen.index in named or seen.uuid in named]
    if chosen:
        text = ", ".join(f"GPU {seen.index} {seen.used_mib} MiB" for seen in chosen)
        yield Check(
            severity="note",
            text=f"in use now, above --gpu-floor {asked.gpu_floor_mib} MiB: {text}; a start waits "
            f"{asked.gpu_wait_s} s and fails if that stays",
        )
