"""Where trials are kept: `$DRAFTWORTH_HOME`, default `.draftworth/` in the current folder."""

import re
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.home import home, new_folder

__all__ = ["all_trials", "find_trial", "home", "new_trial", "trials_folder"]

_ID = re.compile(r"^\d{8}-\d{6}(?:-\d+)?$")


def trials_folder() -> Path:
    """Return the folder with one folder a trial."""
    return home() / "trials"


def new_trial() -> Path:
    """Make the folder of a new trial, named by the time; readable by its owner only.

    Raises:
        UsageError: the folder cannot be made.
    """
    folder = new_folder(trials_folder())
    (folder / "logs").mkdir()
    return folder


def all_trials() -> list[Path]:
    """Return every trial's folder, oldest first."""
    parent = trials_folder()
    if home().exists() and not home().is_dir():
        raise UsageError(f"{home()}: is no folder; set DRAFTWORTH_HOME to one")
    if not parent.is_dir():
        return []
    return sorted((p for p in parent.iterdir() if p.is_dir() and _ID.match(p.name)), key=_order)


def _order(folder: Path) -> tuple[str, int]:
    parts = folder.name.split("-")
    return "-".join(parts[:2]), int(parts[2]) if len(parts) > 2 else 1  # noqa: PLR2004 - date, time, number


def find_trial(name: str) -> Path:
    """Return the folder of a trial by id; `latest` is the newest.

    Raises:
        UsageError: there is no such trial.
    """
    known = all_trials()
    if not known:
        raise UsageError(
            f"no trial {name!r}: {trials_folder()} has no trials; set DRAFTWORTH_HOME, or run one with "
            "`draftworth trial run`"
        )
    if name == "latest":
        return known[-1]
    for folder in known:
        if folder.name == name:
            return folder
    raise UsageError(f"no trial {name!r} in {trials_folder()}; the newest is {known[-1].name}, `draftworth trial list`")
