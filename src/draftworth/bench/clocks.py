"""The clocks and throttling of the machine, where they can be read: what changes a time without any setting changing.

Linux: `scaling_cur_freq` and `thermal_throttle/*_throttle_count` of /sys/devices/system/cpu; NVIDIA GPUs through NVML.
Most virtual machines show neither.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from draftworth.models import Frozen

_CPU = Path("/sys/devices/system/cpu")
_APART = 0.05
_THERMAL_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of NVML's clock event reasons that mean a clock below what was asked for (nvml.h, nvmlClocksEventReason*)."""


class Gpu(Frozen):
    """One GPU at one moment."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    celsius: int | None = None
    reasons: tuple[str, ...] = ()
    """Why its clock is held down."""


class Clocks(Frozen):
    """The machine at one moment; what cannot be read is None or empty."""

    cpu_throttled: int | None = None
    """Times the processor's cores have throttled for heat since the boot, all cores added."""
    cpu_mhz: float | None = None
    """Mean over the cores of their clock now."""
    gpus: tuple[Gpu, ...] = ()


def read_clocks(cpu: Path = _CPU) -> Clocks:
    """Return the machine's clocks now. Never raises: what cannot be read is not there."""
    counts = [value for path in cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count") if (value := _number(path))]
    readable = any(cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    speeds = [value for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq") if (value := _number(path))]
    return Clocks(
        cpu_throttled=sum(counts) if readable else None,
        cpu_mhz=sum(speeds) / len(speeds) / 1000 if speeds else None,
        gpus=_gpus(),
    )


def changed(before: Clocks | None, after: Clocks | None) -> str | None:
    """Return what changed between two moments under load in a way that changes times, or None.

    A processor's momentary clock is too restless to be evidence; its throttle count and a GPU's reasons are.
    """
    if before is None or after is None:
        return None
    parts = []
    if before.cpu_throttled is not None and after.cpu_throttled is not None:
        more = after.cpu_throttled - before.cpu_throttled
        if more > 0:
            parts.append(f"the processor throttled for heat {more} times")
    for index, (old, new) in enumerate(zip(before.gpus, after.gpus, strict=False)):
        if new.reasons:
            parts.append(f"GPU {index} is held down by {' and '.join(new.reasons)} at {new.celsius} °C")
        elif old.sm_mhz and new.sm_mhz and abs(new.sm_mhz / old.sm_mhz - 1) > _APART:
            parts.append(f"GPU {index} went from {old.sm_mhz} to {new.sm_mhz} MHz")
    return "; ".join(parts) or None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _gpus() -> tuple[Gpu, ...]:
    try:
        import pynvml  # noqa: PLC0415 - lazy: few machines that run the tool have a GPU
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
        return tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()


def _gpu(library: Any, index: int) -> Gpu:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    sm = memory = celsius = None
    mask = 0
    with suppress(library.NVMLError):
        sm = int(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))
        memory = int(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM))
    with suppress(library.NVMLError):
        celsius = int(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))
    with suppress(library.NVMLError):
        mask = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    reasons = tuple(name for bit, name in _THERMAL_REASONS.items() if mask & bit)
    return Gpu(sm_mhz=sm, memory_mhz=memory, celsius=celsius, reasons=reasons)
