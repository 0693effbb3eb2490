"""How long the steps of this trial took, and so what those that the verdict still needs will take."""

from collections import defaultdict
from collections.abc import Iterable

from draftworth.trials.probing import BUDGET_S
from draftworth.trials.steps import Kind, Step

_MORE = 1.25
"""How much longer than the longest so far a step may take."""


class Pace:
    """Seconds of the steps that the verdict needs; steps that only measure are no part of it."""

    def __init__(self, hold_s: float = 0.0) -> None:
        """Begin.

        Args:
            hold_s: how long a variant is held for a person.
        """
        self._hold_s = hold_s
        self._took: dict[Kind, dict[str, float]] = defaultdict(dict)

    def took(self, step: Step, seconds: float) -> None:
        """Take what a step took."""
        of_kind = self._took[step.kind]
        of_kind[step.arm] = max(seconds, of_kind.get(step.arm, 0.0))

    def longest(self, kind: Kind) -> float:
        """Return the longest of a kind so far in seconds, 0 where there was none."""
        return max(self._took[kind].values(), default=0.0)

    def keep_back(self, coming: Iterable[Step], *, running: bool) -> float:
        """Return the seconds of `limits.downtime_s` that steps to come will take, with something over.

        Args:
            coming: the steps that the verdict needs.
            running: whether there is an original, which is away now: what happens while it is back takes nothing.
        """
        away, total = True, 0.0
        for step in coming:
            away = away or step.kind is Kind.STOP_ORIGINAL
            if away and (running or step.kind is not Kind.RESTORE):
                total += self._expected(step)
            if running and step.kind is Kind.RESTORE:
                away = False
        return _MORE * total

    def _expected(self, step: Step) -> float:
        if step.kind is Kind.HOLD:
            return self._hold_s
        if step.kind is Kind.PROBE:
            return BUDGET_S
        # A restore starts the original; scores are prefills and cost less than the answers did.
        kind = {Kind.RESTORE: Kind.START, Kind.SCORE: Kind.MEASURE, Kind.STOP_ORIGINAL: Kind.STOP}.get(
            step.kind, step.kind
        )
        seen = self._took[kind]
        return seen.get(step.arm, max(seen.values(), default=0.0))
