"""Speculation measured on GPUs, arm by arm beside its baseline: what predictions are judged on.

Starts the servers of one wave on this machine's GPU (vLLM as it is installed there), probes the baseline, and runs
trials between servers that run already: the same requests to the baseline and to each variant in turns, at 1, 2, 4 and
8 at a time. On the mixture of experts one server is the null draft and an arm at several synthetic lengths, one after
the other: the lookup's window and the rates are changed in the running worker (`--worker-extension-cls`, vLLM's
development endpoint `/collective_rpc`), which changes nothing else.

    python -m benchmarks.prediction_gpu --wave smol --model SmolLM2-135M-Instruct --questions FILE --out OUT
    python -m benchmarks.prediction_gpu --wave moe-5 …      (then moe-3, moe-1)

The records land in OUT/smol/ and OUT/moe/; benchmarks/prediction.py reads what is kept of them in benchmarks/data/.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.moe_trial import model_folder
from benchmarks.prediction_arms import LENGTH, Server, answers, healthy, ngram, probe, synthetic, trial

HERE = Path(__file__).resolve().parent
FREE = "null-draft-threads"
"""The arm whose OMP_NUM_THREADS is the engine's own: the others have --threads."""
NEVER = 60
"""Tokens a lookup has to match that finds next to nothing in real text: a null draft."""
BEYOND = 5000
"""More tokens than a sequence has: random weights repeat themselves for longer than any lookup."""

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
        Server(FREE, 0, 8809, ngram(5, NEVER, NEVER)),
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
LOADS = ((1, 8), (2, 12), (4, 16), (8, 24))
"""Of the mixture of experts: concurrency, and how many requests; a trial each, so that counters belong to one load."""


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
    if server.name == FREE:
        env.pop("OMP_NUM_THREADS", None)
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


def measure_smol(servers: tuple[Server, ...], questions: Path, folder: Path) -> None:
    """Probe, then every arm beside the baseline on real questions, then what the engine's own threads do."""
    probe(servers[0], folder, 50, STREAMS)
    workload: dict[str, object] = {"source": str(questions), "max_tokens": 96, "first_turn_only": True}
    judged = tuple(one for one in servers if one.name != FREE)
    for load, _ in LOADS:
        each = {"prompts_per_category": 1 if load == 1 else 2, "concurrency": load}
        trial(folder, f"all-{load}", judged, workload | each)
    trial(folder, "threads", (*servers[:2], servers[-1]), workload | {"prompts_per_category": 1, "concurrency": 1})


def measure_moe(baseline: Server, arm: Server, questions: Path, folder: Path, *, probing: int, only_null: bool) -> None:
    """Probe, then the null draft and each length beside the baseline, at every load."""
    if probing:
        probe(baseline, folder, probing, STREAMS)
    set_up = dict(arm.speculation or {})
    k = int(set_up["num_speculative_tokens"])
    window = set_up["prompt_lookup_min"], set_up["prompt_lookup_max"]
    for length in (None,) if only_null else (None, *arm.lengths):
        ask_worker(arm, "draftworth_window", *(window if length else (BEYOND, BEYOND)))
        if length:
            ask_worker(arm, "draftworth_rates", length, k)
            name, at = f"{arm.name}-{length:g}", replace(arm, speculation={**set_up, LENGTH[1]: length})
        else:
            name, at = f"null-draft-{k}", replace(arm, speculation=ngram(k, BEYOND, BEYOND))
        for load, prompts in LOADS:
            workload: dict[str, object] = {"source": str(questions), "limit": prompts, "max_tokens": 96}
            workload |= {"concurrency": load, "ignore_eos": True, "first_turn_only": True}
            trial(folder, f"{name}-{load}", (baseline, replace(at, name=name)), workload)


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
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of all but one; default: the engine's own")
    parser.add_argument("--only-null", action="store_true", help="of a mixture of experts, the null draft alone")
    args = parser.parse_args()
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    servers, moe = WAVES[args.wave], args.wave.startswith("moe")
    folder = args.out / args.wave.partition("-")[0]
    folder.mkdir(parents=True, exist_ok=True)
    model = model_folder(args.model, args.out / "moe-model") if moe else args.model
    began = time.monotonic()
    taken = [one.url for one in servers if answers(one)]
    if taken:
        print(f"already serving at {', '.join(taken)}: end it first", flush=True)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `timeout` leaves no server behind
    # Servers answer in turns and idle otherwise; the client keeps two cores to itself.
    *own, client_a, client_b = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [client_a, client_b])
    processes = [start(one, model, folder, ",".join(map(str, own)), moe=moe) for one in servers]
    try:
        for one, process in zip(servers, processes, strict=True):
            if not healthy(one, process, args.start_seconds):
                print(f"{one.name} did not start:", (folder / f"{one.name}.log").read_text()[-3000:], flush=True)
                return 1
        print(f"{time.strftime('%X')} all up after {time.monotonic() - began:.0f} s", flush=True)
        if moe:
            probing = 0 if (folder / "costs-baseline.json").exists() else 30
            measure_moe(servers[0], servers[1], args.questions, folder, probing=probing, only_null=args.only_null)
        else:
            measure_smol(servers, args.questions, folder)
        return 0
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
