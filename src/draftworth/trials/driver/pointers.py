"""Which machine a trial that was started from here is driven on, so that it is found again by its id alone."""

import os
import re
from pathlib import Path

from pydantic import ValidationError

from draftworth.errors import UsageError
from draftworth.home import home
from draftworth.models import Frozen

_FILE = re.compile(r"(?P<trial>\d{8}-\d{6}(?:-(?P<number>\d+))?)(?:~\d+)?\.json")
_MOST = 100


class Pointer(Frozen):
    """Where a trial is driven."""

    host: str
    """As `ssh` takes it."""
    draftworth: str = "draftworth"
    """The program there."""
    sudo: bool = False
    trial: str = ""
    """Its id there; empty where none is meant."""


def keep(trial: str, pointer: Pointer) -> None:
    """Write down where a trial is driven; trials of one second on two machines have one each. Raises OSError."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    text = pointer.model_copy(update={"trial": trial}).model_dump_json()
    for number in range(1, _MOST):
        path = folder / (f"{trial}.json" if number == 1 else f"{trial}~{number}.json")
        if not path.exists() or _read(path).host == pointer.host:
            temp = path.with_suffix(f".{os.getpid()}.tmp")
            temp.write_text(text, encoding="utf-8")
            temp.replace(path)
            return


def pointer_to(trial: str, host: str | None = None) -> Pointer | None:
    """Return where a trial is driven; None where it was not started from here, or is of this machine.

    Args:
        trial: its id, or `latest`: the newest that was started from here.
        host: only one that is driven there.

    Raises:
        UsageError: trials of this id are driven on several machines, or what was written down cannot be read.
    """
    known = _known()
    if trial == "latest":
        newest = next((path for path in reversed(known) if host is None or _read(path).host == host), None)
        return None if newest is None or (host is None and _newer_here(newest)) else _read(newest)
    found = [_read(path) for path in known if _id(path) == trial]
    found = [one for one in found if host is None or one.host == host]
    if len(found) > 1:
        hosts = " and ".join(one.host for one in found)
        raise UsageError(f"trials {trial} are on {hosts}: say which with --host")
    return found[0] if found else None


def way_to(host: str) -> Pointer | None:
    """Return how the newest trial on a machine was started from here: the program there, and whether by sudo."""
    return next((one for path in reversed(_known()) if (one := _read(path)).host == host), None)


def _folder() -> Path:
    return home() / "remote"


def _known() -> list[Path]:
    """Return every file, oldest trial first."""
    folder = _folder()
    return sorted((path for path in folder.glob("*.json") if _FILE.fullmatch(path.name)), key=_order)


def _id(path: Path) -> str:
    return path.stem.partition("~")[0]


def _order(path: Path) -> tuple[str, int]:
    date, clock, *number = _id(path).split("-")
    return f"{date}-{clock}", int(number[0]) if number else 1


def _read(path: Path) -> Pointer:
    try:
        found = Pointer.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise UsageError(f"{path}: cannot be read; remove it, and name the machine with --host") from None
    return found if found.trial else found.model_copy(update={"trial": _id(path)})


def _newer_here(path: Path) -> bool:
    from draftworth.trials.driver.fetched import NAME  # noqa: PLC0415 - lazy
    from draftworth.trials.home import all_trials  # noqa: PLC0415 - lazy

    own = [folder for folder in all_trials() if not (folder / NAME).is_file()]
    return bool(own) and _order(own[-1].with_suffix(".json")) > _order(path)
