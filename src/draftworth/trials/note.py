"""The line that says how a measurement goes while it goes."""

from collections.abc import Sequence

from draftworth.bench.base import RequestRow
from draftworth.bench.tally import Ratio, Tally
from draftworth.trials.base import Block
from draftworth.trials.config import BASELINE


class ArmNotes:
    """How an arm's measurement goes: its time per token, for a variant its ratio to the baseline so far.

    The blocks measured before are gone through once, here; after that a row costs the same however many there are.
    """

    def __init__(self, blocks: Sequence[Block], arm: str) -> None:
        """Make notes.

        Args:
            blocks: the trial's so far; with those that are measured now, still empty.
            arm: whose figures are told. Rows of the baseline may come in between, of other arms are passed over.
        """
        self._arm = arm
        self._tally = Tally()
        self._ratio = None if arm == BASELINE else Ratio()
        for block in blocks:
            if block.arm in {arm, BASELINE}:
                for row in block.rows:
                    self._compare(row)

    def row(self, row: RequestRow) -> None:
        """Take a row of the measurement at hand."""
        if row.arm == self._arm:
            self._tally.row(row)
        self._compare(row)

    def _compare(self, row: RequestRow) -> None:
        if self._ratio is None:
            return
        if row.arm == BASELINE:
            self._ratio.baseline(row)
        elif row.arm == self._arm:
            self._ratio.variant(row)

    def note(self) -> str:
        """Say how it goes."""
        tally, found = self._tally, None if self._ratio is None else self._ratio.interval
        parts = [] if tally.mean is None else [f"{tally.mean:.1f} ms a token"]
        if found is not None:
            parts.append(f"{found[0]:.2f} of the baseline's ({found[1]:.2f} to {found[2]:.2f} so far)")
        return ", ".join([*parts, *([f"{tally.failed} failed"] if tally.failed else [])])
