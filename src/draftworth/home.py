"""Where results are kept: `$DRAFTWORTH_HOME`, default `.draftworth/` in the current folder."""

import os
import time
from pathlib import Path

from draftworth.errors import UsageError


def home() -> Path:
    """Return the folder everything is kept in."""
    return Path(os.environ.get("DRAFTWORTH_HOME") or ".draftworth").absolute()


def new_folder(parent: Path) -> Path:
    """Make a folder named by the time (`20260131-134501`); readable by its owner only.

    Raises:
        UsageError: it cannot be made.
    """
    base = time.strftime("%Y%m%d-%H%M%S")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            folder = parent / (base if number == 1 else f"{base}-{number}")
            try:
                # Prompts and answers of a production service are nobody else's to read.
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise UsageError(f"{parent}: cannot be written: {error.strerror}; set DRAFTWORTH_HOME") from None
    raise UsageError(f"{parent}: too many in one second")
