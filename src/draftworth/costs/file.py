"""The costs file: read, written, and completed with what trials measured."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from draftworth.costs.arms import modes_from_trial
from draftworth.costs.base import SCHEMA_VERSION, Costs, EngineMode, StepCost
from draftworth.errors import UsageError
from draftworth.home import home, new_folder

__all__ = ["costs_folder", "load_costs", "merge", "modes_from_trial", "new_costs", "save_costs"]


def costs_folder() -> Path:
    """Return the folder costs files are kept in."""
    return home() / "costs"


def new_costs() -> Path:
    """Return a path for a new costs file, named by the time; the name is taken by nobody else.

    Raises:
        UsageError: the folder cannot be made.
    """
    folder = new_folder(costs_folder())
    path = folder.with_name(f"{folder.name}.json")
    folder.rmdir()
    return path


def load_costs(path: Path) -> Costs:
    """Read a costs file of this or an earlier version.

    Raises:
        UsageError: it is not there, damaged, no costs file, or of a later version; one line.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such costs file; `draftworth probe URL --out {path}` makes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no costs file that can be read: {error}") from None
    if not isinstance(data, dict) or "points" not in data:
        raise UsageError(f"{path}: no costs file: it has no points; `draftworth probe` makes one")
    version = data.get("schema_version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version > SCHEMA_VERSION:
        raise UsageError(f"{path}: schema_version {version!r}; this Draftworth reads up to {SCHEMA_VERSION}")
    try:
        costs = Costs.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: damaged: {where}: {first['msg']}") from None
    measured: tuple[tuple[str, Sequence[StepCost | EngineMode]], ...] = (
        ("points", costs.points),
        ("modes", costs.modes),
    )
    for kind, entries in measured:
        for number, one in enumerate(entries):
            if one.batch < 1 or one.tokens < 1 or not one.low <= one.ms <= one.high:
                raise UsageError(
                    f"{path}: damaged: {kind}.{number}: batch and tokens must be at least 1, and low <= ms <= high"
                )
    return costs


def save_costs(costs: Costs, path: Path) -> None:
    """Write a costs file whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(costs.model_dump_json(indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def merge(
    costs: Costs, modes: Sequence[EngineMode] = (), points: Sequence[StepCost] = (), notes: Iterable[str] = ()
) -> Costs:
    """Return the costs with more modes and points; what comes from the same source at the same place is replaced."""
    kept_modes = {_mode_key(one): one for one in (*costs.modes, *modes)}
    kept_points = {(one.how, one.context, one.batch, one.tokens): one for one in (*costs.points, *points)}
    return costs.model_copy(
        update={
            "modes": tuple(kept_modes.values()),
            "points": tuple(kept_points.values()),
            "notes": tuple(dict.fromkeys((*costs.notes, *notes))),
        }
    )


def _mode_key(mode: EngineMode) -> tuple[str, str, str | None, int, int, str]:
    return mode.kind, mode.method, mode.runner, mode.batch, mode.tokens, mode.source
