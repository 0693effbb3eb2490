"""T on paper: weights and KV cache over the memory's bandwidth or arithmetic over its peak, launches, and all-reduces.

For every class of matrices of a layer the longer of reading and computing counts (roofline); classes run one after the
other. To that come a launch floor for each kernel and two all-reduces a layer under tensor parallelism. Two readings:

- `bound`: data sheet bandwidth and peak, 1.5 us a kernel: a server that is quicker has fewer kernels.
- `usual`: 80 % of the bandwidth, 60 % of the peak, 3 us a kernel: round figures chosen beside two measured models on an
  H200 (docs/costs-model.md), so agreement with those is no evidence; others are in the tests.

Both say nothing of the host: scheduling, sampling on the CPU, or an engine's mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftworth.costs.allreduce import Link, allreduce_us
from draftworth.costs.experts import RHO, RHO_RANGE, effective_padded, union
from draftworth.costs.paper.config import ModelShape
from draftworth.costs.paper.gpus import GPU
from draftworth.costs.paper.quantisation import Class

ATTENTION_KERNELS, DENSE_KERNELS, MOE_KERNELS = 6, 4, 9
"""Kernels of a layer in a fused engine: norm, qkv, rope and cache, attention, output, reduce; norm, gate and up,
activation, down; norm, router, top-k, sorting, gate and up, activation, down, sum, shared."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How near to a data sheet a GPU is taken to come.

    Attributes:
        bandwidth: share of the memory's bandwidth.
        compute: share of the peak.
        kernel_us: microseconds of a kernel beside its bytes and arithmetic.
    """

    bandwidth: float
    compute: float
    kernel_us: float


BOUND = Reading(1.0, 1.0, 1.5)
USUAL = Reading(0.8, 0.6, 3.0)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a model runs.

    Attributes:
        gpu: each of them.
        tp: GPUs that share every layer (tensor parallelism).
        gpus: all of them; `gpus / tp` groups hold different layers, one after the other.
        link: how the GPUs of a group are joined.
    """

    gpu: GPU
    tp: int
    gpus: int
    link: Link


@dataclass(frozen=True, slots=True)
class Step:
    """A step on paper.

    Attributes:
        requests: in the step.
        tokens: of all of them.
        runs_as: tokens of the captured graph it runs as.
        ms: all of it.
        weight_ms: matrices without routed experts.
        expert_ms: routed experts.
        kv_ms: the KV cache.
        allreduce_ms: all-reduces.
        launch_ms: kernels' launches.
        bytes_read: weights and KV cache over all GPUs.
        experts: different experts of a layer that are read; 0 for a dense model.
    """

    requests: int
    tokens: int
    runs_as: int
    ms: float
    weight_ms: float
    expert_ms: float
    kv_ms: float
    allreduce_ms: float
    launch_ms: float
    bytes_read: float
    experts: float

    @property
    def expert_share(self) -> float:
        """Routed experts' share of the step."""
        return self.expert_ms / self.ms


def step(
    shape: ModelShape,
    machine: Machine,
    *,
    requests: int,
    tokens: int,
    context: int,
    runs_as: int | None = None,
    rho: float = RHO,
    reading: Reading = USUAL,
    kv_bits: float = 16.0,
) -> Step:
    """Return a step on paper.

    Args:
        shape: the model.
        machine: where it runs.
        requests: in the step.
        tokens: of all of them together.
        context: tokens of each request in the KV cache.
        runs_as: tokens it is padded to; None for none.
        rho: overlap of experts between consecutive tokens of a request.
        reading: how near to the data sheet.
        kv_bits: of a number in the KV cache.
    """
    rows = max(tokens, runs_as or tokens)
    each = _Each(shape, machine, reading)
    plain: tuple[tuple[Class, int, int], ...] = (
        ("attention", shape.attention_params, shape.layers),
        ("dense", shape.dense_params, shape.dense_layers),
        ("shared", shape.shared_params, shape.moe_layers),
        ("head", shape.head_params, 1),
    )
    weight = sum(count * each.ms(kind, params, params, rows) for kind, params, count in plain)
    touched = expert = 0.0
    if shape.moe_layers:
        effective = effective_padded(requests, tokens, rows, rho)
        touched = float(union(effective, shape.experts, shape.active))
        used = shape.active * shape.expert_params
        expert = shape.moe_layers * each.ms("experts", touched * shape.expert_params, used, rows)
    cache = requests * shape.kv_bytes(context, kv_bits)
    kv = cache / _kv_split(shape, machine.tp) / each.bytes_ms
    message = rows * shape.hidden * 2.0
    reduces = 2 * shape.layers + 1
    allreduce = reduces * allreduce_us(message, machine.tp, machine.link, machine.gpu.link_gb_s) / 1e3
    kernels = shape.layers * ATTENTION_KERNELS + shape.dense_layers * DENSE_KERNELS + shape.moe_layers * MOE_KERNELS
    launch = kernels * reading.kernel_us / 1e3
    read = shape.step_bytes + cache
    if shape.moe_layers:
        read += shape.bytes_of("experts", shape.moe_layers * (touched - shape.active) * shape.expert_params)
    return Step(
        requests=requests,
        tokens=tokens,
        runs_as=rows,
        ms=weight + expert + kv + allreduce + launch,
        weight_ms=weight,
        expert_ms=expert,
        kv_ms=kv,
        allreduce_ms=allreduce,
        launch_ms=launch,
        bytes_read=read,
        experts=touched,
    )


