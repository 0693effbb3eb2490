"""How a server is observed, started, stopped and put back: the protocol every kind of service implements.

What a service promises:

- `observe` only reads.
- `start` returns a `Running` that names every process by pid *and* start time, so that a recycled pid is never
  mistaken for ours; what it was asked to start carries `mark` in its environment, and nothing else does.
- `stop` returns when no process of that start is left and the port is free, or raises.
- `restore` may be called any number of times, from any state, by any process, and ends with the observed state
  verified or an error.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from draftworth.models import Frozen
from draftworth.services.systemd.found import UnitFound

MARK = "DRAFTWORTH_START"
"""The environment variable that marks every process of a start: `<trial id>/<step id>`."""

Tell = Callable[[str], None]
"""Takes one line about what is happening now."""


class ProcessId(Frozen):
    """A process, named so that a recycled pid is another one."""

    pid: int
    started: int
    """Start time in clock ticks since boot (field 22 of /proc/PID/stat)."""
    boot: str
    """The boot this is true in."""


class Running(Frozen):
    """A server that was started."""

    leader: ProcessId
    session: int
    """The session every child starts in."""
    mark: str
    log: Path
    seen: tuple[ProcessId, ...] = ()
    """Children seen while it ran; they are ours even after they are reparented."""
    shm_before: tuple[str, ...] | None = None
    """Names in /dev/shm before the start, or None where they were not looked at (the original's are never touched)."""
    shm_seen: tuple[str, ...] = ()
    """Names in /dev/shm that a process of this start was seen to map or hold open."""
    uid: int | None = None
    """The user it was started as, where that is not the tool's own."""
    unit: str = ""
    """The systemd unit it runs in; empty for a plain process."""
    invocation: str = ""
    """That unit's InvocationID, so that a later start of the same unit is another one."""


class Observed(Frozen):
    """The service as it was found: enough to put it back."""

    running: bool
    process: ProcessId | None = None
    command: tuple[str, ...] = ()
    """The original's own argv, as the kernel has it."""
    cwd: str | None = None
    log: str | None = None
    """The file its standard output went to, or None where that was not a file."""
    user: str | None = None
    """Who it runs as."""
    env_hash: str | None = None
    """SHA-256 of its environment (sorted `NAME=value`, joined by NUL, without the mark); tells replicas apart."""
    twins: tuple[ProcessId, ...] = ()
    """Other processes that had the same argv then and are not of its family: never taken for the original."""
    notes: tuple[str, ...] = ()
    """What a restore cannot keep, one line each."""
    unit: UnitFound | None = None
    """The systemd unit it is, with everything around it; None for a plain process."""


class Start(Frozen):
    """One server to start."""

    command: tuple[str, ...]
    env: dict[str, str]
    """Declared variables; Draftworth's own environment lies below them."""
    mark: str
    log: Path
    arm: str = ""
    """Which arm it is."""


class Service(Protocol):
    """One way a service is run."""

    def join(self, folder: Path, observed: Observed) -> None:
        """Be told which trial it is for: its folder, and what it has found. Called once, before anything is changed."""

    def observe(self) -> Observed:
        """Return what is there now. Reads only.

        Raises RefusedError where a stranger holds the port, where the service is still starting, and where systemd
        or a container runs it.
        """

    def start(self, start: Start, tell: Tell) -> Running:
        """Start a server in a session of its own. Raises ServerStartError where it cannot be executed."""

    def settled(self, running: Running, tell: Tell) -> None:
        """Be told that a server has generated a token: what depends on it may come back."""

    def away(self, seconds: float) -> None:
        """Be told that the original is about to be stopped, and how long it may be away at most."""

    def exit_code(self, running: Running) -> int | None:
        """Return how a start's leader ended (negative: by that signal); None where that is not known."""

    def pids(self, running: Running) -> Sequence[int]:
        """Return the pids that a start has now."""

    def gpu_bytes(self) -> int | None:
        """Return the bytes in use on the GPUs, where that tells something of a start; None where it does not."""

    def alive(self, running: Running) -> bool:
        """Whether the leader still runs."""

    def owns_port(self, running: Running) -> bool:
        """Whether somebody listens on the service's port, and every listener belongs to this start."""

    def refresh(self, running: Running) -> Running:
        """Return the start with the children there are now added to `seen`, their shared memory to `shm_seen`."""

    def stop(self, running: Running, tell: Tell) -> Sequence[str]:
        """End every process of a start. Returns remarks (what had to be killed). Raises TrialError if any is left."""

    def stop_original(self, observed: Observed, tell: Tell) -> Sequence[str]:
        """End the original. Same promise as `stop`."""

    def save_original(self, observed: Observed, folder: Path) -> None:
        """Write what a restore needs beyond the journal (the original's environment, readable by its owner only)."""

    def forget_original(self, folder: Path) -> None:
        """Remove what `save_original` wrote; called once the restore is verified."""

    def start_original(self, observed: Observed, folder: Path, tell: Tell) -> Running:
        """Start the original again as it was: argv, environment, folder, log, user, limits, priority."""

    def verify_original(self, observed: Observed, running: Running, tell: Tell) -> Sequence[str]:
        """Check everything about the restored original that its answer does not show. Returns remarks.

        Raises TrialError where something of the trial's is left, or the original is not what it was by our doing.
        """

    def commands(self) -> Sequence[str]:
        """Return the commands that put the service back, for a person; empty where the trial's journal has them."""

    def as_found(self, observed: Observed) -> Running:
        """Return the original as it was observed. Raises TrialError where it has ended since."""

    def find_original(self, observed: Observed) -> Running | None:
        """Return the original if it runs, started by whomever: same argv, folder and environment, and no twin."""

    def find_holder(self, observed: Observed) -> Running | None:
        """Return the unmarked process that serves the port with the original's argv, or None.

        It is the port's listener or an ancestor of it. Its environment and folder may differ: somebody restarted the
        service by hand.
        """

    def holder(self) -> str | None:
        """Return who holds the service's port, described for a person, or None where it is free."""

    def find_marked(self, prefix: str) -> Sequence[ProcessId]:
        """Return every process whose mark starts with `prefix`."""

    def clear(self, started: Sequence[Running], marked: Sequence[ProcessId], tell: Tell) -> Sequence[str]:
        """End what a dead trial left: recorded starts, and processes known by their mark alone. Returns remarks."""
