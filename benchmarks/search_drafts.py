"""Drafts of a small target to search among: a cut-down copy of it, and EAGLE-3 and Medusa heads with random weights.

Runs in the engine's own environment (torch, safetensors): `python benchmarks/search_drafts.py TARGET OUT`.
Tensor names are those that vLLM 0.32 loads (`model_executor/models/llama_eagle3.py`, `medusa.py`).
"""

import json
import shutil
import sys
from pathlib import Path

LAYERS = 6
"""Of the cut-down copy: the first ones."""
DRAFT_VOCABULARY = 8192
MEDUSA_HEADS = 3


def main(target: Path, out: Path) -> int:
    """Write `cut`, `eagle3` and `medusa` into a folder."""
    import torch  # noqa: PLC0415 - the engine's, not the tool's
    from safetensors.torch import load_file, save_file  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - likewise

    torch.manual_seed(0)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(target / "model.safetensors")
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = hidden // config["num_attention_heads"]
    kv, vocabulary = config["num_key_value_heads"] * size, config["vocab_size"]

    def drawn(*shape: int) -> "torch.Tensor":
        return (torch.randn(*shape) * 0.02).to(torch.bfloat16)

    def write(name: str, settings: dict[str, object], weights: "dict[str, torch.Tensor]") -> None:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file({key: value.contiguous() for key, value in weights.items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        for file in target.glob("*token*"):
            shutil.copy(file, folder)

    kept = {
        name: value
        for name, value in tensors.items()
        if ".layers." not in name or int(name.split(".layers.")[1].split(".")[0]) < LAYERS
    }
    write("cut", {**config, "num_hidden_layers": LAYERS}, kept)

    spread = vocabulary // DRAFT_VOCABULARY
    d2t = torch.arange(DRAFT_VOCABULARY) * (spread - 1)
    t2d = torch.zeros(vocabulary, dtype=torch.bool)
    t2d[torch.arange(DRAFT_VOCABULARY) * spread] = True
    layer = {
        "self_attn.q_proj.weight": drawn(hidden, 2 * hidden),
        "self_attn.k_proj.weight": drawn(kv, 2 * hidden),
        "self_attn.v_proj.weight": drawn(kv, 2 * hidden),
        "self_attn.o_proj.weight": drawn(hidden, hidden),
        "mlp.gate_proj.weight": drawn(inner, hidden),
        "mlp.up_proj.weight": drawn(inner, hidden),
        "mlp.down_proj.weight": drawn(hidden, inner),
    }
    norms = ("input_layernorm", "post_attention_layernorm", "hidden_norm")
    layer |= {f"{name}.weight": torch.ones(hidden, dtype=torch.bfloat16) for name in norms}
    layers = config["num_hidden_layers"]
    write(
        "eagle3",
        {
            **config,
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "tie_word_embeddings": False,
            "draft_vocab_size": DRAFT_VOCABULARY,
            "eagle_aux_hidden_state_layer_ids": [2, layers // 2, layers - 3],
        },
        {
            **{f"midlayer.{name}": value for name, value in layer.items()},
            "fc.weight": drawn(hidden, 3 * hidden),
            "norm.weight": torch.ones(hidden, dtype=torch.bfloat16),
            "lm_head.weight": drawn(DRAFT_VOCABULARY, hidden),
            "embed_tokens.weight": tensors["model.embed_tokens.weight"],
            "d2t": d2t,
            "t2d": t2d,
        },
    )

    medusa: dict[str, torch.Tensor] = {}
    for head in range(MEDUSA_HEADS):
        medusa[f"{head}.0.linear.weight"] = drawn(hidden, hidden)
        medusa[f"{head}.0.linear.bias"] = drawn(hidden)
        medusa[f"{head}.1.weight"] = drawn(vocabulary, hidden)
    write(
        "medusa",
        {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "medusa_num_heads": MEDUSA_HEADS,
            "num_heads": MEDUSA_HEADS,
            "medusa_num_layers": 1,
            "num_hidden_layers": 1,
            "medusa_fc_bias": True,
            "hidden_size": hidden,
            "vocab_size": vocabulary,
            "truncated_vocab_size": vocabulary,
        },
        medusa,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
