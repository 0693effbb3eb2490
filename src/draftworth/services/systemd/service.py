"""A service that is a systemd unit of this machine: observed, replaced by variants, and put back by the host itself.

What starts and stops is systemd; what puts the original back is the restore unit (`net.py`), which needs nothing of
ours. This class drives both and checks, by what systemd, the kernel and the GPUs say, that each has done what it
should. Over SSH the whole trial runs on the serving machine, so this is always local to it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.bench.base import Access
from draftworth.errors import RefusedError, ServerStartError, TrialError
from draftworth.gpus import reader
from draftworth.gpus.freeing import ours
from draftworth.hosts.base import Host, HostError
from draftworth.hosts.local import LocalHost
from draftworth.services.base import Observed, ProcessId, Running, Start, Tell
from draftworth.services.ending import wait_for_free_port
from draftworth.services.processes import describe, identify, is_alive, listener, listeners, port_taken
from draftworth.services.shm import names as shm_names
from draftworth.services.shm import used_by
from draftworth.services.systemd import control, look
from draftworth.services.systemd.adoption import mode_for
from draftworth.services.systemd.freeing import drain, end_leftovers, free_shared_memory, wait_for_memory
from draftworth.services.systemd.known import remember, started_unix, uid_of
from draftworth.services.systemd.logs import Logs
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.net import Net
from draftworth.services.systemd.recipe import recipe_for
from draftworth.services.systemd.script import restore_script
from draftworth.services.systemd.variant import Variant, drop_in, parallel
from draftworth.services.systemd.verify import check_loaded, not_as_found

if TYPE_CHECKING:
    from draftworth.services.systemd.found import UnitFound
    from draftworth.trials.config import SystemdTrial

TAG = "tag"
"""The file in the trial's folder that holds its tag."""
_POLL_S = 0.1
_IDLE_S = 2.0
"""Seconds without a run of the restore unit after which it is over."""


