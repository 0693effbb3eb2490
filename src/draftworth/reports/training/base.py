"""What the page of a training is made of: what was read of its run folder, and where it stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from draftworth.errors import UsageError
from draftworth.reports.training.figures import Epoch, Left, Step, Tail, best_of, time_left
from draftworth.training.base import StageManifest, StageName
from draftworth.training.needed import NeededLength, needed
from draftworth.training.recipe import Recipe
from draftworth.training.stages import read_manifest

PROGRESS = "progress.jsonl"
PAGE = "progress.html"
Status = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a command that trains stands.

    Attributes:
        status: whether it runs, and how it ended.
        stage: the one at hand, or the one that it ended in; None before the first.
        stage_began: seconds since 1970 when that began.
        now: what happens within it.
        reason: why it failed.
        began: seconds since 1970 when the command began.
        written: seconds since 1970 when this was found.
        steps_left: steps of the training that are still to come, if all epochs are trained; None where not known.
        every_s: seconds after which a running page is looked at again.
    """

    status: Status
    stage: StageName | None
    began: float
    written: float
    stage_began: float | None = None
    now: str = ""
    reason: str = ""
    steps_left: int | None = None
    every_s: int = 10


@dataclass(frozen=True, slots=True)
class Needs:
    """The acceptance length that pays.

    Attributes:
        lengths: those of the head's k; none where that is not known.
        source: where they come from, or why they are not known.
    """

    lengths: tuple[NeededLength, ...]
    source: str

    @property
    def least(self) -> NeededLength | None:
        """The least of them."""
        return min(self.lengths, key=lambda one: one.length, default=None)


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything that the page of a training tells.

    Attributes:
        recipe: what is trained, and how.
        standing: where the command stands.
        steps: lines of steps.
        epochs: lines of epochs.
        unread: lines that could not be understood.
        manifests: of the stages that are finished and belong together.
        needs: what the head must reach.
    """

    recipe: Recipe
    standing: Standing
    steps: Sequence[Step]
    epochs: Sequence[Epoch]
    unread: int
    manifests: Mapping[StageName, StageManifest]
    needs: Needs = field(default_factory=lambda: Needs((), ""))

    @property
    def best(self) -> Epoch | None:
        """The epoch with the longest walk."""
        return best_of(self.epochs)

    @property
    def trained(self) -> StageManifest | None:
        """The manifest of the training; None where it has not ended by itself."""
        return self.manifests.get(StageName.FIT)

    @property
    def fitting(self) -> bool:
        """Whether the training is what happens now."""
        return self.standing.status == "running" and self.standing.stage is StageName.FIT

    @property
    def done(self) -> int:
        """Optimizer steps that were done."""
        last = self.steps[-1].step + 1 if self.steps else 0
        return max(last, self.epochs[-1].step if self.epochs else 0)

    @property
    def total(self) -> int | None:
        """Optimizer steps, if all epochs are trained; None where that is not known."""
        left = self.standing.steps_left
        return None if left is None else self.done + left

    @property
    def left(self) -> Left | None:
        """How long the training still takes, if all epochs are trained; None where it does not run or none knows."""
        standing = self.standing
        if not self.fitting or standing.steps_left is None:
            return None
        return time_left(self.steps, standing.began, standing.steps_left, self.recipe.fit.epochs)


def read_needs(recipe: Recipe) -> Needs:
    """Return the length that a head of this recipe's depth must reach to pay."""
    try:
        lengths, source = needed(recipe)
    except UsageError as error:
        return Needs((), str(error))
    source = source.removeprefix("not known: ")
    k = recipe.fit.ttt_steps
    same = tuple(one for one in lengths if one.k == k)
    if lengths and not same:
        others = ", ".join(str(one) for one in sorted({one.k for one in lengths if one.k is not None}))
        return Needs((), f"known at k = {others} only, and the walk is at k = {k} (fit.ttt_steps)")
    return Needs(same, source)


def read_manifests(folder: Path) -> dict[StageName, StageManifest]:
    """Return the manifests of a run folder, in order, without those that were made from another one of a stage before.

    A damaged one counts as none: the stage that needs it says so.
    """
    found: dict[StageName, StageManifest] = {}
    for name in StageName:
        try:
            one = read_manifest(name.folder(folder))
        except UsageError:
            one = None
        if one is not None and _belongs(one, found):
            found[name] = one
    return found


def _belongs(one: StageManifest, earlier: Mapping[StageName, StageManifest]) -> bool:
    for name in StageName:
        key = one.inputs.get(f"manifest.{name}")
        if key is not None and (name not in earlier or earlier[name].key != key):
            return False
    return True


def gather(recipe: Recipe, tail: Tail, standing: Standing, needs: Needs) -> Subject:
    """Return what the page of a training is made of.

    Args:
        recipe: paths absolute.
        tail: its progress file; read here as far as it goes.
        standing: where the command stands.
        needs: of `read_needs`.

    Raises:
        OSError: the progress file cannot be read.
    """
    tail.read()
    return Subject(
        recipe=recipe,
        standing=standing,
        steps=tail.steps,
        epochs=tail.epochs,
        unread=tail.unread,
        manifests=read_manifests(recipe.folder),
        needs=needs,
    )
