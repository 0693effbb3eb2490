"""How far off predictions are: every arm that was measured for it, predicted from its baseline, into the docs.

Reads benchmarks/data/prediction/<run>/ (a run is one machine, engine and model): costs-baseline.json as `draftworth
probe` wrote it, and the trials' folders below. Engine modes come from each run's own null-draft and synthetic arms;
those are not judged.

    python -m benchmarks.prediction [--keep FOLDER RUN]

`--keep` copies what prediction_cpu.py or prediction_gpu.py measured, without texts, into benchmarks/data/prediction/.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from draftworth.costs.file import load_costs
from draftworth.predict.base import Checked, CheckedCell
from draftworth.predict.check import check_trials
from draftworth.predict.trialcosts import costs_of
from draftworth.trials.record import read

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "prediction"
PAGE = ROOT / "docs" / "prediction-error.md"
BEGIN, END = "<!-- error: by benchmarks/prediction.py -->", "<!-- end of error -->"
KEPT = (
    "arm",
    "block",
    "prompt_id",
    "category",
    "repeat",
    "start",
    "started_unix",
    "spec_stats",
    "point",
    "ok",
    "retries",
    "prompt_tokens",
    "tokens",
    "first_chunk_tokens",
    "token_source",
    "ttft_ms",
    "decode_ms",
    "tpot_ms",
    "prompt_token_ids",
    "token_ids",
)
VOCABULARY = 1 << 18
"""Ids are below this."""


@dataclass(frozen=True)
class Run:
    """One machine, engine and model."""

    name: str
    checked: Checked


def keep(source: Path, name: str) -> None:
    """Copy a wave's record without texts into benchmarks/data/prediction/<name>/.

    Token ids are permuted, the same in all trials of the run: a replay compares ids and nothing else, and the prompts
    are others' texts.
    """
    to = DATA / name
    to.mkdir(parents=True, exist_ok=True)
    other = np.random.default_rng().permutation(VOCABULARY).astype(np.int32)
    for file in source.glob("costs-*.json"):
        shutil.copy(file, to / file.name)
    for record in sorted(source.glob("*/trials/*/trial.json")):
        folder = to / record.parents[2].name
        folder.mkdir(exist_ok=True)
        told = json.loads(record.read_text(encoding="utf-8"))
        told["config"]["workload"]["source"] = Path(told["config"]["workload"]["source"]).name
        (folder / "trial.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        table = pq.read_table(record.with_name("requests.parquet"))
        for column in ("prompt_token_ids", "token_ids"):
            lists = table.column(column).combine_chunks()
            ids = pa.ListArray.from_arrays(lists.offsets, pa.array(other[lists.values.to_numpy()]))
            table = table.set_column(table.column_names.index(column), column, ids)
        pq.write_table(
            table.select([one for one in KEPT if one in table.column_names]),
            folder / "requests.parquet",
            compression="zstd",
        )


def runs() -> list[Run]:
    """Return what every run that is kept gives."""
    if not DATA.is_dir():
        raise SystemExit(f"{DATA} has no runs: keep one with --keep")
    found = []
    for folder in sorted(path for path in DATA.iterdir() if path.is_dir()):
        trials = sorted(path.parent for path in folder.glob("*/trial.json"))
        fits = [one for one in trials if one.name.startswith("fit-")]
        costs = load_costs(folder / "costs-baseline.json")
        if fits:  # these alone tell modes; the others are judged, synthetic ones too
            costs = costs_of(fits, [read(one) for one in fits], costs, [])[0]
        found.append(Run(folder.name, check_trials([one for one in trials if one not in fits], costs)))
    return found


def errors(cells: Sequence[CheckedCell]) -> str:
    """Return median and 95th percentile of the absolute error, and wrong signs."""
    absolute = np.array([abs(one.error) for one in cells])
    wrong = sum(one.sign_right is False for one in cells)
    return f"{len(cells)} | {np.median(absolute):.1%} | {np.quantile(absolute, 0.95):.1%} | {wrong}"


def table(found: Sequence[Run]) -> list[str]:
    """Return the page's tables."""
    every = [cell for run in found for cell in run.checked.cells]
    lines = ["| run | cells | median absolute error | 95th percentile | wrong signs |", "|---|---|---|---|---|"]
    lines += [f"| {run.name} | {errors(run.checked.cells)} |" for run in found if run.checked.cells]
    if every:
        lines.append(f"| **all** | {errors(every)} |")
    names = ["run", "arm", "at a time", "predicted", "measured (95 %)", "error"]
    names += ["steps per token, predicted / measured", "step ms, predicted / measured"]
    lines += ["", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [
        f"| {run.name} | {one.arm} | {one.concurrency} | {one.predicted.value:.3f} | {one.measured.value:.3f} "
        f"({one.measured.low:.3f} to {one.measured.high:.3f}) | {one.error:+.1%} | {one.steps_per_token.value:.3f} / "
        f"{_or(one.measured_steps_per_token)} | {one.step_ms.value:.2f} / {_or(one.measured_step_ms)} |"
        for run in found
        for one in run.checked.cells
    ]
    return lines


def _or(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main() -> int:
    """Keep a run, or write the page and the figures behind it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs=2, metavar=("FOLDER", "RUN"))
    args = parser.parse_args()
    if args.keep:
        keep(Path(args.keep[0]), args.keep[1])
        return 0
    found = runs()
    print("\n".join(table(found)))
    for run in found:
        for text in run.checked.left_out:
            print(f"{run.name}: left out: {text}")
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(table(found))}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    (ROOT / "benchmarks" / "results" / "prediction.json").write_text(
        json.dumps({run.name: run.checked.model_dump(mode="json") for run in found}, indent=1) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
