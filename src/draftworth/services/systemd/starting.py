"""Starting variants: their units made and compared before the original is touched, then started one at a time."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import ServerStartError, TrialError
from draftworth.services.base import Running, Start, Tell
from draftworth.services.processes import identify
from draftworth.services.shm import names as shm_names
from draftworth.services.systemd import control
from draftworth.services.systemd.adoption import mode_for
from draftworth.services.systemd.known import uid_of
from draftworth.services.systemd.variant import Variant, drop_in, parallel
from draftworth.services.systemd.verify import check_loaded

if TYPE_CHECKING:
    from draftworth.services.systemd.found import UnitFound
    from draftworth.services.systemd.scene import UnitScene

_POLL_S = 0.1


def make_variants(scene: "UnitScene", found: "UnitFound") -> None:
    """Make every variant's unit, and compare what systemd has loaded of those that are units of their own.

    Raises:
        RefusedError: a variant would differ in more than it may.
        HostError: a unit cannot be written or loaded.
    """
    for arm, argv in scene.commands.items():
        if arm in _started_arms(scene):
            scene.variants[arm] = _make(scene, found, arm, argv)
    if found.way == "parallel":
        _compare_parallel(scene, found)


def _started_arms(scene: "UnitScene") -> set[str]:
    baseline = scene.config.baseline
    own = {baseline.name} if baseline.args else set()
    return {arm.name for arm in scene.config.variants} | own


def _make(scene: "UnitScene", found: "UnitFound", arm: str, argv: Sequence[str]) -> Variant:
    start_s = scene.config.limits.start_timeout_s + 60.0
    if found.way == "parallel":
        return parallel(scene.host, found.snapshot, scene.names, arm, argv, start_s=start_s)
    return drop_in(found.snapshot, scene.names, arm, argv, start_s=start_s)


def _compare_parallel(scene: "UnitScene", found: "UnitFound") -> None:
    for variant in scene.variants.values():
        scene.host.write(variant.path, variant.text.encode(), mode_for(found.snapshot))
    scene.armed().reload()
    for variant in scene.variants.values():
        check_loaded(scene.host, found, variant, scene.names)


def start(scene: "UnitScene", start: Start, tell: Tell) -> Running:
    """Start a variant; returns once it has a main process."""
    net = scene.armed()
    if not net.is_armed() or net.state() not in {"", "restored"}:
        raise TrialError("the host puts the original back meanwhile; nothing is started any more")
    net.forget_state()
    found = scene.found_now()
    variant = scene.variants[start.arm]
    before = shm_names()
    tell(f"starting {variant.unit}")
    if found.way == "drop-in":
        scene.host.write(scene.names.changed, b"")
    scene.host.write(variant.path, variant.text.encode(), mode_for(found.snapshot))
    net.reload()
    check_loaded(scene.host, found, variant, scene.names)
    if found.way == "drop-in":
        _start_units(scene, found.triggers)
    old = control.now(scene.host, variant.unit).invocation
    control.order(scene.host, "start", "--no-block", "--", variant.unit)
    state = _await_process(scene, variant, old, start, tell)
    leader = identify(state.pid)
    if leader is None:
        raise _not_started(scene, variant.unit, state, start.log)
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


def _await_process(scene: "UnitScene", variant: Variant, old: str, start: Start, tell: Tell) -> control.Now:
    """Wait for the main process: what comes before it (ExecStartPre=) may wait for GPUs itself."""
    deadline = min(scene.deadline, time.monotonic() + scene.config.limits.start_timeout_s)
    followed = False
    while True:
        state = control.now(scene.host, variant.unit)
        fresh = bool(state.invocation) and state.invocation != old
        if fresh and not followed:
            scene.logs.follow(scene.found_now(), variant.unit, state.invocation, start.log)
            followed = True
        if fresh and state.pid:
            return state
        if fresh and not state.up:
            raise _not_started(scene, variant.unit, state, start.log)
        if time.monotonic() > deadline:
            raise ServerStartError(f"{variant.unit} has no main process in time: it is {state.words}")
        tell(f"{variant.unit} is {state.words}")
        time.sleep(_POLL_S)


def _not_started(scene: "UnitScene", unit: str, state: control.Now, log: Path) -> ServerStartError:
    time.sleep(_POLL_S * 5)  # the journal is a moment behind
    return ServerStartError(f"{unit} did not start: it is {state.words}", scene.logs.tail(unit, log))


def settled(scene: "UnitScene", running: Running, tell: Tell) -> None:
    """Bring back what stopped with the original's unit: it runs, with another command."""
    scene.logs.settle()
    found = scene.found_now()
    if running.mark and found.way == "drop-in" and found.dependents:
        tell(f"starting what depends on it: {', '.join(found.dependents)}")
        _start_units(scene, found.dependents)


def _start_units(scene: "UnitScene", units: Sequence[str]) -> None:
    for unit in units:
        # A target pulls in everything it wants, also what a person has stopped.
        alone = ("--job-mode=ignore-dependencies",) if unit.endswith(".target") else ()
        control.order(scene.host, "start", *alone, "--", unit)
