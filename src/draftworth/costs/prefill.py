"""What the prefills of other requests add to each output token of a closed loop."""

import math
from collections.abc import Sequence
from typing import Protocol

from draftworth.costs.base import StepCost

_Z = 1.96
_MOST = 0.9
"""Of TPOT at most, where answers are so short that prefills are met all the time."""


class Served(Protocol):
    """What tells of prefills in a closed loop; `costs.arm_rows.Place` is one."""

    @property
    def batch(self) -> int:
        """Requests at a time."""
        ...

    @property
    def ttft_ms(self) -> float | None:
        """Median time to the first token; None where it is not known."""
        ...

    @property
    def tokens(self) -> float:
        """Mean tokens behind the first of an answer."""
        ...


def prefill_share(
    place: Served, tpot: float, points: Sequence[StepCost], *, restart_sd: float = 0.0
) -> tuple[float, float, float]:
    """Return p in milliseconds a token: best value, lower and upper end.

    In a closed loop of B requests each meets one prefill of every other while it decodes, and a prefill takes at most
    TTFT less a step: p = (B - 1) (TTFT - (TPOT - p)) / tokens, solved for p. Where a probe timed B streams that all
    decode, what the trial's TPOT has above that tells it, within these ends; else half of the upper end stands, and the
    interval has both.

    Args:
        place: the baseline at its load.
        tpot: its TPOT.
        points: of the server, for those by concurrency.
        restart_sd: what one start of the server differs by from another, sd of the log: the probe may be of another.
    """
    if place.batch < 2 or place.ttft_ms is None:  # noqa: PLR2004 - alone, nobody's prefill is met
        return 0.0, 0.0, 0.0
    others = place.batch - 1
    left, above = place.tokens - others, max(0.0, place.ttft_ms - tpot)
    most = min(others * above / left, _MOST * tpot) if left > 0 else _MOST * tpot
    probed = [one for one in points if (one.batch, one.tokens, one.how) == (place.batch, 1, "concurrency")]
    if not probed:
        return most / 2, 0.0, most
    mean, low, high = (sum(getattr(one, name) for one in probed) / len(probed) for name in ("ms", "low", "high"))
    start = _Z * restart_sd * mean
    low, high = mean - math.hypot(mean - low, start), mean + math.hypot(high - mean, start)
    value, least, upper = (min(most, max(0.0, tpot - one)) for one in (mean, high, low))
    return value, least, upper
