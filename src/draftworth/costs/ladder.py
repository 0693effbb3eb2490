"""A costs file as text: its points as a staircase, its modes, and what was not measured."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from draftworth.costs.base import Costs, EngineMode, StepCost

_BAR = 40
_HOW = {
    "concurrency": "B streams, one token each",
    "prefix": "n new tokens behind a cached prefix",
    "arm": "the baseline of a trial, by concurrency",
    "paper": "on paper",
}


def lines(costs: Costs) -> list[str]:
    """Return a costs file for a person: tables with bars, one block for each way of measuring and context."""
    title = " ".join(one for one in (costs.engine, costs.version) if one) or "costs"
    runner = f"{costs.runner} runner" if costs.runner else None
    about = [costs.model, costs.machine or None, runner, costs.url]
    told = [f"{title}: {', '.join(one for one in about if one)}".rstrip(": ")]
    if costs.graph_sizes:
        told.append(f"CUDA graphs at {', '.join(map(str, costs.graph_sizes))} tokens (| in the tables)")
    if costs.reload_s is not None:
        told.append(f"one start takes {costs.reload_s:.0f} s")
    for (how, context), some in groupby(sorted(costs.points, key=_order), key=lambda one: (one.how, one.context)):
        told += ["", f"T(B, n), {_HOW[how]}, {context:,} tokens of context", *_steps(list(some), costs)]
    if costs.modes:
        told += ["", "Engine mode: what speculation adds to a step", *map(_mode, costs.modes)]
    if costs.notes:
        told += ["", *(f"- {note}" for note in costs.notes)]
    return told


def _order(one: StepCost) -> tuple[str, int, int, int]:
    return one.how, one.context, one.batch, one.tokens


def _steps(points: Sequence[StepCost], costs: Costs) -> Iterator[str]:
    yield "    B    n        ms   95 % interval      x T(1)  repeats"
    most = max(one.ms for one in costs.points)  # one scale: bars of several tables are compared
    # One token of one request at this context, however that was measured.
    alike = [one for one in costs.points if one.context == points[0].context and one.batch * one.tokens == 1]
    first = (alike or points)[0].ms
    graphs = costs.graph_sizes
    seen: int | None = None
    for one in points:
        size = one.batch * one.tokens
        captured = next((graph for graph in graphs if graph >= size), None)
        step = "|" if graphs and captured != seen else " "
        seen = captured
        bar = "#" * max(1, round(_BAR * one.ms / most)) if most > 0 else ""
        yield (
            f"{one.batch:5d}{one.tokens:5d}{one.ms:10.3f}   {one.low:7.3f} to {one.high:7.3f}"
            f"{one.ms / first:8.2f}{one.repeats:9d} {step}{bar}"
        )


def _mode(one: EngineMode) -> str:
    runner = f", {one.runner} runner" if one.runner else ""
    name = "draft nothing" if one.kind == "idle" else f"verify {one.tokens} tokens"
    name += " or fewer" if one.kind == "mixed" else ""
    if one.kind == "plain":
        name = "are scheduled as with speculation"
    return (
        f"  {one.method}{runner}, {one.batch} at a time, steps that {name}: +{one.ms:.3f} ms "
        f"({one.low:.3f} to {one.high:.3f}): {one.base_ms:.3f} -> {one.step_ms:.3f} ms; {one.source}"
    ).replace("+-", "-")
