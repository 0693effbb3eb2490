"""What else a trial's record tells of an arm: its method."""

from draftworth.trials.record import TrialRecord


def method_of(record: TrialRecord, arm: str) -> str:
    """Return the speculative method an arm declared; empty where it declared none."""
    seen = next((one for one in record.arms if one.name == arm), None)
    declared = (seen.declared.get("speculative_config") if seen else None) or {}
    return str(declared.get("method") or "") if isinstance(declared, dict) else ""
