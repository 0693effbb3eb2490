"""Simulated trials as a record could have been otherwise, and the costs of their engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.predict.simulated_trial import DRAFTING, IDLE, T, ngram

from draftworth.costs.base import Costs, EngineMode, StepCost
from draftworth.predict.base import Checked

SUFFIX: dict[str, Any] = {"method": "suffix", "num_speculative_tokens": 7}
SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}
NULL = ngram(5, 60, 60)
Record = dict[str, Any]


def mode(kind: str, method: str, tokens: int) -> EngineMode:
    """Return an engine mode as the simulated engine has it."""
    added, base = (IDLE, T[1]) if kind == "idle" else (DRAFTING, T[8])
    return EngineMode.model_validate(
        {
            "kind": kind,
            "method": method,
            "runner": "V1",
            "batch": 1,
            "tokens": tokens,
            **dict.fromkeys(("ms", "low", "high"), added),
            "step_ms": base + added,
            "base_ms": base,
            "source": "elsewhere",
        }
    )


def costs(*methods: str, **more: Any) -> Costs:
    """T and, of these methods, both modes as the simulated engine has them."""
    points = [
        StepCost(
            batch=1, tokens=n, context=128, ms=ms, low=ms, high=ms, repeats=6, how="concurrency" if n == 1 else "prefix"
        )
        for n, ms in T.items()
    ]
    modes = [mode(*one) for method in methods for one in (("idle", method, 1), ("drafting", method, 8))]
    known: dict[str, Any] = {"created": "2026", "engine": "vllm", "graph_sizes": tuple(T), **more}
    return Costs(points=tuple(points), modes=tuple(modes), **known)


def edited(folder: Path, change: Callable[[Record], object]) -> Path:
    """Change a trial's record."""
    record = json.loads((folder / "trial.json").read_text())
    change(record)
    (folder / "trial.json").write_text(json.dumps(record))
    return folder


def rewritten(folder: Path, change: Callable[[Record], Record | None]) -> Path:
    """Change a trial's rows; None drops one."""
    file = folder / "requests.parquet"
    rows = [new for row in pq.read_table(file).to_pylist() if (new := change(row)) is not None]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return folder


def right(checked: Checked, cells: int) -> None:
    """Nothing was left out, and every cell is right within 2 %, and so are its steps and its step."""
    assert checked.left_out == ()
    assert len(checked.cells) == cells
    for cell in checked.cells:
        assert abs(cell.error) < 0.02, cell
        assert cell.steps_per_token.value * cell.step_ms.value == pytest.approx(
            T[1] / cell.predicted.value, rel=1e-6
        )  # of what a token takes
        assert cell.sign_right is not False
