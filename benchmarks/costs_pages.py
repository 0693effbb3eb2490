"""The figures of docs/costs.md and docs/costs-model.md: forms of the engine mode, the library left one out, paper.

    python -m benchmarks.costs_pages

Reads benchmarks/data/h200_steps (rows of one H200, vLLM 0.25; see the README there), `costs/library.json` and the
config.json files of tests/costs/configs. Nothing is measured.
"""

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from benchmarks.mode_form import in_process, judge, served
from benchmarks.pages import write_between

from draftworth.costs.allreduce import link
from draftworth.costs.library import Kind, library, lookup
from draftworth.costs.paper.config import read_shape
from draftworth.costs.paper.curve import Machine, curve
from draftworth.costs.paper.gpus import gpu
from draftworth.costs.staircase import VLLM_SIZES

HERE = Path(__file__).parent
DATA = HERE / "data" / "h200_steps"
DOCS = HERE.parent / "docs"
CONFIGS = HERE.parent / "tests" / "costs" / "configs"
FORMS = {
    "additive": "T + M",
    "both": "max(H, T) + c",
    "ratio": "r T",
    "floor": "max(H, T)",
    "constant": "H",
}
KIMI = {1: 11.5, 2: 13.8, 4: 17.1, 8: 22.8, 16: 33.1, 32: 37.3, 64: 46.9, 128: 60.7}
"""Milliseconds of a step by streams: streams over aggregate tokens a second of Kimi-K2.6 on eight RTX PRO 6000, public
(rtx6kpro, models/kimi-k26-v2.md)."""


def rows(name: str) -> list[dict[str, object]]:
    """Return rows of a kept file."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines() if line.strip()]


def forms() -> list[str]:
    """Return the table of the engine mode's forms."""
    every = in_process(rows("moe_step_times.jsonl"))
    groups = {
        "in process": [cell for cell in every if not cell[0].startswith("k = 1,")],
        "with k = 1": every,
        "server, null draft": served(rows("server_tpot.jsonl")),
    }
    judged = {name: judge(cells) for name, cells in groups.items()}
    head = [f"{name}, {len(cells)} cells" for name, cells in groups.items()]
    lines = [f"| form | {' | '.join(head)} |", "|---|" + "---|" * len(groups)]
    for form, shown in FORMS.items():
        cells = [", ".join(f"{one[form][key]:.1f}" for key in ("mean", "median", "largest")) for one in judged.values()]
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return lines


def measured_streams() -> dict[str, dict[int, float]]:
    """Return the baseline's milliseconds a step by streams: the MoE in process, and both models served."""
    moe: dict[int, list[float]] = {}
    for row in rows("moe_step_times.jsonl"):
        if row["mode"] == "base" and row["rep"] == 1:
            moe.setdefault(int(str(row["B"])), []).append(float(str(row["ms_per_tok"])))
    found: dict[str, dict[int, list[float]]] = {"moe in process": moe}
    for row in rows("server_tpot.jsonl"):
        if row["arm"] == "base":
            by_load = found.setdefault(f"{row['model']} served", {})
            by_load.setdefault(int(str(row["concurrency"])), []).append(float(str(row["tpot_ms"])))
    return {name: {batch: statistics.median(values) for batch, values in some.items()} for name, some in found.items()}


