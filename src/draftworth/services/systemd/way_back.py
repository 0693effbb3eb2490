"""The way back in use: set up before the first change, set off, and followed until the original is verified."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from draftworth.errors import RefusedError, TrialError
from draftworth.hosts.base import HostError
from draftworth.services.base import Observed, ProcessId, Running, Tell
from draftworth.services.systemd import control, look, reading
from draftworth.services.systemd.known import remember
from draftworth.services.systemd.net import Net
from draftworth.services.systemd.script import restore_script
from draftworth.services.systemd.starting import make_variants
from draftworth.services.systemd.verify import not_as_found

if TYPE_CHECKING:
    from draftworth.services.systemd.scene import UnitScene

_POLL_S = 0.1
_IDLE_S = 2.0
"""Seconds without a run of the restore unit after which it is over."""


def save(scene: "UnitScene", observed: Observed) -> None:
    """Set up the way back, then every variant's unit, and compare what systemd has loaded of them.

    Raises:
        RefusedError: a variant would differ in more than it may; nothing was stopped.
    """
    found, net = scene.take(observed), scene.armed()
    try:
        net.arm(boot_target=look.boot_target(scene.host) if found.lasting else None)
        make_variants(scene, found)
    except HostError as error:
        raise RefusedError(f"the way back cannot be set up: {error}") from None


def clear(
    scene: "UnitScene", started: Sequence[Running], tell: Tell, *, patience_s: Callable[[], float]
) -> Sequence[str]:
    """Have the host put the service back, as far as the original being started again.

    Args:
        scene: what to work on.
        started: every start of the trial's arms that is known.
        tell: takes what is happening.
        patience_s: returns the most seconds until it is being started.
    """
    scene.logs.stop()
    net = scene.armed()
    # On a full disk the restore goes on with what it knows.
    with suppress(HostError):
        remember(scene.host, net.names, _seen(started), "variant")
    if control.stopping(scene.host):
        raise TrialError(
            f"this machine is shutting down; {scene.unit} starts with it again, and `draftworth trial restore` then "
            "verifies that"
        )
    working = net.at_work()  # a variant that died has started it
    if not working:
        if not net.is_armed():
            return _without_net(scene, net, tell)
        with suppress(HostError):
            net.forget_state()
        net.trigger()
    # From here on the restore unit itself sees to the end; the timer would only end this record of it.
    net.clear_deadline()
    return _follow(scene, net, {"starting", "restored"}, tell, patience_s())


def _without_net(scene: "UnitScene", net: Net, tell: Tell) -> Sequence[str]:
    """Do what the restore unit would do: after a reboot, or where it has removed itself."""
    from dataclasses import replace  # noqa: PLC0415 - only here

    script = restore_script(replace(net.recipe, ask=None, gpu_mib={}), clean=False)
    tell(f"putting {scene.unit} back")
    done = scene.host.run(["/bin/sh", "-c", script], timeout_s=scene.config.limits.start_timeout_s + 600.0)
    if not done.ok:
        raise TrialError(f"{scene.unit} is not back: {done.why}")
    return ()


def _seen(started: Sequence[Running]) -> set[ProcessId]:
    return {process for running in started if running.mark for process in (running.leader, *running.seen)}


def _follow(scene: "UnitScene", net: Net, wanted: set[str], tell: Tell, patience_s: float) -> list[str]:
    """Wait until the restore unit has come so far, or is over."""
    deadline = time.monotonic() + patience_s
    worked = time.monotonic()
    while True:
        state = net.state()
        if state in wanted:
            return []
        if state.startswith("failing"):
            raise TrialError(f"{scene.unit}: {state.removeprefix('failing ')}")
        if state:
            tell(
                {"clearing": "ending what the trial started", "cleared": "the trial's servers have ended"}.get(
                    state, f"putting {scene.unit} back: {state}"
                )
            )
        if net.at_work():
            worked = time.monotonic()
        elif time.monotonic() - worked > _IDLE_S:
            # It is started again until it succeeds; without a word (a full /run) its end is the sign of that.
            if not state and control.now(scene.host, scene.unit).up:
                return []
            raise TrialError(f"{net.names.restore} does not run; `systemctl status {net.names.restore}` says why")
        if time.monotonic() > deadline:
            raise TrialError(f"{net.names.restore} is still {state or 'not begun'} after {patience_s:.0f} s")
        time.sleep(_POLL_S)


def start_original(scene: "UnitScene", observed: Observed, tell: Tell) -> Running:
    """Wait until the restore unit has started the original."""
    deadline = time.monotonic() + scene.config.limits.start_timeout_s
    while time.monotonic() < deadline:
        running = reading.find_original(scene, observed)
        if running is not None:
            return running
        net = scene.armed()
        if (state := net.state()).startswith("failing"):
            raise TrialError(f"{scene.unit}: {state.removeprefix('failing ')}")
        tell(f"waiting for {scene.unit} to start: {control.now(scene.host, scene.unit).words}")
        time.sleep(_POLL_S * 5)
    raise TrialError(f"{scene.unit} did not start in time")


def verify_original(scene: "UnitScene", observed: Observed, running: Running, tell: Tell) -> Sequence[str]:
    """Wait until the host itself has verified the restore, then compare everything with what was found."""
    found = scene.take(observed)
    tell(f"checking that {scene.unit} is as it was")
    net = scene.armed()
    if net.is_armed():
        _follow(scene, net, {"restored"}, tell, scene.config.limits.start_timeout_s)
    return not_as_found(scene.host, found, scene.names, scene.gpus, reading.members_of(scene, running))
