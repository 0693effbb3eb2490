"""`trial.json`: everything a trial found out, for people's scripts. Old versions keep loading.

schema_version history:
1: first.
2: sweep points, starts within blocks, looks at the evidence, other metrics than TPOT, retries, prefix cache.
"""

import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from draftworth.bench.summary import PointSummary
from draftworth.engines.base import AcceptanceCounts, Confounder, LogWarning
from draftworth.engines.counts import Figure
from draftworth.errors import (
    EXIT_DONE,
    EXIT_INCONCLUSIVE,
    EXIT_NOT_MEASURED,
    EXIT_NOT_RESTORED,
    UsageError,
)
from draftworth.findings import Finding
from draftworth.models import Frozen
from draftworth.search.record import SearchRecord
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.verdicts.base import CategoryComparison, Comparison, Interval, OutputCheck, Verdict
from draftworth.verdicts.sampled_check import SampledCheck

SCHEMA_VERSION = 2
NAME = "trial.json"


class StartRecord(Frozen):
    """One start of an arm's server."""

    block: int
    start: int = 1
    """Which start of the arm's server this block ran on, from 1."""
    rows: int = 0
    """Requests measured in the block."""
    seconds: float | None
    """From the command to the first generated token; None where the original ran already."""
    log: str
    """Relative to the trial's folder, or the original's own path."""


class ArmRecord(Frozen):
    """What one arm did, all its blocks together."""

    name: str
    engine: str
    version: str | None = None
    runner: str | None = None
    device: str | None = None
    """What it ran on, in the engine's own word (`cpu`, `cuda`); None where neither its log nor the machine tells, and
    in records of earlier versions. `trials.device.device_of` reads both."""
    command: tuple[str, ...] = ()
    declared: dict[str, Any] = {}
    """The declared difference: speculative_config, args, env (values hidden)."""
    starts: tuple[StartRecord, ...] = ()
    given_up: bool = False
    """Whether it only measures and was not measured to its end, as a finding says: it is compared with nothing."""
    requests: int = 0
    """Requests that were answered in full."""
    failed: int = 0
    retried: int = 0
    """Of the answered ones, those that were sent again: in no time."""
    tokens: int | None = None
    """Output tokens of the answered requests."""
    tpot_ms: float | None = None
    """Decode time over decoded tokens, all answered requests together."""
    ttft_ms: float | None = None
    """Median time to the first token."""
    cache_share: float | None = None
    """Share of the prompt tokens that the server had in its prefix cache."""
    points: tuple[PointSummary, ...] = ()
    """The figures of each point of a sweep, where there are several."""
    acceptance: AcceptanceCounts | None = None
    """From the server's totals over the measured windows."""
    derived: dict[str, float | None] = {}
    """coverage, acceptance_rate, length_per_drafting_step, length_per_step; see docs/numbers.md."""
    figures: tuple[Figure, ...] = ()
    """The same, each with its formula, or why it is not known."""
    per_request: AcceptanceCounts | None = None
    """The same summed from the answers themselves, where the engine gives it."""
    warnings: tuple[LogWarning, ...] = ()


class ArmComparison(Comparison):
    """One variant against the baseline."""

    arm: str
    categories: tuple[CategoryComparison, ...] = ()
    output_check: OutputCheck | None = None
    sampled_check: SampledCheck | None = None
    """At a temperature above 0; None at 0."""
    drift: Interval | None = None
    """TPOT of the baseline's last measurement over its first."""


class TrialRecord(Frozen):
    """A whole trial."""

    schema_version: int = SCHEMA_VERSION
    id: str
    draftworth: str
    """The version that wrote this."""
    created: str
    """ISO 8601, UTC."""
    finished: str | None = None
    seconds: float | None = None
    overhead_seconds: float | None = None
    """What the trial cost besides servers starting and stopping and requests running."""
    machine: dict[str, Any] = {}
    config: dict[str, Any] = {}
    """The trial's file as understood; environment values hidden."""
    verdict: Verdict
    """Of the best variant: best verdict first (faster, no difference, inconclusive, slower, error), of several with
    the same one the lowest TPOT ratio."""
    reason: str
    best: str | None = None
    """The arm the verdict is about."""
    look: int = 1
    """The look at the evidence at which the trial ended, from 1."""
    looks: int = 1
    """How many looks were planned; the intervals are at the level the last one had."""
    restored: bool
    """Whether the service is as it was before the trial, verified."""
    restore: str = ""
    """How that was verified, or what to do."""
    restore_commands: tuple[str, ...] = ()
    comparison: ArmComparison | None = None
    """Of the best variant, over all prompts."""
    categories: tuple[CategoryComparison, ...] = ()
    comparisons: tuple[ArmComparison, ...] = ()
    """Every variant against the baseline."""
    arms: tuple[ArmRecord, ...] = ()
    confounders: tuple[Confounder, ...] = ()
    findings: tuple[Finding, ...] = ()
    error: str | None = None
    """Why the trial could not be measured, where the verdict is `error`."""
    search: SearchRecord | None = None
    """What a search has tried, why, and the best it found; None where there was none."""
    earlier: tuple[ArmComparison, ...] = ()
    """Of a search that was gone on with: what its earlier trials measured. Outputs that were not checked there were
    checked here."""
    error_tail: tuple[str, ...] = ()
    """The server's own last lines, where it did not start or died."""

    @property
    def exit_code(self) -> int:
        """The exit code of `trial run`."""
        if not self.restored:
            return EXIT_NOT_RESTORED
        if self.verdict is Verdict.ERROR:
            return EXIT_NOT_MEASURED
        if self.verdict is Verdict.INCONCLUSIVE:
            return EXIT_INCONCLUSIVE
        return EXIT_DONE


def write(record: TrialRecord, folder: Path) -> Path:
    """Write `trial.json` whole or not at all. Returns its path."""
    path = folder / NAME
    write_text(path, record.model_dump_json(indent=1) + "\n")
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file by a temporary one beside it, fsync and rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _no_number(word: str) -> float:
    """Refuse NaN and Infinity, which no record of ours holds: figures made of them would mislead."""
    raise ValueError(f"{word} is no figure")


def read(folder: Path) -> TrialRecord:
    """Read a trial's record.

    Raises:
        UsageError: there is none, it is damaged, or a later version wrote it.
    """
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError:
        if not (folder / JOURNAL).exists():
            raise UsageError(f"{folder} is no trial's folder: it has no {NAME}") from None
        raise UsageError(
            f"{folder}: the trial has no record yet; it may still run, or was killed: "
            f"`draftworth trial restore {folder.name}`"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: damaged: {error}") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise UsageError(f"{path}: schema_version {version!r}; this Draftworth reads up to {SCHEMA_VERSION}")
    try:
        return TrialRecord.model_validate(data)
    except ValidationError as error:
        raise UsageError(f"{path}: damaged: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from None
