"""From rows to tables: what each prompt adds to each sum, for what was measured in every start of both arms.

A *cell* is one request of the workload: a prompt (or a later turn of a conversation) at one point of a sweep. Only
cells measured in every start of both arms count, so that both arms are asked the same. The unit of statistics is the
prompt: its turns, points, repeats and blocks within a start are one cluster. Sums are taken with `math.fsum`, so that
the order of rows changes nothing, not even by rounding.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from draftworth.bench.base import RequestRow
from draftworth.verdicts.intervals import Table
from draftworth.verdicts.restarts import Floats
from draftworth.verdicts.rules import Limits, Metric

Block = Sequence[RequestRow]
"""The rows of one measured block of an arm."""
Start = tuple[Block, ...]
"""The blocks of one start, in order of time."""
Part = tuple[float, ...]
"""What one row adds to the sums of a metric."""
Cell = tuple[str, str, str]
"""Cluster, prompt id (of the turn), point."""


@dataclass(frozen=True, slots=True)
class Paired:
    """What could be paired for one metric.

    Attributes:
        ids: the clusters (prompts), in order of id.
        table: what each adds, in the same order.
    """

    ids: tuple[str, ...]
    table: Table

    def only(self, wanted: set[str]) -> "Paired":
        """Return the part of the prompts that is wanted."""
        kept = [i for i, prompt in enumerate(self.ids) if prompt in wanted]
        return Paired(tuple(self.ids[i] for i in kept), self.table.only(kept))

    def values(self) -> tuple[Floats, Floats]:
        """Return the value of each prompt in each arm, the mean over its starts, for metrics of one sum."""
        return self.table.baseline[..., 0].mean(axis=0), self.table.variant[..., 0].mean(axis=0)

    def figures(self) -> tuple[float | None, float | None]:
        """Return the metric of each arm, as plain numbers; None where it is not defined."""
        return _figure(self.table.baseline, self.table.powers), _figure(self.table.variant, self.table.powers)


def cluster_of(row: RequestRow) -> str:
    """Return the prompt a row belongs to: turn 2 of `a` has the id `a#2` and belongs to `a`."""
    return row.conversation


def category_of(rows: Iterable[RequestRow]) -> dict[str, str]:
    """Return the category of each prompt; of several, the first by name."""
    categories: dict[str, str] = {}
    for row in rows:
        prompt = cluster_of(row)
        categories[prompt] = min(categories.get(prompt, row.category), row.category)
    return categories


def starts_of(blocks: Sequence[Block]) -> list[Start]:
    """Return the starts of an arm in order, each with its blocks in order of `row.block`, then as given.

    Rows tell their start; a block without rows is a start that gave nothing, and pairs with nothing.
    """
    found: dict[int, list[tuple[int, int, Block]]] = {}
    for place, block in enumerate(blocks):
        by_start: dict[int, list[RequestRow]] = {}
        for row in block:
            by_start.setdefault(row.start, []).append(row)
        for start, rows in by_start.items():
            found.setdefault(start, []).append((min(row.block for row in rows), place, rows))
    starts = [tuple(block for *_, block in sorted(found[start], key=lambda one: one[:2])) for start in sorted(found)]
    return starts + [((),) for block in blocks if not block]


def pair(
    baseline: Sequence[Start],
    variant: Sequence[Start],
    metric: Metric,
    limits: Limits | None = None,
    *,
    open_loop: bool = False,
) -> Paired:
    """Return the table of a metric.

    - tpot: sum of decode times / sum of tokens after the first chunk, one value a prompt and start, in milliseconds.
      The metric of an arm is its mean over prompts.
    - ttft: mean over a prompt's requests, in milliseconds; an arm's is the mean over prompts.
    - throughput: sum of output tokens / sum of end-to-end times, in tokens a second of request time.
    - goodput, closed loop: (requests within every limit / requests) x (timed requests / sum of their end-to-end
      times), a second; open loop: requests within every limit / requests. Every request counts; one that failed or was
      sent again met no limit and adds no time.
    """
    part, powers = _METRICS[metric]
    if metric == "goodput":
        asked = limits or Limits()
        powers = (1, -1) if open_loop else (1, -1, 1, -1)

        def part(row: RequestRow) -> Part | None:
            return _good(row, asked)[: len(powers)]

    sums = [[_cells(start, part) for start in arm] for arm in (baseline, variant)]
    every = [set(start) for arm in sums for start in arm]
    if not (sums[0] and sums[1]):
        every = [set()]
    cells = sorted(set.intersection(*every))
    clusters: dict[str, list[Cell]] = {}
    for cell in cells:
        clusters.setdefault(cell[0], []).append(cell)
    width = 2 if metric in {"tpot", "ttft"} else len(powers)
    tables = [
        np.array(
            [[_total([start[cell] for cell in group]) for group in clusters.values()] for start in arm],
            dtype=np.float64,
        ).reshape(len(arm), len(clusters), width)
        for arm in sums
    ]
    ids = list(clusters)
    if metric in {"tpot", "ttft"}:
        tables = [arm[..., :1] / arm[..., 1:] for arm in tables]
        usable = [
            i for i in range(len(ids)) if all(bool((np.isfinite(arm[:, i]) & (arm[:, i] > 0)).all()) for arm in tables)
        ]
        tables, ids = [arm[:, usable] for arm in tables], [ids[i] for i in usable]
    return Paired(tuple(ids), Table(tables[0], tables[1], powers))


def _tpot(row: RequestRow) -> Part | None:
    if not row.timed or row.tpot_ms is None or row.decode_ms is None:
        return None
    if row.tokens is None or row.first_chunk_tokens is None or row.tokens <= row.first_chunk_tokens:
        return None
    return row.decode_ms, float(row.tokens - row.first_chunk_tokens)


def _ttft(row: RequestRow) -> Part | None:
    return None if not row.timed or row.ttft_ms is None else (row.ttft_ms, 1.0)


def _throughput(row: RequestRow) -> Part | None:
    if not row.timed or row.tokens is None or row.e2e_ms is None:
        return None
    return float(row.tokens), row.e2e_ms / 1000


def _good(row: RequestRow, limits: Limits) -> Part:
    """Return: within every limit, request, timed, its seconds."""
    timed = row.timed and row.e2e_ms is not None
    return float(meets(row, limits)), 1.0, float(timed), (row.e2e_ms or 0.0) / 1000 if timed else 0.0


def meets(row: RequestRow, limits: Limits) -> bool:
    """Return whether a request met every stated limit.

    One that failed or was sent again met none. TPOT is not asked of an answer in one chunk, which made nobody wait
    between tokens; any other time that is missing is not met.
    """
    if not row.timed:
        return False
    for limit, time in ((limits.ttft_ms, row.ttft_ms), (limits.e2e_ms, row.e2e_ms)):
        if limit is not None and (time is None or time > limit):
            return False
    return limits.tpot_ms is None or row.tpot_ms is None or row.tpot_ms <= limits.tpot_ms


_METRICS: dict[Metric, tuple[Callable[[RequestRow], Part | None], tuple[int, ...]]] = {
    "tpot": (_tpot, (1,)),
    "ttft": (_ttft, (1,)),
    "throughput": (_throughput, (1, -1)),
    "goodput": (lambda _: None, ()),
}


def _cells(start: Start, part: Callable[[RequestRow], Part | None]) -> dict[Cell, list[Part]]:
    cells: dict[Cell, list[Part]] = {}
    for block in start:
        for row in block:
            added = part(row)
            if added is not None:
                cells.setdefault((cluster_of(row), row.prompt_id, row.point), []).append(added)
    return cells


def _total(cells: Sequence[Sequence[Part]]) -> Part:
    """Return the sums over the rows of one cluster."""
    return tuple(math.fsum(column) for column in zip(*(part for cell in cells for part in cell), strict=True))


def _figure(arm: Floats, powers: tuple[int, ...]) -> float | None:
    if arm.size == 0:
        return None
    sums = arm.mean(axis=0).mean(axis=0)
    below = [total for total, power in zip(sums, powers, strict=True) if power < 0]
    if any(total <= 0 for total in below):
        return None
    return float(np.prod([total**power for total, power in zip(sums, powers, strict=True)]))
