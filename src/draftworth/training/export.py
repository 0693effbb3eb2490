"""The stage `export`: the best checkpoint as a folder that vLLM and SGLang load, checked as `head check` does.

Layout (plain EAGLE-3): architecture `LlamaForCausalLMEagle3`, weights `fc`, `input_norm`, `midlayer.*`, `norm`,
`lm_head`, `d2t`, `t2d`; `embed_tokens` is left out: both engines take the target's. vLLM 0.32 reads the layers at the
top, counting layers applied; SGLang 0.5 in `eagle_config`, counting from the first layer's output and adding the one
itself (`llama.py`, `set_eagle3_layers_to_capture`). vLLM was run with it here, SGLang was read (0.5.23) and not run.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from draftworth.errors import RefusedError, UsageError
from draftworth.heads.base import HeadReport, Status
from draftworth.heads.check import check_head
from draftworth.heads.files.documents import read_object
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import Tensor, read
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.evaluate import export_dtype
from draftworth.training.fit import BEST, WINDOW
from draftworth.training.recipe import Recipe
from draftworth.training.shape import target_shape
from draftworth.training.stages import output_key, prepare, required, target_inputs, write_atomically, write_manifest
from draftworth.training.target import config_fields
from draftworth.training.tensors import Stored, to_bf16, write_safetensors
from draftworth.training.vocab import D2T, T2D

WEIGHTS, CONFIG, REPORT, CARD = "model.safetensors", "config.json", "head_check.json", "README.md"
_LAYER_CONFIG = "layer_config.json"
_LAYOUT = 1
"""Changes where the same checkpoint would be exported as another folder."""
_DTYPES: Mapping[str, tuple[str, int]] = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}
_PIECE = 1 << 22
_LEFT_OUT = ("embed_tokens.weight", "verifier_norm.weight", "verifier_lm_head.weight")
_TAKEN = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "hidden_act", "rms_norm_eps", "vocab_size", "initializer_range", "attention_bias", "mlp_bias"),
    *("rope_parameters", "rope_scaling", "rope_theta", "layer_types", "sliding_window", "use_sliding_window"),
)


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the export depends on; see `StageModule.inputs`."""
    return {
        "manifest.fit": output_key(folder, StageName.FIT),
        "manifest.eval": output_key(folder, StageName.EVAL),
        "export.layout": str(_LAYOUT),
        "export.dtype": export_dtype(recipe.target),
        **target_inputs(recipe.target),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Write the folder and check it; see `StageModule.run`.

    Raises:
        UsageError: the checkpoint cannot be read.
        RefusedError: a check failed; what was written stays to look at, without a manifest.
    """
    began = time.monotonic()
    own, made_from = StageName.EXPORT.folder(folder), inputs(recipe, folder)
    best = StageName.FIT.folder(folder) / BEST
    shape = target_shape(recipe.target, recipe.states.layers)
    trained, layer = read_object(best / CONFIG), read_object(best / _LAYER_CONFIG)
    if list(trained.get("eagle_aux_hidden_state_layer_ids") or ()) != list(shape.aux):
        told = trained.get("eagle_aux_hidden_state_layer_ids")
        raise UsageError(f"{best}: trained on the layers {told}, not {list(shape.aux)}")
    prepare(own)
    for old in own.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    dtype = export_dtype(recipe.target)
    config = plain_config(trained, layer, config_fields(recipe.target).config, list(shape.aux), dtype)
    tensors = exported(read_header(best / WEIGHTS), StageName.VOCAB.folder(folder), dtype, pruned=_pruned(config))
    size = sum(one.size for one in tensors.values())
    write_safetensors(own / WEIGHTS, tensors, {"format": "pt"})
    write_atomically(own / CONFIG, (json.dumps(config, indent=1) + "\n").encode())
    report = check_head(own, recipe.target, method="eagle3")
    write_atomically(own / REPORT, (report.model_dump_json(indent=1) + "\n").encode())
    _refuse_unfit(report, own)
    for warned in report.having(Status.WARNED):
        tell.line(f"in doubt: {warned.name}: {warned.found}")
    evaluated = required(folder, StageName.EVAL)
    write_atomically(own / CARD, _card(recipe, evaluated, config).encode())
    tell.line(f"{own}: {size / 1e6:.1f} MB, {len(report.having(Status.PASSED))} checks passed")
    return write_manifest(
        own,
        StageName.EXPORT,
        inputs=made_from,
        counts={"bytes": size, "tensors": len(tensors), "checks_passed": len(report.having(Status.PASSED))},
        facts={
            "vllm": {"method": "eagle3", "model": str(own), "num_speculative_tokens": recipe.fit.ttt_steps},
            "sglang": {
                "--speculative-algorithm": "EAGLE3",
                "--speculative-draft-model-path": str(own),
                "--speculative-draft-window-size": WINDOW,
            },
            "warned": [one.name for one in report.having(Status.WARNED)],
            "not_checked": [one.name for one in report.having(Status.NOT_CHECKED)],
            "acceptance_length": evaluated.facts["acceptance_length"],
            "dtype": dtype,
        },
        began=began,
    )


def plain_config(
    trained: Mapping[str, Any], layer: Mapping[str, Any], target: Mapping[str, Any], aux: list[int], dtype: str
) -> dict[str, Any]:
    """Return config.json of the plain layout.

    Args:
        trained: speculators' config.json.
        layer: the decoder's config with every default.
        target: the target's language model's config.
        aux: layers, in vLLM's count.
        dtype: the weights' type.
    """
    flags = {name: bool(trained.get(name, False)) for name in ("norm_before_fc", "fc_norm", "norm_output")}
    rope = layer.get("rope_parameters") or {}
    theta = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}  # where older engines look
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{name: layer[name] for name in _TAKEN if layer.get(name) is not None},
        **theta,
        "max_position_embeddings": target.get("max_position_embeddings", layer.get("max_position_embeddings")),
        **{name: target[name] for name in ("bos_token_id", "eos_token_id") if target.get(name) is not None},
        "tie_word_embeddings": False,
        "draft_vocab_size": trained["draft_vocab_size"],
        "target_hidden_size": target["hidden_size"],
        "num_aux_hidden_states": len(aux),
        "eagle_aux_hidden_state_layer_ids": aux,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [one - 1 for one in aux],
            "norm_before_fc": flags["norm_before_fc"],
        },
        **flags,
        "norm_before_residual": bool(trained.get("norm_before_residual", False)),
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def exported(header: Mapping[str, Tensor], vocab: Path, dtype: str, *, pruned: bool) -> dict[str, Stored]:
    """Return what is written: the trained weights by their plain names, and the maps of the vocabulary.

    Args:
        header: of the trained checkpoint.
        vocab: the folder with the maps.
        dtype: the weights' type.
        pruned: whether the draft's vocabulary is smaller than the target's.
    """
    found: dict[str, Stored] = {}
    for name, tensor in sorted(header.items()):
        if name in _LEFT_OUT or not tensor.is_floating:
            continue
        kind, width = _DTYPES[dtype]
        found[name.replace("layers.0.", "midlayer.")] = Stored(
            kind, tensor.shape, _pieces(tensor, dtype), tensor.size * width
        )
    if pruned:
        d2t, t2d = np.load(vocab / D2T).astype("<i8"), np.load(vocab / T2D).astype(np.uint8)
        found["d2t"] = Stored("I64", d2t.shape, (d2t.tobytes(),), d2t.nbytes)
        found["t2d"] = Stored("BOOL", t2d.shape, (t2d.tobytes(),), t2d.nbytes)
    return found


def _pieces(tensor: Tensor, dtype: str) -> Iterator[bytes]:
    for first in range(0, tensor.size, _PIECE):
        values = read(tensor, first, _PIECE).astype(np.float32)
        if dtype == "bfloat16":
            yield to_bf16(values).astype("<u2").tobytes()
        else:
            yield values.astype("<f2" if dtype == "float16" else "<f4").tobytes()


def _pruned(config: Mapping[str, Any]) -> bool:
    return bool(config["draft_vocab_size"] != config["vocab_size"])


def _refuse_unfit(report: HeadReport, own: Path) -> None:
    failed = report.having(Status.FAILED)
    if failed:
        first = failed[0]
        raise RefusedError(
            f"{own}: {len(failed)} checks of the head failed, {', '.join(one.name for one in failed)}: {first.name} "
            f"found {first.found}, expected {first.expected}; all of them: {own / REPORT}"
        )


def _card(recipe: Recipe, evaluated: StageManifest, config: Mapping[str, Any]) -> str:
    lengths = evaluated.facts["acceptance_length"]
    rows = "\n".join(f"| {k} | {'not measured' if one is None else f'{one:.3f}'} |" for k, one in lengths.items())
    name = recipe.target.name
    return (
        f"# EAGLE-3 head for {name}\n\n"
        f"Trained by Draftworth on the target's own states after {config['eagle_aux_hidden_state_layer_ids']} layers. "
        f"Its vocabulary has {config['draft_vocab_size']:,} of {config['vocab_size']:,} tokens; the embedding is the "
        "target's.\n\n"
        "Acceptance length per drafting step on held-out conversations (walk, chain drafting, temperature 0):\n\n"
        f"| k | length |\n|---|---|\n{rows}\n"
    )
