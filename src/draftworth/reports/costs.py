"""The on-paper curve of T, as lines for a terminal and as a document."""

from collections.abc import Sequence
from typing import Any

from draftworth.costs.paper.config import ModelShape
from draftworth.costs.paper.curve import Machine, Row, memory_gb

SCHEMA_VERSION = 1
CAVEATS = (
    "On paper, no measurement. `at least` (bound_ms) is a lower bound on time; ratios are better than absolutes.",
    "The engine's mode is not in it, and may cost more than the drafted tokens. Measure: `draftworth probe URL`.",
)


def document(
    shape: ModelShape, machine: Machine, rows: Sequence[Row], *, source: str, context: int, sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the curve as a JSON document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "config": source,
        "model": {
            "type": shape.name,
            "parameters": shape.parameters,
            "active_parameters": shape.active_parameters,
            "weight_bytes": shape.weight_bytes,
            "step_bytes": shape.step_bytes,
            "layers": shape.layers,
            "moe_layers": shape.moe_layers,
            "experts": shape.experts,
            "active_experts": shape.active,
            "kv_bytes_per_token": shape.kv_bytes(1.0),
            "quantization": shape.quantisation.name,
            "notes": list(shape.notes),
        },
        "machine": {
            "gpu": machine.gpu.name,
            "gpus": machine.gpus,
            "tp": machine.tp,
            "link": machine.link.name,
            "source": machine.gpu.source,
            "fits": fits(shape, machine),
        },
        "context": context,
        "graph_sizes": list(sizes),
        "rows": [_row(row) for row in rows],
        "caveats": list(CAVEATS),
    }


def fits(shape: ModelShape, machine: Machine) -> bool:
    """Whether the weights alone fit the memory of all GPUs."""
    return memory_gb(shape) < machine.gpus * machine.gpu.memory_gb


def _row(row: Row) -> dict[str, Any]:
    verify = row.verify
    return {
        "tokens": row.tokens,
        "runs_as": verify.runs_as,
        "ms": round(verify.ms, 4),
        "bound_ms": round(row.bound_ms, 4),
        "ratio": round(row.ratio, 4),
        "ratio_low": round(row.ratio_low, 4),
        "ratio_high": round(row.ratio_high, 4),
        "break_even_length": round(row.ratio, 4),
        "batch_ms": round(row.batch.ms, 4),
        "batch_ratio": round(row.batch_ratio, 4),
        "experts": round(verify.experts, 2),
        "batch_experts": round(row.batch.experts, 2),
        "expert_share": round(verify.expert_share, 4),
        "parts": {
            "weights_ms": round(verify.weight_ms, 4),
            "experts_ms": round(verify.expert_ms, 4),
            "kv_ms": round(verify.kv_ms, 4),
            "allreduce_ms": round(verify.allreduce_ms, 4),
            "launch_ms": round(verify.launch_ms, 4),
        },
        "bytes_read": round(verify.bytes_read),
    }


def lines(
    shape: ModelShape, machine: Machine, rows: Sequence[Row], *, source: str, context: int, sizes: Sequence[int]
) -> list[str]:
    """Return the curve for a person."""
    moe = shape.moe_layers > 0
    about = f"{source}: {shape.name}, {_count(shape.parameters)} parameters"
    if moe:
        about += f", {_count(shape.active_parameters)} active; {shape.experts} experts in {shape.moe_layers} layers"
        about += f", {shape.active} of them for each token"
    gpus = f"{machine.gpus} x {machine.gpu.name}" if machine.gpus > 1 else machine.gpu.name
    joined = f", tensor parallel over {machine.tp} ({machine.link.name})" if machine.tp > 1 else ""
    need, have = memory_gb(shape), machine.gpus * machine.gpu.memory_gb
    room = f"weights {need:,.1f} GB ({shape.quantisation.name}) of {have:,.0f} GB"
    if not fits(shape, machine):
        room += ": THEY DO NOT FIT; name more GPUs with --gpus"
    padded = any(row.verify.runs_as != row.tokens for row in rows)
    head = f"{'tokens':>6}  {'ms':>8} {'at least':>8}  {'x T(1)':>6}  {'range':>12}"
    head += f"  {'experts':>7} {'share':>6}" if moe else ""
    head += f"  {'all-reduce':>10}" if machine.tp > 1 else ""
    head += f"  {'streams':>8} {'x T(1)':>6}"
    found = [about, f"{gpus}{joined}; {room}; {context:,} tokens of context", "", head]
    for row in rows:
        line = f"{row.tokens:>6}  {row.verify.ms:>8.2f} {row.bound_ms:>8.2f}  {row.ratio:>6.2f}"
        line += f"  {f'{row.ratio_low:.2f} to {row.ratio_high:.2f}':>12}"
        line += f"  {row.verify.experts:>7.1f} {row.verify.expert_share:>6.0%}" if moe else ""
        line += f"  {row.verify.allreduce_ms / row.verify.ms:>10.0%}" if machine.tp > 1 else ""
        line += f"  {row.batch.ms:>8.2f} {row.batch_ratio:>6.2f}"
        found.append(line)
    found += [
        "",
        "tokens: of one request, in a step that verifies one fewer; x T(1) is also the acceptance length per step at",
        "which such drafts break even, if they cost nothing and each step has one; its range is that of published",
        "overlaps of experts. streams: as many requests of one token.",
    ]
    if padded:
        found.append(
            f"Padded to captured CUDA graphs ({', '.join(map(str, sizes[:6]))}, …): --graph-sizes names others."
        )
    found += [f"Assumed: {note}." for note in shape.notes]
    return [*found, *CAVEATS, f"Source of the GPU's figures: {machine.gpu.source}."]


def _count(parameters: int) -> str:
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if parameters >= size:
            return f"{parameters / size:.3g}{unit}"
    return str(parameters)
