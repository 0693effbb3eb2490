"""`trial run`: prepare, lock, execute, judge, record. Returns a record; prints nothing but progress."""

import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from draftworth import redact
from draftworth.bench.machine import device_here
from draftworth.errors import RefusedError, TrialError, UsageError
from draftworth.trials.base import Outcome
from draftworth.trials.endpoints.config import EndpointsTrial
from draftworth.trials.endpoints.run import run_endpoints
from draftworth.trials.execute import Execution
from draftworth.trials.finish import Finished, finish, with_page
from draftworth.trials.guard import guarded
from draftworth.trials.home import new_trial
from draftworth.trials.interrupts import Interrupts
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Journal
from draftworth.trials.judge import arms_of
from draftworth.trials.load import load
from draftworth.trials.lock import locked
from draftworth.trials.prepare import Prepared, prepare_loaded
from draftworth.trials.progress import Progress, Shows
from draftworth.trials.record import NAME
from draftworth.trials.recover import refuse_unfinished
from draftworth.trials.restore import Scene
from draftworth.trials.search_drop_in import write_drop_in
from draftworth.trials.search_resume import earlier, mark_of
from draftworth.trials.search_unchecked import unchecked
from draftworth.trials.steps import Plan

if TYPE_CHECKING:
    from draftworth.services.base import ProcessId, Running


def run_trial(path: Path, *, show: Callable[[Plan], AbstractContextManager[Progress]], again: bool = False) -> Finished:
    """Run a trial from its file, in this process.

    Args:
        path: the trial's TOML file.
        show: opens the progress display for a plan.
        again: whether a search starts anew where an earlier one did not end.

    Raises:
        UsageError: the file is wrong.
        RefusedError: the trial was refused; nothing was changed.
    """
    config = load(path)
    if isinstance(config, EndpointsTrial):
        return run_endpoints(config, show=show)
    if again:
        config = config.anew()
    folder = new_trial()
    try:
        return conduct(folder, config.service.port, lambda: prepare_loaded(config), guard=guarded, show=show)
    except (UsageError, RefusedError, KeyboardInterrupt):
        # A signal that gets here came before the trial was at work: nothing was changed.
        _remove_empty(folder)
        raise


class Watch(Protocol):
    """Whoever restores the service when the tool dies."""

    @property
    def pid(self) -> int:
        """Its pid."""

    def alive(self) -> bool:
        """Whether it still would."""


def conduct(
    folder: Path,
    port: int,
    prepared_by: Callable[[], Prepared],
    *,
    guard: "Callable[[Path], AbstractContextManager[Watch]]",
    show: "Callable[[Plan], AbstractContextManager[Shows]]",
) -> Finished:
    """Run a trial in a folder of its own: lock, prepare, execute, judge, record; unlock, explain, draw.

    Args:
        folder: the trial's.
        port: the service's, which the lock is on.
        prepared_by: looks at the machine and plans, under the lock.
        guard: sets up whoever restores the service when the tool dies.
        show: opens the progress display for a plan.

    Raises:
        RefusedError: it was refused; nothing was changed.
    """
    began, began_unix = time.monotonic(), time.time()
    with locked(port, folder) as died:
        refuse_unfinished(port, died)
        prepared = prepared_by()
        prepared.service.join(folder, prepared.observed)
        interrupts = Interrupts(lambda _: None)
        with Journal(folder / JOURNAL, create=True) as journal, guard(folder) as watch:
            try:
                journal.append("note", "guard", pid=watch.pid)
            except TrialError as error:
                raise RefusedError(str(error)) from None
            # Guarded, and with signals handled, until the record is written: a trial that dies gets one too.
            with interrupts.installed():
                outcome = _execute(prepared, folder, journal, interrupts=interrupts, guard=watch, show=show)
                if outcome.refused is not None and outcome.restored is not None:
                    raise outcome.refused
                done = finish(
                    outcome,
                    arms_of(prepared.config, prepared.plan.commands, device_here()),
                    prepared.config,
                    prepared.engine,
                    shown_config=redact.config(prepared.config),
                    folder=folder,
                    began=began,
                    began_unix=began_unix,
                )
    if prepared.observed.unit is not None:
        write_drop_in(done.record, folder)
    # The service is back and the record written: the lock is free, and from here on Ctrl-C ends it at once.
    return with_page(done, again=interrupts.received is not None)


def _execute(
    prepared: Prepared,
    folder: Path,
    journal: Journal,
    *,
    interrupts: Interrupts,
    guard: Watch,
    show: "Callable[[Plan], AbstractContextManager[Shows]]",
) -> Outcome:
    from draftworth.services.processes import become_subreaper  # noqa: PLC0415 - lazy: psutil

    become_subreaper()
    config = prepared.config
    started: dict[ProcessId, Running] = {}
    mark = mark_of(prepared) if config.search is not None else {}
    with show(prepared.plan) as progress:
        interrupts.tell = progress.line
        scene = Scene(
            folder=folder,
            service=prepared.service,
            engine=prepared.engine,
            url=config.url,
            access=prepared.access,
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
        before, compared = earlier(config, mark, progress.line)
        if before:
            progress.line(f"going on with the search of trial {before[-1].trial}: {len(before)} settings were tried")
        execution = Execution(
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
            arms=arms_of(config, prepared.plan.commands, device_here()),
            access=prepared.access,
            before=before,
            mark=mark,
        )
        execution.outcome.earlier, execution.outcome.unchecked = compared, unchecked(compared, config)
        return execution.run()


def _remove_empty(folder: Path) -> None:
    """Take back the folder of a trial that was refused: nothing happened, so there is nothing to keep.

    Where there is a record, a signal came behind the trial: it stays.
    """
    if (folder / NAME).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
