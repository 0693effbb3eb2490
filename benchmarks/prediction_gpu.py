"""Speculation measured on GPUs, arm by arm beside its baseline: what predictions are judged on.

Starts the servers of one wave on this machine's GPU (vLLM as it is installed there), probes the baseline, and runs
trials between servers that run already: the same requests to the baseline and to each variant in turns, at 1, 2, 4 and
8 at a time. On the mixture of experts, whose weights are random, one server is the null draft and an arm at several
synthetic lengths and coverages, one after the other: rates and drafts are changed in the running worker
(`--worker-extension-cls`, vLLM's development endpoint `/collective_rpc`), which changes nothing else.

    python -m benchmarks.prediction_gpu --wave smol --model FOLDER --questions FILE --out OUT --loads 1 2 --leave
    python -m benchmarks.prediction_gpu --wave smol … --loads 4 8 --attach
    python -m benchmarks.prediction_gpu --wave moe-5 …      (then moe-3, moe-1)

The records land in OUT/smol/ and OUT/moe/; trials whose names begin with `fit-` are those that modes are fitted to,
where a run has any. benchmarks/prediction.py reads what is kept of them in benchmarks/data/.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.moe_trial import model_folder
from benchmarks.prediction_arms import LENGTH, Server, answers, healthy, ngram, probe, synthetic, trial

HERE = Path(__file__).resolve().parent
NEVER = 60
"""Tokens a lookup has to match that finds next to nothing in real text: a null draft."""
SYNC = "--no-async-scheduling"


WAVES: dict[str, tuple[Server, ...]] = {
    "smol": (
        Server("baseline", 0, 8801),
        Server("null-draft", 0, 8802, ngram(5, NEVER, NEVER)),
        Server("synthetic-1", 0, 8803, synthetic(1, 1.5)),
        Server("synthetic-5", 0, 8804, synthetic(5, 2.5)),
        Server("ngram-1", 0, 8805, ngram(1)),
        Server("ngram-3", 0, 8806, ngram(3)),
        Server("ngram-5", 0, 8807, ngram(5)),
        Server("ngram-8", 0, 8808, ngram(8)),
        Server("sync", 0, 8809, args=(SYNC,)),
    ),
    # Two models of 57 GB fit one H200; one server is the null draft and every synthetic length of its k in turn.
    "moe-1": (
        Server("baseline", 0, 8801),
        Server("synthetic-1", 0, 8802, synthetic(1, 1.5), (1.5, 1.2, 1.8)),
    ),
    "moe-3": (
        Server("baseline", 0, 8801),
        Server("synthetic-3", 0, 8802, synthetic(3, 2.0), (2.0, 1.5, 3.0)),
    ),
    "moe-5": (
        Server("baseline", 0, 8801),
        Server("synthetic-5", 0, 8802, synthetic(5, 2.2), (2.2, 1.5, 3.5)),
    ),
}
STREAMS = "1,2,4,8,16,32,48"
MOMENTS = {1: 2, 2: 8, 4: 16, 8: 24}
"""SmolLM2's prompts of each of 13 categories (10 to 80 each): a turn is four times as many as are under way, and the
speed of the host wanders within seconds, so every server has to have its turn at many moments."""
LOADS = ((1, 12), (2, 24), (4, 48), (8, 64))
"""Of the mixture of experts: concurrency, and how many requests; a trial each, so that counters belong to one load."""
COVERAGE = 0.5
"""Of the last length of an arm: a share of each request's steps draft, so that batches are mixed."""


