"""How far off predictions are: every arm that was measured for it, predicted from its baseline, into the docs.

Reads benchmarks/data/prediction/<run>/ (a run is one machine, engine and model): costs-baseline.json as `draftworth
probe` wrote it, and the trials' folders below. Engine modes come from each run's own null-draft and synthetic arms,
which are not judged then, or from the library alone, which is what is known before any reload.

    python -m benchmarks.prediction [--keep FOLDER RUN]

`--keep` copies what prediction_cpu.py or prediction_gpu.py measured, without texts, into benchmarks/data/prediction/.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.prediction_tables import Run, table

from draftworth.costs import library as library_module
from draftworth.costs.file import load_costs
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
KINDS = {"cpu": "2 CPU cores", "h200": "one H200"}
"""How the library's names of a run's kind of machine begin, by the first part of the run's name."""
FEWEST = 3
"""Entries from which the library tells a mode."""
VOCABULARY = 1 << 18
"""Ids are below this."""


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
        probed = load_costs(folder / "costs-baseline.json")
        costs = probed
        if fits:  # these alone tell modes; the others are judged, synthetic ones too
            costs = costs_of(fits, [read(one) for one in fits], probed, [])[0]
        judged = [one for one in trials if one not in fits]
        bare = check_trials(judged, probed, before_reload=True)
        with library_without(KINDS[folder.name.partition("-")[0]]) as left:
            elsewhere = check_trials(judged, probed, before_reload=True) if left >= FEWEST else None
        every = costs_of(trials, [read(one) for one in trials], probed, [])[0]
        idle = tuple(one for one in every.modes if one.kind == "idle")
        found.append(Run(folder.name, check_trials(judged, costs), bare, elsewhere, idle))
    return found


@contextmanager
def library_without(hardware: str) -> Iterator[int]:
    """Take what was measured on a kind of machine out of the library; gives how many entries tell both steps then."""
    whole = library_module.library()
    left = tuple(one for one in whole.entries if not one.hardware.startswith(hardware))
    with mock.patch.object(library_module, "library", return_value=whole.model_copy(update={"entries": left})):
        yield sum(one.added_ms is not None for one in left)


def _kept(run: Run) -> dict[str, object]:
    """Return a run's figures: those with its own modes, and with the library's below `before_reload`."""
    bare = {"library": run.library, "library_elsewhere": run.elsewhere}
    return {
        **run.checked.model_dump(mode="json"),
        "before_reload": {name: one.model_dump(mode="json") for name, one in bare.items() if one is not None},
    }


def main() -> int:
    """Keep a run, or write the page and the figures behind it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs=2, metavar=("FOLDER", "RUN"))
    args = parser.parse_args()
    if args.keep:
        keep(Path(args.keep[0]), args.keep[1])
        return 0
    found = runs()
    told = table(found)
    print("\n".join(told))
    for run in found:
        for text in run.checked.left_out:
            print(f"{run.name}: left out: {text}")
        for text in run.checked.findings:
            print(f"{run.name}: finding: {text}")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN, 1)
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(told)}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    (ROOT / "benchmarks" / "results" / "prediction.json").write_text(
        json.dumps({run.name: _kept(run) for run in found}, indent=1) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
