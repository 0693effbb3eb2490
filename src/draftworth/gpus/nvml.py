"""NVIDIA's GPUs of this machine through NVML, the driver's own library (nvidia-ml-py, imported when first used)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from draftworth.gpus.base import Gpu, GpuProcess, Gpus
from draftworth.gpus.hidden import told


class NvmlReader:
    """Reads GPUs and MIG instances through NVML. See `GpuReader`."""

    name = "nvml"

    def __init__(self, library: Any | None = None) -> None:
        """Make a reader.

        Args:
            library: what to use in place of `pynvml`.
        """
        self._library = library

    def read(self) -> Gpus:
        """Return what the GPUs hold now."""
        if self._library is None:
            try:
                import pynvml  # noqa: PLC0415 - lazy: few machines that run the tool have a GPU
            except ImportError as error:
                return Gpus(source=self.name, gpus=(), why=f"NVML: nvidia-ml-py cannot be imported: {error}")
            self._library = pynvml
        library = self._library
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            return Gpus(source=self.name, gpus=(), why=f"NVML: {_words(error)}")
        try:
            return _all(library)
        except library.NVMLError as error:
            return Gpus(source=self.name, gpus=(), why=f"NVML: {_words(error)}")
        finally:
            library.nvmlShutdown()


def _all(library: Any) -> Gpus:
    gpus: list[Gpu] = []
    lost: list[str] = []
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            gpu = _one(library, handle, index, None)
            gpus += [gpu, *_instances(library, handle, gpu.uuid)]
        except library.NVMLError as error:  # a GPU that fell off the bus does not hide the others
            lost.append(f"GPU {index}: {_words(error)}")
    if not gpus and not lost:
        lost.append("NVML: the driver sees no GPU")
    return told("nvml", gpus, lost)


def _one(library: Any, handle: Any, index: int, parent: str | None) -> Gpu:
    memory = _memory(library, handle)
    return Gpu(
        index=index,
        uuid=_text(library.nvmlDeviceGetUUID(handle)),
        name=_text(_try(library, partial(library.nvmlDeviceGetName, handle)) or "NVIDIA GPU"),
        total_bytes=int(memory.total) if memory is not None and memory.total else None,
        used_bytes=int(memory.used) if memory is not None and memory.total else None,
        processes=_processes(library, handle),
        parent=parent,
    )


def _memory(library: Any, handle: Any) -> Any:
    # The second version leaves the driver's own share out of "used", as nvidia-smi does: readings of both compare.
    second = _try(library, partial(library.nvmlDeviceGetMemoryInfo, handle, version=library.nvmlMemory_v2))
    return second if second is not None else _try(library, partial(library.nvmlDeviceGetMemoryInfo, handle))


def _processes(library: Any, handle: Any) -> tuple[GpuProcess, ...] | None:
    plain = _try(library, partial(library.nvmlDeviceGetComputeRunningProcesses, handle))
    if plain is None:
        return None
    # Clients of an MPS daemon are in a list of their own.
    shared = _try(library, partial(library.nvmlDeviceGetMPSComputeRunningProcesses, handle)) or []
    found: dict[int, int | None] = {}
    for process in (*plain, *shared):
        used = process.usedGpuMemory
        found[int(process.pid)] = None if used is None else int(used)
    return tuple(GpuProcess(pid=pid, used_bytes=used) for pid, used in sorted(found.items()))


def _instances(library: Any, handle: Any, parent: str) -> list[Gpu]:
    mode = _try(library, partial(library.nvmlDeviceGetMigMode, handle))
    if not mode or not mode[0]:
        return []
    found: list[Gpu] = []
    for number in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        instance = _try(library, partial(library.nvmlDeviceGetMigDeviceHandleByIndex, handle, number))
        if instance is not None:
            found.append(_one(library, instance, number, parent))
    return found


def _try(library: Any, ask: Callable[[], Any]) -> Any:
    """Return an answer, or None where this GPU does not give it."""
    try:
        return ask()
    except library.NVMLError as error:
        if error.value in {
            library.NVML_ERROR_NOT_SUPPORTED,
            library.NVML_ERROR_NO_PERMISSION,
            library.NVML_ERROR_NOT_FOUND,
            library.NVML_ERROR_INVALID_ARGUMENT,
            library.NVML_ERROR_FUNCTION_NOT_FOUND,
        }:
            return None
        raise


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
