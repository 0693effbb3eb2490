"""Putting the service back: from any state, any number of times, by the trial, its guard or a person.

What the trial started is ended (by recorded process, by session, by mark); the original, where it ran before, is
started again and must generate a token; where nothing ran, nothing of the trial's may run. Nothing that can go wrong
on the way (a full disk, a journal that cannot be written, a process that vanishes) ends the attempts early.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.base import Access
from draftworth.errors import NotRestoredError, TrialError
from draftworth.services.base import Observed, Running
from draftworth.trials.ready import LogFollower, wait_ready

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.base import Service

_ATTEMPTS = 3
_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Restored:
    """A verified restore.

    Attributes:
        how: what was verified, for a person.
        remarks: what had to be ended by force, and what is not quite as it was.
        running: the original, where it runs.
        model: the served name that answered, where it runs.
        log_offset: where this start's output begins in the original's log.
        seconds: what starting the original took; None where it was not started.
    """

    how: str
    remarks: tuple[str, ...] = ()
    running: Running | None = None
    model: str | None = None
    log_offset: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a restore works on.

    Attributes:
        folder: the trial's folder.
        service: the service, as the trial's file describes it.
        engine: reads the original's log while it starts.
        url: where the service answers.
        access: what lets the tool in; None where that is not known here, and a token cannot be asked for.
        model: the served name, or None for the first the server lists.
        start_timeout_s: most seconds the original may take to start, an attempt.
        say: takes what is happening.
        mark: what the mark of every process of the trial begins with.
        observed: the service as it was found.
        started: returns every start of the trial's arms that is known.
        note: writes to the journal as far as that is possible; takes kind, step and data, never raises.
    """

    folder: Path
    service: "Service"
    engine: "Engine"
    url: str
    access: Access | None
    model: str | None
    start_timeout_s: float
    say: Callable[[str], None]
    mark: str
    observed: Observed
    started: Callable[[], Sequence[Running]]
    note: Callable[..., None]


def restore(scene: Scene, *, final: bool) -> Restored:
    """Put the service back and verify it.

    Args:
        scene: what to work on.
        final: whether the trial ends with it. Only then is the way back (the original's saved environment) removed.

    Raises:
        NotRestoredError: with the commands that do it by hand.
    """
    problem: Exception | None = None
    remarks: list[str] = []
    for attempt in range(1, _ATTEMPTS + 1):
        if attempt > 1:
            scene.say(f"trying again ({attempt} of {_ATTEMPTS}): {problem}")
            time.sleep(_PAUSE_S * (attempt - 1))
        scene.note("intent", "restore", attempt=attempt)
        try:
            remarks += _clear(scene)
            done = _bring_back(scene) if scene.observed.running else _leave_empty(scene)
        except Exception as error:  # noqa: BLE001 - whatever it is, the service has to come back
            problem = error
            scene.note("failure", "restore", error=f"{type(error).__name__}: {error}")
            continue
        scene.note("effect", "restore", how=done.how)
        if final:
            scene.note("end", "restore", restored=True, how=done.how)
            # Only now: a death before this line leaves the way back on disk, a death after it needs none.
            remarks += forget(scene)
        return replace(done, remarks=tuple(dict.fromkeys([*remarks, *done.remarks])))
    scene.note("end", "restore", restored=False, error=str(problem))
    raise NotRestoredError(f"the service is NOT restored: {problem or 'unknown'}", by_hand(scene))


def forget(scene: Scene) -> list[str]:
    """Remove the way back, which holds the original's environment. Returns a remark where that failed."""
    try:
        scene.service.forget_original(scene.folder)
    except Exception as error:  # noqa: BLE001 - the service is back; what stays is a file to remove by hand
        return [f"the original's saved environment stays in {scene.folder}: {error}; remove it by hand"]
    return []


def _clear(scene: Scene) -> list[str]:
    """End everything the trial started."""
    marked = scene.service.find_marked(scene.mark)
    return list(scene.service.clear(scene.started(), marked, scene.say))


def _leave_empty(scene: Scene) -> Restored:
    holder = scene.service.holder()
    if holder:
        return Restored(f"nothing ran before the trial and nothing of it runs; the port is meanwhile held by {holder}")
    return Restored("nothing ran before the trial; nothing of it runs and the port is free")


def _bring_back(scene: Scene) -> Restored:
    running = scene.service.find_original(scene.observed)
    remarks: tuple[str, ...] = ()
    offset, began, started = 0, time.monotonic(), False
    if running is None and (holder := scene.service.holder()):
        running = scene.service.find_holder(scene.observed)
        if running is None:
            raise TrialError(f"its port is held by {holder}, which is not the original")
        remarks = (f"the original was started by somebody else meanwhile, in another way than before: {holder}",)
    if running is None:
        log = Path(scene.observed.log) if scene.observed.log else scene.folder / "logs" / "original.log"
        offset = log.stat().st_size if log.is_file() else 0
        scene.note("intent", "start-original", command=list(redact.command(scene.observed.command)))
        running = scene.service.start_original(scene.observed, scene.folder, scene.say)
        scene.note("effect", "start-original", running=running.model_dump(mode="json"))
        started = True
    else:
        scene.say(f"the original runs already, pid {running.leader.pid}")
    name, running = wait_ready(
        scene.service,
        running,
        LogFollower(running.log, scene.engine.log_reader(), offset),
        url=scene.url,
        access=scene.access,
        model=scene.model,
        deadline=time.monotonic() + scene.start_timeout_s,
        say=scene.say,
        hint=scene.engine.failure_hint,
    )
    remarks = (*remarks, *scene.service.verify_original(scene.observed, running, scene.say))
    seconds = time.monotonic() - began if started else None
    told = (
        f"has generated a token with {name}" if name else "is healthy; it was not asked to generate: its key is not set"
    )
    how = f"the original runs, pid {running.leader.pid}, owns the port, and {told}"
    return Restored(how, remarks, running, name or None, offset, seconds)


def by_hand(scene: Scene) -> tuple[str, ...]:
    """Return shell commands that put the service back without Draftworth."""
    from draftworth.services.launch import SCRIPT  # noqa: PLC0415 - lazy: psutil
    from draftworth.services.processes import is_alive  # noqa: PLC0415 - lazy

    own = tuple(scene.service.commands())
    if own:
        return own
    processes = [process for running in scene.started() for process in (running.leader, *running.seen)]
    alive = [str(process.pid) for process in dict.fromkeys(processes) if is_alive(process)]
    commands = [f"kill -9 {' '.join(alive)}"] if alive else []
    script = scene.folder / SCRIPT
    if scene.observed.running and script.is_file():
        commands.append(f"sh {shlex.quote(str(script))}")
    elif scene.observed.running:
        argv = shlex.join(redact.command(scene.observed.command))
        commands.append(f"cd {shlex.quote(scene.observed.cwd or '/')} && setsid {argv} </dev/null &")
    return tuple(commands)
