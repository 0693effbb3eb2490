"""The stages of the pipeline, in the order in which they run. A module is imported when its stage is used."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from draftworth.training.base import StageName

if TYPE_CHECKING:
    from draftworth.training.base import StageModule


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        name: its name; also its folder's and its verb's.
        module: where it is: `inputs` and `run` of a `StageModule`.
        needs: the stages whose results it reads.
        about: what it does, in a few words.
    """

    name: StageName
    module: str
    needs: tuple[StageName, ...]
    about: str

    def load(self) -> "StageModule":
        """Return the module."""
        return cast("StageModule", importlib.import_module(self.module))


STAGES: dict[StageName, Stage] = {
    stage.name: stage
    for stage in (
        Stage(StageName.DATA, "draftworth.training.data", (), "conversations as token ids with a loss mask"),
        Stage(StageName.STATES, "draftworth.training.states", (StageName.DATA,), "hidden states of the target"),
        Stage(StageName.VOCAB, "draftworth.training.vocab", (StageName.DATA,), "the draft's vocabulary"),
        Stage(
            StageName.FIT,
            "draftworth.training.fit",
            (StageName.DATA, StageName.STATES, StageName.VOCAB),
            "training of the head",
        ),
        Stage(
            StageName.EVAL,
            "draftworth.training.evaluate",
            (StageName.DATA, StageName.STATES, StageName.VOCAB, StageName.FIT),
            "walk acceptance on held-out conversations",
        ),
        Stage(
            StageName.EXPORT,
            "draftworth.training.export",
            (StageName.FIT, StageName.EVAL),
            "the checkpoint that engines load",
        ),
    )
}
"""Every stage by its name, in the order in which they run."""
