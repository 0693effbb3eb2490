"""Profiles of a mixture of experts on a GPU, without and with speculation: what docs/profiles.md quotes of a GPU.

Starts two servers of the 30B-A3B shape with random weights (vLLM as it is installed there, its torch profiler
configured): the baseline and one whose n-gram drafts are accepted at a configured length. Profiles each arm on the same
number of requests at a time, and reads and compares the traces with `draftworth profile`.

    python -m benchmarks.gpu_profile --model FOLDER --out OUT

OUT/<arm>-<requests>/ holds vLLM's traces, OUT/*.json and OUT/*.txt what was read of them.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.moe_trial import model_folder
from benchmarks.prediction_arms import Server, healthy, ngram, synthetic
from benchmarks.prediction_gpu import NEVER, ask_worker, start

from draftworth.profiles.vllm import ENV, START, STOP, profiler_arguments

K, ACCEPTED = 3, 2.0
LOADS = (1, 8)
TOKENS = 128
PROMPT = "The quick brown fox jumps over the lazy dog while seven wizards mix strange potions in a quiet cellar. "


def post(url: str, body: dict[str, object] | None = None) -> dict[str, object]:
    """POST JSON and return what is answered, {} where that is empty."""
    data = json.dumps(body or {}).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - http
        text = answer.read()
    return dict(json.loads(text)) if text.strip() else {}


def load(server: Server, requests: int, tokens: int) -> int:
    """Send so many requests at once and return how many tokens were generated."""

    def one(number: int) -> int:
        body: dict[str, object] = {"model": "target", "prompt": f"{number} {PROMPT * 4}", "max_tokens": tokens}
        body |= {"ignore_eos": True, "temperature": 1.0, "seed": number}
        usage = post(f"{server.url}/v1/completions", body)["usage"]
        assert isinstance(usage, dict)
        return int(usage["completion_tokens"])

    with ThreadPoolExecutor(requests) as pool:
        return sum(pool.map(one, range(requests)))


def profile(server: Server, arm: str, traces: Path, requests: int) -> int:
    """Profile one arm under one load; its traces are moved to a folder of their own. Returns the output tokens."""
    load(server, requests, 32)
    post(server.url + START)
    tokens = load(server, requests, TOKENS)
    began = time.monotonic()
    post(server.url + STOP)
    target = traces.parent / f"{arm}-{requests}"
    target.mkdir()
    for file in traces.glob("*"):
        file.rename(target / file.name)
    sizes = [file.stat().st_size for file in target.iterdir()]
    print(f"{arm} {requests}: {tokens} tokens, {sizes} bytes, stop took {time.monotonic() - began:.1f} s", flush=True)
    return tokens - requests


def read(words: list[str], out: Path) -> None:
    """Run `draftworth profile` and keep both of its forms."""
    for suffix, more in ((".txt", []), (".json", ["--json"])):
        run = subprocess.run(
            [sys.executable, "-m", "draftworth", "profile", *words, *more],
            capture_output=True,
            text=True,
            check=False,
        )
        out.with_suffix(suffix).write_text(run.stdout + run.stderr, encoding="utf-8")
        if not more:
            print(out.name, "exit", run.returncode, run.stdout, run.stderr, flush=True)


def main() -> int:
    """Profile every arm at every load. Returns 1 where a server did not start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="SmolLM2-135M-Instruct; of it only the tokenizer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start-seconds", type=float, default=240)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = model_folder(args.model, args.out.parent / "moe-model")
    servers = [Server("baseline", 0, 8801), Server("synthetic", 0, 8802, synthetic(K, ACCEPTED), (ACCEPTED,))]
    os.environ |= ENV
    processes, tokens = [], {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    traces = {server.name: args.out / f"traces-{server.name}" for server in servers}
    try:
        for server in servers:
            traces[server.name].mkdir(exist_ok=True)
            flags = tuple(profiler_arguments(traces[server.name].resolve()))
            processes.append(start(replace(server, args=flags), model, args.out, cores, moe=True))
        for server, process in zip(servers, processes, strict=True):
            if not healthy(server, process, args.start_seconds):
                print(server.name, (args.out / f"{server.name}.log").read_text()[-3000:], flush=True)
                return 1
        baseline, drafting = servers
        for requests in LOADS:
            tokens["baseline", requests] = profile(baseline, "baseline", traces["baseline"], requests)
            for arm, coverage in (("null-draft", 0.0), ("synthetic", 1.0)):
                ask_worker(drafting, "draftworth_drafts", coverage)
                ask_worker(drafting, "draftworth_rates", ACCEPTED, K)
                tokens[arm, requests] = profile(drafting, arm, traces["synthetic"], requests)
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
    for (arm, requests), count in tokens.items():
        read(["read", str(args.out / f"{arm}-{requests}"), "--tokens", str(count)], args.out / f"read-{arm}-{requests}")
        if arm != "baseline":
            pair = [str(args.out / f"{one}-{requests}") for one in ("baseline", arm)]
            both = f"{tokens['baseline', requests]},{count}"
            read(["compare", *pair, "--tokens", both], args.out / f"compare-{arm}-{requests}")
    (args.out / "set-up.json").write_text(json.dumps({"k": K, "null_draft": ngram(K, NEVER, NEVER)}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
