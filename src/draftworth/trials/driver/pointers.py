"""Which machine a trial that was started from here is driven on, so that it is found again by its id alone."""

from pathlib import Path

from draftworth.home import home
from draftworth.models import Frozen


class Pointer(Frozen):
    """Where a trial is driven."""

    host: str
    """As `ssh` takes it."""
    draftworth: str = "draftworth"
    """The program there."""
    sudo: bool = False


def _path(trial: str) -> Path:
    return home() / "remote" / f"{trial}.json"


def keep(trial: str, pointer: Pointer) -> None:
    """Write down where a trial is driven. Raises OSError."""
    path = _path(trial)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pointer.model_dump_json(), encoding="utf-8")


def pointer_to(trial: str) -> Pointer | None:
    """Return where a trial is driven; None where it was not started from here, or is of this machine."""
    if trial == "latest":
        known = sorted((home() / "remote").glob("*.json"))
        return (
            Pointer.model_validate_json(known[-1].read_bytes()) if known and not _newer_here(known[-1].stem) else None
        )
    if "/" in trial or not _path(trial).is_file():
        return None
    return Pointer.model_validate_json(_path(trial).read_bytes())


def _newer_here(trial: str) -> bool:
    from draftworth.trials.home import all_trials  # noqa: PLC0415 - lazy

    return any(folder.name > trial for folder in all_trials())
