"""The small JSON files of a checkpoint."""

import json
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        UsageError: it cannot be read, is no JSON or no object.
    """
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON ({error})") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: must hold a JSON object")
    return found


def read_optional(path: Path) -> dict[str, Any] | None:
    """Return a JSON object; nothing where there is no such file.

    Raises:
        UsageError: it is there and cannot be read, is no JSON or no object.
    """
    return read_object(path) if path.is_file() else None
