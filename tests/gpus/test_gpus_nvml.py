from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from draftworth.gpus.base import GpuProcess
from draftworth.gpus.nvml import NvmlReader

GIB = 2**30


def error(code: int) -> Exception:
    made: Exception = pynvml.NVMLError(code)
    return made


class Library:
    """Stands in for `pynvml`: its errors and constants, and GPUs that a test makes up."""

    def __init__(self, devices: list[dict[str, Any]], init: Exception | None = None) -> None:
        self.devices = devices
        self.init = init
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init:
            raise self.init
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        return self._give(self.devices[index], "handle", self.devices[index])

    def nvmlDeviceGetUUID(self, handle: Any) -> Any:  # noqa: N802
        return handle["uuid"]

    def nvmlDeviceGetName(self, handle: Any) -> Any:  # noqa: N802
        return "NVIDIA Test"

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
        if version is not None and handle.get("old"):
            raise error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._give(handle, "memory" if version is None else "memory2", handle.get("memory"))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any:  # noqa: N802
        return self._give(handle, "processes", [])

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: Any) -> Any:  # noqa: N802
        return self._give(handle, "mps", error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))

    def nvmlDeviceGetMigMode(self, handle: Any) -> Any:  # noqa: N802
        return self._give(handle, "mig", error(pynvml.NVML_ERROR_NOT_SUPPORTED))

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> Any:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:  # noqa: N802
        if index not in handle["instances"]:
            raise error(pynvml.NVML_ERROR_NOT_FOUND)
        return handle["instances"][index]

    def _give(self, handle: dict[str, Any], key: str, default: Any) -> Any:
        value = handle.get(key, default)
        if isinstance(value, Exception):
            raise value
        return value


def memory(total: int, used: int) -> SimpleNamespace:
    return SimpleNamespace(total=total, used=used, free=total - used)


def process(pid: int, used: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


def test_memory_and_processes_those_behind_mps_too() -> None:
    library = Library(
        [
            {
                "uuid": "GPU-a",
                "memory": memory(80 * GIB, 60 * GIB),
                "processes": [process(7, 50 * GIB), process(9, None)],
                "mps": [process(8, 9 * GIB)],
            }
        ]
    )
    found = NvmlReader(library).read()
    (gpu,) = found.gpus
    assert (gpu.total_bytes, gpu.used_bytes) == (80 * GIB, 60 * GIB)
    assert gpu.processes == (
        GpuProcess(pid=7, used_bytes=50 * GIB),
        GpuProcess(pid=8, used_bytes=9 * GIB),
        GpuProcess(pid=9, used_bytes=None),
    )
    assert found.why is None
    assert library.open == 0


def test_memory_that_is_not_supported_is_not_zero() -> None:
    gpu = {"uuid": "GPU-a", "memory": error(pynvml.NVML_ERROR_NOT_SUPPORTED), "processes": [process(7, GIB)]}
    found = NvmlReader(Library([gpu])).read()
    assert (found.gpus[0].total_bytes, found.gpus[0].used_bytes) == (None, None)
    assert found.why == "memory in use is not told for GPU 0"


def test_the_drivers_own_share_is_not_in_use_where_the_driver_tells_it_apart() -> None:
    gpu = {"uuid": "GPU-a", "memory": memory(80 * GIB, 2 * GIB), "memory2": memory(80 * GIB, GIB)}
    assert NvmlReader(Library([gpu])).read().gpus[0].used_bytes == GIB
    assert NvmlReader(Library([{**gpu, "old": True}])).read().gpus[0].used_bytes == 2 * GIB


def test_mig_instances() -> None:
    instance = {"uuid": "MIG-1", "memory": memory(20 * GIB, 14 * GIB), "processes": [process(3, 14 * GIB)]}
    gpu = {
        "uuid": "GPU-a",
        "memory": error(pynvml.NVML_ERROR_NO_PERMISSION),
        "processes": [],
        "mig": [1, 1],
        "instances": {2: instance},
    }
    found = NvmlReader(Library([gpu])).read()
    assert [(one.uuid, one.index, one.parent) for one in found.gpus] == [("GPU-a", 0, None), ("MIG-1", 2, "GPU-a")]
    assert found.why is None


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    library = Library(
        [
            {"uuid": "GPU-a", "handle": error(pynvml.NVML_ERROR_GPU_IS_LOST)},
            {"uuid": "GPU-b", "memory": memory(80 * GIB, GIB)},
        ]
    )
    found = NvmlReader(library).read()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-b"]
    assert found.why == "GPU 0: GPU is lost"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "version mismatch"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"),
    ],
)
def test_no_library_or_driver_is_a_reason(code: int, words: str) -> None:
    found = NvmlReader(Library([], init=error(code))).read()
    assert found.gpus == ()
    assert words in (found.why or "")


def test_the_real_library_tells_or_says_why() -> None:
    found = NvmlReader().read()
    assert found.source == "nvml"
    assert found.gpus or found.why
