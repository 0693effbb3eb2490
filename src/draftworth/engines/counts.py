"""Raw counts of speculation, and every figure that is derived from them, each with its formula.

Engines use one name for different things: "acceptance length" alone has five live meanings. So counts are kept, each
with how this engine counts it where that is not our definition, and a figure is compared only with one of the same
formula over counts of the same meaning.
"""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import model_validator

from draftworth.models import Frozen

FIELDS: tuple[str, ...] = ("steps", "drafting_steps", "drafted", "accepted", "accepted_per_position", "emitted")
"""The counts every engine is asked for; each is a count or not given, because of something."""
_NUMBERS = ("steps", "drafting_steps", "drafted", "accepted", "emitted")
_POSITIONS = ("accepted_per_position", "drafted_per_position")
_NOT_READ = "was not read"
BELOW_ZERO = "the counters contradict each other"
"""How the reason begins where a count would be below zero."""


class AcceptanceCounts(Frozen):
    """Raw counts of one window, or since a server's start. `None` means not given; `not_given` says why."""

    steps: int | None = None
    """Decode steps: target forwards of one request each, prefill left out."""
    drafting_steps: int | None = None
    """Steps that verified at least one drafted token."""
    drafted: int | None = None
    accepted: int | None = None
    accepted_per_position: tuple[int, ...] | None = None
    """Drafting steps whose position i was accepted; position 0 first."""
    drafted_per_position: tuple[int, ...] | None = None
    """Drafting steps that drafted a token at position i; position 0 first. Few engines tell it."""
    emitted: int | None = None
    """Tokens that left decode steps (the first token of a request comes from prefill and is not counted)."""
    source: str
    """Where the counts were read, for a person: `/metrics of vLLM 0.32.0, 1 engine, difference of two scrapes`."""
    not_given: dict[str, str] = {}
    """Field name to the reason it is None."""
    between: dict[str, tuple[int, int | None]] = {}
    """Field name to the smallest and the largest it can be, where an engine tells it only rounded; the largest is None
    where nothing bounds it. The field itself is None unless both are one number."""
    meaning: dict[str, str] = {}
    """Field name to how this engine counts it, where that is not the definition above."""

    @model_validator(mode="before")
    @classmethod
    def _none_below_zero(cls, data: Any) -> Any:
        """A difference of counters that contradict each other is no count."""
        if not isinstance(data, dict):
            return data
        below = [name for name in _NUMBERS if isinstance(value := data.get(name), int) and value < 0]
        if not below:
            return data
        reasons = {name: f"{BELOW_ZERO}: it would be {data[name]:,}" for name in below}
        return {**data, **dict.fromkeys(below), "not_given": {**data.get("not_given", {}), **reasons}}

    @property
    def speculated(self) -> bool:
        """Whether anything known here was drafted or accepted, or a step drafted."""
        return any((self.drafting_steps, self.drafted, self.accepted))

    def why_not(self, name: str) -> str:
        """Return why a field is None, for a person."""
        if name in self.between:
            low, high = self.between[name]
            if high is None:
                return f"told only rounded: at least {low:,}"
            return f"told only rounded: {low:,} to {high:,}"
        return self.not_given.get(name, _NOT_READ)

    @property
    def coverage(self) -> float | None:
        """Draft coverage: drafting steps / steps."""
        return figure(self, "coverage").value

    @property
    def acceptance_rate(self) -> float | None:
        """Draft acceptance rate: accepted / drafted. None where the counts contradict each other."""
        return figure(self, "acceptance_rate").value

    @property
    def length_per_drafting_step(self) -> float | None:
        """Acceptance length per drafting step: 1 + accepted / drafting steps (what vLLM 0.9 and later print)."""
        return figure(self, "length_per_drafting_step").value

    @property
    def length_per_step(self) -> float | None:
        """Acceptance length per step: emitted / steps. This is what the speed depends on."""
        return figure(self, "length_per_step").value

    @property
    def survival(self) -> tuple[float, ...] | None:
        """Share of drafting steps whose position i was accepted (unconditional), position 0 first."""
        if self.accepted_per_position is None or not self.drafting_steps:
            return None
        return tuple(n / self.drafting_steps for n in self.accepted_per_position)

    @property
    def conditional(self) -> tuple[float | None, ...] | None:
        """Acceptance at position i of the steps that drafted it and accepted position i - 1; position 0 first.

        Known only where every draft had its full length (drafted = positions x drafting steps): then those are the
        steps that accepted i - 1. None for a position nothing reached.
        """
        chain = self.accepted_per_position
        if not chain or not self.drafting_steps or self.drafted != len(chain) * self.drafting_steps:
            return None
        before = (self.drafting_steps, *chain)
        return tuple(now / of if of else None for now, of in zip(chain, before, strict=False))


