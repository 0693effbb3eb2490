"""The end of a trial's end: its account in milliseconds and its page. Neither can lose a trial that was measured."""

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import DraftworthError
from draftworth.trials.record import TrialRecord, write_text
from draftworth.verdicts.base import Verdict

if TYPE_CHECKING:
    from draftworth.explain.base import Explained

SWITCH = "DRAFTWORTH_PAGE"
"""`off` in the environment leaves both for later (`draftworth explain`, `draftworth report`): they take some seconds
of a processor, which a machine that serves may not have to spare."""
PAGE = "report.html"
FAILED = "explain-failed.txt"


def explain_and_draw(record: TrialRecord, folder: Path) -> str:
    """Write `explained.json` and `report.html`. What goes wrong is written to `explain-failed.txt` instead.

    Args:
        record: the trial's, written already.
        folder: the trial's.

    Returns:
        The cause in a sentence; empty where there is none.
    """
    if os.environ.get(SWITCH, "").strip().lower() in {"off", "0", "no"}:
        return ""
    explained: Explained | None = None
    wrong: list[str] = []
    if record.verdict is not Verdict.ERROR:
        try:
            explained = _explained(folder)
        except DraftworthError as error:
            wrong.append(f"not explained: {error}\n")
        except Exception as error:  # noqa: BLE001 - a bug in explaining, kept for a report of it
            wrong += traceback.format_exception(error)
    try:
        from draftworth.reports.trial_page import trial_page  # noqa: PLC0415 - lazy: altair takes a second

        write_text(folder / PAGE, trial_page(folder, record, explained))
    except Exception as error:  # noqa: BLE001 - a bug in drawing, kept for a report of it
        wrong += traceback.format_exception(error)
    if wrong:
        write_text(folder / FAILED, "".join(wrong))
    return explained.summary if explained else ""


def _explained(folder: Path) -> "Explained":
    from draftworth.explain.whole import explain_trial, save  # noqa: PLC0415 - lazy

    found = explain_trial(folder)
    save(found, folder)
    return found
