"""Finishing what a killed trial left: used by `draftworth trial restore` and by the guard. Works from the journal."""

import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import draftworth
from draftworth.bench.base import Access
from draftworth.engines import engine as engine_named
from draftworth.errors import NotRestoredError, RefusedError, UsageError
from draftworth.services import service_for
from draftworth.services.base import Observed, ProcessId, Running
from draftworth.services.launch import SCRIPT
from draftworth.services.processes import boot_id
from draftworth.trials import record as records
from draftworth.trials.ask import access_of
from draftworth.trials.config import SystemdTrial, TrialConfig
from draftworth.trials.home import all_trials
from draftworth.trials.interrupts import Interrupts
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Event, Journal
from draftworth.trials.lock import dead, locked
from draftworth.trials.restore import Restored, Scene, forget, restore
from draftworth.verdicts.base import Verdict


def recover(folder: Path, say: Callable[[str], None], *, wait_s: float, by: str, role: str = "restore") -> str:
    """Restore the service of a trial whose process is gone, and write its record. Returns what was verified.

    Safe to call for any trial, any number of times. One whose restore was verified is only told so: what became of
    the service since is not the trial's any more.

    Args:
        folder: the trial's folder.
        say: takes progress.
        wait_s: seconds to wait for another trial or restore of the same service.
        by: who does it, for the record.
        role: the same for who waits for the lock.

    Raises:
        RefusedError: the trial still runs, or another holds the service.
        NotRestoredError: it could not be put back; carries the commands.
        UsageError: no such trial, or it never changed anything.
    """
    with Journal(folder / JOURNAL) as journal:
        config = _config(folder, begin_of(journal.events()).data["config"])
        interrupts = Interrupts(say, held=True)
        with locked(config.service.port, folder, wait_s=wait_s, role=role), interrupts.installed():
            scene = _scene(folder, config, journal, say)
            verified = _verified(journal.events())
            if verified is not None:
                forget(scene)
                if not (folder / records.NAME).is_file():
                    # Killed after its restore was verified and before its record was written.
                    _write(folder, "the trial's process died after it had restored the service", verified, ())
                return f"trial {folder.name} was restored already ({verified.how}); nothing to do"
            try:
                done = restore(scene, final=True)
            except NotRestoredError as error:
                _write(folder, f"the trial's process died; {by}: {error}", None, error.commands)
                raise
            _write(folder, f"the trial's process died before it was complete; restored by {by}", done, ())
    _draw(folder)
    return f"trial {folder.name}: {done.how}"


def _draw(folder: Path) -> None:
    """Draw the page of a trial that died, with its service back and its lock free. Never fatal."""
    from draftworth.trials.explaining import explain_and_draw  # noqa: PLC0415 - lazy

    with suppress(Exception):
        explain_and_draw(records.read(folder), folder)


def _config(folder: Path, journalled: dict[str, Any]) -> TrialConfig:
    """Return what a restore needs of a trial's file; the requests and the judgement are not its business.

    Raises:
        NotRestoredError: it cannot be read.
    """
    needed = {name: journalled[name] for name in ("service", "arms", "limits") if name in journalled}
    model = SystemdTrial if needed.get("service", {}).get("type") == "systemd" else TrialConfig
    try:
        return model.model_validate(needed)
    except ValidationError as error:
        script = folder / SCRIPT
        by_hand = (f"sh {shlex.quote(str(script))}",) if script.is_file() else ()
        raise NotRestoredError(f"the trial's journal cannot be read: {error.errors()[0]['msg']}", by_hand) from None


def _access(config: TrialConfig, say: Callable[[str], None]) -> Access | None:
    """Return what lets the tool in, or None where that is not known here: a restore must not depend on it."""
    try:
        return access_of(config.service)
    except UsageError as error:
        say(f"{error}; the original is put back without being asked to generate")
        return None


def _scene(folder: Path, config: TrialConfig, journal: Journal, say: Callable[[str], None]) -> Scene:
    begin = begin_of(journal.events())
    engine = engine_named(config.service.engine)
    command = engine.without_placeholder(config.service.command)
    service = service_for(config, command)
    observed = Observed.model_validate(begin.data["observed"])
    service.join(folder, observed)
    return Scene(
        folder=folder,
        service=service,
        engine=engine,
        url=config.url,
        access=_access(config, say),
        model=None,  # any served model proves that the service is back
        start_timeout_s=config.limits.start_timeout_s,
        say=say,
        mark=str(begin.data["mark"]),
        observed=observed,
        started=lambda: started_in(journal.events()),
        note=journal.note,
    )


