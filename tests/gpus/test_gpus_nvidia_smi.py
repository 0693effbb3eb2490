import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gpus.printed import DATA, PrintingHost, nvidia

from draftworth.gpus.base import GpuProcess
from draftworth.gpus.nvidia_smi import NvidiaSmiReader
from draftworth.hosts.base import HostError

MIB = 1_048_576


def test_two_h200_as_recorded() -> None:
    found = NvidiaSmiReader(nvidia("h200")).read()
    assert found.why is None
    assert [(g.index, g.name, g.total_bytes, g.used_bytes) for g in found.gpus] == [
        (0, "NVIDIA H200", 150_754_820_096, 22_027_436_032),
        (1, "NVIDIA H200", 150_754_820_096, 4_194_304),
    ]
    assert found.gpus[0].processes == (GpuProcess(pid=590, used_bytes=20998 * MIB),)
    assert found.gpus[1].processes == ()


def test_eight_gpus_and_a_neighbour_on_the_fourth() -> None:
    found = NvidiaSmiReader(nvidia("eight")).read()
    assert found.why is None
    assert len(found.gpus) == 8
    processes = found.gpus[3].processes
    assert processes is not None
    assert [(p.pid, p.used_bytes) for p in processes] == [(41203, 78296 * MIB), (977, 2110 * MIB)]


def test_memory_shared_with_the_machine_is_not_told_but_processes_are() -> None:
    found = NvidiaSmiReader(nvidia("gb10")).read()
    (gpu,) = found.gpus
    assert (gpu.total_bytes, gpu.used_bytes) == (None, None)
    assert gpu.processes == (
        GpuProcess(pid=3391, used_bytes=92012 * MIB),
        GpuProcess(pid=2207, used_bytes=None),
    )
    assert found.why == "memory in use is not told for GPU 0"


def test_mig_instances_stand_behind_their_gpu() -> None:
    found = NvidiaSmiReader(nvidia("mig")).read()
    gpu, first, second, whole = found.gpus
    assert (gpu.parent, gpu.used_bytes) == (None, None)
    assert first.parent == second.parent == gpu.uuid
    assert first.uuid == "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
    assert first.name == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert (first.index, first.total_bytes, first.used_bytes) == (0, 19968 * MIB, 14366 * MIB)
    assert first.processes == (GpuProcess(pid=7001, used_bytes=14300 * MIB),)
    assert second.processes == (GpuProcess(pid=7002, used_bytes=9826 * MIB),)
    assert (whole.index, whole.parent, whole.processes) == (1, None, ())
    assert found.why is None  # what the divided GPU itself keeps to itself, its instances tell


def test_memory_in_use_by_nobody_means_hidden_processes() -> None:
    # Seen on an H200 in a PID namespace of its own: no process is listed while 20 GiB are in use.
    host = PrintingHost(
        {
            "nvidia-smi --query-gpu": (DATA / "h200-gpus.txt").read_bytes(),
            "nvidia-smi --query-compute-apps": b"",
        }
    )
    found = NvidiaSmiReader(host).read()
    assert found.gpus[0].processes is None
    assert found.gpus[1].processes == ()
    assert found.why is not None
    assert "processes are not shown for GPU 0" in found.why


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((18, (DATA / "mismatch.txt").read_bytes()), "Driver/library version mismatch NVML library version: 580.159"),
        ((6, b"No devices were found\n"), "No devices were found"),
        ((9, b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"), "communicate"),
        ((127, b""), "nvidia-smi: not installed"),
        ((0, b""), "nvidia-smi: no GPU"),
        ((0, b"No devices were found\n"), "'No devices were found' is not understood"),
        (HostError("ssh gpu1: timed out"), "ssh gpu1: timed out"),
    ],
)
def test_what_fails_is_a_reason_and_no_gpu(answer: tuple[int, bytes] | HostError, words: str) -> None:
    found = NvidiaSmiReader(PrintingHost({"nvidia-smi": answer})).read()
    assert found.gpus == ()
    assert found.why is not None
    assert words in found.why
    assert "\n" not in found.why


def test_no_permission_to_see_processes_is_not_nobody() -> None:
    host = PrintingHost(
        {
            "nvidia-smi --query-gpu": (DATA / "h200-gpus.txt").read_bytes(),
            "nvidia-smi --query-compute-apps": (4, b"Insufficient Permissions\n"),
        }
    )
    found = NvidiaSmiReader(host).read()
    assert [gpu.processes for gpu in found.gpus] == [None, None]
    assert found.why is not None
    assert "processes: Insufficient Permissions" in found.why


def test_a_gpu_that_fell_off_the_bus_does_not_hide_the_others() -> None:
    rows = (DATA / "h200-gpus.txt").read_bytes() + b"[Unknown Error], [GPU is lost]\n"
    host = PrintingHost({"nvidia-smi --query-gpu": rows, "nvidia-smi --query-compute-apps": b""})
    found = NvidiaSmiReader(host).read()
    assert len(found.gpus) == 2
    assert found.why is not None
    assert "GPU is lost" in found.why


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 255))
def test_nothing_that_is_printed_raises(gpus: bytes, processes: bytes, code: int) -> None:
    host = PrintingHost(
        {"nvidia-smi --query-gpu": (code, gpus), "nvidia-smi --query-compute-apps": processes, "nvidia-smi": gpus}
    )
    found = NvidiaSmiReader(host).read()
    assert found.gpus or found.why


@given(st.integers(0, 300_000), st.integers(1, 300_000), st.integers(1, 4_000_000), st.integers(0, 300_000))
def test_every_number_comes_back(used: int, total: int, pid: int, held: int) -> None:
    host = PrintingHost(
        {
            "nvidia-smi --query-gpu": f"5, GPU-x, NVIDIA L4, {total}, {used}, [N/A]\n".encode(),
            "nvidia-smi --query-compute-apps": f"GPU-x, {pid}, {held}\n".encode(),
        }
    )
    (gpu,) = NvidiaSmiReader(host).read().gpus
    assert (gpu.index, gpu.total_bytes, gpu.used_bytes) == (5, total * 2**20, used * 2**20)
    assert gpu.processes == (GpuProcess(pid=pid, used_bytes=held * 2**20),)
