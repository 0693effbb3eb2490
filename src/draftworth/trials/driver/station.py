"""Where a trial on a unit is driven from: this machine, or another that SSH reaches. The protocol of both."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from draftworth.models import Frozen
from draftworth.trials.config import SystemdTrial


class PlanShown(Frozen):
    """A plan as it was made on the machine that serves."""

    lines: tuple[str, ...]
    """For a person."""
    data: dict[str, Any]
    """For a script."""
    port: int
    """The service's."""
    fingerprint: str
    """What a run has to find again."""


class Station(Protocol):
    """One machine on which trials are driven.

    What it promises: a trial that was started goes on without us, and can be followed from its beginning or from any
    offset, any number of times; nothing here changes the service but `start`, which leaves that to the driver, and
    `adopt` and `unadopt`.
    """

    name: str
    """The machine, for a person."""
    remarks: list[str]
    """What is to be said about the folder that was fetched last."""

    def plan(self, config: SystemdTrial, *, files: bool = False) -> PlanShown:
        """Return what a run would do. Raises what the run would raise.

        Args:
            config: the trial's file.
            files: show the units and the restore script in full.
        """

    def start(self, config: SystemdTrial, shown: PlanShown) -> str:
        """Start the driver of a trial whose plan was shown. Returns the trial's id."""

    def events(self, trial: str, offset: int = 0) -> Iterator[dict[str, Any]]:
        """Yield what a trial says until an event of kind `end`; outlives a lost connection.

        First comes one of kind `trial` with its `id`. Those of its log have `at`, from which it can be followed again.

        Args:
            trial: its id, or `latest`.
            offset: where to begin in its log; 0: its beginning.
        """

    def end(self, trial: str) -> bool:
        """Ask a trial to put the service back and end. Returns whether it was running."""

    def release(self, trial: str) -> bool:
        """End the time a variant is held. Returns whether one was."""

    def status(self, trial: str | None) -> Sequence[dict[str, Any]]:
        """Return where a trial stands, or every one that is at work on the machine."""

    def fetch(self, trial: str) -> Path:
        """Return the trial's folder on this machine, brought here where it is on another."""

    def adopt(self, trial: str, *, arm: str | None, restart: bool, say: Callable[[str], None]) -> dict[str, Any]:
        """Make an arm's command the unit's own. Returns `adopt.Told` as JSON; raises what `adopt.adopt` raises."""

    def unadopt(self, trial: str, *, restart: bool, say: Callable[[str], None]) -> dict[str, Any]:
        """Take that back. Returns `adopt.Told` as JSON; raises what `adopt.unadopt` raises."""
