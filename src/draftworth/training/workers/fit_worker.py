"""Trains a head with speculators 0.9, through its own command-line configuration (`TrainConfig.resolve`, `main`).

What is added, all by subclassing its trainer (`fit_trainer.py`): walk acceptance on held-out conversations after every
epoch, an end where that no longer rises, a progress file, checkpoints that a kill cannot leave half-written. On a CPU
its trainer needs three names changed, because it moves the model to an accelerator's index.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from draftworth.training.workers.channel import Channel, WorkerRefusedError
from draftworth.training.workers.samples import Sample, read_samples

ROWS = "rows"
STATES = "hidden_states"
CHECKPOINTS = "checkpoints"


def work(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Do what the request says: `lay_out` (one process), then `train` (as many as there are GPUs).

    Training goes on until the epochs are done or walk acceptance no longer rises, from what is in the folder.

    Args:
        request: what `fit.py` writes: paths, the head's shape, the trainer's settings.
        channel: takes progress.

    Raises:
        WorkerRefusedError: there is no GPU where one was asked for.
    """
    device = _device(str(request["device"]))
    folder = Path(request["folder"])
    if request["task"] == "lay_out":
        return {"rows": _lay_out(request, folder), "device": device}
    from draftworth.training.workers import fit_trainer  # noqa: PLC0415 - speculators is slow to import

    if device == "cpu":
        fit_trainer.run_on_cpu()
    settings = fit_trainer.Settings(
        folder=folder,
        device=device,
        held_out=tuple(read_samples(Path(request["held_out"]), limit=request["walk_samples"])),
        states=Path(request["held_out_states"]),
        walk_k=int(request["walk_k"]),
        patience=int(request["patience"]),
        epochs=int(request["epochs"]),
        save_every_s=float(request["save_every_s"]),
        channel=channel,
    )
    return fit_trainer.train(_arguments(request, folder, device), settings)


def _arguments(request: Mapping[str, Any], folder: Path, device: str) -> list[str]:
    """Return what `speculators train` would be called with."""
    on_cpu = device == "cpu"
    workers = 0 if on_cpu else min(8, max(1, (os.cpu_count() or 2) // int(request["processes"]) - 1))
    trained, every = int(request["train_rows"]), int(request["train_rows"]) + int(request["held_out_rows"])
    pairs: dict[str, Any] = {
        "--speculator-type": "eagle3",
        "--verifier-name-or-path": request["target"],
        "--data-path": folder / ROWS,
        "--hidden-states-backend": "fp8" if request["dtype"] == "fp8" else "file",
        "--hidden-states-path": folder / STATES,
        "--save-path": folder / CHECKPOINTS,
        "--log-dir": folder / "logs",
        "--d2t-path": request["d2t"],
        "--t2d-path": request["t2d"],
        "--draft-vocab-size": request["draft_vocab"],
        "--mask-token-id": 0,  # of parallel drafting; else a token would be added to the target's tokenizer
        "--on-missing": "raise",
        # The split is by the row: the half row makes its rounding exact.
        "--train-data-ratio": repr((trained + 0.5) / every),
        "--epochs": request["epochs"],
        "--total-seq-len": request["batch_tokens"],
        "--num-workers": workers,
        "--lr": request["lr"],
        "--optimizer": request["optimizer"],
        "--scheduler-warmup-ratio": request["warmup"],
        "--ttt-steps": request["ttt_steps"],
        "--sliding-window": request["window"],
        "--seed": request["seed"],
        "--hidden-states-dtype": "float32" if on_cpu else "bfloat16",
        "--draft-attn-impl": "sdpa" if on_cpu else "simple_flex_attention",  # flex has no backward on a CPU
        "--loss-implementation": "eager" if on_cpu else "fused",  # the fused one is Triton
        "--log-freq": 1 if on_cpu else 10,  # each logged step waits for the GPU several times
    }
    words = [str(word) for pair in pairs.items() for word in pair]
    return [*words, "--no-norm-before-residual", "--target-layer-ids", *map(str, request["layers"])]


def _lay_out(request: Mapping[str, Any], folder: Path) -> int:
    """Write the rows as speculators reads them, train first, and links to their states under the rows' numbers."""
    from datasets import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
        Dataset,
        Features,
        Sequence,
        Value,
    )

    for old in (folder / ROWS, folder / STATES):
        shutil.rmtree(old, ignore_errors=True)
    links = folder / STATES
    links.mkdir()
    rows: list[Sample] = []
    for split in ("train", "held_out"):
        states = Path(request[f"{split}_states"])
        for sample in read_samples(Path(request[split])):
            link = links / f"hs_{len(rows)}.safetensors"
            link.symlink_to(os.path.relpath(states / f"hs_{sample.row}.safetensors", links))
            rows.append(sample)
    for one in rows:
        # Taught there would be what follows the text: a server never drafts that, and an answer's states that were
        # kept as it was written end in front of it (`capture.py`). The token itself is learned one position before.
        one.mask[-1] = False
    lists = Sequence(Value("int64"))
    made = Dataset.from_dict(
        {
            "input_ids": [one.ids for one in rows],
            "loss_mask": [one.mask.astype("int64") for one in rows],
            "seq_len": [len(one.ids) for one in rows],
        },
        features=Features({"input_ids": lists, "loss_mask": lists, "seq_len": Value("int64")}),
    )
    made.set_format(type="torch")
    made.save_to_disk(folder / ROWS)
    return len(rows)


def _device(asked: str) -> str:
    has = torch.cuda.is_available()
    if asked == "cuda" and not has:
        raise WorkerRefusedError('[fit] device = "cuda": torch finds no GPU here; see `draftworth train install`')
    return "cuda" if has and asked != "cpu" else "cpu"
