"""`trial run`: prepare, lock, execute, judge, record. Returns a record; prints nothing but progress."""

import os
import platform
import secrets
import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.rows import write_rows
from draftworth.errors import DraftworthError, RefusedError, UsageError
from draftworth.reports.markdown import report
from draftworth.trials import record as records
from draftworth.trials.base import Outcome
from draftworth.trials.execute import Execution
from draftworth.trials.guard import Guard, guarded
from draftworth.trials.home import new_trial
from draftworth.trials.interrupts import Interrupts
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Journal
from draftworth.trials.load import load
from draftworth.trials.lock import locked
from draftworth.trials.outcome import make_record
from draftworth.trials.plan import Plan
from draftworth.trials.prepare import Prepared, prepare
from draftworth.trials.progress import Progress
from draftworth.trials.record import TrialRecord, write_text
from draftworth.trials.recover import refuse_unfinished
from draftworth.trials.restore import Scene

if TYPE_CHECKING:
    from draftworth.services.base import ProcessId, Running

REPORT = "report.md"


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial that ended.

    Attributes:
        record: what trial.json holds.
        folder: where everything is.
        crash: a bug of Draftworth's that ended it, after the restore.
    """

    record: TrialRecord
    folder: Path
    crash: Exception | None = None


def run_trial(path: Path, *, show: Callable[[Plan], AbstractContextManager[Progress]]) -> Finished:
    """Run a trial from its file.

    Args:
        path: the trial's TOML file.
        show: opens the progress display for a plan.

    Raises:
        UsageError: the file is wrong.
        RefusedError: the trial was refused; nothing was changed.
    """
    began, began_unix = time.monotonic(), time.time()
    port = load(path).service.port
    folder = new_trial()
    try:
        with locked(port, folder) as died:
            refuse_unfinished(port, died)
            prepared = prepare(path)
            interrupts = Interrupts(lambda _: None)
            with Journal(folder / JOURNAL, create=True) as journal, guarded(folder) as guard:
                journal.append("note", "guard", pid=guard.pid)
                # Guarded, and with signals handled, until the record is written: a trial that dies gets one too.
                with interrupts.installed():
                    outcome = _execute(prepared, folder, journal, interrupts=interrupts, guard=guard, show=show)
                    return _finish(prepared, folder, outcome, began, began_unix)
    except (UsageError, RefusedError, KeyboardInterrupt):
        # A signal that gets here came before the trial was at work: nothing was changed.
        _remove_empty(folder)
        raise


def _finish(prepared: Prepared, folder: Path, outcome: Outcome, began: float, began_unix: float) -> Finished:
    """Write everything a trial leaves. The record is written last, so a record means a whole trial.

    Raises:
        NotRestoredError: the record cannot be written, and the service is not back either.
        DraftworthError: the record cannot be written; the service is back.
    """
    record = make_record(
        outcome,
        prepared.plan,
        prepared.config,
        prepared.engine,
        trial=folder.name,
        began_unix=began_unix,
        seconds=time.monotonic() - began,
        machine=machine(),
    )
    try:
        write_rows([row for block in outcome.blocks for row in block.rows], folder)
        if outcome.crash is not None:
            write_text(folder / "crash.txt", "".join(traceback.format_exception(outcome.crash)))
        # What writing the rows cost belongs to the tool's own time too.
        seconds = time.monotonic() - began
        times = {"seconds": round(seconds, 3), "overhead_seconds": round(max(seconds - outcome.waited_s, 0.0), 3)}
        record = record.model_copy(update=times)
        write_text(folder / REPORT, report(record))
        records.write(record, folder)
    except OSError as error:
        if outcome.restore_error is not None:
            raise outcome.restore_error from None
        raise DraftworthError(
            f"{folder}: the record cannot be written: {error.strerror or error}; the service is back "
            f"({record.restore}); verdict: {record.verdict}: {record.reason}"
        ) from None
    return Finished(record, folder, outcome.crash)


def _execute(
    prepared: Prepared,
    folder: Path,
    journal: Journal,
    *,
    interrupts: Interrupts,
    guard: Guard,
    show: Callable[[Plan], AbstractContextManager[Progress]],
) -> Outcome:
    from draftworth.services.processes import become_subreaper  # noqa: PLC0415 - lazy: psutil

    become_subreaper()
    config = prepared.config
    started: dict[ProcessId, Running] = {}
    with show(prepared.plan) as progress:
        interrupts.tell = progress.line
        scene = Scene(
            folder=folder,
            service=prepared.service,
            engine=prepared.engine,
            url=config.url,
            model=None,  # any served model proves that the service is back
            start_timeout_s=config.limits.start_timeout_s,
            say=progress.now,
            # Two trials of one second, in two homes, must not take each other's processes for theirs.
            mark=f"{folder.name}/{secrets.token_hex(8)}/",
            observed=prepared.observed,
            # From memory: a restore must not depend on a journal that a full disk has ended.
            started=lambda: list(started.values()),
            note=journal.note,
        )
        return Execution(
            plan=prepared.plan,
            config=config,
            observed=prepared.observed,
            scene=scene,
            prompts=prepared.prompts,
            journal=journal,
            progress=progress,
            model_path=prepared.model_path,
            interrupts=interrupts,
            guard=guard,
            started=started,
        ).run()


def _remove_empty(folder: Path) -> None:
    """Take back the folder of a trial that was refused: nothing happened, so there is nothing to keep."""
    shutil.rmtree(folder, ignore_errors=True)


def machine() -> dict[str, Any]:
    """Return what the trial ran on: kernel, processor, cores, memory."""
    import psutil  # noqa: PLC0415 - lazy

    return {
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
