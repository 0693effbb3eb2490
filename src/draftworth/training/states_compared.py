"""A few samples' states held against transformers': the layer, the position, the norm, slot by slot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError
from draftworth.training.base import StageName, Tell
from draftworth.training.environment import installed
from draftworth.training.recipe import Recipe
from draftworth.training.shape import TargetShape
from draftworth.training.states_files import MADE_FROM, SPLITS, path_of
from draftworth.training.states_vllm import Wanted
from draftworth.training.worker import run_worker

COMPARED = 2
"""How many samples."""
_COMPARED_TOKENS = 1024
_NEAR = {"fp32": 0.02, "bf16": 0.05, "fp8": 0.1}
"""Relative differences between vLLM's and transformers' states that are rounding (both may run in bfloat16)."""


def compared_with_transformers(
    recipe: Recipe, shape: TargetShape, samples: list[Wanted], own: Path, tell: Tell
) -> dict[str, Any]:
    """Hold a few samples' states against transformers': the layer, the position, the norm.

    Returns:
        What was found, or why it was not checked: a large target may not fit beside its server.

    Raises:
        RefusedError: a slot is not the state that it should be; the next run computes all of them anew.
    """
    environment = installed()
    if environment is None:
        tell.line("not checked against transformers: there is no training environment (`draftworth train install`)")
        return {"checked": False, "why": "no training environment"}
    train = [one for one in samples if one.folder.name == SPLITS[0] and path_of(one.folder, one.row).exists()]
    few = sorted(train, key=lambda one: len(one.ids))[:COMPARED]
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
    try:
        check_compared(found, recipe.states.dtype)
    except RefusedError:
        # None of the files can be trusted: the next run begins anew.
        (own / MADE_FROM).unlink(missing_ok=True)
        raise
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
