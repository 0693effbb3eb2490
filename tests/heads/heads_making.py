"""Tiny checkpoints: a Llama of 8 layers as the target, heads and draft models for it."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, VOCABULARY, DRAFTED, LAYERS = 64, 96, 48, 8
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
NAMES = {
    "<f4": "F32",
    "<f8": "F64",
    "<f2": "F16",
    "<u2": "BF16",
    "<i8": "I64",
    "<i4": "I32",
    "|b1": "BOOL",
    "|i1": "I8",
    "|u1": "F8_E4M3",
}
"""How arrays are written: 16-bit whole numbers stand for bfloat16, unsigned bytes for FP8."""


def bf16(values: Any) -> np.ndarray[Any, Any]:
    """Return the upper halves of float32, as bfloat16 is."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def trained(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return values as training leaves them: with longer tails than any initialiser's."""
    return bf16(np.random.default_rng((seed, *shape)).laplace(size=shape) * 0.05)


def norm(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return bf16(1 + np.random.default_rng((seed, size)).random(size))


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write a file by the format's README, independent of what is tested."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": NAMES[values.dtype.newbyteorder("=").str],
            "shape": list(values.shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"".join(one.tobytes() for one in tensors.values()))


def layer(prefix: str, width: int = HIDDEN) -> dict[str, np.ndarray[Any, Any]]:
    return {
        f"{prefix}input_layernorm.weight": norm(HIDDEN, 1),
        f"{prefix}post_attention_layernorm.weight": norm(HIDDEN, 2),
        f"{prefix}self_attn.q_proj.weight": trained(64, width, seed=3),
        f"{prefix}self_attn.k_proj.weight": trained(32, width, seed=4),
        f"{prefix}self_attn.v_proj.weight": trained(32, width, seed=5),
        f"{prefix}self_attn.o_proj.weight": trained(HIDDEN, 64, seed=6),
        f"{prefix}mlp.gate_proj.weight": trained(128, HIDDEN, seed=7),
        f"{prefix}mlp.up_proj.weight": trained(128, HIDDEN, seed=8),
        f"{prefix}mlp.down_proj.weight": trained(HIDDEN, 128, seed=9),
    }


def tokenizer() -> dict[str, Any]:
    return {
        "model": {"type": "BPE", "vocab": {f"t{at}": at for at in range(90)}, "merges": ["t 1", "t 2"]},
        "added_tokens": [{"id": 90, "content": "<|end|>"}, {"id": 91, "content": "<|tool|>"}],
    }


@dataclass
class Made:
    """A folder before it is written; a test changes one thing of it."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray[Any, Any]]
    documents: dict[str, Any] = field(default_factory=dict)
    after: list[Callable[[Path], None]] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if self.tensors:
            write_safetensors(folder / "model.safetensors", self.tensors)
        for name, content in self.documents.items():
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        for change in self.after:
            change(folder)
        return folder


def embedding() -> np.ndarray[Any, Any]:
    return trained(VOCABULARY, HIDDEN, seed=100)


def target() -> Made:
    tensors = {"model.embed_tokens.weight": embedding(), "model.norm.weight": norm(HIDDEN, 101)}
    for at in range(LAYERS):
        tensors |= layer(f"model.layers.{at}.")
    config = {**SHAPE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": LAYERS}
    config["tie_word_embeddings"] = True
    return Made(config, tensors, {"tokenizer.json": tokenizer()})


def maps(drafted: int = DRAFTED) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return d2t and t2d of every second token."""
    tokens = 2 * np.arange(drafted)
    marked = np.zeros(VOCABULARY, dtype=bool)
    marked[tokens] = True
    return (tokens - np.arange(drafted)).astype(np.int64), marked


def eagle3() -> Made:
    d2t, t2d = maps()
    tensors = {
        "fc.weight": trained(HIDDEN, 3 * HIDDEN),
        "norm.weight": norm(HIDDEN),
        "d2t": d2t,
        "t2d": t2d,
        "lm_head.weight": trained(DRAFTED, HIDDEN),
        "embed_tokens.weight": embedding(),
        **layer("midlayer.", 2 * HIDDEN),
        "midlayer.hidden_norm.weight": norm(HIDDEN, 10),
    }
    config = {
        **SHAPE,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": DRAFTED,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        "target_model_name_or_path": "someone/tiny-target",
    }
    return Made(config, tensors, {"tokenizer.json": tokenizer()})


def speculators() -> Made:
    made = eagle3()
    top = ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids")
    inner = {name: value for name, value in made.config.items() if name not in (*top, "target_model_name_or_path")}
    made.config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": inner,
        "dtype": "bfloat16",
        "norm_before_fc": True,
        "speculators_config": {
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "someone/tiny-target", "architectures": ["LlamaForCausalLM"]},
        },
        **{name: made.config[name] for name in top},
    }
    renamed = {name.replace("midlayer.", "layers.0."): one for name, one in made.tensors.items()}
    made.tensors = {**renamed, "input_norm.weight": norm(3 * HIDDEN)}
    return made


def eagle() -> Made:
    tensors = {"fc.weight": trained(HIDDEN, 2 * HIDDEN), "embed_tokens.weight": embedding(), **layer("layers.0.")}
    del tensors["layers.0.input_layernorm.weight"]
    config = {**SHAPE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}
    config["base_model_name_or_path"] = "tiny-target"
    return Made(config, tensors, {"tokenizer.json": tokenizer()})


def medusa() -> Made:
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for head in range(2):
        tensors[f"{head}.0.linear.weight"] = trained(HIDDEN, HIDDEN, seed=head)
        tensors[f"{head}.0.linear.bias"] = trained(HIDDEN, seed=head)
        tensors[f"{head}.1.weight"] = trained(VOCABULARY, HIDDEN, seed=head)
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "medusa_fc_bias": True, "hidden_size": HIDDEN}
    return Made({**config, "base_model_name_or_path": "tiny-target"}, tensors)


def dflash() -> Made:
    tensors = {
        "fc.weight": trained(HIDDEN, 3 * HIDDEN),
        "norm.weight": norm(HIDDEN),
        "hidden_norm.weight": norm(HIDDEN),
    }
    for at in range(2):
        tensors |= layer(f"layers.{at}.")
        tensors |= {f"layers.{at}.self_attn.{one}_norm.weight": norm(16) for one in "qk"}
    config = {
        **SHAPE,
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "num_target_layers": LAYERS,
        "dflash_config": {"mask_token_id": 95, "target_layer_ids": [1, 3, 5]},
        "base_model": "tiny-target",
    }
    return Made(config, tensors, {"tokenizer.json": tokenizer()})


def draft_model() -> Made:
    made = target()
    made.config["num_hidden_layers"] = 1
    made.tensors = {name: one for name, one in made.tensors.items() if ".layers." not in name or ".layers.0." in name}
    return made


def mtp_target() -> Made:
    made = target()
    made.config |= {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_nextn_predict_layers": 1,
    }
    made.tensors["mtp.fc.weight"] = trained(HIDDEN, 2 * HIDDEN)
    return made


MAKERS: dict[str, Callable[[], Made]] = {
    "eagle3": eagle3,
    "speculators": speculators,
    "eagle": eagle,
    "medusa": medusa,
    "dflash": dflash,
    "draft_model": draft_model,
}


def config(**fields: Any) -> Callable[[Made], None]:
    """Return a change of fields of config.json."""
    return lambda made: made.config.update(fields)


def nothing(_: Made) -> None:
    """Leave it as it is."""
