"""What a stage of the pipeline is, what it leaves behind, and how it tells what it does.

A run folder holds one folder a stage. A stage's `manifest.json` is written last and atomically: a folder without one
was interrupted, and its content is only what the stage itself knows how to resume.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from draftworth.models import Frozen
from draftworth.training.recipe import Recipe

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"


class StageName(StrEnum):
    """The stages in the order in which they run; each one's name is its folder's."""

    DATA = "data"
    STATES = "states"
    VOCAB = "vocab"
    FIT = "fit"
    EVAL = "eval"
    EXPORT = "export"

    def folder(self, run: Path) -> Path:
        """Return the stage's folder in a run folder."""
        return run / self.value


class StageManifest(Frozen):
    """What a finished stage was made from and what it holds: `<out>/<stage>/manifest.json`."""

    schema_version: int = SCHEMA_VERSION
    """Version of this layout."""
    stage: StageName
    """Which stage."""
    key: str
    """`sha256:` and the digest of `inputs`: equal keys, equal output."""
    inputs: dict[str, str]
    """Everything the output depends on, by name (`recipe.data`, `source[0]`, `tokenizer`, `chat_template`, `target`,
    `manifest.data`, `package.speculators`): a digest or the value itself, so that a change can be named."""
    counts: dict[str, int]
    """How many there are of what: samples, tokens, bytes, and what was left out by reason."""
    facts: dict[str, Any]
    """Everything else that later stages or a person want to know, as JSON holds it."""
    made: str
    """When it was finished, ISO 8601 in UTC."""
    seconds: float
    """How long the work took, this process only: what an interrupted one did before is not in it."""


class Tell(Protocol):
    """Takes what a stage does, as `trials.progress.Progress`: a status line on a terminal, plain lines when piped."""

    def now(self, text: str) -> None:
        """What is happening; figures that always change stand behind a semicolon."""

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far the stage is."""

    def line(self, text: str) -> None:
        """A line that stays: a finding."""


class StageModule(Protocol):
    """The module of one stage (`data.py`, `states.py`, `vocab.py`, `fit.py`, `evaluate.py`, `export.py`)."""

    def inputs(self, recipe: Recipe, folder: Path) -> Mapping[str, str]:
        """Return everything the output depends on, by name; quick, changes nothing.

        Args:
            recipe: the whole recipe, paths absolute.
            folder: the run folder (`recipe.out`), not the stage's own.

        Raises:
            UsageError: an input is missing or cannot be read (an earlier stage that has not run, by its verb's name).
        """
        ...

    def run(self, recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
        """Do the work, resuming what an interrupted run left, and write the manifest last.

        Called only where the folder's manifest is missing or of another key (`stages.prepare` has removed the stale
        one before). It may be killed at any point.

        Args:
            recipe: the whole recipe.
            folder: the run folder.
            tell: takes progress and findings.

        Raises:
            UsageError: the input cannot be understood.
            RefusedError: it cannot be done here, found before anything costly began.
        """
        ...
