"""What benchmarks/gpu_profile.py measured, into docs/profiles.md; and a few steps of its traces, for the tests.

    python -m benchmarks.gpu_profile_page --keep OUT     (the folder gpu_profile.py wrote)
    python -m benchmarks.gpu_profile_page

`--keep` copies what was read of each trace into benchmarks/data/h200_profile/ and cuts a few decode steps out of the
traces of one request at a time into tests/profiles/data/.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.pages import write_between

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "h200_profile"
CUT = ROOT / "tests" / "profiles" / "data"
PAGE = ROOT / "docs" / "profiles.md"
BEGIN, END = "<!-- gpu: by benchmarks/gpu_profile_page.py -->", "<!-- end of gpu -->"
ARMS = ("baseline", "null-draft", "synthetic")
LOADS = (1, 8)
FIRST, STEPS = 60, 3
"""Steps of the cut traces: those that begin with this mark of vLLM's, and one more, which ends the last."""
MARGIN_US = 100.0
SHOWN_MS = 0.01
HEAD = ("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds")


def cut(source: Path, to: Path, steps: int) -> None:
    """Write the events of a few steps: what the host did in their time, and the kernels that it launched then."""
    told = json.loads(gzip.decompress(source.read_bytes()))
    events: list[dict[str, Any]] = told["traceEvents"]
    marks = sorted(
        (one for one in events if one.get("cat") == "user_annotation" and one["name"].startswith("execute_context")),
        key=lambda one: one["ts"],
    )
    begin, end = marks[FIRST]["ts"] - MARGIN_US, marks[FIRST + steps + 1]["ts"] - MARGIN_US
    host = [one for one in events if one.get("ph") == "X" and begin <= one["ts"] < end and not on_gpu(one)]
    launched = {one["args"]["correlation"] for one in host if "correlation" in one.get("args", {})}
    gpu = [one for one in events if one.get("ph") == "X" and on_gpu(one) and one["args"]["correlation"] in launched]
    kept = {key: told[key] for key in HEAD if key in told} | {"traceEvents": host + gpu}
    to.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    print(f"{to.name}: {len(host)} events of the host, {len(gpu)} of the GPU, {to.stat().st_size} bytes")


def on_gpu(event: dict[str, Any]) -> bool:
    """Return whether an event took place on the GPU."""
    return event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}


def keep(out: Path) -> None:
    """Copy what was read, without the folders of the machine it was read on, and cut the traces."""
    DATA.mkdir(parents=True, exist_ok=True)
    for file in sorted(out.glob("read-*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        told["source"] = Path(told["source"]).name
        (DATA / file.name).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    for arm, steps in zip(ARMS, (STEPS, STEPS - 1, STEPS), strict=True):
        (trace,) = (out / f"{arm}-1").glob("*.json.gz")
        cut(trace, CUT / f"vllm_h200_moe_{arm}.pt.trace.json.gz", steps)


def table() -> list[str]:
    """Return milliseconds a step, class by class, of every arm and load that was kept."""
    read = {
        (arm, load): json.loads((DATA / f"read-{arm}-{load}.json").read_text(encoding="utf-8"))
        for load in LOADS
        for arm in ARMS
    }
    names = list(dict.fromkeys(one["name"] for told in read.values() for one in told["classes"]))
    names = [name for name in names if _ms(read, name) >= SHOWN_MS]
    lines = [f"| ms a step | {' | '.join(f'{arm}, {load} at a time' for arm, load in read)} |"]
    lines.append("|---|" + "---|" * len(read))
    for name in names:
        each = (sum(one["ms"] for one in told["classes"] if one["name"] == name) for told in read.values())
        lines.append(_row(name, [ms / told["steps"] for ms, told in zip(each, read.values(), strict=True)]))
    lines.append(_row("host, the GPU waits for it", [told["host_ms"] / told["steps"] for told in read.values()]))
    lines.append(_row("idle otherwise", [told["idle_ms"] / told["steps"] for told in read.values()]))
    for what, count in (("graphs launched a step", graphs), ("kernels launched singly a step", singly)):
        counted = [f"{count(launches(arm)):g}" if load == LOADS[0] else "not kept" for arm, load in read]
        lines.append(f"| {what} | {' | '.join(counted)} |")
    lines.append(_row("**one step**", [told["span_ms"] / told["steps"] for told in read.values()]))
    lines.append(_row("**one token**", [told["span_ms"] / told["tokens"] for told in read.values()]))
    return lines


def launches(arm: str) -> list[Counter[str]]:
    """Return how often the host called each function that launches, for each step of an arm's kept cut."""
    told = json.loads(gzip.decompress((CUT / f"vllm_h200_moe_{arm}.pt.trace.json.gz").read_bytes()))["traceEvents"]
    marks = sorted(
        one["ts"] for one in told if one.get("cat") == "user_annotation" and one["name"].startswith("execute_context")
    )
    calls = [one for one in told if one.get("cat") in {"cuda_runtime", "cuda_driver"} and "Launch" in one["name"]]
    return [
        Counter(one["name"] for one in calls if begin - MARGIN_US <= one["ts"] < end - MARGIN_US)
        for begin, end in pairwise(marks)
    ]


def graphs(steps: list[Counter[str]]) -> float:
    """Return CUDA graphs launched in a step, mean over the steps."""
    return fmean(step["cudaGraphLaunch"] for step in steps)


def singly(steps: list[Counter[str]]) -> float:
    """Return kernels launched by themselves in a step, mean over the steps."""
    return fmean(sum(step.values()) - step["cudaGraphLaunch"] for step in steps)


def _ms(read: dict[tuple[str, int], Any], name: str) -> float:
    most: float = max(
        sum(one["ms"] for one in told["classes"] if one["name"] == name) / told["steps"] for told in read.values()
    )

    return most


def _row(name: str, values: list[float]) -> str:
    return f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |"


def main() -> int:
    """Keep what was measured, or write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="OUT")
    args = parser.parse_args()
    if args.keep:
        keep(args.keep)
        return 0
    lines = table()
    print("\n".join(lines))
    write_between(PAGE, (BEGIN, END), lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
