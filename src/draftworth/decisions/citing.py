"""What `decide --cite` names."""

import json
import re
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from draftworth.decisions.base import Evidence
from draftworth.errors import UsageError

_PUBLISHED = re.compile(r"^(?P<source>.+?),\s*(?P<date>\d{4}(?:-\d{2}){0,2}):\s*(?P<says>.+)$", re.DOTALL)
_ID = re.compile(r"\d{8}-\d{6}(?:-\d+)?")


def citation(text: str, root: Path) -> Evidence:
    """Return what `--cite` names: a trial's id, a file of ours, or `SOURCE, DATE: WHAT IT SAYS` of others.

    Args:
        text: as it was typed.
        root: the folder that paths are told relative to.

    Raises:
        UsageError: it is none of the three.
    """
    if _ID.fullmatch(text):
        return Evidence(kind="trial", trial=text)
    path = Path(text)
    if path.is_file():
        return Evidence(kind=_kind_of(path), path=relative(path, root))
    found = _PUBLISHED.match(text)
    if not found:
        raise UsageError(
            f'--cite: {text!r} is no trial\'s id, no file, and no published result like "SOURCE, 2026-09: WHAT IT SAYS"'
        )
    try:
        return Evidence(
            kind="published", ours=False, source=found["source"], date=found["date"], says=found["says"].strip()
        )
    except ValidationError as error:
        raise UsageError(f"--cite: {str(error.errors()[0]['msg']).removeprefix('Value error, ')}") from None


def relative(path: Path, root: Path) -> str:
    """Return a path relative to a folder where it lies in it, else as it is."""
    full = path.absolute()
    return str(full.relative_to(root)) if full.is_relative_to(root) else str(full)


def _kind_of(path: Path) -> Literal["prediction", "costs", "profile"]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return "profile"
    if isinstance(data, dict) and "settings" in data and "verdict" in data:
        return "prediction"
    return "costs" if isinstance(data, dict) and "points" in data else "profile"
