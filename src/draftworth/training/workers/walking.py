"""The walk of chain drafting over recorded text: where a server would draft, and what it would accept. numpy alone.

At temperature 0 a server verifies k drafted tokens a step, keeps the leading ones that the target agrees with and adds
the target's own next token: from anchor t it goes to t + accepted + 1. On text that the target wrote, agreeing is being
equal to the text. Accuracy over all positions is not this: a wrong draft early in a step spoils those behind it, and
positions inside accepted runs are never anchors. Definition: design.md, "acceptance length per drafting step".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Walked:
    """Counts of walks with one k.

    Attributes:
        k: tokens drafted a step.
        steps: drafting steps.
        full: those of them behind which at least k tokens of text follow: the others are cut off by the text's end.
        accepted: accepted tokens of all steps; of a step that is cut off, those that the text shows.
        at: accepted tokens of the full steps by position, [k].
        emitted: tokens that the drafting steps of the walk gave, the target's own included.
    """

    k: int
    steps: int = 0
    full: int = 0
    accepted: int = 0
    at: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    emitted: int = 0

    def __post_init__(self) -> None:
        if not len(self.at):
            self.at = np.zeros(self.k, np.int64)

    def add(self, other: "Walked") -> None:
        """Add the counts of other walks with the same k."""
        self.steps += other.steps
        self.full += other.full
        self.accepted += other.accepted
        self.at = self.at + other.at
        self.emitted += other.emitted

    @property
    def length(self) -> float | None:
        """Acceptance length per drafting step: 1 + accepted / steps, of full steps; None where there is none."""
        return 1 + float(self.at.sum()) / self.full if self.full else None

    def as_dict(self) -> dict[str, int | list[int]]:
        """Return the raw counts."""
        return {
            "k": self.k,
            "steps": self.steps,
            "full_steps": self.full,
            "accepted": self.accepted,
            "accepted_at": self.at.tolist(),
            "emitted": self.emitted,
        }


def spans(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs of true values as (first, one behind the last); what the target wrote, answer by answer."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def anchors(mask: NDArray[np.bool_]) -> Ints:
    """Return every position t that a walk could draft from, rising.

    Token t + 1 is known, being the prompt's last sampled one or later, and token t + 2 is to be verified.
    """
    found = [np.arange(max(first - 1, 0), last - 2) for first, last in spans(mask)]
    return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)


def matches(drafts: Ints, tokens: Ints, where: Ints) -> Ints:
    """Return how many leading drafts equal the text, [anchors].

    Args:
        drafts: drafted target ids, [anchors, k].
        tokens: the text's ids, [T].
        where: the anchors; the first draft of anchor t stands for token t + 2.
    """
    k = drafts.shape[1]
    padded = np.concatenate([tokens, np.full(k + 2, -1, np.int64)])
    wanted = padded[where[:, None] + 2 + np.arange(k)]
    agreeing: Ints = np.cumprod(drafts == wanted, axis=1).sum(axis=1)
    return agreeing


def walk(agreeing: Ints, where: Ints, mask: NDArray[np.bool_], k: int, known: int | None = None) -> Walked:
    """Walk every answer of one sample.

    Args:
        agreeing: of `matches`, for at least k drafts an anchor.
        where: its anchors: all of `anchors(mask)`.
        mask: which tokens the target wrote, [T].
        k: tokens drafted a step.
        known: how many tokens of the text are known where the last answer goes on behind its mask: what a server that
            stops at a limit of tokens has verified and cut off. None: nothing is known behind an answer.
    """
    at = dict(zip(where.tolist(), agreeing.tolist(), strict=True))
    found = Walked(k)
    for first, last in spans(mask):
        anchor = max(first - 1, 0)
        while anchor + 1 < last - 1:
            left = last - 2 - anchor
            shown = left if known is None else known - 2 - anchor
            accepted = min(at[anchor], k, shown)
            found.steps += 1
            found.accepted += accepted
            found.emitted += min(accepted + 1, left)
            if shown >= k:
                found.full += 1
                found.at[:accepted] += 1
            anchor += accepted + 1
    return found


@dataclass(slots=True)
class Part:
    """Walks of some of the samples.

    Attributes:
        ks: tokens drafted a step.
        walks: by k.
        answers: how many there are.
        tokens: in front of the middle of each answer, added up.
    """

    ks: tuple[int, ...]
    walks: dict[int, Walked] = field(init=False)
    answers: int = 0
    tokens: float = 0.0

    def __post_init__(self) -> None:
        self.walks = {k: Walked(k) for k in self.ks}

    def add(self, mask: NDArray[np.bool_], found: Mapping[int, Walked]) -> None:
        """Add a sample, by which of its tokens the target wrote, and its walks."""
        for k, walked in found.items():
            self.walks[k].add(walked)
        for first, last in spans(mask):
            self.answers += 1
            self.tokens += (first + last) / 2

    @property
    def half_way(self) -> int | None:
        """Mean tokens in the KV cache half-way an answer; None where there is no answer."""
        return max(1, round(self.tokens / self.answers)) if self.answers else None

    def counts(self) -> list[dict[str, int | list[int]]]:
        """Return the raw counts by k."""
        return [walked.as_dict() for walked in self.walks.values()]
