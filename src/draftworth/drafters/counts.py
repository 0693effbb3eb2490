"""What is told of replayed steps: every count and rate is a sum over one table of drafted against accepted tokens.

The names and formulas are those of docs/numbers.md. The table `joint[d, a]` says in how many steps d tokens were
drafted and a of them accepted, so nothing here is an estimate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Setting


@dataclass(frozen=True, slots=True)
class Tally:
    """The steps of one setting, of all requests or of some.

    Attributes:
        joint: int64 [K + 1, K + 1], steps by drafted and accepted tokens, K at least k.
        emitted: output tokens of these steps, within the recording: all but the first of each request.
        k: most tokens drafted a step.
    """

    joint: NDArray[np.int64]
    emitted: int
    k: int

    @property
    def steps(self) -> int:
        """Decode steps: target forwards of one request each."""
        return int(self.joint.sum())

    @property
    def drafting_steps(self) -> int:
        """Steps that verified at least one drafted token."""
        return int(self.joint[1:].sum())

    @property
    def drafted(self) -> int:
        """Drafted tokens, also those that would lie beyond the end of the recording: an engine verifies them too."""
        return int(self.joint.sum(axis=1) @ np.arange(len(self.joint)))

    @property
    def accepted(self) -> int:
        """Accepted tokens within the recording."""
        return int(self.joint.sum(axis=0) @ np.arange(len(self.joint)))

    @property
    def accepted_per_position(self) -> tuple[int, ...]:
        """Steps whose position i was accepted, k values, position 0 first."""
        return _at_least(self.joint.sum(axis=0), self.k)

    @property
    def drafted_per_position(self) -> tuple[int, ...]:
        """Steps that drafted a token at position i, k values, position 0 first."""
        return _at_least(self.joint.sum(axis=1), self.k)

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Accepted at i / steps that drafted i and accepted i - 1, k values; None where no step got there."""
        of = [int(self.joint[i + 1 :, i:].sum()) for i in range(self.k)]
        return tuple(_ratio(now, reached) for now, reached in zip(self.accepted_per_position, of, strict=True))

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Steps by how many tokens they drafted: k + 1 values, from 0."""
        return tuple(self.joint.sum(axis=1)[: self.k + 1].tolist())

    @property
    def coverage(self) -> float | None:
        """Draft coverage: drafting steps / steps."""
        return _ratio(self.drafting_steps, self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Draft acceptance rate: accepted / drafted. None where nothing was drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def length_per_drafting_step(self) -> float | None:
        """1 + accepted / drafting steps, what vLLM prints. None where nothing was drafted."""
        rate = _ratio(self.accepted, self.drafting_steps)
        return None if rate is None else 1 + rate

    @property
    def length_per_step(self) -> float | None:
        """Emitted / steps: tokens per step, which the speed depends on."""
        return _ratio(self.emitted, self.steps)

    def document(self) -> dict[str, Any]:
        """Return counts and rates for a JSON document."""
        return {
            "steps": self.steps,
            "drafting_steps": self.drafting_steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "accepted_per_position": list(self.accepted_per_position),
            "drafted_per_position": list(self.drafted_per_position),
            "conditional": list(self.conditional),
            "emitted": self.emitted,
            "coverage": self.coverage,
            "acceptance_rate": self.acceptance_rate,
            "length_per_drafting_step": self.length_per_drafting_step,
            "length_per_step": self.length_per_step,
            "draft_lengths": list(self.draft_lengths),
        }


def added(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of all steps of one setting's tallies, at least one."""
    some = list(tallies)
    return Tally(sum((one.joint for one in some[1:]), some[0].joint), sum(one.emitted for one in some), some[0].k)


@dataclass(frozen=True, slots=True)
class SettingCounts:
    """What replaying one setting gives.

    Attributes:
        setting: which.
        total: all steps.
        by_category: the same by the requests' category; empty text where it is not known.
        by_phase: the same by `thinking` and `answer`, by the first token a step emits; `not_known` has the requests
            that do not say how much of them is reasoning. A phase without requests is not there.
        low: lower limit of the 95 % interval of `total.length_per_step` over requests, at least 1; None where there is
            none.
        high: upper limit, at most k + 1.
    """

    setting: Setting
    total: Tally
    by_category: dict[str, Tally]
    by_phase: dict[str, Tally]
    low: float | None
    high: float | None

    def document(self) -> dict[str, Any]:
        """Return it for a JSON document."""
        found = {
            "k": self.setting.k,
            "min": self.setting.min,
            "max": self.setting.max,
            "more": dict(self.setting.more),
            **self.total.document(),
            "length_per_step_low": self.low,
            "length_per_step_high": self.high,
        }
        for name, parts in (("by_category", self.by_category), ("by_phase", self.by_phase)):
            found[name] = {part: tally.document() for part, tally in parts.items()}
        return found


def _at_least(steps: NDArray[np.int64], k: int) -> tuple[int, ...]:
    """Return how many steps have more than i tokens, for i below k."""
    return tuple(steps[::-1].cumsum()[::-1][1 : k + 1].tolist())


def _ratio(part: int, of: int) -> float | None:
    return part / of if of else None
