"""The on-paper curve of T, as lines for a terminal and as a document."""

from collections.abc import Sequence
from typing import Any

from draftworth.costs.paper.config import ModelShape
from draftworth.costs.paper.curve import Machine, Row, kv_gb, memory_gb, most_requests
from draftworth.reports.words import number, plural

SCHEMA_VERSION = 1
CAVEATS = (
    "On paper, no measurement. `at least` (bound_ms) is a lower bound on time; ratios are better than absolutes.",
    "The engine's mode is not in it, and may cost more than the drafted tokens. Measure: `draftworth probe URL`.",
)


def document(
    shape: ModelShape,
    machine: Machine,
    rows: Sequence[Row],
    *,
    source: str,
    context: int,
    sizes: Sequence[int],
    kv_bits: float = 16.0,
) -> dict[str, Any]:
    """Return the curve as a JSON document."""
    most = most_requests(shape, machine, context, kv_bits)
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
            "max_position_embeddings": shape.longest,
            "notes": list(shape.notes),
        },
        "machine": {
            "gpu": machine.gpu.name,
            "gpus": machine.gpus,
            "tp": machine.tp,
            "link": machine.link.name,
            "source": machine.gpu.source,
            "fits": most != 0,
            "kv_gb_per_request": round(kv_gb(shape, machine, context, kv_bits), 4),
            "most_requests": most,
        },
        "context": context,
        "graph_sizes": list(sizes),
        "rows": [{**_row(row), "batch_fits": most is None or row.tokens <= most} for row in rows],
        "warnings": warnings(shape, machine, rows, context=context, kv_bits=kv_bits),
        "caveats": list(CAVEATS),
    }


def warnings(
    shape: ModelShape, machine: Machine, rows: Sequence[Row], *, context: int, kv_bits: float = 16.0
) -> list[str]:
    """Return what cannot be as asked: what the memory has no room for, and a context the model is not made for."""
    found = []
    each, have = kv_gb(shape, machine, context, kv_bits), machine.gpus * machine.gpu.memory_gb
    most = most_requests(shape, machine, context, kv_bits)
    if memory_gb(shape) >= have:
        need = f"{memory_gb(shape):,.1f} GB of weights"
        found.append(f"{need}, {have:,.0f} GB of memory: THEY DO NOT FIT; name more GPUs with --gpus")
    elif most == 0:
        found.append(
            f"ONE REQUEST DOES NOT FIT: its KV cache of {number(each)} GB and the weights are more than "
            f"{number(have)} GB; name more GPUs with --gpus, or a shorter --context"
        )
    elif most is not None and any(row.tokens > most for row in rows):
        beyond = "streams of more do not fit"
        found.append(f"there is room for {plural(most, 'request')} of {number(each)} GB of KV cache: {beyond}")
    if shape.longest is not None and context > shape.longest:
        found.append(
            f"--context {context:,} is beyond the config's max_position_embeddings of {shape.longest:,}: a server "
            "refuses it, unless its RoPE scaling reaches farther"
        )
    return found


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
    shape: ModelShape,
    machine: Machine,
    rows: Sequence[Row],
    *,
    source: str,
    context: int,
    sizes: Sequence[int],
    kv_bits: float = 16.0,
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
    padded = any(row.verify.runs_as != row.tokens for row in rows)
    head = f"{'tokens':>6}  {'ms':>8} {'at least':>8}  {'x T(1)':>6}  {'range':>12}"
    head += f"  {'experts':>7} {'share':>6}" if moe else ""
    head += f"  {'all-reduce':>10}" if machine.tp > 1 else ""
    head += f"  {'streams':>8} {'x T(1)':>6}"
    each = f"KV cache {number(kv_gb(shape, machine, context, kv_bits))} GB a request of {context:,} tokens of context"
    warned = [f"warning: {text}" for text in warnings(shape, machine, rows, context=context, kv_bits=kv_bits)]
    found = [about, f"{gpus}{joined}; {room}", each, *warned, "", head]
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
