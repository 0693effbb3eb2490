"""What a baseline that changed during the trial leaves of an account.

Arms are measured one after the other, the baseline at both ends. Where its two measurements differ, nobody knows when
in between the machine changed: all of the change may lie in any one arm's time, and so in each part that an arm's time
tells.
"""

from dataclasses import dataclass

from draftworth.predict.base import Range
from draftworth.trials.record import TrialRecord

FEW_PERCENT = 0.03
"""A drift beyond this counts even where its interval holds 1."""
_WORD = 0.01
"""From here on it is worth a word; below it is in the intervals all the same."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The baseline's last measurement over its first.

    Attributes:
        ratio: with its interval.
    """

    ratio: Range

    @property
    def told(self) -> bool:
        """Whether it is worth a word."""
        return abs(self.ratio.value - 1) >= _WORD

    def ms(self, tpot: float) -> float:
        """Return what the baseline changed by, in milliseconds a token.

        Args:
            tpot: of the baseline, the mean m of both measurements a and b = g a: b - a = 2 m (g - 1) / (g + 1).
        """
        return 2 * tpot * abs(self.ratio.value - 1) / (self.ratio.value + 1)


def drift_of(record: TrialRecord, arm: str) -> Drift | None:
    """Return the drift beside an arm, where its interval excludes 1 or it is above a few percent; else None.

    An arm that was compared with nothing has that of the others: the baseline is the same.
    """
    own = [one.drift for one in record.comparisons if one.arm == arm and one.drift is not None]
    found = next(iter([*own, *(one.drift for one in record.comparisons if one.drift is not None)]), None)
    if found is None or found.estimate <= 0:
        return None
    value = found.estimate
    low, high = (value if end is None else end for end in (found.low, found.high))
    told = None not in {found.low, found.high}
    if abs(value - 1) <= FEW_PERCENT and (not told or low <= 1 <= high):
        return None
    return Drift(Range(value=value, low=min(low, value), high=max(high, value)))
