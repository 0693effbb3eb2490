"""Records what a real vLLM on GPUs tells of speculation: log, metrics before and after, and the client's own counts.

    python benchmarks/vllm_fixtures.py --tokenizer FOLDER --out OUT [--only dp-ngram]
    python benchmarks/vllm_fixtures.py --cpu --out OUT      # two data-parallel ranks of the demo's engine and model

A small Llama with random weights, served by the vLLM installed there: with n-gram drafts over two data-parallel ranks
(each rank has series and log lines of its own), and with an EAGLE draft (random weights too) on the V1 and on the V2
runner. Weights do not matter for what is counted. The tests read what this leaves: each rank's lines, the sums over
ranks, and that log, page and client agree.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

PORT = 8742
TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 5632,
    "max_position_embeddings": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
CASES: dict[str, tuple[list[str], dict[str, str]]] = {
    "dp-ngram": (["--data-parallel-size", "2", "--speculative-config", json.dumps(NGRAM)], {}),
    "eagle-v1": (["--speculative-config", "EAGLE"], {"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    "eagle-v2": (["--speculative-config", "EAGLE"], {"VLLM_USE_V2_MODEL_RUNNER": "1"}),
}
REQUESTS, AT_A_TIME, TOKENS = 24, 4, 120


def folder_of(tokenizer: Path, folder: Path, config: dict[str, Any]) -> Path:
    """Make a model folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder


def page(path: str) -> str:
    """GET a page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def ask(number: int) -> int:
    """Send one prompt; returns the tokens of its answer."""
    words = f"Repeat: alpha beta gamma {number} delta alpha beta gamma {number} delta alpha beta"
    body = {"model": "small", "prompt": words, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310 - http, above
        return int(json.loads(answer.read())["usage"]["completion_tokens"])


def gpu_command(name: str, python: str, tokenizer: Path, work: Path) -> list[str]:
    """Return the command of one case on GPUs."""
    arguments = CASES[name][0]
    model = folder_of(tokenizer, work / "target", TARGET)
    draft = folder_of(tokenizer, work / "draft", {**TARGET, "num_hidden_layers": 1})
    eagle = json.dumps({"method": "eagle", "model": str(draft), "num_speculative_tokens": 3})
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--load-format", "dummy"]
    command += ["--served-model-name", "small", "--max-model-len", "2048", "--max-num-seqs", "32", "--port", str(PORT)]
    return [*command, "--gpu-memory-utilization", "0.4", *(eagle if word == "EAGLE" else word for word in arguments)]


def cpu_command() -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of two ranks on a CPU."""
    from benchmarks.restart_spread import cpu_server  # noqa: PLC0415 - not on a GPU machine

    command, variables = cpu_server()
    command[command.index("--served-model-name") + 1] = "small"
    return [*command, "--port", str(PORT), "--enforce-eager", *CASES["dp-ngram"][0]], variables


def record(name: str, command: list[str], variables: dict[str, str], out: Path) -> None:
    """Start one server, send the requests, keep what it told."""
    log = out / f"{name}.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, **variables},
        )
    try:
        deadline = time.monotonic() + 240
        while True:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name}: did not start:\n{log.read_text(errors='replace')[-3000:]}")
            with suppress(OSError):
                page("/health")
                break
            time.sleep(1)
        ask(0)
        (out / f"{name}.before.txt").write_text(page("/metrics"), encoding="utf-8")
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            tokens = sum(pool.map(ask, range(1, REQUESTS + 1)))
        (out / f"{name}.after.txt").write_text(page("/metrics"), encoding="utf-8")
        time.sleep(12)  # the last line comes within 10 s
        (out / f"{name}.json").write_text(json.dumps({"requests": REQUESTS, "tokens": tokens}), encoding="utf-8")
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(server.pid, how)
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)


def main() -> int:
    """Record. Returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has vLLM")
    parser.add_argument("--only", choices=CASES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.cpu and args.tokenizer is None:
        parser.error("name a --tokenizer, or --cpu")
    for name in ["dp-ngram"] if args.cpu else [args.only] if args.only else CASES:
        try:
            if args.cpu:
                command, variables = cpu_command()
            else:
                work = args.out / "models"
                command, variables = gpu_command(name, args.python, args.tokenizer, work), CASES[name][1]
            record(name, command, variables, args.out)
            print(f"{name}: recorded", flush=True)
        except SystemExit as error:
            print(error, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
