"""The stage `eval`: walk acceptance of the best checkpoint on all held-out samples, and the speed-up it will bring.

The weights are rounded to the type of the export first. What the trainer calls accuracy is no acceptance and is not in
here; what a walk is, is said in `workers/walking.py`, and what a speed-up is made of in `speedup.py`. Where nothing but
the costs changed the walk of before stands.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from draftworth.errors import UsageError
from draftworth.training.acceptance import WalkReport, lines, walk_report
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.environment import required as required_environment
from draftworth.training.fit import BEST
from draftworth.training.recipe import Recipe
from draftworth.training.speedup import HOW_TO, SpeedUps
from draftworth.training.speedup_all import predicted
from draftworth.training.speedup_lines import table
from draftworth.training.stages import (
    file_digest,
    key_of,
    output_key,
    prepare,
    read_manifest,
    required,
    section_digest,
    write_atomically,
    write_manifest,
)
from draftworth.training.target import config_fields
from draftworth.training.worker import run_worker

REPORT = "eval.json"
DTYPES = ("bfloat16", "float16", "float32")
_COSTS = ("costs", "concurrency")
"""Fields that change nothing of the walk."""


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the evaluation depends on; see `StageModule.inputs`.

    Raises:
        UsageError: an earlier stage has not run, or the costs are not there.
    """
    costs = recipe.eval.costs
    if costs is not None and not costs.is_file():
        raise UsageError(f"eval.costs: {costs}: no such file; `draftworth probe URL --out {costs}` makes one")
    return {
        **_walk_inputs(recipe, folder),
        "eval.costs": "none" if costs is None else file_digest(costs),
        "eval.concurrency": "none" if costs is None else ",".join(map(str, recipe.eval.concurrency)),
    }


def _walk_inputs(recipe: Recipe, folder: Path) -> dict[str, str]:
    return {
        "recipe.eval": section_digest(recipe.eval, without=_COSTS),
        "manifest.data": output_key(folder, StageName.DATA),
        "manifest.states": output_key(folder, StageName.STATES),
        "manifest.fit": output_key(folder, StageName.FIT),
        "export.dtype": export_dtype(recipe.target),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Walk, and predict the speed-up; see `StageModule.run`.

    Raises:
        UsageError: the costs cannot be used.
        RefusedError: there is no environment, or the head cannot be evaluated.
        TrialError: the worker failed.
    """
    began = time.monotonic()
    own, made_from = StageName.EVAL.folder(folder), inputs(recipe, folder)
    walked_from = key_of(_walk_inputs(recipe, folder))
    finished = read_manifest(own)
    asked_again = finished is not None and finished.key == key_of(made_from)
    walked = None if asked_again else _kept(own, walked_from)
    prepare(own)
    if walked is None:
        walked = _walked(recipe, folder, walked_from, tell)
    else:
        tell.line("nothing but the costs changed: the walk of before stands")
    report = _with_speed_up(walked, recipe, StageName.FIT.folder(folder) / BEST)
    write_atomically(own / REPORT, (report.model_dump_json(indent=1) + "\n").encode())
    for line in lines(report):
        tell.line(line)
    speed_up = report.speed_up
    for line in [f"predicted speed-up: {report.why_no_speed_up}"] if speed_up is None else table(speed_up):
        tell.line(line)
    return write_manifest(
        own,
        StageName.EVAL,
        inputs=made_from,
        counts={"samples": report.samples, "loss_tokens": report.loss_tokens, "first_choices": report.first_choices},
        facts={
            "acceptance_length": {str(one.k): one.length for one in report.total},
            "checkpoint": report.checkpoint,
            "speed_up": None if speed_up is None else speed_up.model_dump(mode="json", exclude={"categories"}),
            "why_no_speed_up": report.why_no_speed_up,
        },
        began=began,
    )


def report_of(folder: Path) -> WalkReport:
    """Return what the stage found.

    Args:
        folder: the run folder.

    Raises:
        UsageError: it has not run, or its file is damaged.
    """
    required(folder, StageName.EVAL)
    path = StageName.EVAL.folder(folder) / REPORT
    try:
        return WalkReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise UsageError(f"{path}: cannot be read; run `draftworth train eval --again`") from None


def _kept(own: Path, walked_from: str) -> WalkReport | None:
    """Return a whole walk of the same inputs; it is written atomically, so that one that is there can be trusted."""
    try:
        found = WalkReport.model_validate_json((own / REPORT).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.walked_from == walked_from and found.conversations is not None else None


def _walked(recipe: Recipe, folder: Path, walked_from: str, tell: Tell) -> WalkReport:
    environment = required_environment()
    own, checkpoint = StageName.EVAL.folder(folder), StageName.FIT.folder(folder) / BEST
    anew = recipe.data.regenerate
    request = {
        "checkpoint": str(checkpoint),
        "target": str(recipe.target),
        "parquet": str(StageName.DATA.folder(folder) / "held_out.parquet"),
        "states": str(StageName.STATES.folder(folder) / "held_out"),
        "k": list(recipe.eval.k),
        "limit": recipe.eval.limit,
        "device": recipe.fit.device,
        "dtype": export_dtype(recipe.target),
        "numbered": anew is not None and anew.samples > 1,
    }
    tell.now("walking the held-out samples")
    found = run_worker(environment.python, "walk_worker", request, folder=own, tell=tell)
    return walk_report(found, checkpoint.resolve().relative_to(folder.resolve()).as_posix(), walked_from)


def _with_speed_up(report: WalkReport, recipe: Recipe, checkpoint: Path) -> WalkReport:
    """Return a report with the predicted speed-up, or why there is none."""
    found: SpeedUps | str = f"not known without costs: {HOW_TO}"
    if recipe.eval.costs is not None:
        found = predicted(report, recipe, checkpoint, export_dtype(recipe.target))
    known = not isinstance(found, str)
    return report.model_copy(update={"speed_up": found if known else None, "why_no_speed_up": "" if known else found})


def export_dtype(target: Path) -> str:
    """Return the type a head is exported in: the target's, bfloat16 where that says nothing that is known."""
    told = config_fields(target).config
    found = str(told.get("dtype") or told.get("torch_dtype") or "bfloat16").removeprefix("torch.")
    return found if found in DTYPES else "bfloat16"
