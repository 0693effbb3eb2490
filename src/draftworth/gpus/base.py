"""What the GPUs of a machine hold: the result types and the protocol of whoever reads them.

What a reader promises:

- It never raises and never waits long; what it cannot tell is None with a reason in `why`, never zero.
- Bytes are bytes (1 MiB = 1,048,576), also where a source prints MiB.
- A process id is the one of the machine (or PID namespace) that was asked.
"""

from typing import Protocol

from draftworth.models import Frozen


class GpuProcess(Frozen):
    """A process that holds a context on a GPU."""

    pid: int
    used_bytes: int | None
    """Bytes of the GPU's memory it holds; None: the driver does not tell."""


class Gpu(Frozen):
    """One GPU, or one MIG instance of one."""

    index: int
    """Its number as its own tool counts; a MIG instance has its number within its GPU."""
    uuid: str
    name: str
    total_bytes: int | None
    """Bytes of memory, or None where that is not told (GPUs that share the machine's memory)."""
    used_bytes: int | None
    """Bytes in use by anybody, or None where that is not told."""
    processes: tuple[GpuProcess, ...] | None
    """Who uses it; None: cannot be told, which is not the same as nobody."""
    parent: str | None = None
    """UUID of the GPU this is a MIG instance of; None: a GPU itself."""


class Gpus(Frozen):
    """One reading of every GPU of a machine."""

    source: str
    """Where it is from: `nvml`, `nvidia-smi`, `rocm-smi` or `none`."""
    gpus: tuple[Gpu, ...]
    why: str | None = None
    """Why nothing or only a part is known, one line; a finding, None where all is known."""


class GpuReader(Protocol):
    """One way to read the GPUs of a machine."""

    name: str
    """Its source's name, as in `Gpus.source`."""

    def read(self) -> Gpus:
        """Return what the GPUs hold now. Never raises; says why instead."""
