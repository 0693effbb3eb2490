"""What becomes of a bug in something that the verdict does not need: its traceback is kept and the trial goes on."""

import contextlib
import traceback
from pathlib import Path

from draftworth.errors import DraftworthError

FAILED = "diagnostics-failed.txt"


def told(error: Exception, folder: Path) -> str:
    """Return an error in one line; of a bug the traceback is kept in the trial's folder.

    Args:
        error: what was raised.
        folder: the trial's.
    """
    if isinstance(error, DraftworthError | OSError):
        return str(error)
    kept = ""
    # A full disk must not end the trial here either.
    with contextlib.suppress(OSError):
        with (folder / FAILED).open("a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)) + "\n")
        kept = f"; its traceback is in {FAILED}"
    return f"a bug in Draftworth: {type(error).__name__}: {error}{kept}"
