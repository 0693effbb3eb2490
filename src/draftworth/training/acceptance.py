"""Walk acceptance as a record: raw counts with what they mean; every rate is derived from them.

schema_version history:
1: first.
2: counts by conversation, tokens in the KV cache, predicted speed-up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.models import Frozen
from draftworth.training.speedup import SpeedUps

SCHEMA_VERSION = 2


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


class ConversationCounts(Frozen):
    """Counts by conversation: columns of one length, in the order of the samples, without names or texts."""

    category: tuple[str, ...]
    """What kind of work each is."""
    tokens: tuple[int, ...]
    """Tokens that drafting steps gave: those behind the first of each answer, whatever k is."""
    steps: dict[int, tuple[int, ...]]
    """k to the drafting steps of each, those that an answer's end cuts off included, as a server takes them."""

    def of(self, category: str | None) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
        """Return tokens and steps by k of one category, None for all, without conversations that have no step."""
        at = [
            place
            for place, (name, tokens) in enumerate(zip(self.category, self.tokens, strict=True))
            if tokens > 0 and category in {None, name}
        ]
        return tuple(self.tokens[one] for one in at), {
            k: tuple(steps[one] for one in at) for k, steps in self.steps.items()
        }


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
    walked_from: str = ""
    """The key of what the walk was made from; the speed-up is made anew without a walk where only the costs change."""
    conversations: ConversationCounts | None = None
    """The same counts by conversation; None in reports of version 1."""
    context: int | None = None
    """Mean tokens in the KV cache half-way an answer; None in reports of version 1."""
    contexts: dict[str, int] = {}
    """The same for each kind of work."""
    speed_up: SpeedUps | None = None
    """The predicted speed-up; None where it is not known."""
    why_no_speed_up: str = ""
    """Why it is not, and how to get it."""

    def at(self, k: int) -> WalkCounts | None:
        """Return the counts of one k."""
        return next((one for one in self.total if one.k == k), None)


def walk_report(found: Mapping[str, Any], checkpoint: str, walked_from: str = "") -> WalkReport:
    """Return what the worker found as a record.

    Args:
        found: the worker's result.
        checkpoint: which checkpoint, within the run folder.
        walked_from: the key of what the walk was made from.
    """
    each: Sequence[Mapping[str, Any]] = found.get("each") or ()
    ks = [int(one["k"]) for one in found["total"]]
    conversations = ConversationCounts(
        category=tuple(one["category"] for one in each),
        tokens=tuple(one["walks"][0]["emitted"] for one in each),
        steps={k: tuple(one["walks"][at]["steps"] for one in each) for at, k in enumerate(ks)},
    )
    told = {name: value for name, value in found.items() if name != "each"}
    return WalkReport.model_validate(
        {**told, "checkpoint": checkpoint, "walked_from": walked_from, "conversations": conversations}
    )


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