class Figure(Frozen):
    """One derived figure.

    Attributes:
        name: its name in docs/numbers.md.
        value: None where it cannot be computed; `why_not` says why.
        low: the smallest it can be, where a count is only told rounded.
        high: the largest.
        formula: of which counts it is made.
        meaning: how those counts are counted, where that is not our definition.
        why_not: why there is no value.
        missing: the counts that are not given.
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    formula: str
    meaning: str = ""
    why_not: str | None = None
    missing: tuple[str, ...] = ()


# Name: (numerator, denominator, what is added, formula).
_FORMULAS: dict[str, tuple[str, str, int, str]] = {
    "coverage": ("drafting_steps", "steps", 0, "drafting steps / steps"),
    "acceptance_rate": ("accepted", "drafted", 0, "accepted / drafted"),
    "length_per_drafting_step": ("accepted", "drafting_steps", 1, "1 + accepted / drafting steps"),
    "length_per_step": ("emitted", "steps", 0, "emitted / steps"),
}
FIGURES: tuple[str, ...] = tuple(_FORMULAS)
"""Every derived figure's name."""
WORDS: dict[str, str] = {
    "coverage": "draft coverage",
    "acceptance_rate": "acceptance rate",
    "length_per_drafting_step": "acceptance length per drafting step",
    "length_per_step": "acceptance length per step",
}
"""The same for a person."""
_AT_MOST_ONE = frozenset({"coverage", "acceptance_rate"})


def figure(counts: AcceptanceCounts, name: str) -> Figure:
    """Return one derived figure, or why it cannot be had. Counts that contradict each other give none.

    Args:
        counts: the raw counts.
        name: one of `FIGURES`.
    """
    above, below, added, formula = _FORMULAS[name]
    wrong = _more_accepted_than_drafted(counts) if above == "accepted" else None
    meaning = "; ".join(f"{part}: {counts.meaning[part]}" for part in (above, below) if part in counts.meaning)
    parts = [(part, _range(counts, part)) for part in (above, below)]
    missing: dict[str, list[str]] = {}
    for part, known in parts:
        if known is None:
            missing.setdefault(counts.why_not(part), []).append(part.replace("_", " "))
    empty = Figure(name=name, formula=formula, meaning=meaning)
    if wrong:
        return empty.model_copy(update={"why_not": wrong})
    if missing:
        said = [f"{' and '.join(names)} not given: {why}" for why, names in missing.items()]
        absent = tuple(name for names in missing.values() for name in names)
        return empty.model_copy(update={"why_not": "; ".join(said), "missing": absent})
    (top_low, top_high), (low, high) = (known for _, known in parts if known is not None)
    words = (above.replace("_", " "), below.replace("_", " "))
    if high == 0:
        return empty.model_copy(update={"why_not": f"{words[1]}: none"})
    if name in _AT_MOST_ONE and top_low > high:
        why = f"{top_low:,} {words[0]} of {high:,.0f} {words[1]} contradict each other"
        return empty.model_copy(update={"why_not": why})
    if (top_low, low) == (top_high, high):
        return empty.model_copy(update={"value": added + top_low / low})
    return empty.model_copy(update=_ends(name, added, (top_low, top_high), (low, high)))


def _ends(name: str, added: int, above: "_Range", below: "_Range") -> dict[str, Any]:
    """Return between what a figure lies whose counts are not known exactly."""
    smallest = added + (0.0 if math.isinf(below[1]) else above[0] / below[1])
    largest = math.inf if math.isinf(above[1]) else added + above[1] / max(below[0], 1)
    if name in _AT_MOST_ONE:
        largest = min(largest, 1.0)
    if math.isinf(largest):
        return {"low": smallest, "why_not": f"only known to be at least {smallest:.3g}"}
    return {"low": smallest, "high": largest, "why_not": f"only known between {smallest:.3g} and {largest:.3g}"}


