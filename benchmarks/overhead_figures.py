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
FIGURES = {"cpu_s_per_10k": "a further chunk", "whole_s_per_10k": "a chunk of the whole run"}
"""The two ways in which CPU is told, and what of."""
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
        steps: whether all streams send at the same moments, as from an engine's steps.
    """

    concurrency: int
    rate: float
    short: int
    long: int
    repeats: int
    steps: bool = False

    @property
    def sending(self) -> str:
        """How the streams send, for a person."""
        return "in lockstep" if self.steps else "evenly spread"


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
    """Return what the chunks of the long run that the short one did not have have cost, and what the long run cost.

    What both runs pay alike, such as requests and reports, drops out; what grows with the chunks stays, also where it
    comes after the last one. What was used before the first chunk is left out of both: imports of several seconds vary
    by more than some chunks cost. The whole figure is the long run from its first chunk to its end, requests and
    reports included, over all its chunks.
    """
    chunks = long.chunks - short.chunks
    cpu = (long.cpu_s - long.before_s) - (short.cpu_s - short.before_s)
    streaming = long.stream_s - short.stream_s
    return {
        "cpu_s_per_10k": cpu / chunks * PER,
        "whole_s_per_10k": (long.cpu_s - long.before_s) / long.chunks * PER,
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


def ratios(clients: dict[str, dict[str, Any]], ours: str) -> dict[str, dict[str, float]]:
    """Return each client's median CPU as a multiple of ours, for each way of telling it."""
    return {
        figure: {name: found[figure]["median"] / clients[ours][figure]["median"] for name, found in clients.items()}
        for figure in FIGURES
    }


def request_cost(point: dict[str, Any], name: str) -> float | None:
    """Return the milliseconds of CPU of a request besides its chunks: what the whole run costs more than its chunks.

    Only what comes after the first chunk is in it. None for who was not measured.
    """
    if name not in point["clients"]:
        return None
    further, whole = (point["clients"][name][figure]["median"] for figure in FIGURES)
    return float((whole - further) / PER * point["chunks_per_answer"][1] * 1e3)


def share_goal(point: dict[str, Any], figure: str, ours: str, floor: str) -> dict[str, Any] | None:
    """Return whether ours costs at most a fifth of the best peer; None where there is nothing to compare.

    Beside it stands the share of bare reading, below which no client comes that takes each chunk as it arrives.
    """
    costs = {name: found[figure]["median"] for name, found in point["clients"].items()}
    peers = {name: cost for name, cost in costs.items() if name not in {ours, floor}}
    if ours not in costs or not peers:
        return None
    best = min(peers, key=lambda name: peers[name])
    share = costs[ours] / peers[best]
    return {
        "what": f"CPU of {FIGURES[figure]}, {point['concurrency']} streams {point['sending']}, of the best peer's",
        "goal": SHARE_OF_BEST_PEER,
        "measured": share,
        "best_peer": best,
        "floor_share": costs[floor] / peers[best] if floor in costs else None,
        "met": share <= SHARE_OF_BEST_PEER,
    }


def bound_goal(what: str, goal: float, measured: float) -> dict[str, Any]:
    """Return whether a figure is at or below its bound."""
    return {"what": what, "goal": goal, "measured": measured, "met": measured <= goal}