def begin_of(events: list[Event]) -> Event:
    """Return the event that holds what a trial found before it changed anything.

    Raises:
        UsageError: there is none: the trial ended before it changed anything.
    """
    for event in events:
        if event.kind == "begin":
            return event
    raise UsageError("the trial's journal has no beginning: it ended before it changed anything, nothing to restore")


def started_in(events: list[Event]) -> list[Running]:
    """Return every start of the trial's arms in this boot, the latest that is known of each."""
    started: dict[ProcessId, Running] = {}
    for event in events:
        data = event.data.get("running")
        if not data or event.step == "start-original":
            continue
        running = Running.model_validate(data)
        if running.leader.boot == boot_id():
            started[running.leader] = running
    return list(started.values())


def _verified(events: list[Event]) -> Restored | None:
    """Return the restore a journal says the trial ended with, or None."""
    ends = [event for event in events if event.kind == "end"]
    if not ends or not ends[-1].data.get("restored"):
        return None
    return Restored(str(ends[-1].data.get("how", "")))


def needs_restore(folder: Path) -> bool | None:
    """Whether a trial changed something and never verified a restore; None where its journal cannot be read."""
    try:
        with Journal(folder / JOURNAL) as journal:
            events = journal.events()
    except UsageError:
        return None
    return any(event.kind == "begin" for event in events) and _verified(events) is None


def unfinished() -> list[Path]:
    """Return the trials that changed something and were never restored, oldest first."""
    return [folder for folder in all_trials() if (folder / JOURNAL).is_file() and needs_restore(folder)]


def refuse_unfinished(port: int, died: Path | None) -> None:
    """Refuse where an earlier trial of this service was killed and never restored.

    Args:
        port: the service's port.
        died: the folder of the trial that died holding the service's lock, or None.
    """
    for folder in unfinished():
        with Journal(folder / JOURNAL) as journal:
            of = int(begin_of(journal.events()).data["config"]["service"]["port"])
        if of == port:
            raise RefusedError(
                f"trial {folder.name} of the service on port {port} ended before it put the service back; "
                f"run `draftworth trial restore {folder.name}` first"
            )
    if died is not None and died not in all_trials() and needs_restore(died) is not False:
        raise RefusedError(
            f"trial {died.name} of the service on port {port} was killed before it put the service back; run "
            f"`{elsewhere(died)}` first"
        )


def left_elsewhere() -> list[tuple[int, Path]]:
    """Return the port and folder of every trial of another home that was killed holding a service and not restored.

    One that was killed after its restore was verified has left its name on the lock, and nothing else.
    """
    mine = all_trials()
    return [(port, folder) for port, folder in dead() if folder not in mine and needs_restore(folder) is not False]


def elsewhere(folder: Path) -> str:
    """Return the command that restores a trial of another home."""
    return f"DRAFTWORTH_HOME={shlex.quote(str(folder.parent.parent))} draftworth trial restore {folder.name}"


def _write(folder: Path, reason: str, done: Restored | None, commands: tuple[str, ...]) -> None:
    """Write the record of a trial that ended without one, or correct the one it has; keep what was measured."""
    from draftworth.bench.rows import merge_parts  # noqa: PLC0415 - lazy: pyarrow

    # The rows are worth keeping, and never worth a restore.
    with suppress(Exception):
        merge_parts(folder)
    try:
        found = records.read(folder)
    except UsageError:
        found = records.TrialRecord(
            id=folder.name,
            draftworth=draftworth.__version__,
            created=_created(folder),
            verdict=Verdict.ERROR,
            reason=reason,
            restored=False,
            error=reason,
        )
    update = {
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "restored": done is not None,
        "restore": done.how if done else reason,
        "restore_commands": commands,
    }
    records.write(found.model_copy(update=update), folder)


def _created(folder: Path) -> str:
    with Journal(folder / JOURNAL) as journal:
        events = journal.events()
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(events[0].unix))
