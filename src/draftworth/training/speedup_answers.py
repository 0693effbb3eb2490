"""Walks of a head over the answers that a trial's arm gave: the very texts that a server's counters are of.

The target's states on them are computed by transformers, used and removed. Where greedy drafts are verified, a drafted
token is accepted with the target's probability of it, at any temperature, and what is sampled instead is another token:
so on the text that came out, being accepted is being equal to it.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from draftworth.errors import RefusedError
from draftworth.predict.trialrows import Row
from draftworth.training.acceptance import WalkCounts
from draftworth.training.base import StageName, Tell
from draftworth.training.columns import SampleWriter, read_samples
from draftworth.training.environment import required as required_environment
from draftworth.training.recipe import Recipe
from draftworth.training.samples import Sample
from draftworth.training.shape import target_shape
from draftworth.training.states_files import bytes_of, check_disk
from draftworth.training.worker import run_worker

Text = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt's tokens and its answer's."""
_GIB = 2**30


def text_of(row: Row) -> Text | None:
    """Return an answer's tokens; None where the trial did not keep them."""
    return None if row.prompt_ids is None or not len(row.ids) else (tuple(row.prompt_ids), tuple(row.ids))


def walk_answers(recipe: Recipe, texts: Sequence[Text], k: int, tell: Tell) -> dict[Text, WalkCounts]:
    """Return the walk of the exported head over each text.

    Args:
        recipe: paths absolute; its export is there.
        texts: different ones.
        k: tokens drafted a step.
        tell: takes progress.

    Raises:
        RefusedError: there is no environment, or no room for the target or its states.
        TrialError: a worker failed.
    """
    own = StageName.EVAL.folder(recipe.folder)
    shape, dtype = target_shape(recipe.target, recipe.states.layers), recipe.states.dtype
    environment = required_environment()
    _check_memory(recipe.target)
    lengths = [len(prompt) + len(answer) for prompt, answer in texts]
    need = bytes_of(lengths, shape, dtype)
    check_disk(own, need, need, None)
    work = own / "trial_answers"
    shutil.rmtree(work, ignore_errors=True)
    (work / "states").mkdir(parents=True, mode=0o700)
    try:
        parquet = work / "answers.parquet"
        with SampleWriter(parquet) as writer:
            for at, (prompt, answer) in enumerate(texts):
                ids = np.array([*prompt, *answer], dtype=np.int32)
                mask = np.zeros(len(ids), np.uint8)
                mask[len(prompt) :] = 1
                writer.add(str(at), "trial", "", Sample(ids, mask, exact=True))
        common = {"target": str(recipe.target), "device": recipe.fit.device}
        job = {"parquet": str(parquet), "folder": str(work / "states"), "rows": list(range(len(texts)))}
        asked: dict[str, Any] = {**common, "task": "states", "layers": list(shape.aux), "dtype": dtype, "jobs": [job]}
        tell.now("the target's states on the arm's answers")
        run_worker(environment.python, "states_worker", asked, folder=work, tell=tell)
        asked = {
            **common,
            "checkpoint": str(StageName.EXPORT.folder(recipe.folder)),
            "parquet": str(parquet),
            "states": str(work / "states"),
            "k": [k],
            "limit": None,
            "dtype": "float32",  # the exported weights as they are
        }
        tell.now("walking the arm's answers")
        found = run_worker(environment.python, "walk_worker", asked, folder=work, tell=tell)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    walks = [WalkCounts.model_validate(one["walks"][0]) for one in found["each"]]
    return dict(zip(texts, walks, strict=True))


def added(walks: Sequence[WalkCounts], k: int) -> WalkCounts:
    """Return the sum of walks with one k."""
    at = tuple(sum(one.accepted_at[place] for one in walks) for place in range(k))
    names = ("steps", "full_steps", "accepted", "emitted")
    sums: Mapping[str, int] = {name: sum(getattr(one, name) for one in walks) for name in names}
    return WalkCounts(k=k, accepted_at=at, **sums)


def trained_on(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Return a note where a trial asked what the head was trained on.

    Args:
        folder: the run folder.
        rows: the arm's answers.
    """
    asked = {tuple(one.prompt_ids) for one in rows if one.prompt_ids is not None}
    known: set[tuple[int, ...]] = set()
    for _, _, _, sample in read_samples(StageName.DATA.folder(folder) / "train.parquet"):
        starts = np.flatnonzero(np.diff(np.concatenate([[0], sample.mask.astype(np.int8)])) == 1)
        known.update(tuple(sample.ids[:start].tolist()) for start in starts.tolist())
    both = len(asked & known)
    if not both:
        return []
    where = f"the head was trained on {both:,} of the {len(asked):,} prompts that the trial asked"
    return [f"{where}: it drafts better there than on the held-out conversations, and on traffic"]


def _check_memory(target: Path) -> None:
    import psutil  # noqa: PLC0415 - lazy

    need = 2.5 * sum(path.stat().st_size for path in target.glob("*.safetensors"))
    free = psutil.virtual_memory().available
    if need > free:
        raise RefusedError(
            f"the target's states cannot be computed here: it takes about {need / _GIB:.0f} GiB, {free / _GIB:.0f} are "
            "free"
        )