def _more_accepted_than_drafted(counts: AcceptanceCounts) -> str | None:
    drafted, accepted = _range(counts, "drafted"), _range(counts, "accepted")
    if drafted is None or accepted is None or accepted[0] <= drafted[1]:
        return None
    return f"{accepted[0]:,} accepted of {drafted[1]:,.0f} drafted contradict each other"


_Range = tuple[int, float]
"""The smallest and the largest a count can be; infinite where nothing bounds it."""


def _range(counts: AcceptanceCounts, name: str) -> _Range | None:
    value: int | None = getattr(counts, name)
    if value is not None:
        return value, value
    if name not in counts.between:
        return None
    low, high = counts.between[name]
    return low, math.inf if high is None else high


def figures(counts: AcceptanceCounts) -> tuple[Figure, ...]:
    """Return every derived figure."""
    return tuple(figure(counts, name) for name in FIGURES)


def not_comparable(name: str, one: AcceptanceCounts, other: AcceptanceCounts) -> str | None:
    """Return why a figure of two arms must not be compared, or None where it may be.

    Args:
        name: one of `FIGURES`.
        one: the counts of the first arm.
        other: of the second.
    """
    mine, yours = figure(one, name), figure(other, name)
    if mine.meaning == yours.meaning:
        return None
    plain = "as defined"
    return f"its counts differ in meaning ({mine.meaning or plain} / {yours.meaning or plain})"


def derived(counts: AcceptanceCounts | None) -> dict[str, float | None]:
    """Return the rates of an arm by their names in docs/numbers.md."""
    return {} if counts is None else {name: figure(counts, name).value for name in FIGURES}


class Sum:
    """Adds the counts of windows up, in constant memory.

    A field that one window lacks is lacking in the sum, and so is one that two windows count in different ways. Where
    a window knows it only between two bounds, the bounds add up.
    """

    def __init__(self) -> None:
        self.windows = 0
        self._first: AcceptanceCounts | None = None
        self._ranges: dict[str, _Range] = {}
        self._positions: dict[str, list[int]] = {}
        self._not_given: dict[str, str] = {}

    def add(self, counts: AcceptanceCounts) -> None:
        """Add one window."""
        first = self._first
        self.windows += 1
        if first is None:
            self._first = counts
            self._ranges = {name: known for name in _NUMBERS if (known := _range(counts, name)) is not None}
            self._positions = {name: list(row) for name in _POSITIONS if (row := getattr(counts, name)) is not None}
            self._not_given = dict(counts.not_given)
            return
        for name, so_far in list(self._ranges.items()):
            more = _range(counts, name)
            if more is None or self._otherwise(counts, name):
                del self._ranges[name]
            else:
                self._ranges[name] = (so_far[0] + more[0], so_far[1] + more[1])
        for name, row in list(self._positions.items()):
            other = getattr(counts, name)
            if other is None or self._otherwise(counts, name):
                del self._positions[name]
            else:
                row.extend([0] * (len(other) - len(row)))
                for index, value in enumerate(other):
                    row[index] += value
        if counts.not_given:
            self._not_given |= {name: why for name, why in counts.not_given.items() if name not in self._not_given}

    def _otherwise(self, counts: AcceptanceCounts, name: str) -> bool:
        first = self._first
        if first is None or first.meaning.get(name) == counts.meaning.get(name):
            return False
        self._not_given[name] = "the windows count it in different ways"
        return True

    def total(self) -> AcceptanceCounts | None:
        """Return the sum; None where nothing was added."""
        first = self._first
        if first is None:
            return None
        exact = {name: low for name, (low, high) in self._ranges.items() if low == high}
        between = {
            name: (low, None if math.isinf(high) else int(high))
            for name, (low, high) in self._ranges.items()
            if name not in exact
        }
        rows = {name: tuple(row) for name, row in self._positions.items()}
        values: dict[str, Any] = {**exact, **rows}
        return AcceptanceCounts(
            **values,
            source=first.source if self.windows == 1 else f"{first.source}, {self.windows:,} windows added",
            not_given={name: why for name, why in self._not_given.items() if name not in values},
            between=between,
            meaning=first.meaning,
        )


def sum_counts(counts: Sequence[AcceptanceCounts | None]) -> AcceptanceCounts | None:
    """Return the counts of several windows added as `Sum` adds them; None where one of them is missing."""
    known = [one for one in counts if one is not None]
    if not known or len(known) < len(counts):
        return None
    total = Sum()
    for one in known:
        total.add(one)
    return total.total()
