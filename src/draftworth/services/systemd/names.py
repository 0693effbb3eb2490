"""What everything of one trial is called on its host, and where it lies.

Every name carries the trial's tag, so that what is ours is told from everything else by its name alone.
"""

import re
from dataclasses import dataclass

from draftworth.errors import UsageError

UNITS = "/run/systemd/system"
"""Where units of a trial lie: gone after a reboot."""
LASTING = "/etc/systemd/system"
"""Where units lie that outlive a reboot."""

_TAG = re.compile(r"^\d{8}-\d{6}(?:-\d+)?-[0-9a-f]{6}$")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one trial.

    Attributes:
        tag: the trial's id and six hex digits, so that two trials of one second in two homes differ.
    """

    tag: str

    def __post_init__(self) -> None:
        if not _TAG.match(self.tag):
            raise UsageError(f"{self.tag!r} is no trial's tag")

    @property
    def folder(self) -> str:
        """Where the way back lies while the trial is at work."""
        return f"/run/draftworth/{self.tag}"

    @property
    def script(self) -> str:
        """The shell script that puts the service back."""
        return f"{self.folder}/restore.sh"

    @property
    def armed(self) -> str:
        """There while the host has to put the service back when the trial ends."""
        return f"{self.folder}/armed"

    @property
    def after(self) -> str:
        """The script that the end of the trial's own unit runs."""
        return f"{self.folder}/after.sh"

    @property
    def home(self) -> str:
        """Holds the path of the trial's folder, so that the trial is found while its driver is gone."""
        return f"{self.folder}/trial"

    @property
    def clean(self) -> str:
        """The script that takes the way back itself away, beside its folder."""
        return f"{self.folder}.clean.sh"

    @property
    def changed(self) -> str:
        """There while the original's own unit may run a variant (drop-in)."""
        return f"{self.folder}/changed"

    @property
    def pids(self) -> str:
        """Processes that have to be gone before the original starts: `pid start-time` lines."""
        return f"{self.folder}/pids"

    @property
    def state(self) -> str:
        """How far the restore is: one word."""
        return f"{self.folder}/state"

    @property
    def trial(self) -> str:
        """The unit that drives the trial."""
        return f"draftworth-trial-{self.tag}.service"

    @property
    def restore(self) -> str:
        """The unit that puts the service back, again and again until that is verified."""
        return f"draftworth-restore-{self.tag}.service"

    @property
    def deadman(self) -> str:
        """The timer that puts the service back when the declared downtime is over."""
        return f"draftworth-deadman-{self.tag}.timer"

    @property
    def deadman_service(self) -> str:
        """What that timer starts."""
        return f"draftworth-deadman-{self.tag}.service"

    @property
    def record(self) -> str:
        """The unit that writes the record of a trial whose driver died."""
        return f"draftworth-record-{self.tag}.service"

    @property
    def boot(self) -> str:
        """The lasting unit that starts an original that runs and is not enabled, after a reboot in mid-trial."""
        return f"draftworth-boot-{self.tag}.service"

    def variant(self, arm: str) -> str:
        """The unit of a variant that runs beside the original."""
        return f"draftworth-{self.tag}-{arm}.service"

    def drop_in(self, unit: str) -> str:
        """The drop-in in /run that makes the original's own unit run a variant."""
        return f"{UNITS}/{unit}.d/zz-draftworth-{self.tag}.conf"

    @staticmethod
    def path(unit: str) -> str:
        """Where a unit of the trial lies."""
        return f"{UNITS}/{unit}"
