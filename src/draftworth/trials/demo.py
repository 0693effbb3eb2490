"""The demo's trial: a file like a user's own."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path


def free_port(preferred: int = 8710) -> int:
    """Return the preferred port of the loopback address, or any free one where that is taken."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def trial_text(
    *, python: Path, model: Path, env: Mapping[str, str], port: int, prompts: int, tokens: int, eager: bool = False
) -> str:
    """Return the demo's trial as TOML.

    Args:
        python: the engine's interpreter.
        model: the model's folder.
        env: the engine's environment.
        port: where to serve, loopback only.
        prompts: prompts of each category.
        tokens: most tokens an answer may have.
        eager: serve without compiling, where there is no compiler.
    """
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "smollm2-135m", "--dtype", "bfloat16", "--max-model-len", "2048"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    if eager:
        command.append("--enforce-eager")
    variables = "".join(f"{name} = {json.dumps(value)}\n" for name, value in sorted(env.items()))
    return f"""\
# Written by `draftworth demo`: n-gram drafting on a 135M model, on this machine's CPU.
# `draftworth trial schema` explains every field.

[service]
type = "process"
command = {json.dumps(command)}
port = {port}
model = "smollm2-135m"

[service.env]
{variables}
[[arms]]
name = "ngram-5"
speculative_config = {{ method = "ngram", num_speculative_tokens = 5, prompt_lookup_min = 2, prompt_lookup_max = 4 }}

[workload]
prompts_per_category = {prompts}
max_tokens = {tokens}

[limits]
start_timeout_s = 400
downtime_s = 1500

[verdict]
diagnostics = ["probe"]  # what a step costs, for the cause; `"null-draft"` would take one more start
"""
