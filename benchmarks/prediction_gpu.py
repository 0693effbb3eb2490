"""Speculation measured on GPUs, arm by arm beside its baseline: what predictions are judged on.

Starts the servers of one wave on this machine's GPUs (vLLM as it is installed there), probes the baseline, and runs
trials between servers that run already: the same requests to the baseline and to each variant in turns, at 1, 2, 4 and
8 at a time. Arms of synthetic acceptance are measured at several lengths in one start: their rates are changed in the
running worker (`--worker-extension-cls`, vLLM's development endpoint `/collective_rpc`), which changes nothing else.

    python -m benchmarks.prediction_gpu --wave smol --model SmolLM2-135M-Instruct --questions FILE --out OUT
    python -m benchmarks.prediction_gpu --wave moe-a …
    python -m benchmarks.prediction_gpu --wave moe-b …

The records land in OUT/<wave>/; benchmarks/prediction.py reads what is kept of them in benchmarks/data/.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.moe_trial import model_folder
from benchmarks.prediction_arms import LENGTH, Server, answers, healthy, ngram, probe, synthetic, trial

HERE = Path(__file__).resolve().parent


WAVES: dict[str, tuple[Server, ...]] = {
    "smol": (
        Server("baseline", 0, 8801),
        Server("null-draft", 0, 8802, ngram(5, 60, 60)),
        Server("synthetic-1", 0, 8803, synthetic(1, 1.5)),
        Server("synthetic-5", 0, 8804, synthetic(5, 2.5)),
        Server("ngram-1", 0, 8805, ngram(1)),
        Server("ngram-3", 0, 8806, ngram(3)),
        Server("ngram-5", 0, 8807, ngram(5)),
        Server("ngram-2-1-3", 0, 8808, ngram(2, 1, 3)),
        Server("ngram-8", 0, 8809, ngram(8)),
    ),
    "moe-a": (
        Server("baseline", 0, 8801),
        Server("null-draft", 0, 8802, ngram(5, 60, 60)),
        Server("baseline-b", 1, 8811),
        Server("synthetic-5", 1, 8812, synthetic(5, 2.2), (2.2, 1.5, 3.5)),
    ),
    "moe-b": (
        Server("baseline", 0, 8801),
        Server("synthetic-1", 0, 8802, synthetic(1, 1.5), (1.5, 1.2, 1.8)),
        Server("baseline-b", 1, 8811),
        Server("synthetic-3", 1, 8812, synthetic(3, 2.0), (2.0, 1.5, 3.0)),
    ),
}
STREAMS = "1,2,4,8,16,32,48"
LOADS = ((1, 8), (2, 12), (4, 16), (8, 24))
"""Of the mixture of experts: concurrency, and how many requests; a trial each, so that counters belong to one load."""


def start(server: Server, model: Path, folder: Path, cores: str, *, moe: bool) -> "subprocess.Popen[bytes]":
    """Start one server on cores of its own; it logs into the folder."""
    command = ["taskset", "-c", cores, sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model)]
    command += ["--served-model-name", "target", "--dtype", "bfloat16", "--max-model-len", "4096"]
    command += ["--host", "127.0.0.1", "--port", str(server.port), "--gpu-memory-utilization", "0.1"]
    # Several servers share a GPU and start at once: profiling free memory would see the neighbours.
    command += ["--max-num-seqs", "64", "--kv-cache-memory-bytes", str(3 * 2**30 if moe else 2**30)]
    if moe:
        command += ["--load-format", "dummy"]
    env = os.environ | {
        "CUDA_VISIBLE_DEVICES": str(server.gpu),
        "VLLM_CACHE_ROOT": str(folder / f"cache-{server.name}"),
    }
    if server.speculation:
        command += ["--speculative-config", json.dumps(server.speculation)]
    if server.lengths:
        command += ["--worker-extension-cls", "synthetic_rates.Rates"]
        path = os.pathsep.join([str(HERE / "extension"), env.get("PYTHONPATH", "")])
        env |= {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": path}
    with (folder / f"{server.name}.log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def shares(servers: int) -> list[str]:
    """Return cores for each server and, last, for the client: no step of one waits for another's."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // (servers + 1))
    return [",".join(map(str, cores[at * each : (at + 1) * each])) for at in range(servers + 1)]


def set_length(server: Server, length: float) -> None:
    """Give a running server of synthetic acceptance another length."""
    k = int((server.speculation or {})["num_speculative_tokens"])
    body = json.dumps({"method": "draftworth_rates", "args": [length, k]}).encode()
    request = urllib.request.Request(  # noqa: S310 - http
        f"{server.url}/collective_rpc", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - http
        print(server.name, length, answer.read().decode(), flush=True)


def measure_smol(servers: tuple[Server, ...], questions: Path, folder: Path) -> None:
    """Probe, then every arm beside the baseline on real questions."""
    probe(servers[0], folder, 60, STREAMS)
    workload = {"source": str(questions), "prompts_per_category": 3, "max_tokens": 128, "first_turn_only": True}
    for load, _ in LOADS:
        trial(folder, f"all-{load}", servers, workload | {"concurrency": load})


def measure_moe(baseline: Server, arm: Server, questions: Path, folder: Path, *, probing: int) -> None:
    """Probe, then an arm beside its baseline, at each of its lengths and loads."""
    if probing:
        probe(baseline, folder, probing, STREAMS)
    for length in arm.lengths or (0.0,):
        if arm.lengths:
            set_length(arm, length)
            arm = replace(arm, speculation={**(arm.speculation or {}), LENGTH[1]: length})
        for load, prompts in LOADS:
            workload: dict[str, object] = {"source": str(questions), "limit": prompts, "max_tokens": 96}
            workload |= {"concurrency": load, "ignore_eos": True, "first_turn_only": True}
            suffix = f"-{length:g}" if arm.lengths else ""
            trial(folder, f"{arm.name}{suffix}-{load}", (baseline, arm), workload, suffix=suffix)


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
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the servers; default: the engine's own")
    args = parser.parse_args()
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    servers, moe = WAVES[args.wave], args.wave.startswith("moe")
    folder = args.out / args.wave
    folder.mkdir(parents=True, exist_ok=True)
    model = model_folder(args.model, Path("/tmp/moe-model")) if moe else args.model  # noqa: S108 - the machine is lent
    began = time.monotonic()
    taken = [one.url for one in servers if answers(one)]
    if taken:
        print(f"already serving at {', '.join(taken)}: end it first", flush=True)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `timeout` leaves no server behind
    *own, rest = shares(len(servers))
    os.sched_setaffinity(0, [int(core) for core in rest.split(",")])
    processes = [start(one, model, folder, cores, moe=moe) for one, cores in zip(servers, own, strict=True)]
    try:
        for one, process in zip(servers, processes, strict=True):
            if not healthy(one, process, args.start_seconds):
                print(f"{one.name} did not start:", (folder / f"{one.name}.log").read_text()[-3000:], flush=True)
                return 1
        print(f"{time.strftime('%X')} all up after {time.monotonic() - began:.0f} s", flush=True)
        if not moe:
            measure_smol(servers, args.questions, folder)
            return 0
        pairs = [(servers[0], servers[1]), (servers[2], servers[3])]
        threads = [
            threading.Thread(
                target=measure_moe,
                args=(base, arm, args.questions, folder),
                kwargs={"probing": 35 if args.wave == "moe-a" and at == 0 else 0},
            )
            for at, (base, arm) in enumerate(pairs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 0
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
