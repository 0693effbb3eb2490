"""`draftworth costs`: what steps cost, from a costs file or on paper."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from draftworth.errors import EXIT_DONE, UsageError

app = App(name="costs", help="What a decode step costs: on paper, or as measured.", help_format="markdown")

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
]
_MOST_TOKENS = 65536
_MOST_GPUS = 4096


@app.command
def model(
    config: Annotated[Path, Parameter(help="A model's config.json, or the folder it is in.")],
    /,
    *,
    gpu: Annotated[str, Parameter(help="H100, H200, B200, A100, L40S, L4, RTX-PRO-6000, RTX-4090, …")],
    gpus: Annotated[int | None, Parameter(help="GPUs that hold the model; default: --tp.")] = None,
    tp: Annotated[int | None, Parameter(help="GPUs that share each layer (tensor parallel); default: --gpus.")] = None,
    context: Annotated[int, Parameter(help="Tokens of each request in the KV cache.")] = 4096,
    tokens: Annotated[str, Parameter(help="Tokens in a step.")] = "1,2,4,6,8,16",
    quantization: Annotated[
        str | None, Parameter(help="bf16, fp8, int8, int4, awq, gptq, mxfp4 or nvfp4; default: the config's own.")
    ] = None,
    kv_cache_dtype: Annotated[str, Parameter(help="auto (16 bits) or fp8.")] = "auto",
    link: Annotated[
        str | None, Parameter(help="How GPUs are joined: nvlink, pcie or pcie-tuned; default: the GPU's usual.")
    ] = None,
    graph_sizes: Annotated[
        str, Parameter(help="CUDA graphs a step is padded to: vllm for its default, none, or sizes.")
    ] = "vllm",
    as_json: Json = False,
) -> int:
    """Show what a step of so many tokens would cost, from a model's shape and a GPU's data sheet.

    For when there is no server to probe: a lower bound and a usual value. Ratios are better than absolutes, and the
    engine's mode is not in it.
    """
    from draftworth.costs.allreduce import link as named_link  # noqa: PLC0415 - lazy
    from draftworth.costs.paper.config import read_shape  # noqa: PLC0415 - lazy
    from draftworth.costs.paper.curve import Machine, curve  # noqa: PLC0415 - lazy
    from draftworth.costs.paper.gpus import gpu as named_gpu  # noqa: PLC0415 - lazy
    from draftworth.costs.staircase import VLLM_SIZES  # noqa: PLC0415 - lazy
    from draftworth.reports.costs import document, lines  # noqa: PLC0415 - lazy

    counts = _numbers(tokens, "--tokens")
    if not 0 <= context <= 10**8:
        raise UsageError(f"--context: must be from 0 to 100,000,000, not {context}")
    if kv_cache_dtype not in {"auto", "fp8"}:
        raise UsageError(f"--kv-cache-dtype: must be auto or fp8, not {kv_cache_dtype!r}")
    sizes = {"vllm": VLLM_SIZES, "none": ()}.get(graph_sizes)
    padded = _numbers(graph_sizes, "--graph-sizes") if sizes is None else sizes
    card = named_gpu(gpu)
    per_layer, every = _gpus(tp, gpus)
    shape = read_shape(config, quantization)
    if shape.heads % per_layer:
        raise UsageError(f"--tp: {shape.heads} attention heads cannot be split over {per_layer} GPUs")
    machine = Machine(card, per_layer, every, named_link(card.link if link is None else link))
    bits = 8.0 if kv_cache_dtype == "fp8" else 16.0
    rows = curve(shape, machine, counts, context=context, sizes=padded, kv_bits=bits)
    source = str(config)
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if as_json:
            found = document(shape, machine, rows, source=source, context=context, sizes=padded, kv_bits=bits)
            print(json.dumps(found, indent=1))
        else:
            print("\n".join(lines(shape, machine, rows, source=source, context=context, sizes=padded, kv_bits=bits)))
        sys.stdout.flush()
    return EXIT_DONE


@app.command
def show(
    file: Annotated[Path, Parameter(help="A costs file, as `draftworth probe` writes it.")], /, *, as_json: Json = False
) -> int:
    """Show a costs file: measured points as a staircase, and what speculation adds to a step."""
    from draftworth.costs.file import load_costs  # noqa: PLC0415 - lazy: pydantic models
    from draftworth.costs.ladder import lines  # noqa: PLC0415 - lazy

    costs = load_costs(file)
    with suppress(BrokenPipeError):  # whoever read the output has gone
        print(costs.model_dump_json(indent=1) if as_json else "\n".join(lines(costs)))
        sys.stdout.flush()
    return EXIT_DONE


def _gpus(tp: int | None, gpus: int | None) -> tuple[int, int]:
    """Return the GPUs of a layer and all of them. Raises UsageError where they do not go together."""
    for value, flag in ((tp, "--tp"), (gpus, "--gpus")):
        if value is not None and not 1 <= value <= _MOST_GPUS:
            raise UsageError(f"{flag}: must be from 1 to {_MOST_GPUS}, not {value}")
    per_layer = tp or gpus or 1
    every = gpus or per_layer
    if every % per_layer:
        raise UsageError(f"--gpus: {every} GPUs are no multiple of --tp {per_layer}")
    return per_layer, every


def _numbers(text: str, flag: str) -> tuple[int, ...]:
    """Return a list of token counts, ascending, each once. Raises UsageError where it is none."""
    words = [word.strip() for word in text.split(",")]
    try:
        found = {int(word) for word in words}
    except ValueError:
        raise UsageError(f"{flag}: whole numbers like 1,2,4 are expected, not {text!r}") from None
    if min(found) < 1 or max(found) > _MOST_TOKENS:
        raise UsageError(f"{flag}: each must be from 1 to {_MOST_TOKENS:,}, not {text!r}")
    return tuple(sorted(found))
