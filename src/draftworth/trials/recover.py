"""Finishing what a killed trial left: used by `draftworth trial restore` and by the guard."""

import time
from collections.abc import Callable
from pathlib import Path

import draftworth
from draftworth.errors import NotRestoredError, UsageError
from draftworth.trials import record as records
from draftworth.trials.home import all_trials
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Journal
from draftworth.trials.lock import locked
from draftworth.trials.restore import Restored, needs_restore, restore, scene_of
from draftworth.verdicts.base import Verdict


def recover(folder: Path, say: Callable[[str], None], *, wait_s: float, by: str) -> str:
    """Restore the service of a trial whose process is gone, and write its record. Returns what was verified.

    Safe to call for any trial, any number of times: one that was restored already is only said so.

    Args:
        folder: the trial's folder.
        say: takes progress.
        wait_s: seconds to wait for another trial or restore of the same service.
        by: who does it, for the record.

    Raises:
        RefusedError: the trial still runs, or another holds the service.
        NotRestoredError: it could not be put back; carries the commands.
        UsageError: no such trial, or it never changed anything.
    """
    scene = scene_of(folder, say)
    with Journal(folder / JOURNAL) as journal:
        config = next(event.data["config"] for event in journal.events() if event.kind == "begin")
    with locked(int(config["service"]["port"]), folder.name, wait_s=wait_s):
        if not needs_restore(folder):
            if not (folder / records.NAME).is_file():
                # Killed after its restore was verified and before its record was written.
                _write(
                    folder, "the trial's process died after it had restored the service", _restored_before(folder), ()
                )
            return f"trial {folder.name} is restored already; nothing to do"
        try:
            done = restore(scene)
        except NotRestoredError as error:
            _write(folder, f"the trial's process died; {by}: {error}", None, error.commands)
            raise
        _write(folder, f"the trial's process died before it was complete; restored by {by}", done, ())
    return f"trial {folder.name}: {done.how}"


def _write(folder: Path, reason: str, done: Restored | None, commands: tuple[str, ...]) -> None:
    """Write the record of a trial that ended without one, or correct the one it has."""
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


def _restored_before(folder: Path) -> Restored:
    """Return the restore a journal says was verified."""
    with Journal(folder / JOURNAL) as journal:
        ends = [event for event in journal.events() if event.kind == "end" and event.data.get("restored")]
    return Restored(str(ends[-1].data.get("how", "")))


def _created(folder: Path) -> str:
    with Journal(folder / JOURNAL) as journal:
        events = journal.events()
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(events[0].unix))


def unfinished() -> list[Path]:
    """Return the trials that changed something and were never restored, oldest first."""
    return [folder for folder in all_trials() if (folder / JOURNAL).is_file() and needs_restore(folder)]
