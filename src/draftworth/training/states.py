"""The stage `states`: the target's hidden states on every sample's tokens, each one checked.

The files are kept as they come; a run that was interrupted goes on with those that are whole. They are of one target,
tokenizer, chat template, data and choice of layers, which `made_from.json` names from the first file on: files of
anything else are removed, never taken over.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError, UsageError
from draftworth.training.asked import base_url
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.capabilities import check_extracts, probe
from draftworth.training.columns import read_samples
from draftworth.training.environment import installed
from draftworth.training.environment import required as required_environment
from draftworth.training.extraction import as_text, flags, served
from draftworth.training.recipe import Recipe
from draftworth.training.shape import TargetShape, target_shape
from draftworth.training.stages import (
    prepare,
    required,
    section_digest,
    target_inputs,
    write_atomically,
    write_manifest,
)
from draftworth.training.states_files import bytes_of, check_disk, path_of, why_not
from draftworth.training.states_vllm import Wanted, extract
from draftworth.training.worker import run_worker

SPLITS = ("train", "held_out")
MADE_FROM = "made_from.json"
_LOOSE = ("url", "serve", "disk_gib", "concurrency")
"""Fields that change nothing of the states."""
_COMPARED = 2
_COMPARED_TOKENS = 1024
_NEAR = {"fp32": 0.02, "bf16": 0.05, "fp8": 0.1}
"""Relative differences between vLLM's and transformers' states that are rounding (both may run in bfloat16)."""


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the states depend on; see `StageModule.inputs`."""
    return {
        "recipe.states": section_digest(recipe.states, without=_LOOSE),
        "manifest.data": required(folder, StageName.DATA).key,
        **target_inputs(recipe.target),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Take the states of every sample; see `StageModule.run`.

    Raises:
        UsageError: neither a server nor a way to start one is named.
        RefusedError: the target or its layers cannot be used, the disk is too small, the server does not extract.
        MeasureError: the server is gone, or its states are not sound.
        TrialError: the worker failed.
    """
    began = time.monotonic()
    states = recipe.states
    if states.way == "vllm" and states.url is None and not states.serve:
        raise UsageError('states: name a server as url, or serve = true, or way = "transformers"')
    own, made_from = StageName.STATES.folder(folder), inputs(recipe, folder)
    shape = target_shape(recipe.target, states.layers)
    samples = list(_samples(folder, own))
    need = bytes_of((len(one.ids) for one in samples), shape, states.dtype)
    kept = _kept(own, made_from)
    missing = [
        one for one in samples if not kept or why_not(path_of(one.folder, one.row), one.ids, shape, states.dtype)
    ]
    check_disk(own, bytes_of((len(one.ids) for one in missing), shape, states.dtype), need, states.disk_gib)
    if states.way == "transformers":
        required_environment()
    prepare(own)
    _begin(own, made_from, keep=kept)
    if len(missing) < len(samples):
        tell.line(f"{len(samples) - len(missing):,} of {len(samples):,} samples have their states from before")
    if states.way == "vllm":
        facts = _from_vllm(recipe, shape, missing=missing, samples=samples, own=own, tell=tell)
    else:
        facts = _from_transformers(recipe, shape, missing=missing, own=own, folder=folder, tell=tell)
    for one in samples:
        path = path_of(one.folder, one.row)
        if why := why_not(path, one.ids, shape, states.dtype):
            raise RefusedError(f"{path}: {why}; run it again")
    tokens = sum(len(one.ids) for one in samples)
    return write_manifest(
        own,
        StageName.STATES,
        inputs=made_from,
        counts={"samples": len(samples), "tokens": tokens, "bytes": need, "made_now": len(missing)},
        facts={
            "layers": list(shape.aux),
            "slots": shape.slots,
            "hidden": shape.hidden,
            "last_slot": "in front of the last norm",
            "dtype": states.dtype,
            "way": states.way,
            "revision": recipe.revision,
            **facts,
        },
        began=began,
    )


def _samples(folder: Path, own: Path) -> Iterator[Wanted]:
    for split in SPLITS:
        rows = read_samples(StageName.DATA.folder(folder) / f"{split}.parquet")
        for row, (_, _, _, sample) in enumerate(rows):
            yield Wanted(row, own / split, sample.ids)


def _kept(own: Path, made_from: Mapping[str, str]) -> bool:
    """Tell whether what is in the folder was made from the same."""
    try:
        return bool(json.loads((own / MADE_FROM).read_text("utf-8")) == dict(made_from))
    except (OSError, ValueError):
        return False


def _begin(own: Path, made_from: Mapping[str, str], *, keep: bool) -> None:
    if not keep:
        (own / MADE_FROM).unlink(missing_ok=True)
        for split in SPLITS:
            shutil.rmtree(own / split, ignore_errors=True)
        write_atomically(own / MADE_FROM, json.dumps(dict(made_from), indent=1).encode())
    for split in SPLITS:
        (own / split).mkdir(exist_ok=True)
        for part in (own / split).glob(".*.tmp"):
            part.unlink()


def _from_vllm(
    recipe: Recipe, shape: TargetShape, *, missing: list[Wanted], samples: list[Wanted], own: Path, tell: Tell
) -> dict[str, Any]:
    states, longest = recipe.states, max(len(one.ids) for one in samples)
    facts: dict[str, Any] = {"server": None}
    done = 0

    def told(one: Wanted) -> None:
        nonlocal done
        done += 1
        tell.count(done, len(missing), f"{len(one.ids):,} tokens")

    if missing:
        with _server(recipe, shape, longest, own, tell) as url:
            found = probe(url)
            storage = "/A/FOLDER/BOTH/SEE"
            asked = as_text(flags(shape, storage, on_cpu=False))
            check_extracts(found, longest, asked)
            facts["server"] = found.model_dump(mode="json", exclude={"states_path", "url"})
            # The shortest first: their states are held against transformers' before the long work.
            first = sorted(missing, key=lambda one: len(one.ids))[:_COMPARED]
            rest = [one for one in missing if not any(one is other for other in first)]
            for some in (first, rest):
                extract(url, found.model, some, shape, states.dtype, at_a_time=states.concurrency, told=told)
                if some is first:
                    facts["compared"] = _compared(recipe, shape, samples, own, tell)
        shutil.rmtree(own / "server", ignore_errors=True)
    else:
        facts["compared"] = _compared(recipe, shape, samples, own, tell)
    return facts


@contextmanager
def _server(recipe: Recipe, shape: TargetShape, longest: int, own: Path, tell: Tell) -> Iterator[str]:
    if recipe.states.url is not None:
        yield base_url(recipe.states.url)
        return
    dtype = "float32" if recipe.states.dtype == "fp32" else "bfloat16"
    with served(shape, longest, dtype, own, tell) as url:
        yield url


def _compared(recipe: Recipe, shape: TargetShape, samples: list[Wanted], own: Path, tell: Tell) -> dict[str, Any]:
    """Hold a few samples' states against transformers': the layer, the position, the norm.

    Returns:
        What was found, or why it was not checked: a large target may not fit beside its server.

    Raises:
        RefusedError: a slot is not the state that it should be.
    """
    environment = installed()
    if environment is None:
        tell.line("not checked against transformers: there is no training environment (`draftworth train install`)")
        return {"checked": False, "why": "no training environment"}
    train = [one for one in samples if one.folder.name == SPLITS[0] and path_of(one.folder, one.row).exists()]
    few = sorted(train, key=lambda one: len(one.ids))[:_COMPARED]
    few = [one for one in few if len(one.ids) <= _COMPARED_TOKENS] or few[:1]
    if not few:
        return {"checked": False, "why": "no sample has states yet"}
    if why := _too_large(recipe.target):
        tell.line(f"not checked against transformers: {why}")
        return {"checked": False, "why": why}
    tell.now("holding the first states against transformers'")
    request = {
        "task": "compare",
        "target": str(recipe.target),
        "device": "cpu",
        "layers": list(shape.aux),
        "parquet": str(StageName.DATA.folder(own.parent) / f"{SPLITS[0]}.parquet"),
        "folder": str(own / SPLITS[0]),
        "rows": [one.row for one in few],
    }
    found = run_worker(environment.python, "states_worker", request, folder=own, tell=tell)
    check_compared(found, recipe.states.dtype)
    most = max(slot["difference_expected"] for slot in found["slots"])
    tell.line(
        f"the states of {found['samples']} samples are transformers' own, layer by layer (relative difference "
        f"{most:.1e})"
    )
    return {"checked": True, **found}


def check_compared(found: Mapping[str, Any], dtype: str) -> None:
    """Raise RefusedError where a slot is nearer to another state than to its own, or far from it."""
    for number, slot in enumerate(found["slots"]):
        name = "in front of the last norm" if slot["expected"] == -1 else f"after {slot['expected']} layers"
        if (slot["found"], slot["shift"]) != (slot["expected"], 0):
            other = "in front of the last norm" if slot["found"] == -1 else f"after {slot['found']} layers"
            moved = f", moved by {slot['shift']} positions" if slot["shift"] else ""
            raise RefusedError(
                f"slot {number} should be the state {name}, and is the one {other}{moved}; does the server extract "
                "these layers, of this target? A head trained on it would draft badly"
            )
        if slot["difference_expected"] > _NEAR[dtype]:
            raise RefusedError(
                f"slot {number}, the state {name}, differs from transformers' by {slot['difference_expected']:.1%}, "
                f"more than {_NEAR[dtype]:.0%}: is the server's target this one, and not quantised?"
            )


def _too_large(target: Path) -> str:
    """Return why a target cannot be loaded beside everything else; empty where it can."""
    import psutil  # noqa: PLC0415 - lazy

    size = sum(path.stat().st_size for path in target.glob("*.safetensors"))
    free = psutil.virtual_memory().available
    need = 2.5 * size  # in float32 twice what bfloat16 takes, and some beside it
    return f"the target takes about {need / 2**30:.0f} GiB, {free / 2**30:.0f} are free" if need > free else ""


def _from_transformers(
    recipe: Recipe, shape: TargetShape, *, missing: list[Wanted], own: Path, folder: Path, tell: Tell
) -> dict[str, Any]:
    environment = required_environment()
    if not missing:
        return {"device": None}
    jobs = [
        {
            "parquet": str(StageName.DATA.folder(folder) / f"{split}.parquet"),
            "folder": str(own / split),
            "rows": [one.row for one in missing if one.folder.name == split],
        }
        for split in SPLITS
    ]
    request = {
        "task": "states",
        "target": str(recipe.target),
        "device": recipe.fit.device,
        "layers": list(shape.aux),
        "dtype": recipe.states.dtype,
        "jobs": jobs,
    }
    found = run_worker(environment.python, "states_worker", request, folder=own, tell=tell)
    return {"device": found["device"]}
