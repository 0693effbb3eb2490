"""What a measurement ran on."""

import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Return what the trial ran on: kernel, processor, cores, memory, and GPUs where there are any."""
    import psutil  # noqa: PLC0415 - lazy

    gpus = _gpus()
    return {
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        **({"gpus": gpus} if gpus else {}),
    }


def _gpus() -> list[str]:
    """Return the GPUs by name, like ones together: `8 x NVIDIA H200`; empty where none can be read."""
    if device_here() == "cpu":
        return []
    from draftworth.gpus import reader  # noqa: PLC0415 - lazy
    from draftworth.hosts.local import LocalHost  # noqa: PLC0415 - lazy

    names = Counter(gpu.name for gpu in reader(LocalHost()).read().gpus)
    return [f"{count} x {name}" for name, count in names.items()]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


_ACCELERATORS = ("nvidia[0-9]*", "kfd", "dri/renderD*", "accel*", "davinci*", "xpu*")


def device_here() -> str | None:
    """Return `cpu` where this machine has no accelerator a server could run on, else None: it is not known then."""
    dev = Path("/dev")
    return None if any(any(dev.glob(pattern)) for pattern in _ACCELERATORS) else "cpu"
