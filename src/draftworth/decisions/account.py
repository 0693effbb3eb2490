"""What else a trial's folder and record tell of an arm: the account of its milliseconds, its method."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from draftworth.trials.record import TrialRecord

if TYPE_CHECKING:
    from draftworth.explain.base import Explained

EXPLAINED = "explained.json"
"""The account of a trial's milliseconds, in its folder."""


def read_explained(folder: Path) -> "tuple[Explained | None, str]":
    """Return the account in a trial's folder, and what is wrong with it where it cannot be read."""
    from draftworth.explain.base import SCHEMA_VERSION, Explained  # noqa: PLC0415 - lazy: with what it needs

    path = folder / EXPLAINED
    try:
        found = Explained.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        return None, f"{path}: cannot be read, so the record has no cause: {str(error).splitlines()[0]}"
    if found.schema_version > SCHEMA_VERSION:
        return None, f"{path}: schema_version {found.schema_version} is of a later version; the record has no cause"
    return found, ""


def method_of(record: TrialRecord, arm: str) -> str:
    """Return the speculative method an arm declared; empty where it declared none."""
    seen = next((one for one in record.arms if one.name == arm), None)
    declared = (seen.declared.get("speculative_config") if seen else None) or {}
    return str(declared.get("method") or "") if isinstance(declared, dict) else ""
