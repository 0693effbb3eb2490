"""What a trial on a systemd unit works on: the unit as it was found, what drives it, what the trial tells of itself."""

from typing import TYPE_CHECKING

from draftworth.gpus import reader
from draftworth.hosts.base import Host
from draftworth.services.base import Observed
from draftworth.services.systemd.logs import Logs
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.net import Net

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from draftworth.bench.base import Access
    from draftworth.services.systemd.found import UnitFound
    from draftworth.services.systemd.variant import Variant
    from draftworth.trials.config import SystemdTrial

TAG = "tag"
"""The file in the trial's folder that holds its tag."""


class UnitScene:
    """The unit of a trial, and everything it is observed, replaced and put back with.

    Attributes:
        config: the trial's file; once the service is equipped it knows command and port.
        host: where commands run.
        folder: the trial's; None until it is told.
        net: the way back; None until the trial is told.
        commands: each arm's argv.
        access: how to be let in.
        found: the unit as it was observed last; None before.
        variants: each started arm's unit files, by its name.
        deadline: `time.monotonic()` until which the original may be away.
        gpus: reads the GPUs.
        logs: writes what units say into files.
        busy: how many requests of others are at hand; None where the server does not tell.
    """

    def __init__(self, config: "SystemdTrial", host: Host) -> None:
        self.config = config
        self.host = host
        self.folder: Path | None = None
        self.net: Net | None = None
        self.commands: Mapping[str, Sequence[str]] = {}
        self.access: Access | None = None
        self.found: UnitFound | None = None
        self.variants: dict[str, Variant] = {}
        self.deadline = float("inf")
        self.gpus = reader(self.host)
        self.logs = Logs(self.host)
        self.busy: Callable[[], int | None] = lambda: None

    @property
    def unit(self) -> str:
        """The original's unit."""
        return self.config.service.unit if self.found is None else self.found.snapshot.unit

    @property
    def names(self) -> Names:
        """What everything of the trial is called."""
        assert self.folder is not None, "the service was not told its trial"
        return Names((self.folder / TAG).read_text(encoding="ascii").strip())

    def armed(self) -> Net:
        """Return the way back of a trial that was told."""
        assert self.net is not None, "the service was not told its trial"
        return self.net

    def take(self, observed: Observed) -> "UnitFound":
        """Take the unit as it was observed, and return it."""
        assert observed.unit is not None, "a unit was not observed"
        self.found = observed.unit
        return observed.unit

    def found_now(self) -> "UnitFound":
        """Return the unit as it was observed last."""
        assert self.found is not None, "the unit was not observed"
        return self.found
