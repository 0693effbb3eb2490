"""Walk acceptance as a record: raw counts with what they mean; every rate is derived from them."""

from collections.abc import Mapping
from typing import Any

from draftworth.models import Frozen

SCHEMA_VERSION = 1


class WalkCounts(Frozen):
    """Counts of the walks with one k."""

    k: int
    """Tokens drafted a step."""
    steps: int
    """Drafting steps."""
    full_steps: int
    """Those behind which at least k tokens of text follow: the others are cut off by the answer's end."""
    accepted: int
    """Accepted tokens of all steps; of a step that is cut off, those that the text shows."""
    accepted_at: tuple[int, ...]
    """Accepted tokens of the full steps, by position."""
    emitted: int
    """Tokens that the steps gave, the target's own included."""

    @property
    def length(self) -> float | None:
        """Acceptance length per drafting step, of full steps; None where there is none."""
        return 1 + sum(self.accepted_at) / self.full_steps if self.full_steps else None

    @property
    def survival(self) -> tuple[float, ...] | None:
        """Share of full steps whose position i was accepted; None where there is no full step."""
        return tuple(one / self.full_steps for one in self.accepted_at) if self.full_steps else None


class WalkReport(Frozen):
    """Walk acceptance of one head on held-out samples: `eval/eval.json`."""

    schema_version: int = SCHEMA_VERSION
    """Version of this layout."""
    checkpoint: str
    """Which checkpoint, within the run folder."""
    samples: int
    """Held-out samples."""
    loss_tokens: int
    """Tokens that the target wrote in them."""
    first_choices: int
    """Those of them that are the target's own first choice: at temperature 0 all but rounding."""
    total: tuple[WalkCounts, ...]
    """By k."""
    categories: dict[str, tuple[WalkCounts, ...]]
    """The same for each kind of work."""
    device: str
    """Where it was computed."""

    def at(self, k: int) -> WalkCounts | None:
        """Return the counts of one k."""
        return next((one for one in self.total if one.k == k), None)


def walk_report(found: Mapping[str, Any], checkpoint: str) -> WalkReport:
    """Return what the worker found as a record."""
    return WalkReport.model_validate({**found, "checkpoint": checkpoint})


def lines(report: WalkReport) -> list[str]:
    """Return a report for a person."""
    share = report.first_choices / report.loss_tokens if report.loss_tokens else 0.0
    head = (
        f"{report.samples:,} held-out samples, {report.loss_tokens:,} tokens of the target, {share:.1%} of them its "
        "own first choice"
    )
    rows = [head, "acceptance length per drafting step, chain drafting, temperature 0:"]
    rows += [f"  k = {one.k}: {_length(one)}" for one in report.total]
    most = report.total[-1] if report.total else None
    if most is not None and most.survival is not None:
        shown = ", ".join(f"{one:.0%}" for one in most.survival)
        rows.append(f"  accepted by position at k = {most.k}: {shown}")
    for name, part in report.categories.items():
        rows.append(f"  {name}: " + ", ".join(f"k = {one.k} {_length(one)}" for one in part))
    return rows


def _length(counts: WalkCounts) -> str:
    return "not measured (no full step)" if counts.length is None else f"{counts.length:.3f}"
