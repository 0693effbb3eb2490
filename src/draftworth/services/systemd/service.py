"""A service that is a systemd unit of this machine: observed, replaced by variants, and put back by the host itself.

What starts and stops is systemd; what puts the original back is the restore unit (`net.py`), which needs nothing of
ours. This class drives both and checks, by what systemd, the kernel and the GPUs say, that each has done what it
should. Over SSH the whole trial runs on the serving machine, so this is always local to it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.bench.base import Access
from draftworth.hosts.base import Host
from draftworth.hosts.local import LocalHost
from draftworth.services.base import Observed, ProcessId, Running, Start, Tell
from draftworth.services.systemd import reading, starting, stopping, way_back
from draftworth.services.systemd.net import Net
from draftworth.services.systemd.recipe import recipe_for
from draftworth.services.systemd.scene import UnitScene

if TYPE_CHECKING:
    from draftworth.trials.config import SystemdTrial


class SystemdService:
    """See `services.base.Service` for what each method promises."""

    def __init__(self, config: "SystemdTrial", host: Host | None = None) -> None:
        """Make one; changes nothing.

        Args:
            config: the trial's file; after `look.resolved` it knows command and port.
            host: where commands run; this machine.
        """
        self._scene = UnitScene(config, host or LocalHost())

    # ------------------------------------------------------------------ what the trial tells it

    def equip(
        self,
        config: "SystemdTrial",
        commands: Mapping[str, Sequence[str]],
        access: Access,
        *,
        busy: Callable[[], int | None],
    ) -> None:
        """Be told what a trial that is about to begin needs.

        Args:
            config: its file, with what the unit says filled in.
            commands: each arm's argv.
            access: how to be let in.
            busy: how many requests of others are at hand; None where the server does not tell.
        """
        scene = self._scene
        scene.config = config
        scene.commands = commands
        scene.access = access
        scene.busy = busy

    def join(self, folder: Path, observed: Observed) -> None:
        """Be told which trial it is for: the tag in its folder names everything on the host."""
        scene = self._scene
        scene.folder = folder
        scene.logs.folder = folder / "logs"
        found = scene.take(observed)
        scene.net = Net(scene.host, recipe_for(scene.config, found, scene.names, scene.access, folder))

    def away(self, seconds: float) -> None:
        """Start the dead-man timer: the host puts the service back after so long, whatever becomes of us."""
        self._scene.deadline = time.monotonic() + seconds
        self._scene.armed().set_deadline(seconds)

    # ------------------------------------------------------------------ observing

    def observe(self) -> Observed:
        """Return the unit as it is. Raises RefusedError where a trial on it could not be undone."""
        return reading.observe(self._scene)

    def as_found(self, observed: Observed) -> Running:
        """Return the original as it was observed."""
        return reading.as_found(self._scene, observed)

    def find_original(self, observed: Observed) -> Running | None:
        """Return the original where its unit runs with its own command."""
        return reading.find_original(self._scene, observed)

    def find_holder(self, observed: Observed) -> Running | None:  # noqa: ARG002 - the protocol's
        """Return None: a unit is known by its name, whoever has started it."""
        return None

    def find_marked(self, prefix: str) -> Sequence[ProcessId]:  # noqa: ARG002 - the protocol's
        """Return nothing: a unit's processes are known by their control group."""
        return ()

    def exit_code(self, running: Running) -> int | None:
        """Return how a start's main process ended, as systemd has it."""
        return reading.exit_code(self._scene, running)

    def pids(self, running: Running) -> Sequence[int]:
        """Return the pids that a start has now; the way back learns of them, also while it only loads."""
        return reading.pids(self._scene, running)

    def gpu_bytes(self) -> int | None:
        """Return the bytes in use on the GPUs; None where there are none or they do not tell."""
        return reading.gpu_bytes(self._scene)

    def alive(self, running: Running) -> bool:
        """Whether the unit still runs the same start."""
        return reading.alive(self._scene, running)

    def owns_port(self, running: Running) -> bool:
        """Whether somebody listens on the port, and every listener is of the unit."""
        return reading.owns_port(self._scene, running)

    def refresh(self, running: Running) -> Running:
        """Return the start with its present processes added; the way back learns of them too."""
        return reading.refresh(self._scene, running)

    def holder(self) -> str | None:
        """Return who holds the port, for a person; None where it is free or the original's own."""
        return reading.holder(self._scene)

    # ------------------------------------------------------------------ the way back

    def save_original(self, observed: Observed, folder: Path) -> None:  # noqa: ARG002 - the protocol's
        """Set up the way back, then every variant's unit, and compare what systemd has loaded of them.

        Raises:
            RefusedError: a variant would differ in more than it may; nothing was stopped.
        """
        way_back.save(self._scene, observed)

    def forget_original(self, folder: Path) -> None:  # noqa: ARG002 - the protocol's
        """Take the way back away; called once the restore is verified."""
        self._scene.armed().disarm()
        self._scene.logs.close()

    def commands(self) -> Sequence[str]:
        """Return the commands that put the service back without Draftworth."""
        return () if self._scene.net is None else self._scene.net.by_hand()

    def clear(
        self,
        started: Sequence[Running],
        marked: Sequence[ProcessId],  # noqa: ARG002 - the protocol's
        tell: Tell,
    ) -> Sequence[str]:
        """Have the host put the service back, as far as the original being started again."""
        return way_back.clear(self._scene, started, tell, patience_s=self._clearing_s)

    def _clearing_s(self) -> float:
        limits = self._scene.config.limits
        stop = self._scene.found_now().snapshot.timeout_stop_s or limits.stop_timeout_s
        return 2 * stop + limits.free_timeout_s + 240.0

    def start_original(self, observed: Observed, folder: Path, tell: Tell) -> Running:  # noqa: ARG002 - the protocol's
        """Wait until the restore unit has started the original."""
        return way_back.start_original(self._scene, observed, tell)

    def verify_original(self, observed: Observed, running: Running, tell: Tell) -> Sequence[str]:
        """Wait until the host itself has verified the restore, then compare everything with what was found."""
        return way_back.verify_original(self._scene, observed, running, tell)

    # ------------------------------------------------------------------ starting and stopping

    def start(self, start: Start, tell: Tell) -> Running:
        """Start a variant; returns once it has a main process."""
        return starting.start(self._scene, start, tell)

    def settled(self, running: Running, tell: Tell) -> None:
        """Bring back what stopped with the original's unit: it runs, with another command."""
        starting.settled(self._scene, running, tell)

    def stop(self, running: Running, tell: Tell) -> Sequence[str]:
        """Stop a variant, or the restored original, and wait until nothing of it is left."""
        return stopping.stop(self._scene, running, tell)

    def stop_original(self, observed: Observed, tell: Tell) -> Sequence[str]:
        """Stop the original as it was found: drained, with what would start it again, down to its last process."""
        return stopping.stop_original(self._scene, observed, tell)
