"""What Draftworth itself costs: a whole trial besides servers and requests, and `draftworth --help`.

The trial runs on the scripted server, so that servers and requests take little; what remains is the tool's own.
Writes benchmarks/results/tool_overhead.json.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import draftworth

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "tool_overhead.json"
TRIALS = 5
HELPS = 30


def one_trial(folder: Path, number: int) -> dict[str, float]:
    """Run one trial. Returns its seconds in all and the tool's own."""
    script = folder / "script.json"
    script.write_text(json.dumps({"token_ms": 2.0, "tokens": 48, "load_seconds": 0.5}), encoding="utf-8")
    port = 8790 + number
    command = [sys.executable, str(ROOT / "tests" / "fakes" / "openai_server.py"), "--script", str(script)]
    command += ["--port", str(port), "{speculative_args}"]
    file = folder / "draftworth.toml"
    file.write_text(
        f"[service]\ncommand = {json.dumps(command)}\nport = {port}\n"
        '[[arms]]\nname = "ngram-5"\nspeculative_config = { method = "ngram", num_speculative_tokens = 5 }\n'
        "[workload]\nprompts_per_category = 6\nmax_tokens = 48\n",
        encoding="utf-8",
    )
    env = {**os.environ, "DRAFTWORTH_HOME": str(folder / "home"), "DRAFTWORTH_LOCKS": str(folder / "locks")}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "draftworth", "trial", "run", str(file), "--json"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - began
    record = json.loads(done.stdout)
    # From outside: everything between the command and its exit that is neither a server nor a request.
    outside = wall - (record["seconds"] - record["overhead_seconds"])
    return {"seconds": wall, "overhead_seconds": outside, "overhead_by_record": record["overhead_seconds"]}


def one_help(command: list[str]) -> float:
    """Return the seconds of one `--help`."""
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - began


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    """Measure and write."""
    with tempfile.TemporaryDirectory() as name:
        trials = [one_trial(Path(name), number) for number in range(TRIALS)]
    draft = [str(Path(sys.executable).parent / "draftworth"), "--help"]
    bare = [sys.executable, "-c", "pass"]
    one_help(draft)
    # Side by side, so that a busy moment hits both.
    pairs = [(one_help(draft), one_help(bare)) for _ in range(HELPS)]
    result = {
        "draftworth": draftworth.__version__,
        "python": platform.python_version(),
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "trial": {
            "trials": TRIALS,
            "overhead_seconds": spread([trial["overhead_seconds"] for trial in trials]),
            "overhead_seconds_by_record": spread([trial["overhead_by_record"] for trial in trials]),
            "seconds": spread([trial["seconds"] for trial in trials]),
        },
        "help": {
            "runs": HELPS,
            "seconds": spread([pair[0] for pair in pairs]),
            "python_alone_seconds": spread([pair[1] for pair in pairs]),
        },
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
