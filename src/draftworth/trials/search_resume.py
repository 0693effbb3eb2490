"""Going on with a search that did not come to its end: what an earlier trial measured is not measured again."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.errors import UsageError
from draftworth.search.record import Tried
from draftworth.trials.home import all_trials
from draftworth.trials.record import ArmComparison, TrialRecord, read

if TYPE_CHECKING:
    from draftworth.trials.config import TrialConfig
    from draftworth.trials.prepare import Prepared

_SAME = ("service", "arms", "workload")
_SAME_VERDICT = ("metric", "margin", "confidence", "output_check")
_OLDEST_S = 7 * 24 * 3600.0
"""Of what an earlier trial measured."""
_APART = 3.0
"""The new baseline's TPOT may be so many standard deviations of two starts off the earlier one's."""


def mark_of(prepared: "Prepared") -> dict[str, str]:
    """Return hashes of what a search was on, beside its file: command, environment, prompts, the unit as it is."""
    observed = prepared.observed
    files = observed.unit.snapshot.files if observed.unit is not None else ()
    told = {
        "command": observed.command if observed.running else prepared.config.service.command,
        "environment": prepared.config.service.env,
        "prompts": [(one.id, one.messages, one.token_ids, one.turns) for one in prepared.prompts],
        "unit": [(one.path, one.sha256) for one in files],
        "version": prepared.version,
    }
    return {name: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for name, value in told.items()}


def still_valid(tried: Sequence[Tried], tpot_ms: float | None, sd: float, say: Callable[[str], None]) -> list[Tried]:
    """Return what was tried without what earlier trials measured of a service that is plainly another by now.

    Args:
        tried: of earlier trials.
        tpot_ms: the baseline's now.
        sd: of log TPOT between two starts of it.
        say: takes why something is not used.
    """
    kept = list(tried)
    for trial in dict.fromkeys(one.trial for one in tried):
        record = recorded(trial or "")
        why = "its record is gone" if record is None else another_baseline(record, tpot_ms, sd)
        if why is not None:
            say(f"what trial {trial} measured is not used: {why}")
            kept = [one for one in kept if one.trial != trial]
    return kept


def another_baseline(record: TrialRecord, tpot_ms: float | None, sd: float) -> str | None:
    """Return why an earlier trial's figures are not those of the service as it is now; None where they may be.

    Args:
        record: the earlier trial's.
        tpot_ms: the baseline's now.
        sd: of log TPOT between two starts of it.
    """
    before = next((arm.tpot_ms for arm in record.arms), None)
    if not before or not tpot_ms or abs(math.log(tpot_ms / before)) <= max(_APART * math.sqrt(2) * sd, math.log(1.1)):
        return None
    return f"its baseline took {before:.2f} ms a token and this one takes {tpot_ms:.2f}"


def earlier(
    config: "TrialConfig", mark: Mapping[str, str], say: Callable[[str], None]
) -> tuple[list[Tried], dict[str, tuple[str, ArmComparison]]]:
    """Return what the newest search of the same file has measured, where it did not come to its end.

    Args:
        config: the trial's file.
        mark: of the service as it is (`mark_of`): another one's figures are not used.
        say: takes why an earlier search is not gone on with.

    Returns:
        What was tried, each with the id of its trial, and each one's comparison there; nothing where there is no such
        search, or `search.resume` is off.
    """
    if config.search is None or not config.search.resume:
        return [], {}
    wanted = _told(redact.config(config))
    for folder in reversed(all_trials()):
        record = _record(folder)
        if record is None or record.search is None or _told(record.config) != wanted:
            continue
        why = None if record.search.complete else _other(record, mark)
        if why is not None:
            say(f"the search of trial {record.id} is not gone on with: {why}")
        return ([], {}) if record.search.complete or why is not None else _of(record)
    return [], {}


def _record(folder: Path) -> TrialRecord | None:
    try:
        return read(folder)
    except UsageError:
        return None


def _told(config: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a file that have to be the same, without where a service was found."""
    verdict = config.get("verdict") or {}
    return {name: config.get(name) for name in _SAME} | {name: verdict.get(name) for name in _SAME_VERDICT}


def _other(record: TrialRecord, mark: Mapping[str, str]) -> str | None:
    """Return what is another than it was in an earlier search; None where nothing is known to be."""
    assert record.search is not None, "looked at before"
    changed = [name for name, value in mark.items() if record.search.mark.get(name) != value]
    if changed:
        return f"{' and '.join(changed)} {'are' if len(changed) > 1 else 'is'} another now, or was not kept"
    finished = datetime.fromisoformat(record.finished or record.created)
    if (datetime.now(UTC) - finished).total_seconds() > _OLDEST_S:
        return f"it is of {record.created[:10]}, more than {_OLDEST_S / 86400:.0f} days ago"
    return None


def _of(record: TrialRecord) -> tuple[list[Tried], dict[str, tuple[str, ArmComparison]]]:
    assert record.search is not None, "looked at before"
    tried: list[Tried] = []
    comparisons: dict[str, tuple[str, ArmComparison]] = {}
    for one in record.search.tried:
        trial = one.trial or record.id
        source = record if one.trial is None else recorded(one.trial)
        found = next((each for each in source.comparisons if each.arm == one.name), None) if source else None
        if one.failed is None and found is None:
            continue  # its figures are gone: it is measured again
        tried.append(one.model_copy(update={"trial": trial}))
        if found is not None:
            comparisons[one.name] = (trial, found)
    return tried, comparisons


def recorded(trial: str) -> TrialRecord | None:
    """Return an earlier trial's record; None where there is none."""
    folder = next((one for one in all_trials() if one.name == trial), None)
    return None if folder is None else _record(folder)
