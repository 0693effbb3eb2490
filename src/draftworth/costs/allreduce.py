"""What one all-reduce costs, by message size and how the GPUs are joined.

A decode step reduces a message of tokens x hidden x 2 bytes twice a layer under tensor parallelism. At these sizes
latency rules: the message of a few more tokens costs almost nothing more, so all-reduce amortises over drafted tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from draftworth.errors import UsageError

REFERENCE_GPUS = 8
"""GPUs of the boxes whose latencies are in LINKS."""


@dataclass(frozen=True, slots=True)
class Link:
    """How GPUs are joined.

    Attributes:
        name: what a person writes.
        about: what it is, and where its figures come from.
        latency_us: of the smallest message among REFERENCE_GPUS.
        message_gb_s: bytes of the message a second (not of the wire), once latency is paid; None where the GPU's own
            link speed says it.
        measured: bytes of a message to microseconds, ascending, among REFERENCE_GPUS; empty where only the two
            figures above are known.
    """

    name: str
    about: str
    latency_us: float
    message_gb_s: float | None
    measured: tuple[tuple[int, float], ...] = ()


_KIB = 1024

LINKS: Mapping[str, Link] = MappingProxyType(
    {
        link.name: link
        for link in (
            Link(
                "nvlink",
                "NVLink or Infinity Fabric, all to all: about 8 us a kernel (assumed), bytes at the link's speed",
                8.0,
                None,
            ),
            Link(
                "pcie",
                "8 GPUs on PCIe 5.0, NCCL as it comes: measured (rtx6kpro, optimization/nccl-tuning.md)",
                48.2,
                27.0,
                ((32 * _KIB, 48.2), (64 * _KIB, 48.7), (128 * _KIB, 51.6), (256 * _KIB, 56.5)),
            ),
            Link(
                "pcie-tuned",
                "8 GPUs on PCIe 5.0, NCCL tuned (LL, ring): measured (rtx6kpro, optimization/nccl-tuning.md)",
                26.2,
                20.0,
                ((32 * _KIB, 26.2), (64 * _KIB, 25.6), (128 * _KIB, 32.1), (256 * _KIB, 37.3)),
            ),
        )
    }
)
"""Known ways to join GPUs, by name."""


def link(name: str) -> Link:
    """Return the named link.

    Raises:
        UsageError: there is none of this name; the choices are listed.
    """
    if name not in LINKS:
        raise UsageError(f"unknown link {name!r}: choose one of {', '.join(LINKS)}")
    return LINKS[name]


def allreduce_us(size: float, gpus: int, via: Link, link_gb_s: float) -> float:
    """Return the microseconds of one all-reduce.

    Measured sizes are interpolated; below the smallest, its time; beyond the largest, the link's speed. Fewer GPUs than
    the measured box make a ring of fewer hops: latency scales with gpus - 1 on PCIe, bytes with (gpus - 1) / gpus.

    Args:
        size: bytes of the message on each GPU.
        gpus: how many take part; one costs nothing.
        via: how they are joined.
        link_gb_s: the GPU's own link speed in one direction, in GB/s; used where the link has no speed of its own.
    """
    if gpus <= 1:
        return 0.0
    hops = (gpus - 1) / (REFERENCE_GPUS - 1) if via.measured else 1.0
    wire = ((gpus - 1) / gpus) / ((REFERENCE_GPUS - 1) / REFERENCE_GPUS)
    if not via.measured:
        return via.latency_us + size / ((via.message_gb_s or link_gb_s) * 1e3) * 2 * (gpus - 1) / gpus
    sizes: Sequence[int] = [at for at, _ in via.measured]
    times = np.maximum.accumulate([us for _, us in via.measured])  # a larger message is never quicker: that is noise
    beyond = max(0.0, size - sizes[-1]) / ((via.message_gb_s or link_gb_s) * 1e3)
    grown = float(np.interp(size, sizes, times)) - via.latency_us + beyond
    return via.latency_us * hops + max(0.0, grown) * wire
