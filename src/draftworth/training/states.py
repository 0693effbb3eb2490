"""The stage `states`: the target's hidden states on every sample's tokens, each one checked.

States that were kept with answers written anew (`capture.py`) are taken over, the others computed. The files are kept
as they come; a run that was interrupted goes on with those that are whole. They are of one target, tokenizer, chat
template, data and choice of layers, which `made_from.json` names from the first file on: files of anything else are
removed, never taken over.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError, UsageError
from draftworth.training.asked import base_url
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.capabilities import STORAGE, check_extracts, probe
from draftworth.training.capture import CAPTURED
from draftworth.training.capture import made_from as captured_from
from draftworth.training.captured import Captured
from draftworth.training.columns import read_samples
from draftworth.training.environment import required as required_environment
from draftworth.training.extraction import as_text, flags, served
from draftworth.training.recipe import Recipe
from draftworth.training.shape import TargetShape, target_shape
from draftworth.training.stages import (
    output_key,
    prepare,
    section_digest,
    target_inputs,
    write_atomically,
    write_manifest,
)
from draftworth.training.states_compared import COMPARED, compared_with_transformers
from draftworth.training.states_files import MADE_FROM, SPLITS, bytes_of, check_disk, path_of, why_not
from draftworth.training.states_vllm import Wanted, discard, extract
from draftworth.training.worker import run_worker

_NO_SERVER = 'states: name a server as url, or serve = true, or way = "transformers"'
_LOOSE = ("url", "serve", "disk_gib", "concurrency")
"""Fields that change nothing of the states."""


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the states depend on; see `StageModule.inputs`."""
    return {
        "recipe.states": section_digest(recipe.states, without=_LOOSE),
        "manifest.data": output_key(folder, StageName.DATA),
        **target_inputs(recipe.target),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Take the states of every sample; see `StageModule.run`.

    Raises:
        UsageError: neither a server nor a way to start one is named.
        RefusedError: the target or its layers cannot be used, the disk is too small, the server does not extract, or
            states are not those of the target.
        MeasureError: the server is gone, or its states are not sound.
        TrialError: the worker failed.
    """
    began = time.monotonic()
    states = recipe.states
    if states.way == "vllm" and _url(recipe) is None and not states.serve and not recipe.captures:
        raise UsageError(_NO_SERVER)
    own, made_from = StageName.STATES.folder(folder), inputs(recipe, folder)
    shape = target_shape(recipe.target, states.layers)
    captured = _captured(recipe, shape, folder)
    samples = list(_samples(folder, own))
    need = bytes_of((len(one.ids) for one in samples), shape, states.dtype)
    kept = _kept(own, made_from)
    missing = [
        one for one in samples if not kept or why_not(path_of(one.folder, one.row), one.ids, shape, states.dtype)
    ]
    new = [len(one.ids) for one in missing if one.ids not in captured or captured.adds(one.ids)]
    check_disk(own, bytes_of(new, shape, states.dtype), need, states.disk_gib)
    if states.way == "transformers":
        required_environment()
    prepare(own)
    _begin(own, made_from, keep=kept)
    if len(missing) < len(samples):
        tell.line(f"{len(samples) - len(missing):,} of {len(samples):,} samples have their states from before")
    before = sum(one.ids in captured for one in samples) - sum(one.ids in captured for one in missing)
    took, compared = _taken_over(recipe, shape, captured, missing, own=own, tell=tell)
    missing = [one for one in missing if one.place not in took]
    if states.way == "vllm":
        # What was taken over has been compared; the others are to be, too.
        others = [one for one in samples if one.place not in took]
        facts = _from_vllm(recipe, shape, missing=missing, samples=others, own=own, tell=tell) if others else {}
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
        counts={
            "samples": len(samples),
            "tokens": tokens,
            "bytes": need,
            "taken_over": len(took) + before,
            "made_now": len(missing),
        },
        facts={
            "layers": list(shape.aux),
            "slots": shape.slots,
            "hidden": shape.hidden,
            "last_slot": "in front of the last norm",
            "dtype": states.dtype,
            "way": states.way,
            "revision": recipe.revision,
            **compared,
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


def _url(recipe: Recipe) -> str | None:
    """Return the server to ask: the one that is named, else the one that keeps states with its answers."""
    states, anew = recipe.states, recipe.data.regenerate
    if states.url is not None or states.serve:
        return states.url
    return anew.url if anew is not None and recipe.captures and anew.api_key_env is None else None


def _captured(recipe: Recipe, shape: TargetShape, folder: Path) -> Captured:
    return Captured(
        StageName.DATA.folder(folder) / CAPTURED,
        captured_from(recipe.target, shape, recipe.states.dtype),
        shape,
        recipe.states.dtype,
        longest=recipe.data.max_tokens,
    )


def _taken_over(
    recipe: Recipe, shape: TargetShape, captured: Captured, missing: Sequence[Wanted], *, own: Path, tell: Tell
) -> tuple[set[tuple[str, int]], dict[str, Any]]:
    """Take over what was kept with the answers; its states are held against transformers' before anything is computed.

    Returns:
        The places of the samples that have their states now, and what the comparison found.

    Raises:
        RefusedError: they are not the target's states; they are removed.
    """
    if captured.is_of_another:
        captured.remove()
        tell.line("states kept with the answers were of another target, other layers or another dtype: removed")
    took = [one for one in missing if one.ids in captured and captured.take_over(one)]
    if not took:
        return set(), {}
    tell.line(
        f"{len(took):,} of {len(missing):,} samples have the states that were kept with their answers, "
        f"{len(missing) - len(took):,} are computed"
    )
    try:
        compared = compared_with_transformers(recipe, shape, took, own, tell)
    except RefusedError as error:
        captured.remove()
        raise RefusedError(
            f"states kept with the answers: {error}; they are removed: run it again to compute them"
        ) from None
    return {one.place for one in took}, {"compared_taken_over": compared}


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
            asked = as_text(flags(shape, STORAGE, on_cpu=False))
            check_extracts(found, longest, asked)
            facts["server"] = found.model_dump(mode="json", exclude={"states_path", "url"})
            assert found.states_path is not None, "check_extracts"
            of_probe = Path(found.states_path)
            discard(of_probe)
            # The shortest first: their states are held against transformers' before the long work.
            first = sorted(missing, key=lambda one: len(one.ids))[:COMPARED]
            rest = [one for one in missing if not any(one is other for other in first)]
            for some in (first, rest):
                extract(
                    url,
                    found.model,
                    some,
                    shape,
                    states.dtype,
                    at_a_time=states.concurrency,
                    told=told,
                    only=of_probe.parent,
                )
                if some is first:
                    facts["compared"] = compared_with_transformers(recipe, shape, samples, own, tell)
        shutil.rmtree(own / "server", ignore_errors=True)
    else:
        facts["compared"] = compared_with_transformers(recipe, shape, samples, own, tell)
    return facts


@contextmanager
def _server(recipe: Recipe, shape: TargetShape, longest: int, own: Path, tell: Tell) -> Iterator[str]:
    url = _url(recipe)
    if url is not None:
        yield base_url(url)
        return
    if not recipe.states.serve:
        raise UsageError(f"{_NO_SERVER}; not all states were kept with their answers")
    dtype = "float32" if recipe.states.dtype == "fp32" else "bfloat16"
    with served(shape, longest, dtype, own, tell) as url:
        yield url


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
