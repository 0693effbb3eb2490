"""Putting the service back: from any state, any number of times, by the trial, its guard or a person.

Works from the journal alone. What the trial started is ended (by recorded process, by session, by mark); the
original, where it ran before, is started again and must generate a token; where nothing ran, the port must be free.
"""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.errors import DraftworthError, NotRestoredError, TrialError, UsageError
from draftworth.services.base import Observed, ProcessId, Running
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Event, Journal
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
        remarks: what had to be ended by force.
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
        model: the served name, or None for the first the server lists.
        start_timeout_s: most seconds the original may take to start, an attempt.
        say: takes what is happening.
    """

    folder: Path
    service: "Service"
    engine: "Engine"
    url: str
    model: str | None
    start_timeout_s: float
    say: Callable[[str], None]


def scene_of(folder: Path, say: Callable[[str], None]) -> Scene:
    """Return the scene of a trial from its journal alone.

    Raises:
        UsageError: there is no journal, or it has no beginning.
    """
    from draftworth.engines import engine as engine_named  # noqa: PLC0415 - lazy
    from draftworth.services import service_for  # noqa: PLC0415 - lazy
    from draftworth.trials.config import TrialConfig  # noqa: PLC0415 - lazy: pydantic models

    with Journal(folder / JOURNAL) as journal:
        begin = _begin(journal.events())
    config = TrialConfig.model_validate(begin.data["config"])
    engine = engine_named(config.service.engine)
    return Scene(
        folder=folder,
        service=service_for(
            config.service,
            engine.without_placeholder(config.service.command),
            stop_timeout_s=config.limits.stop_timeout_s,
        ),
        engine=engine,
        url=config.url,
        model=config.service.model,
        start_timeout_s=config.limits.start_timeout_s,
        say=say,
    )


def restore(scene: Scene) -> Restored:
    """Put the service back and verify it.

    Raises:
        NotRestoredError: with the commands that do it by hand.
    """
    with Journal(scene.folder / JOURNAL) as journal:
        observed = observed_in(journal.events())
        problem: DraftworthError | None = None
        remarks: list[str] = []
        for attempt in range(1, _ATTEMPTS + 1):
            if attempt > 1:
                scene.say(f"trying again ({attempt} of {_ATTEMPTS}): {problem}")
                time.sleep(_PAUSE_S * (attempt - 1))
            try:
                with journal.step("restore", attempt=attempt) as effect:
                    remarks += _clear(scene, journal.events())
                    done = _bring_back(scene, observed, journal) if observed.running else _leave_empty(scene)
                    effect["how"] = done.how
                journal.append("end", "restore", restored=True, how=done.how)
                # Only now: a death before this line leaves the way back on disk, a death after it needs none.
                scene.service.forget_original(scene.folder)
            except DraftworthError as error:
                problem = error
            else:
                return replace(done, remarks=tuple(remarks))
        journal.append("end", "restore", restored=False, error=str(problem))
        raise NotRestoredError(f"the service is NOT restored: {problem}", by_hand(scene.folder, journal.events()))


def _clear(scene: Scene, events: list[Event]) -> list[str]:
    """End everything the trial started."""
    marked = scene.service.find_marked(f"{scene.folder.name}/")
    return list(scene.service.clear(started_in(events), marked, scene.say))


def _leave_empty(scene: Scene) -> Restored:
    holder = scene.service.holder()
    if holder:
        return Restored(f"nothing ran before the trial and nothing of it runs; the port is meanwhile held by {holder}")
    return Restored("nothing ran before the trial; nothing of it runs and the port is free")


def _bring_back(scene: Scene, observed: Observed, journal: Journal) -> Restored:
    running = scene.service.find_original(observed)
    offset, seconds = 0, None
    began = time.monotonic()
    if running is None:
        log = Path(observed.log) if observed.log else scene.folder / "logs" / "original.log"
        offset = log.stat().st_size if log.is_file() else 0
        with journal.step("start-original", command=list(redact.command(observed.command))) as effect:
            running = scene.service.start_original(observed, scene.folder, scene.say)
            effect["running"] = running.model_dump(mode="json")
        started = True
    else:
        scene.say(f"the original runs already, pid {running.leader.pid}")
        started = False
    name, running = wait_ready(
        scene.service,
        running,
        LogFollower(running.log, scene.engine.log_reader(), offset),
        url=scene.url,
        model=scene.model,
        deadline=time.monotonic() + scene.start_timeout_s,
        say=scene.say,
        hint=scene.engine.failure_hint,
    )
    if started:
        seconds = time.monotonic() - began
    how = f"the original runs, pid {running.leader.pid}, owns the port, and has generated a token with {name}"
    return Restored(how, (), running, name, offset, seconds)


def _begin(events: list[Event]) -> Event:
    for event in events:
        if event.kind == "begin":
            return event
    raise UsageError("the trial's journal has no beginning: it ended before it changed anything, nothing to restore")


def observed_in(events: list[Event]) -> Observed:
    """Return what the trial found before it changed anything.

    Raises:
        UsageError: the journal has no beginning: the trial ended before it changed anything.
    """
    return Observed.model_validate(_begin(events).data["observed"])


def started_in(events: list[Event]) -> list[Running]:
    """Return every start of the trial's arms in this boot, the latest that is known of each."""
    boot = _this_boot()
    started: dict[ProcessId, Running] = {}
    for event in events:
        running = _running_of(event)
        if running is not None and event.step != "start-original" and running.leader.boot == boot:
            started[running.leader] = running
    return list(started.values())


def _running_of(event: Event) -> Running | None:
    data: Any = event.data.get("running")
    return Running.model_validate(data) if data else None


def _this_boot() -> str:
    from draftworth.services.processes import boot_id  # noqa: PLC0415 - lazy: psutil

    return boot_id()


def by_hand(folder: Path, events: list[Event]) -> tuple[str, ...]:
    """Return shell commands that put the service back without Draftworth."""
    from draftworth.services.launch import SCRIPT  # noqa: PLC0415 - lazy: psutil
    from draftworth.services.processes import is_alive  # noqa: PLC0415

    processes = [process for running in started_in(events) for process in (running.leader, *running.seen)]
    alive = [str(process.pid) for process in dict.fromkeys(processes) if is_alive(process)]
    commands = [f"kill -9 {' '.join(alive)}"] if alive else []
    if observed_in(events).running:
        commands.append(f"sh {shlex.quote(str(folder / SCRIPT))}")
    return tuple(commands)


def needs_restore(folder: Path) -> bool:
    """Whether a trial changed something and never verified a restore."""
    try:
        with Journal(folder / JOURNAL) as journal:
            events = journal.events()
    except (UsageError, TrialError):
        return False
    begun = any(event.kind == "begin" for event in events)
    ended = any(event.kind == "end" and event.data.get("restored") for event in events)
    return begun and not ended
