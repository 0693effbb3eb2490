"""`bench.json`: everything one benchmark found out, for people's scripts. Old versions keep loading.

schema_version history:
1: first.
"""

import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from draftworth.bench.summary import PointSummary
from draftworth.errors import EXIT_DONE, EXIT_NOT_MEASURED, UsageError
from draftworth.findings import Finding
from draftworth.models import Frozen

SCHEMA_VERSION = 1
NAME = "bench.json"


class ClientRecord(Frozen):
    """How the client itself fared, over all points."""

    wall_s: float
    cpu_s: float
    lag_ms: tuple[float, float, float]
    """Lateness of its clock: median, 99th percentile, largest."""
    late_ms: float | None = None
    """Open loop: 99th percentile of how much later than due a request was sent."""


class BenchRecord(Frozen):
    """One benchmark of one server."""

    schema_version: int = SCHEMA_VERSION
    id: str
    draftworth: str
    """The version that wrote this."""
    created: str
    """ISO 8601, UTC."""
    finished: str
    seconds: float
    url: str
    model: str
    engine: str
    version: str | None = None
    """The engine's version, where the server tells."""
    machine: dict[str, Any] = {}
    """What the client ran on."""
    workload: dict[str, Any] = {}
    """The requests as understood."""
    source: str = ""
    """Where the prompts came from, in words."""
    limits: dict[str, float] = {}
    """What a request must meet to count for goodput."""
    points: tuple[PointSummary, ...] = ()
    """Each point: all categories together first, then each."""
    client: ClientRecord | None = None
    findings: tuple[Finding, ...] = ()
    error: str | None = None
    """Why it ended early, or could not be measured; what was measured before is kept."""

    @property
    def exit_code(self) -> int:
        """The exit code of `draftworth bench`."""
        return EXIT_DONE if self.error is None else EXIT_NOT_MEASURED


def write(record: BenchRecord, folder: Path) -> Path:
    """Write `bench.json` whole or not at all. Returns its path."""
    path = folder / NAME
    temporary = path.with_name(f".{NAME}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(record.model_dump_json(indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return path


def read(folder: Path) -> BenchRecord:
    """Read a benchmark's record.

    Raises:
        UsageError: there is none, it is damaged, or a later version wrote it.
    """
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: damaged: {error}") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise UsageError(f"{path}: schema_version {version!r}; this Draftworth reads up to {SCHEMA_VERSION}")
    try:
        return BenchRecord.model_validate(data)
    except ValidationError as error:
        raise UsageError(f"{path}: damaged: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from None
