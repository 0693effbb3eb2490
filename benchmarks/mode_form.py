"""Which form does the engine mode have? A step with speculation on, as a function of the same step without it.

Four forms are fitted to all cells of a run but one and judged on that one (leave one out, by absolute relative error):

    additive   T + M            constant  H                 ratio  r T
    floor      max(H, T)        both      max(H, T) + c     (a host that needs H a step, and c that nothing hides)

    python benchmarks/mode_form.py --steps h200_moe_step_times.jsonl --tpot h200_server_tpot.jsonl

`--steps`: rows of `{"mode", "B", "rep", "toks", "dt", "prefill", …counters}` of an engine in the same process, the
second repetition of each; T of a mixture of draft lengths is the mean over who drafts, over the captured sizes.
`--tpot`: rows of `{"model", "arm", "concurrency", "rep", "tpot_ms"}` of a server, medians of the repetitions.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

Cell = tuple[str, float, float]
"""Name, T without speculation, the step with it; milliseconds."""
SIZES = (1, 2, 4, 8, 16, 24)
COUNT = "vllm:spec_decode_num_"


def in_process(rows: Sequence[dict[str, Any]]) -> list[Cell]:
    """Return cells of the engine in the same process: steps that draft nothing, and drafting steps solved for."""
    second = [row for row in rows if row["rep"] == 1]
    base = {row["B"]: row["ms_per_tok"] for row in second if row["mode"] == "base"}
    idle = {row["B"]: row["ms_per_tok"] for row in second if row["mode"] == "k5none"}
    cells: list[Cell] = [(f"null draft, B = {batch}", base[batch], ms) for batch, ms in idle.items()]
    # Beyond the largest measured size the last rise is repeated.
    table = {**base, 24: 2 * base[16] - base[8]}
    for row in second:
        if not row["mode"].startswith("k") or row["mode"] == "k5none":
            continue
        k, batch = int(row["mode"][1:]), row["B"]
        steps = row["toks"] - batch - row[COUNT + "accepted_tokens"]
        share = row[COUNT + "drafts"] / steps
        step = (row["dt"] - row["prefill"]) * 1e3 / (steps / batch)
        chance = [comb(batch, j) * share**j * (1 - share) ** (batch - j) for j in range(batch + 1)]
        padded = [min(size for size in SIZES if size >= batch + k * j) for j in range(batch + 1)]
        drafting = sum(p * table[size] for p, size in zip(chance[1:], padded[1:], strict=True)) / (1 - chance[0])
        cells.append((f"k = {k}, B = {batch}", drafting, (step - chance[0] * idle[batch]) / (1 - chance[0])))
    return cells


def served(rows: Sequence[dict[str, Any]]) -> list[Cell]:
    """Return cells of the server: the null-draft arm beside the baseline, by concurrency."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row["model"] == "moe":
            found.setdefault((row["arm"], row["concurrency"]), []).append(row["tpot_ms"])
    middle = {key: statistics.median(values) for key, values in found.items()}
    return [
        (f"null draft, B = {batch}", middle["base", batch], ms)
        for (arm, batch), ms in middle.items()
        if arm == "null-draft"
    ]


Form = Callable[[float], float]


def _fit(make: Callable[..., Form], choices: Sequence[Sequence[float]], cells: Sequence[Cell]) -> Form:
    """Return the form with the least mean absolute relative error over a grid of its parameters."""

    def loss(parameters: tuple[float, ...]) -> float:
        form = make(*parameters)
        return statistics.fmean(abs(form(base) / step - 1) for _, base, step in cells)

    return make(*min(product(*choices), key=loss))


GRID = tuple(np.arange(0.0, 14.01, 0.1).tolist())
FORMS: dict[str, tuple[Callable[..., Form], tuple[Sequence[float], ...]]] = {
    "additive": (lambda m: lambda t: t + m, (GRID,)),
    "constant": (lambda h: lambda _: h, (GRID,)),
    "ratio": (lambda r: lambda t: r * t, (tuple(np.arange(1.0, 3.0, 0.02).tolist()),)),
    "floor": (lambda h: lambda t: max(h, t), (GRID,)),
    "both": (lambda h, c: lambda t: max(h, t) + c, (GRID[::2], GRID[::2])),
}


def judge(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Return median and largest error in percent of each form on cells it was not fitted to."""
    result = {}
    for name, (make, choices) in FORMS.items():
        errors = []
        for at, (_, base, step) in enumerate(cells):
            form = _fit(make, choices, [*cells[:at], *cells[at + 1 :]])
            errors.append(100 * abs(form(base) / step - 1))
        result[name] = {
            "median": round(statistics.median(errors), 1),
            "mean": round(statistics.fmean(errors), 1),
            "largest": round(max(errors), 1),
        }
    return result


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    """Judge the forms on each run and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=Path, help="rows of an engine in the same process")
    parser.add_argument("--tpot", type=Path, help="rows of a server")
    args = parser.parse_args()
    groups: dict[str, list[Cell]] = {}
    if args.steps:
        cells = in_process(_rows(args.steps))
        groups["in process"] = cells
        # The k = 1 rows of that run show host noise of tens of percent (the case's own remark).
        groups["in process without k = 1"] = [cell for cell in cells if not cell[0].startswith("k = 1,")]
    if args.tpot:
        groups["server"] = served(_rows(args.tpot))
    if not groups:
        parser.error("name --steps, --tpot or both")
    document = {
        name: {
            "cells": [{"cell": cell, "base_ms": round(t, 2), "step_ms": round(step, 2)} for cell, t, step in cells],
            "error_percent": judge(cells),
        }
        for name, cells in groups.items()
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
