"""What the GPUs of a machine hold; one file a way to ask."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftworth.gpus.base import GpuReader
    from draftworth.hosts.base import Host


def reader(host: "Host") -> "GpuReader":
    """Return the first way to read GPUs that finds any on a host; where none does, one that says why.

    Args:
        host: the machine. On this machine NVML is asked first, then `nvidia-smi`, then `rocm-smi`; on others the
            commands. Each is tried once, here.
    """
    from draftworth.gpus.none import NoReader  # noqa: PLC0415 - lazy, as all below
    from draftworth.gpus.nvidia_smi import NvidiaSmiReader  # noqa: PLC0415
    from draftworth.gpus.nvml import NvmlReader  # noqa: PLC0415
    from draftworth.gpus.rocm_smi import RocmSmiReader  # noqa: PLC0415
    from draftworth.hosts.local import LocalHost  # noqa: PLC0415

    ways: list[GpuReader] = [NvidiaSmiReader(host), RocmSmiReader(host)]
    if isinstance(host, LocalHost):
        ways.insert(0, NvmlReader())
    reasons: list[str] = []
    for way in ways:
        found = way.read()
        if found.gpus:
            return way
        reasons.append(found.why or f"{way.name}: no GPU")
    return NoReader("; ".join(reasons))