class SystemdService:
    """See `services.base.Service` for what each method promises."""

    def __init__(self, config: "SystemdTrial", host: Host | None = None) -> None:
        """Make one; changes nothing.

        Args:
            config: the trial's file; after `look.resolved` it knows command and port.
            host: where commands run; this machine.
        """
        self._config = config
        self._host = host or LocalHost()
        self._folder: Path | None = None
        self._net: Net | None = None
        self._commands: Mapping[str, Sequence[str]] = {}
        self._access: Access | None = None
        self._found: UnitFound | None = None
        self._variants: dict[str, Variant] = {}
        self._deadline = float("inf")
        self._gpus = reader(self._host)
        self._logs = Logs(self._host)
        self._busy: Callable[[], int | None] = lambda: None

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
        self._config = config
        self._commands = commands
        self._access = access
        self._busy = busy

    def join(self, folder: Path, observed: Observed) -> None:
        """Be told which trial it is for: the tag in its folder names everything on the host."""
        self._folder = folder
        self._logs.folder = folder / "logs"
        found = self._take(observed)
        self._net = Net(self._host, recipe_for(self._config, found, self.names, self._access, folder))

    def away(self, seconds: float) -> None:
        """Start the dead-man timer: the host puts the service back after so long, whatever becomes of us."""
        self._deadline = time.monotonic() + seconds
        self._armed().set_deadline(seconds)

    @property
    def unit(self) -> str:
        """The original's unit."""
        return self._config.service.unit if self._found is None else self._found.snapshot.unit

    @property
    def names(self) -> Names:
        """What everything of the trial is called."""
        assert self._folder is not None, "the service was not told its trial"
        return Names((self._folder / TAG).read_text(encoding="ascii").strip())

    def _armed(self) -> Net:
        assert self._net is not None, "the service was not told its trial"
        return self._net

    def _take(self, observed: Observed) -> "UnitFound":
        assert observed.unit is not None, "a unit was not observed"
        self._found = observed.unit
        return observed.unit

    # ------------------------------------------------------------------ observing

    def observe(self) -> Observed:
        """Return the unit as it is. Raises RefusedError where a trial on it could not be undone."""
        observed = look.observed(self._host, self._config, self._gpus)
        self._take(observed)
        return observed

    def as_found(self, observed: Observed) -> Running:
        """Return the original as it was observed."""
        found = self._take(observed)
        state = control.now(self._host, self.unit)
        if not state.up or state.invocation != found.snapshot.invocation:
            raise TrialError(f"{self.unit} was stopped or restarted by somebody else: it is {state.words}")
        return self._running(state)

    def _running(self, state: control.Now, *, log: Path | None = None, mark: str = "") -> Running:
        leader = identify(state.pid) if state.pid else None
        if leader is None:
            raise TrialError(f"{self.unit} has no main process: it is {state.words}")
        path = log or self._logs.of_original(self._found_now(), state.invocation)
        return Running(
            leader=leader,
            session=0,
            mark=mark,
            log=path,
            unit=self.unit,
            invocation=state.invocation,
            uid=uid_of(leader),
        )

    def _found_now(self) -> "UnitFound":
        assert self._found is not None, "the unit was not observed"
        return self._found

    # ------------------------------------------------------------------ the way back

    def save_original(self, observed: Observed, folder: Path) -> None:  # noqa: ARG002 - the protocol's
        """Set up the way back, then every variant's unit, and compare what systemd has loaded of them.

        Raises:
            RefusedError: a variant would differ in more than it may; nothing was stopped.
        """
        found, net = self._take(observed), self._armed()
        try:
            net.arm(boot_target=look.boot_target(self._host) if found.lasting else None)
            for arm, argv in self._commands.items():
                if arm in self._started_arms():
                    self._variants[arm] = self._make(found, arm, argv)
            if found.way == "parallel":
                self._compare_parallel(found)
        except HostError as error:
            raise RefusedError(f"the way back cannot be set up: {error}") from None

    def _started_arms(self) -> set[str]:
        baseline = self._config.baseline
        own = {baseline.name} if baseline.args else set()
        return {arm.name for arm in self._config.variants} | own

    def _make(self, found: "UnitFound", arm: str, argv: Sequence[str]) -> Variant:
        start_s = self._config.limits.start_timeout_s + 60.0
        if found.way == "parallel":
            return parallel(self._host, found.snapshot, self.names, arm, argv, start_s=start_s)
        return drop_in(found.snapshot, self.names, arm, argv, start_s=start_s)

    def _compare_parallel(self, found: "UnitFound") -> None:
        for variant in self._variants.values():
            self._host.write(variant.path, variant.text.encode(), mode_for(found.snapshot))
        self._armed().reload()
        for variant in self._variants.values():
            check_loaded(self._host, found, variant, self.names)

    def forget_original(self, folder: Path) -> None:  # noqa: ARG002 - the protocol's
        """Take the way back away; called once the restore is verified."""
        self._armed().disarm()
        self._logs.close()

    def commands(self) -> Sequence[str]:
        """Return the commands that put the service back without Draftworth."""
        return () if self._net is None else self._net.by_hand()

    def clear(
        self,
        started: Sequence[Running],
        marked: Sequence[ProcessId],  # noqa: ARG002 - the protocol's
        tell: Tell,
    ) -> Sequence[str]:
        """Have the host put the service back, as far as the original being started again."""
        self._logs.stop()
        net = self._armed()
        # On a full disk the restore goes on with what it knows.
        with suppress(HostError):
            remember(self._host, net.names, self._seen(started), "variant")
        if control.stopping(self._host):
            raise TrialError(
                f"this machine is shutting down; {self.unit} starts with it again, and `draftworth trial restore` then "
                "verifies that"
            )
        working = net.at_work()  # a variant that died has started it
        if not working:
            if not net.is_armed():
                return self._without_net(net, tell)
            with suppress(HostError):
                net.forget_state()
            net.trigger()
        # From here on the restore unit itself sees to the end; the timer would only end this record of it.
        net.clear_deadline()
        return self._follow(net, {"starting", "restored"}, tell, self._clearing_s())

    def _clearing_s(self) -> float:
        limits = self._config.limits
        stop = self._found_now().snapshot.timeout_stop_s or limits.stop_timeout_s
        return 2 * stop + limits.free_timeout_s + 240.0

    def _without_net(self, net: Net, tell: Tell) -> Sequence[str]:
        """Do what the restore unit would do: after a reboot, or where it has removed itself."""
        from dataclasses import replace  # noqa: PLC0415 - only here

        script = restore_script(replace(net.recipe, ask=None, gpu_mib={}), clean=False)
        tell(f"putting {self.unit} back")
        done = self._host.run(["/bin/sh", "-c", script], timeout_s=self._config.limits.start_timeout_s + 600.0)
        if not done.ok:
            raise TrialError(f"{self.unit} is not back: {done.why}")
        return ()

    def _seen(self, started: Sequence[Running]) -> set[ProcessId]:
        return {process for running in started if running.mark for process in (running.leader, *running.seen)}

    def _follow(self, net: Net, wanted: set[str], tell: Tell, patience_s: float) -> list[str]:
        """Wait until the restore unit has come so far, or is over."""
        deadline = time.monotonic() + patience_s
        worked = time.monotonic()
        while True:
            state = net.state()
            if state in wanted:
                return []
            if state.startswith("failing"):
                raise TrialError(f"{self.unit}: {state.removeprefix('failing ')}")
            if state:
                tell(
                    {"clearing": "ending what the trial started", "cleared": "the trial's servers have ended"}.get(
                        state, f"putting {self.unit} back: {state}"
                    )
                )
            if net.at_work():
                worked = time.monotonic()
            elif time.monotonic() - worked > _IDLE_S:
                # It is started again until it succeeds; without a word (a full /run) its end is the sign of that.
                if not state and control.now(self._host, self.unit).up:
                    return []
                raise TrialError(f"{net.names.restore} does not run; `systemctl status {net.names.restore}` says why")
            if time.monotonic() > deadline:
                raise TrialError(f"{net.names.restore} is still {state or 'not begun'} after {patience_s:.0f} s")
            time.sleep(_POLL_S)

    def find_original(self, observed: Observed) -> Running | None:
        """Return the original where its unit runs with its own command."""
        found = self._take(observed)
        state = control.now(self._host, self.unit)
        if not state.up or not state.pid or self._host.read(self.names.changed) is not None:
            return None
        log = None
        if state.invocation != found.snapshot.invocation:
            log = self._logs.begin(found, self.unit, state.invocation, "restored")
        return self._running(state, log=log)

    def find_holder(self, observed: Observed) -> Running | None:  # noqa: ARG002 - the protocol's
        """Return None: a unit is known by its name, whoever has started it."""
        return None

    def start_original(self, observed: Observed, folder: Path, tell: Tell) -> Running:  # noqa: ARG002 - the protocol's
        """Wait until the restore unit has started the original."""
        deadline = time.monotonic() + self._config.limits.start_timeout_s
        while time.monotonic() < deadline:
            running = self.find_original(observed)
            if running is not None:
                return running
            net = self._armed()
            if (state := net.state()).startswith("failing"):
                raise TrialError(f"{self.unit}: {state.removeprefix('failing ')}")
            tell(f"waiting for {self.unit} to start: {control.now(self._host, self.unit).words}")
            time.sleep(_POLL_S * 5)
        raise TrialError(f"{self.unit} did not start in time")

    def verify_original(self, observed: Observed, running: Running, tell: Tell) -> Sequence[str]:
        """Wait until the host itself has verified the restore, then compare everything with what was found."""
        found = self._take(observed)
        tell(f"checking that {self.unit} is as it was")
        net = self._armed()
        if net.is_armed():
            self._follow(net, {"restored"}, tell, self._config.limits.start_timeout_s)
        return not_as_found(self._host, found, self.names, self._gpus, self._members(running))

    # ------------------------------------------------------------------ starting and stopping

    def start(self, start: Start, tell: Tell) -> Running:
        """Start a variant; returns once it has a main process."""
        net = self._armed()
        if not net.is_armed() or net.state() not in {"", "restored"}:
            raise TrialError("the host puts the original back meanwhile; nothing is started any more")
        net.forget_state()
        found = self._found_now()
        variant = self._variants[start.arm]
        before = shm_names()
        tell(f"starting {variant.unit}")
        if found.way == "drop-in":
            self._host.write(self.names.changed, b"")
        self._host.write(variant.path, variant.text.encode(), mode_for(found.snapshot))
        net.reload()
        check_loaded(self._host, found, variant, self.names)
        if found.way == "drop-in":
            self._start_units(found.triggers)
        old = control.now(self._host, variant.unit).invocation
        control.order(self._host, "start", "--no-block", "--", variant.unit)
        state = self._await_process(variant, old, start, tell)
        leader = identify(state.pid)
        if leader is None:
            raise self._not_started(variant.unit, state, start.log)
        return Running(
            leader=leader,
            session=0,
            mark=start.mark,
            log=start.log,
            shm_before=before,
            uid=uid_of(leader),
            unit=variant.unit,
            invocation=state.invocation,
        )

    def _await_process(self, variant: Variant, old: str, start: Start, tell: Tell) -> control.Now:
        """Wait for the main process: what comes before it (ExecStartPre=) may wait for GPUs itself."""
        deadline = min(self._deadline, time.monotonic() + self._config.limits.start_timeout_s)
        followed = False
        while True:
            state = control.now(self._host, variant.unit)
            fresh = bool(state.invocation) and state.invocation != old
            if fresh and not followed:
                self._logs.follow(self._found_now(), variant.unit, state.invocation, start.log)
                followed = True
            if fresh and state.pid:
                return state
            if fresh and not state.up:
                raise self._not_started(variant.unit, state, start.log)
            if time.monotonic() > deadline:
                raise ServerStartError(f"{variant.unit} has no main process in time: it is {state.words}")
            tell(f"{variant.unit} is {state.words}")
            time.sleep(_POLL_S)

    def _not_started(self, unit: str, state: control.Now, log: Path) -> ServerStartError:
        time.sleep(_POLL_S * 5)  # the journal is a moment behind
        return ServerStartError(f"{unit} did not start: it is {state.words}", self._logs.tail(unit, log))

    def settled(self, running: Running, tell: Tell) -> None:
        """Bring back what stopped with the original's unit: it runs, with another command."""
        self._logs.settle()
        found = self._found_now()
        if running.mark and found.way == "drop-in" and found.dependents:
            tell(f"starting what depends on it: {', '.join(found.dependents)}")
            self._start_units(found.dependents)

    def _start_units(self, units: Sequence[str]) -> None:
        for unit in units:
            # A target pulls in everything it wants, also what a person has stopped.
            alone = ("--job-mode=ignore-dependencies",) if unit.endswith(".target") else ()
            control.order(self._host, "start", *alone, "--", unit)

    def exit_code(self, running: Running) -> int | None:
        """Return how a start's main process ended, as systemd has it."""
        state = control.now(self._host, running.unit)
        if state.up or state.invocation not in {"", running.invocation}:
            return None
        return state.exit_code

    def pids(self, running: Running) -> Sequence[int]:
        """Return the pids that a start has now; the way back learns of them, also while it only loads."""
        living = self._members(running)
        if running.mark:
            with suppress(HostError):
                remember(self._host, self.names, living, "variant")
        return [process.pid for process in living]

    def gpu_bytes(self) -> int | None:
        """Return the bytes in use on the GPUs; None where there are none or they do not tell."""
        if not self._found_now().gpus.gpus:
            return None
        used = [gpu.used_bytes for gpu in self._gpus.read().gpus]
        return sum(one for one in used if one is not None) if used and None not in used else None

    def alive(self, running: Running) -> bool:
        """Whether the unit still runs the same start."""
        state = control.now(self._host, running.unit)
        living = state.up and state.invocation == running.invocation
        if not living:  # its last words say why, and the journal is a moment behind
            self._logs.settle()
        return living

    def _members(self, running: Running) -> set[ProcessId]:
        group = control.now(self._host, running.unit).group
        known = [process for process in (running.leader, *running.seen) if is_alive(process)]
        return control.processes_of(group, known)

    def owns_port(self, running: Running) -> bool:
        """Whether somebody listens on the port, and every listener is of the unit."""
        holders = listeners(self._config.service.port, self._config.service.address)
        return bool(holders) and set(holders) <= self._members(running)

    def refresh(self, running: Running) -> Running:
        """Return the start with its present processes added; the way back learns of them too."""
        living = self._members(running)
        members = sorted(living | set(running.seen), key=lambda process: process.pid)
        if running.mark:
            remember(self._host, self.names, living, "variant")
        used: set[str] = set()
        if running.shm_before is not None:
            used = used_by(process.pid for process in living) - set(running.shm_before)
        seen = tuple(sorted(used | set(running.shm_seen)))
        return running.model_copy(update={"seen": tuple(members), "shm_seen": seen})

    def stop(self, running: Running, tell: Tell) -> Sequence[str]:
        """Stop a variant, or the restored original, and wait until nothing of it is left."""
        if not running.mark:
            return self._stop_own(running, tell)
        found = self._found_now()
        variant = next((one for one in self._variants.values() if one.unit == running.unit), None)
        if variant is not None and variant.quiet is not None:
            # A planned stop is no reason to start the original yet: the next arm comes first.
            self._host.write(variant.path, variant.quiet.encode(), mode_for(found.snapshot))
            self._armed().reload()
        running = self.refresh(running)
        tell(f"stopping {running.unit}")
        if found.way == "drop-in":
            remarks = self._stop_with_triggers()
        else:
            remarks = control.stop_unit(self._host, running.unit, patience_s=found.snapshot.timeout_stop_s)
        self._logs.stop()
        lost = self._logs.dropped(running.unit, running.invocation)
        if lost:
            remarks.append(f"{lost} lines of its output are missing: journald's rate limit (LogRateLimitBurst=)")
        return [*remarks, *self._freed(running, tell)]

    def stop_original(self, observed: Observed, tell: Tell) -> Sequence[str]:
        """Stop the original as it was found: drained, with what would start it again, down to its last process."""
        self._take(observed)
        return self._stop_own(self.as_found(observed), tell)

    def _stop_own(self, running: Running, tell: Tell) -> Sequence[str]:
        found = self._found_now()
        running = self.refresh(running)
        remarks = drain(self._busy, self._config.limits.drain_s, tell)
        remember(self._host, self.names, set(running.seen), "original")
        tell(f"stopping {', '.join((*found.triggers, self.unit))}")
        remarks += self._stop_with_triggers()
        self._logs.stop()
        return [*remarks, *self._freed(running, tell)]

    def _stop_with_triggers(self) -> list[str]:
        """Stop the original's unit, and with it, by one command, what would start it again."""
        found = self._found_now()
        patience = found.snapshot.timeout_stop_s
        return control.stop_unit(self._host, self.unit, patience_s=patience, first=found.triggers)

    def _freed(self, running: Running, tell: Tell) -> list[str]:
        """See that processes, port, GPU memory and shared memory of a stopped server are free."""
        found = self._found_now()
        remarks = end_leftovers(running.seen, lambda: self._members(running), tell)
        port = self._config.service.port
        if not wait_for_free_port(port, self._config.service.address, 10.0):
            raise TrialError(f"port {port} is taken right after the stop, by {self.holder()}: something restarts it")
        held = ours(found.gpus, found.pids)
        service = held.model_copy(update={"pids": held.pids | {process.pid for process in running.seen}})
        remarks += wait_for_memory(self._gpus, found.gpus, service, self._config.limits.free_timeout_s, tell)
        seen = set(running.shm_seen) | (set(found.shm_ours) if not running.mark else set())
        pids = {process.pid for process in (running.leader, *running.seen)}
        uid = 0 if running.uid is None else running.uid
        return [*remarks, *free_shared_memory(started_unix(running.leader), pids, seen, uid)]

    def holder(self) -> str | None:
        """Return who holds the port, for a person; None where it is free or the original's own."""
        port, address = self._config.service.port, self._config.service.address
        if not port_taken(port, address):
            return None
        found = listener(port, address)
        if found is not None and found in control.in_group(control.now(self._host, self.unit).group):
            return None
        return describe(found) if found else "a process this user cannot see"

    def find_marked(self, prefix: str) -> Sequence[ProcessId]:  # noqa: ARG002 - the protocol's
        """Return nothing: a unit's processes are known by their control group."""
        return ()
