"""`explained.json` in a trial's folder."""

from pathlib import Path

from draftworth.errors import UsageError
from draftworth.explain.base import SCHEMA_VERSION, Explained
from draftworth.explain.inputs import made_with, replaces
from draftworth.trials.record import write_text

NAME = "explained.json"


def save(explained: Explained, folder: Path) -> Path:
    """Write an account into its trial's folder. Returns its path."""
    path = folder / NAME
    write_text(path, explained.model_dump_json(indent=1) + "\n")
    return path


def keep_or_say(explained: Explained, folder: Path, *, asked: bool = False) -> str:
    """Keep an account where it may take the place of the one that is kept. Returns what was done, as a line.

    Args:
        explained: the account.
        folder: its trial's.
        asked: whether somebody asked to keep it, whatever is kept.
    """
    try:
        kept, there = load(folder), (folder / NAME).exists()
    except UsageError:
        kept, there = None, True
    if not asked and explained.inputs is not None and not replaces(explained.inputs, kept):
        if kept is None:
            return "Not kept: it is of a figure that was stated by hand; --keep keeps it all the same."
        return f"Not kept: {NAME}, which report and decide use, stays; --keep replaces it. {made_with(kept.inputs)}"
    try:
        save(explained, folder)
    except OSError as error:
        return f"Not kept: {folder / NAME}: {error.strerror or error}. report and decide do not see this account."
    if kept is None or kept.inputs == explained.inputs:
        return f"Kept: {folder / NAME}{', in place of one that could not be read' if there and kept is None else ''}."
    return f"Kept: {folder / NAME}, in place of one with other inputs. That was: {made_with(kept.inputs)}"


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
