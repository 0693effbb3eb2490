"""NCCL settings worth trying where GPUs are joined by PCIe only, each with what it does and what speaks against it.

What each does is from NVIDIA's NCCL user guide, "Environment Variables" (read for NCCL 2.32), and the CUDA programming
guide. The guide lists all NCCL variables named here under "Debugging": forcing one keeps NCCL from choosing, so a
setting stays only if a measurement shows that it pays on this machine.
"""

from draftworth.services.newunit.base import Setting
from draftworth.services.newunit.topology import Topology

_FAR = ("PHB", "NODE", "SYS")


def proposals(topology: Topology) -> tuple[Setting, ...]:
    """Return the settings for a topology: none unless two or more GPUs are joined by PCIe only."""
    farthest = topology.farthest
    if farthest is None:
        return ()
    return (*(_peer(farthest) if farthest in _FAR else ()), *_ALWAYS)


def _peer(farthest: str) -> tuple[Setting, ...]:
    return (
        Setting(
            name="NCCL_P2P_LEVEL",
            value="SYS",
            does="the longest path over which GPUs read each other's memory directly; SYS: also between NUMA nodes.",
            why=(
                f"The longest path here is {farthest}; by default NCCL may copy through host memory on it. First see "
                "that `nvidia-smi topo -p2p r` says OK for every pair; with ACS or an IOMMU on, direct access can "
                "hang."
            ),
            in_case=True,
        ),
    )


_ALWAYS = (
    Setting(
        name="NCCL_PROTO",
        value="LL",
        does="which protocols may be used; LL: low latency, half of the bytes on the wire are flags.",
        why=(
            "One stream's all-reduce is a few KiB a layer, where latency decides. Prompts and large batches send "
            "megabytes and lose up to half of the bandwidth. NVIDIA advises against it except to rule out a bug."
        ),
        in_case=True,
    ),
    Setting(
        name="NCCL_ALGO",
        value="Ring",
        does="which algorithms may be used.",
        why="A ring sends to one neighbour only, which suits switches of PCIe; a tree has fewer hops. Measure both.",
        in_case=True,
    ),
    Setting(
        name="NCCL_MAX_NCHANNELS",
        value="16",
        does="the most channels, each a CUDA block taken from computing; deprecated since 2.17 for NCCL_MAX_CTAS.",
        why="An upper limit only: where NCCL picks fewer (NCCL_DEBUG=INFO prints them), it changes nothing.",
        in_case=True,
    ),
    Setting(
        name="NCCL_BUFFSIZE",
        value="16777216",
        does="bytes of the buffer between two GPUs, default 4 MiB.",
        why="It sizes the buffers of the Simple protocol only: beside NCCL_PROTO=LL it does nothing but cost memory.",
        in_case=True,
    ),
    Setting(
        name="NCCL_NTHREADS",
        value="512",
        does="CUDA threads a block.",
        why="512 is the default of recent GPUs; it matters on some older ones, whose default is 256.",
        in_case=True,
    ),
    Setting(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        value="1",
        does="hardware queues from the host to a GPU, 1 to 32, default 8.",
        why="With one, kernels start in the order they were launched, communication too; it can cost overlap.",
        in_case=True,
    ),
)
