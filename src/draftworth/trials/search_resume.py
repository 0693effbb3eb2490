"""Going on with a search that did not come to its end: what an earlier trial measured is not measured again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.errors import UsageError
from draftworth.search.record import Tried
from draftworth.trials.home import all_trials
from draftworth.trials.record import ArmComparison, TrialRecord, read

if TYPE_CHECKING:
    from draftworth.trials.config import TrialConfig

_SAME = ("service", "arms", "workload")
_SAME_VERDICT = ("metric", "margin", "confidence")


def earlier(config: "TrialConfig", version: str | None) -> tuple[list[Tried], dict[str, tuple[str, ArmComparison]]]:
    """Return what the newest search of the same file has measured, where it did not come to its end.

    Args:
        config: the trial's file.
        version: the engine's, where it is known: another one's figures are not used.

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
        if record.search.complete or _other(record, version):
            return [], {}
        return _of(record)
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


def _other(record: TrialRecord, version: str | None) -> bool:
    known = next((arm.version for arm in record.arms if arm.version), None)
    return known is not None and version is not None and known != version


def _of(record: TrialRecord) -> tuple[list[Tried], dict[str, tuple[str, ArmComparison]]]:
    assert record.search is not None, "looked at before"
    tried: list[Tried] = []
    comparisons: dict[str, tuple[str, ArmComparison]] = {}
    for one in record.search.tried:
        trial = one.trial or record.id
        source = record if one.trial is None else _named(one.trial)
        found = next((each for each in source.comparisons if each.arm == one.name), None) if source else None
        if one.failed is None and found is None:
            continue  # its figures are gone: it is measured again
        tried.append(one.model_copy(update={"trial": trial}))
        if found is not None:
            comparisons[one.name] = (trial, found)
    return tried, comparisons


def _named(trial: str) -> TrialRecord | None:
    folder = next((one for one in all_trials() if one.name == trial), None)
    return None if folder is None else _record(folder)
