"""`explained.json` in a trial's folder."""

from pathlib import Path

from draftworth.errors import UsageError
from draftworth.explain.base import SCHEMA_VERSION, Explained
from draftworth.trials.record import write_text

NAME = "explained.json"


def save(explained: Explained, folder: Path) -> Path:
    """Write an account into its trial's folder. Returns its path."""
    path = folder / NAME
    write_text(path, explained.model_dump_json(indent=1) + "\n")
    return path


def load(folder: Path) -> Explained | None:
    """Return what was explained of a trial; None where nothing was.

    Raises:
        UsageError: it is damaged, or a later version wrote it.
    """
    path = folder / NAME
    try:
        found = Explained.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: damaged; make it again with `draftworth explain {folder.name}`") from error
    if found.schema_version > SCHEMA_VERSION:
        raise UsageError(f"{path}: schema_version {found.schema_version}; this Draftworth reads up to {SCHEMA_VERSION}")
    return found
