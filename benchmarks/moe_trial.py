"""A whole trial on a GPU: a mixture of experts of 30B-A3B shape with random weights, on the vLLM installed there.

Random weights give real step times for the shape; what is written, and so what n-gram drafting accepts, is arbitrary,
and the verdict says nothing about a trained model. It shows the tool on a GPU: start-up phases, effective
configuration, memory for the output check, restore of a running original.

    python benchmarks/moe_trial.py --tokenizer ~/.cache/draftworth/models/SmolLM2-135M-Instruct --out OUT
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SHAPE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 6144,
    "max_position_embeddings": 8192,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 49152,
}
PORT = 8741


def model_folder(tokenizer: Path, folder: Path) -> Path:
    """Make a model folder without weights: the shape's configuration and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / name, folder / name)
    (folder / "config.json").write_text(json.dumps(SHAPE, indent=1), encoding="utf-8")
    return folder


def wait_until_healthy(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait until the server answers; stop where it ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the original ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2) as answer:
                if answer.status == 200:  # noqa: PLR2004 - OK
                    return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the original was not healthy in time")


def main() -> int:
    """Run the trial with a running original. Returns the trial's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has vLLM")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=4, help="prompts of each category")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = model_folder(args.tokenizer, args.out / "model")
    command = [args.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--load-format", "dummy", "--served-model-name", "moe", "--max-model-len", "4096"]
    command += ["--max-num-seqs", "16", "--host", "127.0.0.1", "--port", str(PORT)]
    file = args.out / "draftworth.toml"
    file.write_text(
        f"[service]\ncommand = {json.dumps(command)}\nport = {PORT}\n\n"
        '[[arms]]\nname = "ngram-5"\nspeculative_config = { method = "ngram", num_speculative_tokens = 5, '
        "prompt_lookup_min = 2, prompt_lookup_max = 4 }\n\n"
        f"[workload]\nprompts_per_category = {args.prompts}\nmax_tokens = 192\n\n"
        "[limits]\nstart_timeout_s = 300\ndowntime_s = 500\n",
        encoding="utf-8",
    )
    env = {**os.environ, "DRAFTWORTH_HOME": str(args.out / "home")}
    with (args.out / "original.log").open("ab") as log:
        original = subprocess.Popen(
            command, cwd=args.out, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    wait_until_healthy(original, 300)
    done = subprocess.run([sys.executable, "-m", "draftworth", "trial", "run", str(file)], env=env, check=False)
    subprocess.run(["pkill", "-TERM", "-f", f"api_server.*--port {PORT}"], check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
