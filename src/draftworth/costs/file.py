"""The costs file: read, written, and completed with what trials measured."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from draftworth.costs.arms import modes_from_trial
from draftworth.costs.base import SCHEMA_VERSION, Costs, EngineMode, Prefill, StepCost
from draftworth.errors import UsageError
from draftworth.home import home, new_folder

__all__ = ["costs_folder", "load_costs", "merge", "modes_from_trial", "new_costs", "save_costs"]

_RUNNER = re.compile(r"(?:^|, )(V\d) runner$")
"""How earlier versions told the runner: at the end of `machine`."""


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
    for what, why in _damage(costs):
        raise UsageError(f"{path}: damaged: {what}: {why}")
    return _brought_up(costs)


def _damage(costs: Costs) -> Iterator[tuple[str, str]]:
    """Yield what in a costs file makes no sense."""
    entries: tuple[tuple[str, Sequence[StepCost | EngineMode | Prefill]], ...] = (
        ("points", costs.points),
        ("modes", costs.modes),
        ("prefills", costs.prefills),
    )
    for what, one in ((f"{kind}.{number}", one) for kind, some in entries for number, one in enumerate(some)):
        tokens = 1 if isinstance(one, Prefill) else one.tokens
        if one.batch < 1 or tokens < 1 or not -math.inf < one.low <= one.ms <= one.high < math.inf:
            yield what, "batch and tokens must be at least 1, and low <= ms <= high, all finite"
        times = {"ms": one.ms} if isinstance(one, StepCost) else {}
        if isinstance(one, EngineMode):
            times = {"step_ms": one.step_ms, "base_ms": one.base_ms}
        for name, ms in times.items():
            if not 0 < ms < math.inf:
                yield what, f"{name} must be above 0, not {ms}: a step takes time"
        if (one.context or 0) < 0:
            yield what, f"context must be at least 0, not {one.context}"


def _brought_up(costs: Costs) -> Costs:
    """Return what a file of an earlier version says, as this one does: the runner apart, no interval below nothing."""
    update: dict[str, object] = {}
    found = _RUNNER.search(costs.machine)
    if costs.runner is None and found:
        update = {"runner": found[1], "machine": costs.machine[: found.start()]}
    below = [one for one in costs.points if one.low <= 0]
    if below:
        update["points"] = tuple(
            one.model_copy(update={"low": one.ms / 10}) if one.low <= 0 else one for one in costs.points
        )
        names = ", ".join(f"{one.batch} x {one.tokens} at {one.context:,} ({one.how})" for one in below)
        update["notes"] = (*costs.notes, f"intervals that went below nothing begin at a tenth of the value: {names}")
    return costs.model_copy(update=update)


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