def paper() -> list[str]:
    """Return the table of steps on paper beside measured ones, and how far off they are."""
    measured = measured_streams()
    dense = next(some for name, some in measured.items() if name.endswith("served") and not name.startswith("moe"))
    cases = [
        ("30B-A3B shape, H200", "qwen3-30b-a3b", ("H200", 1, "nvlink", 350), measured["moe in process"]),
        ("Llama-3.1-8B shape, H200 (served)", "llama-3.1-8b", ("H200", 1, "nvlink", 350), dense),
        (
            "Kimi-K2.6, 8 RTX PRO 6000, `--link pcie-tuned`",
            "kimi-k2.5-int4",
            ("RTX PRO 6000", 8, "pcie-tuned", 0),
            KIMI,
        ),
        ("the same, `--link pcie`", "kimi-k2.5-int4", ("RTX PRO 6000", 8, "pcie", 0), KIMI),
    ]
    batches = sorted({batch for *_, some in cases for batch in some})
    lines = [
        f"| streams, ms on paper / measured | {' | '.join(map(str, batches))} | ratios to one stream off by |",
        "|---|" + "---|" * (len(batches) + 1),
    ]
    for title, config, (card, tp, via, context), some in cases:
        machine = Machine(gpu(card), tp, tp, link(via))
        told = {
            row.tokens: row
            for row in curve(
                read_shape(CONFIGS / f"{config}.json"), machine, list(some), context=context, sizes=VLLM_SIZES
            )
        }
        cells = [f"{told[batch].batch.ms:.3g} / {some[batch]:.3g}" if batch in some else "" for batch in batches]
        off = [100 * (told[batch].batch_ratio / (some[batch] / some[1]) - 1) for batch in some]
        lines.append(f"| {title} | {' | '.join(cells)} | {min(off):+.0f} to {max(off):+.0f} % |")
    return lines


Pair = tuple[float, float]
"""Milliseconds of a step without speculation, and of the same with it."""
Rule = Callable[[Sequence[Pair], float], float]


def _floor(known: Sequence[Pair], base: float) -> float:
    """Return max(H, T) + h, H and h of the least squared log error over the known entries."""
    grid = np.arange(0.0, 30.01, 0.25)

    def loss(at: tuple[float, float]) -> float:
        return sum(math.log((max(at[0], plain) + at[1]) / step) ** 2 for plain, step in known)

    floor, more = min(((float(first), float(second)) for first in grid for second in grid), key=loss)
    return max(floor, base) + more


def _middle(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


KINDS: tuple[tuple[Kind, int], ...] = (("idle", 1), ("drafting", 6))
RULES: dict[str, Rule] = {
    "T + M": lambda known, base: base + _middle(step - plain for plain, step in known),
    "r T": lambda known, base: base * _middle(step / plain for plain, step in known),
    "max(H, T) + h": _floor,
}


def left_out() -> list[str]:
    """Return what the library tells, and the error of each rule on idle entries that it was not given."""
    idle = [
        (one.base_ms, one.step_ms)
        for one in library().entries
        if one.kind == "idle" and one.base_ms is not None and one.step_ms is not None
    ]
    errors = {}
    for name, rule in RULES.items():
        squares = [
            math.log(rule([*idle[:at], *idle[at + 1 :]], base) / step) ** 2 for at, (base, step) in enumerate(idle)
        ]
        errors[name] = 100 * math.sqrt(statistics.fmean(squares))
    idle_mode, drafting_mode = (
        lookup(engine="vllm", version=None, runner="V1", method="ngram", base_ms=10.0, kind=kind, batch=1, tokens=n)
        for kind, n in KINDS
    )
    lines = [
        f"Leaving out one of the {len(idle)} idle entries at a time, the step's root mean square error (log) is "
        + ", ".join(f"{error:.0f} % for {name}" for name, error in errors.items())
        + "."
    ]
    for kind, mode in (("idle", idle_mode), ("drafting", drafting_mode)):
        assert mode is not None, "the library has n-gram modes of vLLM"
        lines.append(f"For n-gram on V1, {kind}: {mode.ms:.2g} ms, {mode.low:.2g} to {mode.high:.2g}.")
    return lines


def main() -> int:
    """Write all three."""
    model, costs = DOCS / "costs-model.md", DOCS / "costs.md"
    for page, name, lines in (
        (model, "forms", forms()),
        (model, "paper", paper()),
        (costs, "library", left_out()),
    ):
        write_between(page, (f"<!-- {name}: by benchmarks/costs_pages.py -->", f"<!-- end of {name} -->"), lines)
        print("\n".join(lines), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
