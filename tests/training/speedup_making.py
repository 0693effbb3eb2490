"""Run folders whose stages are done, and workers that walk a lookup instead of a head."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.heads import heads_making
from tests.predict.simulated_trial import lookup, texts
from tests.training.training_making import chat, make_target, write_recipe, write_rows

from draftworth.training import evaluate, speedup_answers, speedup_trial
from draftworth.training.base import StageName
from draftworth.training.columns import SampleWriter, read_samples
from draftworth.training.recipe import Recipe
from draftworth.training.recipe_file import load_recipe
from draftworth.training.samples import Sample
from draftworth.training.stages import write_manifest
from draftworth.training.workers.walking import Part, anchors, matches, walk

Drafts = Callable[[list[int], int], list[int]]


def drafts(context: list[int], k: int) -> list[int]:
    """Draft what stood behind the last occurrence of the last token or two."""
    return lookup(context, k, 1, 2)


def walked(parquet: Path, ks: list[int]) -> dict[str, Any]:
    """Return what the walk worker would, with a lookup as the head."""
    total, parts, each = Part(tuple(ks)), dict[str, Part](), dict[tuple[str, str], Part]()
    for conversation, source, category, sample in read_samples(parquet):
        ids, mask = np.asarray(sample.ids, np.int64), np.asarray(sample.mask, bool)
        where, most = anchors(mask), max(ks)
        table = np.full((len(where), most), -1, np.int64)
        for row, at in enumerate(where.tolist()):
            found = drafts(ids[: at + 2].tolist(), most)
            table[row, : len(found)] = found
        agreeing = matches(table, ids, where)
        counts = {k: walk(agreeing, where, mask, k) for k in ks}
        name = category or source
        for part in (
            total,
            parts.setdefault(name, Part(tuple(ks))),
            each.setdefault((name, conversation), Part(tuple(ks))),
        ):
            part.add(mask, counts)
    return {
        "samples": 1,
        "device": "cpu",
        "loss_tokens": 100,
        "first_choices": 99,
        "total": total.counts(),
        "categories": {name: part.counts() for name, part in parts.items()},
        "each": [{"category": name, "walks": part.counts()} for (name, _), part in each.items()],
        "context": total.half_way,
        "contexts": {name: part.half_way for name, part in parts.items()},
    }


class Workers:
    """Stands for `run_worker`; keeps which modules were run."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, _python: Path, module: str, request: Mapping[str, Any], **_: object) -> dict[str, Any]:
        self.asked.append(module)
        return walked(Path(request["parquet"]), sorted(request["k"])) if module == "walk_worker" else {}


def run_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = "") -> tuple[Recipe, Workers]:
    """Make a run folder in which everything but the evaluation and the export is done.

    One of the simulated trial's texts was trained on.
    """
    make_target(folder / "target", config={"torch_dtype": "bfloat16"})
    write_rows(folder / "chat.jsonl", [chat("a", "b")])
    recipe = load_recipe(write_recipe(folder, text))
    random = np.random.default_rng(0)
    for stage in (StageName.DATA, StageName.STATES, StageName.FIT):
        stage.folder(recipe.folder).mkdir(parents=True)
        write_manifest(stage.folder(recipe.folder), stage, inputs={}, counts={}, facts={}, began=0.0)
    with SampleWriter(StageName.DATA.folder(recipe.folder) / "held_out.parquet") as writer:
        for at in range(12):
            ids = random.integers(0, 3, 60).astype(np.int32)
            mask = (np.arange(60) >= 20).astype(np.uint8)
            writer.add(f"c{at}", "chat", "coding" if at % 3 else "chat", Sample(ids, mask, exact=True))
    with SampleWriter(StageName.DATA.folder(recipe.folder) / "train.parquet") as writer:
        prompt, answer = texts(12)[3]
        ids = np.array([*prompt, *answer], np.int32)
        mask = (np.arange(len(ids)) >= len(prompt)).astype(np.uint8)
        writer.add("t", "chat", "chat", Sample(ids, mask, exact=True))
    heads_making.eagle3().write(StageName.FIT.folder(recipe.folder) / "best")
    workers = Workers()
    for module in (evaluate, speedup_answers):
        monkeypatch.setattr(module, "run_worker", workers)
        monkeypatch.setattr(module, "required_environment", lambda: SimpleNamespace(python=Path("python")))
    monkeypatch.setattr(speedup_trial, "why_stale", lambda *_: "")
    return recipe, workers


def exported(recipe: Recipe) -> Path:
    """Make the export's folder with a manifest."""
    own = StageName.EXPORT.folder(recipe.folder)
    heads_making.eagle3().write(own)
    write_manifest(own, StageName.EXPORT, inputs={}, counts={}, facts={}, began=0.0)
    return own
