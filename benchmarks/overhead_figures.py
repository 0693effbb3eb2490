"""From single runs to the figures: slopes, spreads, ratios, and whether the goals are met."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

PER = 10_000
"""CPU seconds are told for so many chunks."""
SATURATED = 0.9
"""Share of a core from which a client is taken to have had no time left."""

SHARE_OF_BEST_PEER = 0.2
MOST_RSS_MB = 300.0
MOST_BEHIND_MS = {"median": 1.0, "p99": 5.0}


@dataclass(frozen=True, slots=True)
class Point:
    """A load at which clients are compared.

    Attributes:
        concurrency: streams at a time, and requests of a run.
        rate: chunks a second of each.
        short: chunks of each answer in the short run.
        long: chunks of each answer in the long run.
        repeats: how often each client is measured.
    """

    concurrency: int
    rate: float
    short: int
    long: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one client.

    Attributes:
        chunks: content chunks the server sent it.
        cpu_s: user and system seconds of its whole process tree.
        before_s: of those, used before the first chunk.
        stream_s: seconds from the first chunk sent to the last.
        rss_mb: most resident memory of the tree.
    """

    chunks: int
    cpu_s: float
    before_s: float
    stream_s: float
    rss_mb: float


def slope(short: Run, long: Run) -> dict[str, float]:
    """Return what the chunks of the long run that the short one did not have have cost.

    What both runs pay alike, such as requests and reports, drops out; what grows with the chunks stays, also where it
    comes after the last one. What was used before the first chunk is left out of both: imports of several seconds vary
    by more than some chunks cost.
    """
    chunks = long.chunks - short.chunks
    cpu = (long.cpu_s - long.before_s) - (short.cpu_s - short.before_s)
    streaming = long.stream_s - short.stream_s
    return {
        "cpu_s_per_10k": cpu / chunks * PER,
        "core_share": cpu / streaming if streaming > 0 else 0.0,
        "rest_cpu_s": short.cpu_s - cpu / chunks * short.chunks,
        "rss_mb": long.rss_mb,
    }


def used_by(course: Sequence[Sequence[float]], at: float) -> float:
    """Return the CPU seconds used by the time `at`, between the moments at which they are known."""
    for (early, little), (late, much) in pairwise(course):
        if early <= at <= late:
            return little + (much - little) * (at - early) / (late - early)
    return course[-1][1] if at > course[-1][0] else 0.0


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return least, median and most."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def summary(slopes: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return one client's figures at one point, from its repeats."""
    figures: dict[str, Any] = {name: spread([one[name] for one in slopes]) for name in slopes[0]}
    figures["saturated"] = figures["core_share"]["median"] >= SATURATED
    return figures


def ratios(clients: dict[str, dict[str, Any]], ours: str) -> dict[str, float]:
    """Return each client's median CPU per chunk as a multiple of ours."""
    own = clients[ours]["cpu_s_per_10k"]["median"]
    return {name: figures["cpu_s_per_10k"]["median"] / own for name, figures in clients.items()}


def request_cost(points: Sequence[dict[str, Any]], name: str) -> float | None:
    """Return the milliseconds of CPU of a request besides its chunks, between the lightest load and the heaviest.

    From what is left of the runs without the cost of their chunks: start-up, which is the same, and the requests.
    """
    rest = [
        (point["concurrency"], point["clients"][name]["rest_cpu_s"]["median"])
        for point in sorted(points, key=lambda point: int(point["concurrency"]))
        if name in point["clients"]
    ]
    if len(rest) < 2:  # noqa: PLR2004 - a slope takes two
        return None
    (few, little), (many, much) = rest[0], rest[-1]
    return float((much - little) / (many - few) * 1e3)


def share_goal(
    points: Sequence[dict[str, Any]], concurrency: int, ours: str, no_peers: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return whether ours costs at most a fifth of the best peer; None where there is nothing to compare."""
    for point in points:
        peers = {name: ratio for name, ratio in point["ratio_to_draftworth"].items() if name not in {ours, *no_peers}}
        if point["concurrency"] != concurrency or not peers:
            continue
        best = min(peers, key=lambda name: peers[name])
        share = 1 / peers[best]
        return {
            "what": f"CPU per chunk at {concurrency} streams, as a share of the best peer's",
            "goal": SHARE_OF_BEST_PEER,
            "measured": share,
            "best_peer": best,
            "met": share <= SHARE_OF_BEST_PEER,
        }
    return None


def bound_goal(what: str, goal: float, measured: float) -> dict[str, Any]:
    """Return whether a figure is at or below its bound."""
    return {"what": what, "goal": goal, "measured": measured, "met": measured <= goal}
