"""What prediction_gpu.py and prediction_cpu.py share: servers, trials between them, probes."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LENGTH = "rejection_sample_method", "synthetic_acceptance_length"


@dataclass(frozen=True)
class Server:
    """One server of a wave.

    Attributes:
        name: the arm.
        gpu: the GPU it runs on.
        port: where it serves.
        speculation: its speculative configuration.
        args: further arguments it is started with.
        lengths: synthetic acceptance lengths it is measured at; the first is for fitting, the others are judged.
    """

    name: str
    gpu: int
    port: int
    speculation: dict[str, Any] | None = None
    lengths: tuple[float, ...] = ()
    args: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.port}"


def ngram(k: int, low: int = 2, high: int = 4, **more: object) -> dict[str, Any]:
    """Return an n-gram configuration of vLLM."""
    return {
        "method": "ngram",
        "num_speculative_tokens": k,
        "prompt_lookup_min": low,
        "prompt_lookup_max": high,
        **more,
    }


def synthetic(k: int, length: float) -> dict[str, Any]:
    """Return an n-gram configuration whose drafts are accepted at a given length."""
    return ngram(k, 1, 1, **dict(zip(LENGTH, ("synthetic", length), strict=True)))


def answers(server: Server) -> bool:
    """Return whether something answers where a server is to be."""
    try:
        with urllib.request.urlopen(f"{server.url}/health", timeout=2) as answer:  # noqa: S310 - http
            return bool(answer.status == 200)  # noqa: PLR2004 - OK
    except OSError:
        return False


def healthy(server: Server, process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Wait until a server answers; False where it ended or needs longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if answers(server):
            return True
        time.sleep(0.5)
    return False


def trial(
    folder: Path, name: str, servers: tuple[Server, ...], workload: dict[str, object], *, suffix: str = ""
) -> None:
    """Run a trial between servers that run already, the first the baseline; its record lands in folder/<name>."""
    baseline, arms = servers[0], servers[1:]
    lines = ["[service]", 'type = "endpoints"', f'baseline = "{baseline.url}"', "looks = 1"]
    for arm in arms:
        lines += ["[[arms]]", f'name = "{arm.name}{suffix}"', f'url = "{arm.url}"']
        lines += [f"speculative_config = {toml(arm)}"] if arm.speculation else []
        lines += [f"args = {json.dumps(arm.args)}"] if arm.args else []
    lines += ["[workload]", *(f"{key} = {json.dumps(value)}" for key, value in workload.items())]
    lines += ["[verdict]", "output_check = false"]
    file = folder / f"{name}.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    env = os.environ | {"DRAFTWORTH_HOME": str(folder / name)}
    with (folder / f"{name}.txt").open("wb") as log:
        run = subprocess.run(
            [sys.executable, "-m", "draftworth", "trial", "run", str(file)],
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    print(f"{time.strftime('%X')} {name}: exit {run.returncode}", flush=True)


def toml(arm: Server) -> str:
    """Return an arm's speculative configuration as TOML."""
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in (arm.speculation or {}).items()) + " }"


def probe(baseline: Server, folder: Path, seconds: int, concurrency: str) -> None:
    """Probe a running baseline."""
    words = ["probe", baseline.url, "--out", str(folder / f"costs-{baseline.name}.json"), "--budget", str(seconds)]
    words += ["--log", str(folder / f"{baseline.name}.log"), "--context", "256", "--concurrency", concurrency]
    with (folder / f"probe-{baseline.name}.txt").open("wb") as log:
        run = subprocess.run(
            [sys.executable, "-m", "draftworth", *words], stdout=log, stderr=subprocess.STDOUT, check=False
        )
    print(f"{time.strftime('%X')} probe of {baseline.name}: exit {run.returncode}", flush=True)
