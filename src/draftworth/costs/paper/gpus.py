"""What data sheets say of GPUs: memory, its bandwidth, dense tensor peaks, and the link to the next GPU.

Peaks are dense (data sheets often print twice that, with sparsity) with FP32 accumulation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from draftworth.errors import UsageError


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU.

    Attributes:
        name: what a person writes.
        memory_gb: in GB (10^9 bytes).
        bandwidth_gb_s: of its memory.
        bf16_tflops: dense.
        fp8_tflops: dense; None where it has no FP8.
        fp4_tflops: dense; None where it has no FP4.
        link: its usual link, a name in `draftworth.costs.allreduce.LINKS`.
        link_gb_s: bytes to the other GPUs in one direction.
        source: the data sheet.
    """

    name: str
    memory_gb: float
    bandwidth_gb_s: float
    bf16_tflops: float
    fp8_tflops: float | None
    fp4_tflops: float | None
    link: str
    link_gb_s: float
    source: str


GPUS: Mapping[str, GPU] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            GPU("H100", 80, 3350, 989, 1979, None, "nvlink", 450, "NVIDIA H100 data sheet, SXM5"),
            GPU("H200", 141, 4800, 989, 1979, None, "nvlink", 450, "NVIDIA H200 data sheet, SXM5"),
            GPU("B200", 180, 8000, 2250, 4500, 9000, "nvlink", 900, "NVIDIA DGX B200 data sheet: 1/8 of its totals"),
            GPU("A100", 80, 2039, 312, None, None, "nvlink", 300, "NVIDIA A100 80GB data sheet, SXM4"),
            GPU("L40S", 48, 864, 362, 733, None, "pcie", 32, "NVIDIA L40S data sheet"),
            GPU("L4", 24, 300, 121, 242, None, "pcie", 32, "NVIDIA L4 data sheet"),
            GPU(
                "RTX-PRO-6000",
                96,
                1792,
                503.8,
                1007.6,
                2015.2,
                "pcie",
                64,
                "NVIDIA RTX Blackwell PRO architecture paper, Workstation Edition (the Server Edition has 1597 GB/s)",
            ),
            GPU("RTX-4090", 24, 1008, 165.2, 330.3, None, "pcie", 32, "NVIDIA Ada architecture paper"),
            GPU("RTX-5090", 32, 1792, 209.5, 419, 1676, "pcie", 64, "NVIDIA RTX Blackwell architecture paper"),
            GPU("MI300X", 192, 5300, 1307.4, 2614.9, None, "nvlink", 448, "AMD Instinct MI300X data sheet"),
            GPU(
                "GB10",
                128,
                273,
                125,
                250,
                500,
                "pcie",
                25,
                "NVIDIA DGX Spark data sheet: 273 GB/s and 1 PFLOP of sparse FP4; the other peaks by the usual halves",
            ),
        )
    }
)
"""By name."""


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum()).removeprefix("nvidia")


def gpu(name: str) -> GPU:
    """Return the named GPU; case, spaces and hyphens do not matter.

    Raises:
        UsageError: it is not in the table; the choices are listed.
    """
    asked = _plain(name)
    for one in GPUS.values():
        if asked in {_plain(one.name), _plain(one.name) + "blackwell"}:
            return one
    raise UsageError(f"--gpu: {name!r} is not known: choose one of {', '.join(GPUS)}")
