"""The stage `vocab`: which of the target's tokens the head can draft, by how often the target wrote them.

Files as speculators and vLLM read them: `d2t.npy`, int64 [N], the offset from a draft id to its target id; `t2d.npy`,
bool [V], whether a target id is in the draft's vocabulary (speculators 0.9, train/vocab_mapping.py). The key is over
the samples' own digest: a map of other samples is never taken for this one's (vllm-project/speculators#1081).
"""

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import RefusedError
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.columns import read_samples
from draftworth.training.recipe import Recipe
from draftworth.training.stages import output_key, prepare, section_digest, write_atomically, write_manifest
from draftworth.training.target import vocabulary_of

D2T, T2D = "d2t.npy", "t2d.npy"
USUAL = 32_000
"""What EAGLE-3's authors and most public heads take (config.json of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B)."""
_ROUND = 64
"""Sizes are multiples of this where they are chosen here: widths of a matrix that GPUs multiply quickly."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A draft's vocabulary.

    Attributes:
        ids: int64 [N], target ids, ascending.
        size: of the target's vocabulary.
        padded: how many of the ids nobody wrote.
    """

    ids: NDArray[np.int64]
    size: int
    padded: int

    @property
    def d2t(self) -> NDArray[np.int64]:
        """Of each draft id, what is added to get its target id: int64 [N]."""
        return self.ids - np.arange(len(self.ids), dtype=np.int64)

    @property
    def t2d(self) -> NDArray[np.bool_]:
        """Of each target id, whether it can be drafted: bool [V]."""
        found = np.zeros(self.size, np.bool_)
        found[self.ids] = True
        return found


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the vocabulary depends on; see `StageModule.inputs`."""
    return {
        "recipe.vocab": section_digest(recipe.vocab),
        "manifest.data": output_key(folder, StageName.DATA),
        "target.vocab_size": str(vocabulary_of(recipe.target)),
    }


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Choose the vocabulary and write the two files; see `StageModule.run`.

    Raises:
        UsageError: the samples are not there.
        RefusedError: the size does not fit the target or the answers.
    """
    began = time.monotonic()
    own = StageName.VOCAB.folder(folder)
    made_from = inputs(recipe, folder)
    size = vocabulary_of(recipe.target)
    tell.now("counting learned tokens")
    train, held = (_counted(StageName.DATA.folder(folder) / f"{name}.parquet", size) for name in ("train", "held_out"))
    counts = sum(train.values(), np.zeros(size, np.int64))
    chosen = choose(counts, recipe.vocab.size, pad=recipe.vocab.pad)
    prepare(own)
    for name, array in ((D2T, chosen.d2t), (T2D, chosen.t2d)):
        content = io.BytesIO()
        np.save(content, array)
        write_atomically(own / name, content.getvalue())
    coverage = {
        part: {source: _share(one, chosen.ids) for source, one in found.items()}
        for part, found in (("train", train), ("held_out", held))
    }
    total = _share(counts, chosen.ids)
    tell.line(
        f"{len(chosen.ids):,} of {size:,} tokens cover {total:.3%} of the learned tokens; "
        f"{int(np.count_nonzero(counts)):,} different ones were written"
    )
    for part, found in coverage.items():
        for source, share in found.items():
            tell.line(f"  {part} {source}: {share:.3%}")
    if chosen.padded:
        tell.line(f"  {chosen.padded:,} of them nobody wrote: the lowest ids, to fill the size up")
    return write_manifest(
        own,
        StageName.VOCAB,
        inputs=made_from,
        counts={
            "size": len(chosen.ids),
            "vocabulary": size,
            "seen": int(np.count_nonzero(counts)),
            "padded": chosen.padded,
            "loss_tokens": int(counts.sum()),
        },
        facts={"coverage": coverage, "coverage_train": total},
        began=began,
    )


def choose(counts: NDArray[np.int64], size: int | None, *, pad: bool) -> Vocabulary:
    """Return the most frequent tokens: ties by the lower id, filled up with the lowest ids, in ascending order.

    Args:
        counts: int64 [V], how often each target id was written.
        size: how many are wanted; None for 32,000, or fewer where the target or the answers have fewer (then a multiple
            of 64).
        pad: whether a wanted size may be above the number of different tokens that were written.

    Raises:
        RefusedError: nothing was written, or the size does not fit; with the numbers.
    """
    seen, most = int(np.count_nonzero(counts)), len(counts)
    if not seen:
        raise RefusedError("no token was learned, so there is no vocabulary to choose; see the stage data")
    if size is None:
        size = min(USUAL, most, -(-seen // _ROUND) * _ROUND)
    elif size > most:
        raise RefusedError(f"vocab.size: {size:,}, and the target's vocabulary has {most:,}; leave it out or take less")
    elif size > seen and not pad:
        raise RefusedError(
            f"vocab.size: {size:,}, and the answers have only {seen:,} different tokens: {size - seen:,} rows of "
            "the head would never be trained; take less, more data, or pad = true"
        )
    order = np.lexsort((np.arange(most), -counts))
    ids = np.sort(order[:size]).astype(np.int64)
    return Vocabulary(ids, most, max(0, size - seen))


def _counted(path: Path, size: int) -> dict[str, NDArray[np.int64]]:
    """Return how often each id was learned, by source."""
    found: dict[str, NDArray[np.int64]] = {}
    for _, source, _, sample in read_samples(path):
        counts = found.setdefault(source, np.zeros(size, np.int64))
        np.add.at(counts, sample.ids[sample.mask.astype(np.bool_)], 1)
    return found


def _share(counts: NDArray[np.int64], ids: NDArray[np.int64]) -> float:
    total = int(counts.sum())
    return float(counts[ids].sum() / total) if total else 0.0
