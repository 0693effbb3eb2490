"""The line that says how a measurement goes while it goes."""

from collections.abc import Sequence

from draftworth.bench.base import RequestRow
from draftworth.trials.base import Block
from draftworth.trials.config import BASELINE


def note(blocks: Sequence[Block], arm: str, rows: Sequence[RequestRow]) -> str:
    """Return how a measurement goes: time per token, for a variant its ratio to the baseline so far."""
    from draftworth.verdicts.running import running  # noqa: PLC0415 - lazy: scipy

    tpots = [row.tpot_ms for row in rows if row.timed and row.tpot_ms is not None]
    parts = [f"{sum(tpots) / len(tpots):.1f} ms a token"] if tpots else []
    if arm != BASELINE:
        before = [row for block in blocks if block.arm == BASELINE for row in block.rows]
        ratio = running(before, [row for block in blocks if block.arm == arm for row in block.rows])
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            parts.append(f"{ratio.estimate:.2f} of the baseline's ({ratio.low:.2f} to {ratio.high:.2f} so far)")
    failed = sum(not row.ok for row in rows)
    return ", ".join([*parts, *([f"{failed} failed"] if failed else [])])