def start(server: Server, model: Path, folder: Path, cores: str, *, moe: bool) -> "subprocess.Popen[bytes]":
    """Start one server on these cores; it logs into the folder."""
    command = ["taskset", "-c", cores, sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model)]
    command += ["--served-model-name", "target", "--dtype", "bfloat16", "--max-model-len", "4096"]
    command += ["--host", "127.0.0.1", "--port", str(server.port), "--gpu-memory-utilization", "0.1"]
    # Several servers share a GPU and start at once: profiling free memory would see the neighbours.
    command += ["--max-num-seqs", "64", "--kv-cache-memory-bytes", str(3 * 2**30 if moe else 2**30)]
    if moe:
        command += ["--load-format", "dummy"]
    # What the first mixture of experts compiled, the next ones find.
    compiled = ("moe-drafts" if server.speculation else "moe-baseline") if moe else server.name
    env = os.environ | {
        "CUDA_VISIBLE_DEVICES": str(server.gpu),
        "VLLM_CACHE_ROOT": str(folder.parent / f"cache-{compiled}"),
    }
    command += server.args
    if SYNC in server.args:
        env["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # n-gram arms run on V1
    if server.speculation:
        command += ["--speculative-config", json.dumps(server.speculation)]
    if server.lengths:
        command += ["--worker-extension-cls", "synthetic_rates.Rates"]
        path = os.pathsep.join([str(HERE / "extension"), env.get("PYTHONPATH", "")])
        env |= {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": path}
    with (folder / f"{server.name}.log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def ask_worker(server: Server, method: str, *values: float) -> None:
    """Call a method of the worker extension of a running server."""
    body = json.dumps({"method": method, "args": list(values)}).encode()
    request = urllib.request.Request(  # noqa: S310 - http
        f"{server.url}/collective_rpc", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - http
        print(server.name, method, values, answer.read().decode(), flush=True)


def measure_smol(servers: tuple[Server, ...], questions: Path, folder: Path, loads: Sequence[int]) -> None:
    """Probe, then every arm beside the baseline on real questions."""
    if not (folder / "costs-baseline.json").exists():
        probe(servers[0], folder, 40, STREAMS)
    workload: dict[str, object] = {"source": str(questions), "max_tokens": 96, "first_turn_only": True}
    for load in loads:
        each: dict[str, object] = {"prompts_per_category": MOMENTS[load], "concurrency": load}
        trial(folder, f"all-{load}", servers, workload | each)


def measure_moe(baseline: Server, arm: Server, questions: Path, folder: Path, loads: Sequence[int]) -> None:
    """Probe, then the null draft and each length beside the baseline, at every load."""
    if not (folder / "costs-baseline.json").exists():
        probe(baseline, folder, 40, STREAMS)
    set_up = dict(arm.speculation or {})
    k = int(set_up["num_speculative_tokens"])
    settings = [(f"fit-null-{k}", None, 0.0), (f"fit-{arm.name}-{arm.lengths[0]:g}", arm.lengths[0], 1.0)]
    settings += [(f"{arm.name}-{length:g}", length, 1.0) for length in arm.lengths[1:-1]]
    settings.append((f"{arm.name}-{arm.lengths[-1]:g}-half", arm.lengths[-1], COVERAGE))
    for name, length, coverage in settings:
        ask_worker(arm, "draftworth_drafts", coverage)
        config = {**set_up, LENGTH[1]: length} if length else ngram(k, NEVER, NEVER)
        if length:
            ask_worker(arm, "draftworth_rates", length, k)
        for load, prompts in LOADS:
            if load not in loads:
                continue
            workload: dict[str, object] = {"source": str(questions), "limit": prompts, "max_tokens": 96}
            workload |= {"concurrency": load, "ignore_eos": True, "first_turn_only": True, "temperature": 1.0}
            trial(folder, f"{name}-{load}", (baseline, replace(arm, name=name, speculation=config)), workload)


def main() -> int:
    """Run one wave. Returns 1 where a server did not start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wave", choices=sorted(WAVES), required=True)
    parser.add_argument(
        "--model", type=Path, required=True, help="SmolLM2-135M-Instruct; of it only the tokenizer, moe"
    )
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start-seconds", type=float, default=240)
    parser.add_argument("--loads", type=int, nargs="+", choices=sorted(MOMENTS), default=sorted(MOMENTS))
    parser.add_argument("--leave", action="store_true", help="leave the servers running for a later --attach")
    parser.add_argument("--attach", action="store_true", help="take the servers that run already; end them afterwards")
    args = parser.parse_args()
    servers, moe = WAVES[args.wave], args.wave.startswith("moe")
    folder = args.out / args.wave.partition("-")[0]
    folder.mkdir(parents=True, exist_ok=True)
    model = model_folder(args.model, args.out / "moe-model") if moe else args.model
    began = time.monotonic()
    taken = [one.url for one in servers if answers(one)]
    if taken and not args.attach:
        print(f"already serving at {', '.join(taken)}: end it first", flush=True)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `timeout` leaves no server behind
    # Servers answer in turns and idle otherwise; the client keeps two cores to itself.
    *own, client_a, client_b = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [client_a, client_b])
    processes: list[subprocess.Popen[bytes]] = []
    if not args.attach:
        processes = [start(one, model, folder, ",".join(map(str, own)), moe=moe) for one in servers]
        (folder / "servers.json").write_text(json.dumps([process.pid for process in processes]), encoding="utf-8")
    left = False
    try:
        for one, process in zip(servers, processes, strict=False):
            if not healthy(one, process, args.start_seconds):
                print(f"{one.name} did not start:", (folder / f"{one.name}.log").read_text()[-3000:], flush=True)
                return 1
        print(f"{time.strftime('%X')} all up after {time.monotonic() - began:.0f} s", flush=True)
        if moe:
            measure_moe(servers[0], servers[1], args.questions, folder, args.loads)
        else:
            measure_smol(servers, args.questions, folder, args.loads)
        left = args.leave
        return 0
    finally:
        for pid in [] if left else json.loads((folder / "servers.json").read_text(encoding="utf-8")):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
