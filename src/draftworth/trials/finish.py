"""The end of a trial, of whatever kind: judge, and write everything it leaves.

The record is written last. What is made of it alone, the account in milliseconds and the page, comes behind it and
outside of the trial's lock.
"""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.bench.machine import machine
from draftworth.bench.rows import drop_parts, write_rows
from draftworth.errors import DraftworthError
from draftworth.reports.markdown import report
from draftworth.reports.plots import TRIAL_PLOT, trial_plot
from draftworth.trials import record as records
from draftworth.trials.base import Outcome
from draftworth.trials.config import CommonConfig
from draftworth.trials.explaining import explain_and_draw
from draftworth.trials.outcome import make_record
from draftworth.trials.record import TrialRecord, write_text
from draftworth.trials.remarks import ArmInfo

if TYPE_CHECKING:
    from draftworth.engines.base import Engine

REPORT = "report.md"


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial that ended.

    Attributes:
        record: what trial.json holds.
        folder: where everything is.
        crash: a bug of Draftworth's that ended it, after the restore.
        cause: of the verdict, in a sentence; empty where it was not told.
    """

    record: TrialRecord
    folder: Path
    crash: Exception | None = None
    cause: str = ""


def finish(
    outcome: Outcome,
    arms: Sequence[ArmInfo],
    config: CommonConfig,
    engine: "Engine",
    *,
    shown_config: dict[str, Any],
    folder: Path,
    began: float,
    began_unix: float,
) -> Finished:
    """Write everything a trial leaves. The record is written last, so a record means a whole trial.

    Args:
        outcome: what the run left.
        arms: the arms as asked for, the baseline first.
        config: the trial's file.
        engine: compares effective configurations.
        shown_config: the file as it is shown, secrets hidden.
        folder: the trial's.
        began: `time.monotonic()` at its beginning.
        began_unix: the same in Unix time.

    Raises:
        NotRestoredError: the record cannot be written, and the service is not back either.
        DraftworthError: the record cannot be written; the service is back.
    """
    record = make_record(
        outcome,
        arms,
        config,
        engine,
        shown_config=shown_config,
        trial=folder.name,
        began_unix=began_unix,
        seconds=time.monotonic() - began,
        machine=machine(),
    )
    try:
        write_rows([row for block in outcome.blocks for row in block.rows], folder)
        drop_parts(folder)
        if outcome.crash is not None:
            write_text(folder / "crash.txt", "".join(traceback.format_exception(outcome.crash)))
        # What writing the rows cost belongs to the tool's own time too.
        seconds = time.monotonic() - began
        times = {"seconds": round(seconds, 3), "overhead_seconds": round(max(seconds - outcome.waited_s, 0.0), 3)}
        record = record.model_copy(update=times)
        _plot(record, folder)
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


def with_page(done: Finished, *, again: bool) -> Finished:
    """Explain a trial and draw its page, with nothing of the trial at hand any more.

    Args:
        done: the trial, its record written.
        again: whether a signal has ended it already.

    Returns:
        The same with the cause, and with what its profiles could not tell.
    """
    told = explain_and_draw(done.record, done.folder, again=again)
    return replace(done, record=told.record, cause=told.cause)


def _plot(record: TrialRecord, folder: Path) -> None:
    """Write the plot of a sweep. A measured trial is not lost for a picture: what goes wrong is written instead."""
    try:
        plot = trial_plot(record)
    except Exception as error:  # noqa: BLE001 - a bug in drawing, kept for a report of it
        write_text(folder / "plot-failed.txt", "".join(traceback.format_exception(error)))
        return
    if plot is not None:
        write_text(folder / TRIAL_PLOT, plot)
