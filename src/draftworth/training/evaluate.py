"""The stage `eval`: walk acceptance of the best checkpoint on all held-out samples.

The weights are rounded to the type of the export first. What the trainer calls accuracy is no acceptance and is not in
here; what a walk is, is said in `workers/walking.py`.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from draftworth.training.acceptance import lines, walk_report
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.environment import required as required_environment
from draftworth.training.fit import BEST
from draftworth.training.recipe import Recipe
from draftworth.training.stages import prepare, required, section_digest, write_atomically, write_manifest
from draftworth.training.target import config_fields
from draftworth.training.worker import run_worker

REPORT = "eval.json"
DTYPES = ("bfloat16", "float16", "float32")


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the evaluation depends on; see `StageModule.inputs`."""
    return {
        "recipe.eval": section_digest(recipe.eval),
        "manifest.data": required(folder, StageName.DATA).key,
        "manifest.states": required(folder, StageName.STATES).key,
        "manifest.fit": required(folder, StageName.FIT).key,
        "export.dtype": export_dtype(recipe.target),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Walk; see `StageModule.run`.

    Raises:
        RefusedError: there is no environment, or the head cannot be evaluated.
        TrialError: the worker failed.
    """
    began = time.monotonic()
    own, made_from = StageName.EVAL.folder(folder), inputs(recipe, folder)
    environment = required_environment()
    prepare(own)
    checkpoint = StageName.FIT.folder(folder) / BEST
    request = {
        "checkpoint": str(checkpoint),
        "target": str(recipe.target),
        "parquet": str(StageName.DATA.folder(folder) / "held_out.parquet"),
        "states": str(StageName.STATES.folder(folder) / "held_out"),
        "k": list(recipe.eval.k),
        "limit": recipe.eval.limit,
        "device": recipe.fit.device,
        "dtype": export_dtype(recipe.target),
    }
    tell.now("walking the held-out samples")
    found = run_worker(environment.python, "walk_worker", request, folder=own, tell=tell)
    report = walk_report(found, checkpoint.resolve().relative_to(folder.resolve()).as_posix())
    write_atomically(own / REPORT, (report.model_dump_json(indent=1) + "\n").encode())
    for line in lines(report):
        tell.line(line)
    return write_manifest(
        own,
        StageName.EVAL,
        inputs=made_from,
        counts={"samples": report.samples, "loss_tokens": report.loss_tokens, "first_choices": report.first_choices},
        facts={
            "acceptance_length": {str(one.k): one.length for one in report.total},
            "checkpoint": report.checkpoint,
        },
        began=began,
    )


def export_dtype(target: Path) -> str:
    """Return the type a head is exported in: the target's, bfloat16 where that says nothing that is known."""
    told = config_fields(target).config
    found = str(told.get("dtype") or told.get("torch_dtype") or "bfloat16").removeprefix("torch.")
    return found if found in DTYPES else "bfloat16"
