"""What else a trial's record tells of an arm: its method."""

from collections.abc import Mapping

from draftworth.trials.record import TrialRecord

_NAMES = ("method", "algorithm", "speculative_algorithm")
"""vLLM's name of it, and SGLang's."""


def method_of(record: TrialRecord, arm: str) -> str:
    """Return the speculative method an arm declared, as its record or the trial's file has it; empty for none."""
    seen = next((one.declared for one in record.arms if one.name == arm), None) or {}
    listed = [one for one in record.config.get("arms") or () if isinstance(one, Mapping)]
    asked = next((one for one in listed if one.get("name") == arm), {})
    declared = seen.get("speculative_config") or asked.get("speculative_config") or {}
    if not isinstance(declared, Mapping):
        return ""
    told = next((str(declared[name]) for name in _NAMES if declared.get(name)), "")
    return told if declared.get("method") else told.lower()
