"""The end of a trial's end: its account in milliseconds and its page. Neither can lose a trial that was measured.

Both are made when the service is back, the record is written and the lock is free. Ctrl-C ends them at once.
"""

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import DraftworthError
from draftworth.trials import record as records
from draftworth.trials.config import BASELINE
from draftworth.trials.profiling import read_taken
from draftworth.trials.record import TrialRecord, write_text

if TYPE_CHECKING:
    from draftworth.explain.base import Explained

SWITCH = "DRAFTWORTH_PAGE"
"""`off` in the environment leaves both for later (`draftworth explain`, `draftworth report`): they take some seconds
of a processor, which a machine that serves may not have to spare."""
PAGE = "report.html"
FAILED = "explain-failed.txt"


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it.

    Attributes:
        record: the trial's, with what its profiles could not tell.
        cause: in a sentence; empty where there is none.
    """

    record: TrialRecord
    cause: str = ""


def explain_and_draw(record: TrialRecord, folder: Path, *, again: bool = False) -> Told:
    """Write `explained.json` and `report.html`. What goes wrong is written to `explain-failed.txt` instead.

    Args:
        record: the trial's, written already.
        folder: the trial's.
        again: whether signals are ignored since one has ended the trial: Ctrl-C ends this all the same.
    """
    if os.environ.get(SWITCH, "").strip().lower() in {"off", "0", "no"}:
        return Told(record)
    explained: Explained | None = None
    wrong: list[str] = []
    try:
        with _ctrl_c(again=again):
            record = _with_profiles(record, folder)
            if _measured(record):
                explained = _explain(record, folder, wrong)
            _draw(record, folder, explained, wrong)
    except KeyboardInterrupt:
        wrong.append(
            f"ended by Ctrl-C; `draftworth explain {folder.name}` and `draftworth report {folder.name}` go on\n"
        )
    with contextlib.suppress(OSError):
        if wrong:
            write_text(folder / FAILED, "".join(wrong))
    return Told(record, explained.summary if explained else "")


def _measured(record: TrialRecord) -> bool:
    """Whether the baseline and a variant have rows, however the trial ended."""
    answered = {arm.name for arm in record.arms if arm.requests}
    return BASELINE in answered and len(answered) > 1


def _with_profiles(record: TrialRecord, folder: Path) -> TrialRecord:
    """Read the traces that the trial took. What could not be read becomes a finding of the record."""
    found = read_taken(folder)
    if not found:
        return record
    record = record.model_copy(update={"findings": (*record.findings, *found)})
    with contextlib.suppress(OSError):
        records.write(record, folder)
    return record


def _explain(record: TrialRecord, folder: Path, wrong: list[str]) -> "Explained | None":
    from draftworth.explain.kept import save  # noqa: PLC0415 - lazy
    from draftworth.explain.whole import explain_trial, of_unfinished  # noqa: PLC0415 - lazy

    try:
        found = of_unfinished(explain_trial(folder), record)
        save(found, folder)
    except DraftworthError as error:
        wrong.append(f"not explained: {error}\n")
    except Exception as error:  # noqa: BLE001 - a bug in explaining, kept for a report of it
        wrong += traceback.format_exception(error)
    else:
        return found
    return None


def _draw(record: TrialRecord, folder: Path, explained: "Explained | None", wrong: list[str]) -> None:
    try:
        from draftworth.reports.markdown import write_report  # noqa: PLC0415 - lazy

        write_report(folder, record, explained)
    except Exception as error:  # noqa: BLE001 - a bug in writing it, kept for a report of it
        wrong += traceback.format_exception(error)
    try:
        from draftworth.reports.trial_page import trial_page  # noqa: PLC0415 - lazy: altair takes a second

        write_text(folder / PAGE, trial_page(folder, record, explained))
    except Exception as error:  # noqa: BLE001 - a bug in drawing, kept for a report of it
        wrong += traceback.format_exception(error)


@contextmanager
def _ctrl_c(*, again: bool) -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt within the block, also where an earlier one has ended the trial."""
    if not again or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