@dataclass(frozen=True, slots=True)
class _Each:
    """Times of one matrix."""

    shape: ModelShape
    machine: Machine
    reading: Reading

    @property
    def bytes_ms(self) -> float:
        """Bytes that one GPU's memory gives a millisecond."""
        return self.machine.gpu.bandwidth_gb_s * 1e6 * self.reading.bandwidth

    @property
    def flops_ms(self) -> float:
        """Operations a millisecond of one GPU, in what this model's quantised matrices are computed in."""
        gpu, compute = self.machine.gpu, self.shape.quantisation.compute
        peak = {"fp8": gpu.fp8_tflops, "fp4": gpu.fp4_tflops or gpu.fp8_tflops}.get(compute) or gpu.bf16_tflops
        return peak * 1e9 * self.reading.compute

    def ms(self, kind: Class, read: float, used: float, rows: int) -> float:
        """Return the longer of reading weights and multiplying `rows` tokens with those each of them uses."""
        tp = self.machine.tp
        reading = self.shape.bytes_of(kind, read) / tp / self.bytes_ms
        return max(reading, 2.0 * used * rows / tp / self.flops_ms)


def _kv_split(shape: ModelShape, tp: int) -> int:
    """Return over how many GPUs a KV cache is spread: heads are, a latent vector is held by each."""
    return 1 if shape.latent is not None else min(tp, shape.kv_heads)


@dataclass(frozen=True, slots=True)
class Row:
    """One number of tokens on paper.

    Attributes:
        tokens: N.
        verify: one request of N tokens: a step that verifies N - 1 drafted ones.
        batch: N requests of one token.
        bound_ms: of `verify`, by the data sheet.
        ratio: T of `verify` over T of one token: what acceptance length per step breaks even, drafting in each step and
            free of cost.
        ratio_low: with the largest published overlap of experts.
        ratio_high: with the smallest.
        batch_ratio: T of `batch` over T of one token.
    """

    tokens: int
    verify: Step
    batch: Step
    bound_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    batch_ratio: float


def curve(
    shape: ModelShape,
    machine: Machine,
    tokens: Sequence[int],
    *,
    context: int,
    sizes: Sequence[int] = (),
    kv_bits: float = 16.0,
) -> list[Row]:
    """Return T over tokens on paper.

    Args:
        shape: the model.
        machine: where it runs.
        tokens: numbers of tokens.
        context: tokens of each request in the KV cache.
        sizes: captured graphs' sizes, ascending; empty for no padding.
        kv_bits: of a number in the KV cache.
    """

    def at(requests: int, total: int, rho: float = RHO, reading: Reading = USUAL) -> Step:
        padded = next((size for size in sizes if size >= total), total)
        return step(
            shape,
            machine,
            requests=requests,
            tokens=total,
            context=context,
            runs_as=padded,
            rho=rho,
            reading=reading,
            kv_bits=kv_bits,
        )

    one = at(1, 1).ms
    rows = []
    for total in tokens:
        verify, batch = at(1, total), at(total, total)
        rows.append(
            Row(
                tokens=total,
                verify=verify,
                batch=batch,
                bound_ms=at(1, total, reading=BOUND).ms,
                ratio=verify.ms / one,
                ratio_low=at(1, total, max(RHO_RANGE)).ms / one,
                ratio_high=at(1, total, min(RHO_RANGE)).ms / one,
                batch_ratio=batch.ms / one,
            )
        )
    return rows


def memory_gb(shape: ModelShape) -> float:
    """Return the GB the weights take over all GPUs."""
    return shape.weight_bytes / 1e9


def kv_gb(shape: ModelShape, machine: Machine, context: int, kv_bits: float = 16.0) -> float:
    """Return the GB one request's KV cache takes over all GPUs; what each GPU of a group holds counts for each."""
    return shape.kv_bytes(context, kv_bits) * machine.tp / _kv_split(shape, machine.tp) / 1e9


def most_requests(shape: ModelShape, machine: Machine, context: int, kv_bits: float = 16.0) -> int | None:
    """Return how many requests the memory of all GPUs has room for beside the weights, at best.

    0 where not even one fits, or the weights alone do not; None where a request takes no room.
    """
    room = machine.gpus * machine.gpu.memory_gb - memory_gb(shape)
    each = kv_gb(shape, machine, context, kv_bits)
    if room <= 0:
        return 0
    return int(room // each) if each else None
