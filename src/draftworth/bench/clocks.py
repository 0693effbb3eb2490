"""The clocks and throttling of the machine while it measures: what changes a time without any setting changing.

Linux: `thermal_throttle/core_throttle_count` of /sys/devices/system/cpu; NVIDIA GPUs through NVML, once a second. Most
virtual machines show neither.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Protocol, Self

from draftworth.models import Frozen

_CPU = Path("/sys/devices/system/cpu")
_EVERY_S = 1.0
_APART = 0.05
_HELD_SHARE = 0.1
_HOT_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of NVML's clock event reasons that no healthy GPU has under load (nvml.h, nvmlClocksEventReason*); its power cap
is not among them, which a busy GPU meets."""


class Sample(Frozen):
    """One GPU at one moment."""

    sm_mhz: int | None = None
    celsius: int | None = None
    reasons: tuple[str, ...] = ()
    """Why its clock is held down."""


class Gpu(Frozen):
    """One GPU over a measurement."""

    sm_mhz: float | None = None
    """Median of its clock."""
    celsius: int | None = None
    """Hottest."""
    reasons: tuple[str, ...] = ()
    """Why its clock was held down, in a tenth of the samples or more."""


class Clocks(Frozen):
    """The machine over a measurement; what cannot be read is None or empty."""

    cpu_throttled: int | None = None
    """Times the processor's cores throttled for heat, all cores added."""
    gpus: tuple[Gpu, ...] = ()


class Watched(Protocol):
    """What is measured; its `clocks` are filled in."""

    clocks: Clocks | None


class ClockWatch:
    """Looks at the clocks once a second, in a thread of its own, while its block runs. Never raises."""

    def __init__(self, watched: Watched, cpu: Path = _CPU) -> None:
        """Watch for `watched`.

        Args:
            watched: its `clocks` are set when the block ends.
            cpu: where the kernel shows the processors.
        """
        self._watched = watched
        self._cpu = cpu
        self._stop = threading.Event()
        self._samples: list[tuple[Sample, ...]] = []
        self._throttled = cpu_throttled(cpu)
        self._thread = threading.Thread(target=self._run, name="clocks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(_EVERY_S)
        after = cpu_throttled(self._cpu)
        more = None if self._throttled is None or after is None else after - self._throttled
        self._watched.clocks = Clocks(cpu_throttled=more, gpus=over(self._samples))

    def _run(self) -> None:
        library = _nvml()
        if library is None:
            return
        while not self._stop.wait(_EVERY_S):
            with suppress(Exception):  # a driver that fails is no reason to fail
                self._samples.append(tuple(_sample(library, index) for index in range(library.nvmlDeviceGetCount())))


def over(samples: Sequence[Sequence[Sample]]) -> tuple[Gpu, ...]:
    """Return each GPU over its samples, by index."""
    found = []
    for series in zip(*samples, strict=False):
        clocks = [one.sm_mhz for one in series if one.sm_mhz]
        heat = [one.celsius for one in series if one.celsius is not None]
        reasons = sorted({reason for one in series for reason in one.reasons})
        often = [r for r in reasons if sum(r in one.reasons for one in series) >= _HELD_SHARE * len(series)]
        found.append(
            Gpu(sm_mhz=median(clocks) if clocks else None, celsius=max(heat, default=None), reasons=tuple(often))
        )
    return tuple(found)


def held_down(clocks: Clocks | None) -> str | None:
    """Return what held the machine's clocks down during a measurement, or None."""
    if clocks is None:
        return None
    parts = []
    if clocks.cpu_throttled:
        parts.append(f"the processor throttled for heat {clocks.cpu_throttled} times")
    parts += [
        f"GPU {index} was held down by {' and '.join(gpu.reasons)}, at up to {gpu.celsius} °C"
        for index, gpu in enumerate(clocks.gpus)
        if gpu.reasons
    ]
    return "; ".join(parts) or None


def other_than(first: Clocks | None, clocks: Clocks | None) -> str | None:
    """Return which GPUs ran at another clock (median under load) than in the first measurement, or None."""
    if first is None or clocks is None:
        return None
    parts = [
        f"GPU {index} ran at {new.sm_mhz:.0f} MHz, in the first block at {old.sm_mhz:.0f}"
        for index, (old, new) in enumerate(zip(first.gpus, clocks.gpus, strict=False))
        if old.sm_mhz and new.sm_mhz and abs(new.sm_mhz / old.sm_mhz - 1) > _APART
    ]
    return "; ".join(parts) or None


def cpu_throttled(cpu: Path = _CPU) -> int | None:
    """Return how often the processor's cores have throttled for heat since the boot; None where that is not shown."""
    total = None
    for path in cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        with suppress(OSError, ValueError):
            total = (total or 0) + int(path.read_text(encoding="ascii"))
    return total


def _nvml() -> Any | None:
    try:
        import pynvml  # noqa: PLC0415 - lazy: few machines that run the tool have a GPU

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver, no GPU
        return None
    return pynvml


def _sample(library: Any, index: int) -> Sample:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    sm = celsius = None
    mask = 0
    with suppress(library.NVMLError):
        sm = int(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))
    with suppress(library.NVMLError):
        celsius = int(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))
    with suppress(library.NVMLError):
        mask = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    reasons = tuple(name for bit, name in _HOT_REASONS.items() if mask & bit)
    return Sample(sm_mhz=sm, celsius=celsius, reasons=reasons)
