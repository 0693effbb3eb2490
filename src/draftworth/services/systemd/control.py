"""Small questions and orders to systemd about one unit, and who its processes are."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from draftworth.errors import TrialError
from draftworth.hosts.base import Host
from draftworth.services.base import ProcessId
from draftworth.services.processes import family, identify

UP = frozenset({"active", "activating", "reloading"})
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))
_KILL_S = 10.0


class Now:
    """What a unit is doing now.

    Attributes:
        active: ActiveState.
        sub: SubState.
        invocation: InvocationID; empty where it does not run.
        pid: main process; 0 for none.
        group: its control group below the root; empty for none.
        result: Result of the last run.
        restarts: NRestarts.
        exit_code: of the last main process; negative: by that signal; None: it has not ended, or never began.
    """

    __slots__ = ("active", "exit_code", "group", "invocation", "pid", "restarts", "result", "sub")

    def __init__(self, found: dict[str, str]) -> None:
        self.active = found.get("ActiveState", "")
        self.sub = found.get("SubState", "")
        self.invocation = found.get("InvocationID", "")
        self.pid = int(found.get("MainPID") or 0)
        self.group = found.get("ControlGroup", "")
        self.result = found.get("Result", "")
        self.restarts = int(found.get("NRestarts") or 0)
        # CLD_EXITED, CLD_KILLED, CLD_DUMPED (wait(2)); 0: none has ended.
        how, status = int(found.get("ExecMainCode") or 0), int(found.get("ExecMainStatus") or 0)
        self.exit_code = {1: status, 2: -status, 3: -status}.get(how)

    @property
    def up(self) -> bool:
        """Whether it runs, starts or reloads."""
        return self.active in UP

    @property
    def words(self) -> str:
        """The state for a person."""
        why = f", result {self.result}" if self.result not in {"", "success"} else ""
        return f"{self.active} ({self.sub}){why}"


_ASKED = (
    "ActiveState",
    "SubState",
    "InvocationID",
    "MainPID",
    "ControlGroup",
    "Result",
    "NRestarts",
    "ExecMainStatus",
    "ExecMainCode",
)


def now(host: Host, unit: str) -> Now:
    """Return what a unit is doing. Raises TrialError where systemd does not say."""
    done = host.run(["systemctl", "show", f"--property={','.join(_ASKED)}", "--", unit], timeout_s=30.0)
    if not done.ok:
        raise TrialError(f"systemctl show {unit}: {done.why}")
    return Now(dict(line.partition("=")[::2] for line in done.text.splitlines() if "=" in line))


def order(host: Host, verb: str, *words: str, timeout_s: float = 90.0) -> None:
    """Have systemctl do something and wait for it. Raises TrialError with what it said."""
    done = host.run(["systemctl", verb, *words], timeout_s=timeout_s)
    if not done.ok:
        raise TrialError(f"systemctl {' '.join((verb, *words))}: {done.why}")


def in_group(group: str) -> set[ProcessId]:
    """Return the processes of a control group and of those below it; nothing where there is none."""
    if not group or group == "/":
        return set()
    found: set[ProcessId] = set()
    for root in _ROOTS:
        top = Path(f"{root}{group}")
        for path in (top / "cgroup.procs", *top.rglob("cgroup.procs")) if top.is_dir() else ():
            try:
                pids = path.read_text(encoding="ascii").split()
            except OSError:  # the group has gone, or is threaded
                continue
            found |= {process for pid in pids if (process := identify(int(pid)))}
    return found


def processes_of(group: str, known: Iterable[ProcessId] = ()) -> set[ProcessId]:
    """Return a unit's living processes: of its control group, those seen before, and what descends from them.

    A process that left the group (a scope of its own, a container's) is known by its descent.
    """
    members = in_group(group)
    return members | family(None, None, None, members | set(known))


def stopping(host: Host) -> bool:
    """Whether the machine is shutting down: systemd starts nothing any more."""
    return host.run(["systemctl", "is-system-running"], timeout_s=30.0).text.strip() == "stopping"


def stop_unit(host: Host, unit: str, *, patience_s: float | None, first: Sequence[str] = ()) -> list[str]:
    """Stop a unit and wait until it is stopped. Returns remarks.

    Args:
        host: where.
        unit: which.
        patience_s: seconds the unit itself gives its processes; None: no limit of its own, then 10 minutes.
        first: units that would start it again, stopped before it by the same command.

    Raises:
        TrialError: it does not stop, or must not be stopped.
    """
    from draftworth.hosts.base import HostError  # noqa: PLC0415 - beside its only use

    wait = (600.0 if patience_s is None else 2 * patience_s) + 30.0  # TimeoutStopSec= counts twice: TERM, then KILL
    remarks = []
    try:
        done = host.run(["systemctl", "stop", "--", *first, unit], timeout_s=wait)
        if not done.ok:
            raise TrialError(f"systemctl stop {unit}: {done.why}")
    except HostError:
        remarks.append(f"{unit} did not stop within {wait:.0f} s and was killed")
        order(host, "kill", "--signal=KILL", "--", unit)
        host.run(["systemctl", "stop", "--", unit], timeout_s=_KILL_S + 30.0)
    state = now(host, unit)
    if state.up:
        raise TrialError(f"{unit} is {state.words} right after it was stopped: something starts it again")
    if state.result == "timeout":
        remarks.append(f"{unit} did not end on its stop signal and was killed by systemd")
    return remarks
