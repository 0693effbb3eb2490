"""The stage `fit`: speculators trains the head in an environment of its own; see `workers/fit_trainer.py`.

The head: one Llama layer, a norm in front of `fc` and the normed state passed on (EAGLE-3.1, speculators' defaults), a
sliding window of 2,048 in its attention; but the residual in front of the norm, as EAGLE-3's authors have it, because
SGLang 0.5 (`llama_eagle3.py`) knows no other. Training on several GPUs (torchrun) was written and not run here.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.environment import environment_inputs
from draftworth.training.environment import required as required_environment
from draftworth.training.recipe import Recipe
from draftworth.training.shape import target_shape
from draftworth.training.stages import (
    output_key,
    prepare,
    required,
    section_digest,
    target_inputs,
    write_atomically,
    write_manifest,
)
from draftworth.training.vocab import D2T, T2D
from draftworth.training.worker import run_worker

WINDOW = 2048
BEST = "best"
PROGRESS = "progress.jsonl"
MADE_FROM = "made_from.json"
_WALKED = 200
"""Held-out samples that are walked after each epoch; the stage `eval` walks all of them."""
_SAVE_EVERY_S = 300.0
_LOOSE = ("device", "processes")


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the head depends on; see `StageModule.inputs`."""
    return {
        "recipe.fit": section_digest(recipe.fit, without=_LOOSE),
        "manifest.data": output_key(folder, StageName.DATA),
        "manifest.states": output_key(folder, StageName.STATES),
        "manifest.vocab": output_key(folder, StageName.VOCAB),
        "head": f"llama, window {WINDOW}",
        **target_inputs(recipe.target),
        **environment_inputs(),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Train; see `StageModule.run`.

    Raises:
        UsageError: an earlier stage is not there.
        RefusedError: there is no environment, a sample is longer than a batch, no GPU where one was asked for.
        TrialError: the training failed.
    """
    began = time.monotonic()
    fit, own, made_from = recipe.fit, StageName.FIT.folder(folder), inputs(recipe, folder)
    environment = required_environment()
    data, states = required(folder, StageName.DATA), required(folder, StageName.STATES)
    shape = target_shape(recipe.target, recipe.states.layers)
    longest = max(data.counts["train_longest"], data.counts["held_out_longest"])
    if longest > fit.batch_tokens:
        raise RefusedError(
            f"fit.batch_tokens: {fit.batch_tokens:,}, and a sample has {longest:,} tokens: its end would never be "
            "learned; raise it, or lower data.max_tokens"
        )
    if list(shape.aux) != states.facts["layers"]:
        raise RefusedError(f"the states are of the layers {states.facts['layers']}, not {list(shape.aux)}")
    prepare(own)
    _begin(own, made_from)
    request = _request(recipe, folder, data, list(shape.aux))
    tell.now("laying out the rows")
    env = {"CUDA_VISIBLE_DEVICES": ""} if fit.device == "cpu" else {}
    laid = run_worker(environment.python, "fit_worker", {**request, "task": "lay_out"}, folder=own, tell=tell, env=env)
    if fit.processes > 1 and laid["device"] == "cpu":
        raise RefusedError(f"fit.processes: {fit.processes}, and there is no GPU; several processes need one each")
    tell.now("training")
    found = run_worker(
        environment.python,
        "fit_worker",
        {**request, "task": "train"},
        folder=own,
        tell=tell,
        processes=fit.processes,
        env=env,
    )
    return write_manifest(
        own,
        StageName.FIT,
        inputs=made_from,
        counts={"epochs": found["epochs"], "steps": found["steps"], "trainable": found["trainable"]},
        facts={**found, "layers": list(shape.aux), "processes": fit.processes, "versions": dict(environment.versions)},
        began=began,
    )


def _begin(own: Path, made_from: Mapping[str, str]) -> None:
    """Keep what is in the folder where it was made from the same; else remove it: it is another head."""
    import json  # noqa: PLC0415 - only here
    import shutil  # noqa: PLC0415 - only here

    try:
        same = json.loads((own / MADE_FROM).read_text("utf-8")) == dict(made_from)
    except (OSError, ValueError):
        same = False
    if same:
        return
    for old in own.iterdir():
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    write_atomically(own / MADE_FROM, json.dumps(dict(made_from), indent=1).encode())


def _request(recipe: Recipe, folder: Path, data: StageManifest, layers: list[int]) -> dict[str, Any]:
    fit, vocab = recipe.fit, StageName.VOCAB.folder(folder)
    splits = {
        name: value
        for split in ("train", "held_out")
        for name, value in (
            (split, str(StageName.DATA.folder(folder) / f"{split}.parquet")),
            (f"{split}_states", str(StageName.STATES.folder(folder) / split)),
            (f"{split}_rows", data.counts[f"{split}_samples"]),
        )
    }
    return {
        **splits,
        "folder": str(StageName.FIT.folder(folder)),
        "target": str(recipe.target),
        "device": fit.device,
        "dtype": recipe.states.dtype,
        "layers": layers,
        "d2t": str(vocab / D2T),
        "t2d": str(vocab / T2D),
        "draft_vocab": required(folder, StageName.VOCAB).counts["size"],
        "window": WINDOW,
        "walk_samples": _WALKED,
        "walk_k": fit.ttt_steps,
        "save_every_s": _SAVE_EVERY_S,
        **{name: getattr(fit, name) for name in ("epochs", "batch_tokens", "lr", "optimizer", "warmup", "ttt_steps")},
        **{name: getattr(fit, name) for name in ("patience", "processes", "seed")},
    }
