"""What the servers of a trial ran on, as its record tells."""

import math
import re

from draftworth.trials.record import ArmRecord, TrialRecord
from draftworth.verdicts.rules import restart_priors

_RESTARTS = re.compile(r"restart sd (\S+) %")
_ESTIMATED = 3
"""From so many starts on an interval's restart spread is what they show, and tells no prior."""


def device_of(record: TrialRecord, arm: str | None = None) -> str | None:
    """Return what an arm's server ran on, in the engine's own word (`cpu`, `cuda`); None where that is not known.

    It is what the server's log told, or what the machine left no choice about, and never a guess by the command. A
    record of an earlier version does not keep it: `cpu` is told there where the restart spread that a comparison states
    is that of the priors of a CPU and not that of a GPU's.

    Args:
        record: the trial's.
        arm: whose; None, and an arm that does not tell, take the baseline's.
    """
    own = next((one.device for one in record.arms if one.name == arm), None)
    told = own or (record.arms[0].device if record.arms else None)
    return told or ("cpu" if _judged_as_cpu(record) else None)


def _judged_as_cpu(record: TrialRecord) -> bool:
    arms = {one.name: one for one in record.arms}
    rules = record.config.get("verdict")
    stated = rules if isinstance(rules, dict) else {}
    if any(stated.get(name) is not None for name in ("restart_sd_baseline", "restart_sd_variant")):
        return False
    for found in record.comparisons:
        told = _RESTARTS.search(found.tpot_ratio.method) if found.tpot_ratio is not None else None
        arm = arms.get(found.arm)
        if told is None or arm is None or not record.arms:
            continue
        starts = starts_of(record.arms[0]), starts_of(arm)
        if max(starts) < _ESTIMATED:
            return told[1] == _stated("cpu", starts) != _stated(None, starts)
    return False


def starts_of(arm: ArmRecord) -> int:
    """Return how often an arm's server was started; 1 where the record does not tell."""
    return max(1, len({one.start for one in arm.starts}))


def _stated(device: str | None, starts: tuple[int, int]) -> str:
    """Return the restart spread of a comparison as its method writes it."""
    base, other = restart_priors(device)
    return f"{100 * math.hypot(base / math.sqrt(starts[0]), other / math.sqrt(starts[1])):.2g}"
