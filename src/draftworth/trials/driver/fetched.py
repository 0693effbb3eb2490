"""Trials of other machines, kept beside those of this one: each under its own id where that is free."""

import json
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

from draftworth.errors import TrialError, UsageError
from draftworth.trials.driver.pointers import Pointer
from draftworth.trials.driver.sending import Received
from draftworth.trials.home import trials_folder

NAME = "fetched.json"
"""In a trial's folder: it is a copy, where of, and since when. A folder without it is the trial itself."""
_MOST = 1000


def keep_fetched(received: Received, pointer: Pointer) -> tuple[Path, list[str]]:
    """Put what was received in its place. Returns the folder, and what is to be said about it.

    An earlier copy of the same trial is replaced as a whole; the trial itself, where this is the machine it ran on, and
    another trial of the same id are left alone.

    Args:
        received: a whole archive.
        pointer: where it is from.

    Raises:
        TrialError: it cannot be written.
    """
    parent = trials_folder()
    temp = parent / f".fetched-{secrets.token_hex(6)}"
    remarks = [f"left on {pointer.host}, for its size: {name}" for name in received.left_out]
    try:
        folder = _place(parent, received)
        if folder.is_dir() and not (folder / NAME).is_file():
            return folder, []
        temp.mkdir(parents=True, mode=0o700)
        received.unpack(temp)
        note = {"host": pointer.host, "id": received.id, "unix": time.time(), "left_out": list(received.left_out)}
        (temp / NAME).write_text(json.dumps(note), encoding="utf-8")
        _swap(temp, folder)
    except OSError as error:
        raise TrialError(f"{error.filename or parent}: {error.strerror}; set DRAFTWORTH_HOME") from None
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    if folder.name != received.id:
        remarks.insert(0, f"another trial here is called {received.id}; this one is kept as {folder.name}")
    return folder, remarks


def _place(parent: Path, received: Received) -> Path:
    """Return where a trial belongs: a folder with its tag, or one that is not there yet."""
    date, _, rest = received.id.partition("-")
    base = f"{date}-{rest.partition('-')[0]}"
    names = [received.id, *(f"{base}-{number}" for number in range(2, _MOST))]
    for name in names:
        if _tag(parent / name) == received.tag and received.tag:
            return parent / name
    for name in names:
        if not (parent / name).exists():
            return parent / name
    raise UsageError(f"{parent}: too many trials of one second")


def _tag(folder: Path) -> str | None:
    with suppress(OSError):
        return (folder / "tag").read_text(encoding="ascii").strip()
    return None


def _swap(temp: Path, folder: Path) -> None:
    """Give a folder its name, in place of an earlier copy."""
    old = temp.with_name(f"{temp.name}-old")
    if folder.is_dir():
        folder.rename(old)
    temp.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
