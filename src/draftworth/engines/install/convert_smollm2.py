"""Makes the demo model's folder out of its GGUF file: plain bfloat16 Llama weights, as any engine reads them.

Run as a script under the engine's own interpreter, never imported by Draftworth (it needs torch):

    python convert_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf OUT_FOLDER

The GGUF file (format: ggml-org/ggml, docs/gguf.md) is read by transformers with every block unpacked. The weights that
were written are then read back and compared, tensor by tensor, with what the `gguf` package's own unpacking gives: two
readers that share no code. The last line on standard output is JSON: `{"sha256", "size", "tensors", "parameters"}`.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

EOS, EOS_ID, BOS_ID = "<|im_end|>", 2, 1
PROBE = "<|im_start|>user\nIs the draft worth it?<|im_end|>\n"
WEIGHTS = "model.safetensors"
# GGUF's names of one layer's tensors, and ours.
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def plain_name(gguf_name: str) -> str:
    """Return the Llama name of a GGUF tensor: `blk.3.ffn_up.weight` is `model.layers.3.mlp.up_proj.weight`.

    Raises:
        ValueError: the tensor has no place in a plain Llama.
    """
    if gguf_name in TOP_NAMES:
        return TOP_NAMES[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in LAYER_NAMES:  # noqa: PLR2004 - blk.LAYER.NAME.weight
        raise ValueError(f"the GGUF file has a tensor that a plain Llama has not: {gguf_name}")
    return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"


def convert(gguf: Path, out: Path) -> None:
    """Write config, weights and tokenizer of the GGUF file `gguf` into the folder `out`."""
    import torch  # noqa: PLC0415 - lazy: the pure parts of this file are tested without torch
    from transformers import (  # noqa: PLC0415 - lazy: as torch
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        GgufConfig,
        LlamaConfig,
        LlamaForCausalLM,
    )

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    read = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # A fresh model forgets that its weights came from GGUF blocks; the loaded one would say so in its config.
    config = LlamaConfig(**plain_config(read.config.to_dict()))
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.load_state_dict(read.state_dict(), strict=True)
    model.generation_config = GenerationConfig(bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=EOS_ID)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for name in ("config.json", "tokenizer_config.json"):
        path = out / name
        path.write_text(json.dumps(plain_config(json.loads(path.read_text("utf-8"))), indent=2) + "\n", "utf-8")


def plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without what ties it to the file or the folder it was read from."""
    drop = {"quantization_config", "_model_name_or_path", "_name_or_path", "is_local", "local_files_only"}
    return {key: value for key, value in config.items() if key not in drop}


def check_weights(gguf: Path, out: Path) -> tuple[int, int]:
    """Compare every written tensor with the `gguf` package's unpacking of the same one; return (tensors, parameters).

    Both are rounded to bfloat16, so they are equal to the last bit or the conversion is wrong.

    Raises:
        ValueError: a tensor is missing, left over, of another type or shape, or differs.
    """
    import torch  # noqa: PLC0415 - lazy: as in convert
    from gguf import GGUFReader, dequantize  # noqa: PLC0415 - lazy: as torch
    from safetensors.torch import load_file  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - lazy

    config = json.loads((out / "config.json").read_text("utf-8"))
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    written = load_file(out / WEIGHTS)
    tensors = parameters = 0
    for tensor in GGUFReader(gguf).tensors:
        name = plain_name(tensor.name)
        got = written.pop(name, None)
        if got is None:
            raise ValueError(f"{name} was not written")
        want = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        n_heads = next((n for part, n in heads.items() if part in tensor.name.split(".")), None)
        if n_heads is not None:
            # llama.cpp interleaves the two halves of each rotary head; transformers keeps them apart.
            rows, columns = want.shape
            want = want.reshape(n_heads, rows // n_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        if got.dtype != torch.bfloat16 or got.shape != want.shape or not torch.equal(got, want.to(torch.bfloat16)):
            raise ValueError(f"{name} was written wrong: {got.dtype} {tuple(got.shape)} for {tuple(want.shape)}")
        tensors, parameters = tensors + 1, parameters + got.numel()
    if written:
        raise ValueError(f"tensors that the GGUF file has not were written: {', '.join(sorted(written))}")
    return tensors, parameters


def check_text(out: Path) -> None:
    """Check that config, tokenizer and chat template agree on where an answer ends.

    Raises:
        ValueError: one of them does not.
    """
    from transformers import AutoTokenizer  # noqa: PLC0415 - lazy: as in convert

    config = json.loads((out / "config.json").read_text("utf-8"))
    generation = json.loads((out / "generation_config.json").read_text("utf-8"))
    if config["architectures"] != ["LlamaForCausalLM"] or "quantization_config" in config:
        raise ValueError("config.json does not describe a plain Llama")
    if not config["eos_token_id"] == generation["eos_token_id"] == EOS_ID:
        raise ValueError(f"config.json or generation_config.json does not end at token {EOS_ID}")
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer(PROBE)["input_ids"]
    if tokenizer.eos_token != EOS or tokenizer.eos_token_id != EOS_ID or tokenizer.decode(ids) != PROBE:
        raise ValueError(f"the tokenizer does not give its text back, or does not end at {EOS}: {ids}")
    asked = [{"role": "user", "content": "Is the draft worth it?"}]
    text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    if PROBE not in text or not text.endswith("<|im_start|>assistant\n"):
        raise ValueError(f"the chat template is not SmolLM2's: {text!r}")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(folder: Path) -> None:
    """Bring every file of a folder, and the folder itself, to the disk."""
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def main(arguments: list[str]) -> int:
    """Convert, check, tell."""
    gguf, out = Path(arguments[0]), Path(arguments[1])
    out.mkdir(parents=True, exist_ok=True)
    convert(gguf, out)
    tensors, parameters = check_weights(gguf, out)
    check_text(out)
    weights = out / WEIGHTS
    weights.chmod(0o644)  # safetensors writes it for its owner only
    flush(out)
    facts = {
        "sha256": sha256(weights),
        "size": weights.stat().st_size,
        "tensors": tensors,
        "parameters": parameters,
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
