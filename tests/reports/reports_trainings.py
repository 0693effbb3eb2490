"""Run folders as a training leaves them: manifests, and a progress file of made-up curves."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.reports.training.base import PROGRESS, Standing, Status, Subject, gather, read_needs
from draftworth.reports.training.figures import Tail
from draftworth.training.base import StageName
from draftworth.training.recipe import DataConfig, FitConfig, PlanConfig, Recipe, SourceConfig
from draftworth.training.stages import required, write_manifest

BEGAN = 1_800_000_000.0
"""When training begins, in seconds since 1970."""
STEP_S, END_S = 2.0, 30.0
"""Seconds a step takes, and an epoch's end."""
COUNTS: dict[StageName, tuple[dict[str, int], dict[str, Any]]] = {
    StageName.DATA: ({"train_samples": 9000, "train_loss_tokens": 4_500_000, "held_out_samples": 1000}, {}),
    StageName.STATES: ({"samples": 10_000, "bytes": 3 * 2**30}, {"layers": [2, 15, 27], "dtype": "bf16"}),
    StageName.VOCAB: ({"size": 32_000, "vocabulary": 49_152}, {"coverage_train": 0.9934}),
    StageName.FIT: (
        {"epochs": 5, "steps": 250},
        {"device": "cuda", "stopped_early": False, "best_epoch": 1, "acceptance_length": 1.9},
    ),
    StageName.EVAL: ({"samples": 1000}, {"acceptance_length": {"1": 1.61, "3": 2.13, "5": None}}),
    StageName.EXPORT: ({"bytes": 100 * 2**20, "checks_passed": 14}, {}),
}
_NEEDS = {
    StageName.STATES: ("data",),
    StageName.VOCAB: ("data",),
    StageName.FIT: ("data", "states", "vocab"),
    StageName.EVAL: ("data", "states", "fit"),
    StageName.EXPORT: ("fit", "eval"),
}


def recipe(folder: Path, *, plan: Mapping[str, Any] | None = None, **fit: Any) -> Recipe:
    """Return a recipe whose run folder is `folder`."""
    source = SourceConfig(path=folder / "traffic.parquet")
    return Recipe(
        target=folder.parent / "SmolLM2-135M-Instruct",
        out=folder,
        data=DataConfig(sources=(source,)),
        fit=FitConfig(**fit),
        plan=PlanConfig(**(plan or {})),
    )


def finish(folder: Path, *names: StageName, facts: Mapping[str, Any] | None = None) -> None:
    """Write the manifests of stages, each made from those before."""
    for name in names:
        own = name.folder(folder)
        own.mkdir(parents=True, exist_ok=True)
        inputs = {f"manifest.{one}": required(folder, StageName(one)).key for one in _NEEDS.get(name, ())}
        counts, told = COUNTS[name]
        made = write_manifest(own, name, inputs=inputs, counts=counts, facts={**told, **(facts or {})}, began=0.0)
        text = made.model_copy(update={"seconds": 754.0}).model_dump_json()
        (own / "manifest.json").write_text(text, encoding="utf-8")


def lines(steps: int, each: int, lengths: Sequence[float | None], *, seed: int = 0) -> list[dict[str, Any]]:
    """Return the lines of a training: steps in epochs of `each`, and the walk's length after each whole epoch."""
    found: list[dict[str, Any]] = []
    chance, now = random.Random(seed), BEGAN
    for step in range(steps):
        now += STEP_S
        epoch, gone = divmod(step, each)
        fallen = math.exp(-step / (2 * each))
        found.append(
            {
                "kind": "step",
                "step": step,
                "epoch": epoch,
                "loss": 2.0 + 4.0 * fallen + chance.gauss(0, 0.15),
                "accuracy": [round(0.55 * (1 - fallen) * 0.8**at, 4) for at in range(3)],
                "lr": 1e-3,
                "tokens_per_s": 41_000 + chance.gauss(0, 1500),
                "fetch_share": 0.04 + 0.02 * chance.random(),
                "time": now,
            }
        )
        if gone + 1 == each and epoch < len(lengths):
            now += END_S
            length = lengths[epoch]
            found.append(
                {
                    "kind": "epoch",
                    "step": step + 1,
                    "epoch": epoch,
                    "loss": 2.4 + 3.6 * fallen,
                    "accuracy": [round(0.5 * (1 - fallen) * 0.8**at, 4) for at in range(3)],
                    "walk": {"k": 3, "steps": 900, "full_steps": 880, "accepted": 1, "length": length},
                    "walk_s": 21.5,
                    "time": now,
                }
            )
    return found


def write_lines(folder: Path, some: Sequence[Mapping[str, Any]], tail: str = "") -> Path:
    """Write the progress file of a run folder."""
    path = StageName.FIT.folder(folder) / PROGRESS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in some) + tail, encoding="utf-8")
    return path


def subject_of(
    made: Recipe, status: Status = "running", stage: StageName | None = StageName.FIT, **standing: Any
) -> Subject:
    """Return what the page of a run folder is made of."""
    tail = Tail(StageName.FIT.folder(made.folder) / PROGRESS)
    tail.read()
    written = tail.steps[-1].time if tail.steps else BEGAN
    found = Standing(status=status, stage=stage, began=BEGAN, written=written, stage_began=BEGAN, **standing)
    return gather(made, tail, found, read_needs(made))
