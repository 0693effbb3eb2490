"""The cells of a probe: what is measured, in which order, and what their repeats came to."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from draftworth.costs.base import REFERENCE, How, Prefill, StepCost
from draftworth.costs.prefix_points import bound_by_host
from draftworth.costs.repeats import FEWEST, median_interval
from draftworth.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One point of T(B, n).

    Attributes:
        how: `concurrency` or `prefix`.
        context: tokens of each request in the KV cache.
        batch: B.
        tokens: n.
    """

    how: How
    context: int
    batch: int
    tokens: int

    @property
    def label(self) -> str:
        """Its name for a person."""
        what = f"{self.batch} streams" if self.how == "concurrency" else f"{self.tokens} new tokens"
        what = "1 new token" if (self.how, self.tokens) == ("prefix", 1) else what
        several = f" x {self.batch}" if self.how == "prefix" and self.batch > 1 else ""
        return f"{what}{several} at {self.context:,}"


def cells(
    *, concurrency: Sequence[int], tokens: Sequence[int], contexts: Sequence[int], prefix_batch: Sequence[int] = (1,)
) -> list[Cell]:
    """Return the cells, those first that others build on.

    Each context has one stream, and where there are prefixes two for each of those at a time, asked for or not. Two new
    tokens behind a prefix are no cell: they are what the others are differences against. One new token, a decode step,
    is a cell of each: it tells what a prefill costs beyond a decode step, and is no point.

    Raises:
        UsageError: a value is below 1.
    """
    for name, values in (
        ("concurrency", concurrency),
        ("tokens", tokens),
        ("context", contexts),
        ("prefix-batch", prefix_batch),
    ):
        if any(value < 1 for value in values) or (name == "context" and not values):
            raise UsageError(f"--{name}: must be whole numbers of at least 1, like 1,2,4")
    found: list[Cell] = []
    for context in dict.fromkeys(contexts):
        more = sorted({n for n in tokens if n > REFERENCE})
        found += [
            Cell("concurrency", context, batch, 1)
            for batch in sorted({1, *concurrency, *(REFERENCE * at for at in prefix_batch if more)})
        ]
        found += [Cell("prefix", context, batch, n) for batch in sorted(set(prefix_batch)) for n in (1, *more) if more]
    return found


def order(of: Sequence[Cell], number: int, seed: int) -> list[Cell]:
    """Return the cells in the order of one round: another one in each."""
    shuffled = list(of)
    random.Random(f"{seed}/{number}").shuffle(shuffled)  # noqa: S311 - no secret
    return shuffled


@dataclass(slots=True)
class Results:
    """What was measured.

    Attributes:
        values: cell to the milliseconds of each round: of a step; of `prefix`, beyond what two new tokens took.
        failures: cell to why it could not be measured, the latest reason.
        disturbed: measurements that others' requests fell into, and that are not kept.
    """

    values: dict[Cell, dict[int, float]] = field(default_factory=dict)
    failures: dict[Cell, str] = field(default_factory=dict)
    disturbed: int = 0

    def add(self, cell: Cell, number: int, ms: float) -> None:
        """Keep a value of a round."""
        self.values.setdefault(cell, {})[number] = ms

    def steps(self, cell: Cell) -> Mapping[int, float]:
        """Return the milliseconds of a step, by round, of rounds in which all that it takes was measured.

        A cell of `prefix` is T(2 B, 1) by concurrency and what n new tokens took longer than two, of the same round; of
        one new token it is no step, but what two took longer.
        """
        own = self.values.get(cell, {})
        if cell.how == "concurrency":
            return own
        base = self.values.get(Cell("concurrency", cell.context, REFERENCE * cell.batch, 1), {})
        if cell.tokens < REFERENCE:
            return {number: -more for number, more in own.items()}
        return {number: base[number] + more for number, more in own.items() if number in base}

    def points(self, of: Sequence[Cell]) -> tuple[StepCost, ...]:
        """Return the points of cells with at least two repeats."""
        return tuple(self._points(of))

    def _points(self, of: Sequence[Cell]) -> Iterator[StepCost]:
        for cell in of:
            repeats = list(self.steps(cell).values())
            if len(repeats) < FEWEST or _no_step(cell) or min(repeats) <= 0:
                continue
            ms, low, high = median_interval(repeats)
            yield StepCost(
                batch=cell.batch,
                tokens=cell.tokens,
                context=cell.context,
                ms=ms,
                low=low,
                high=high,
                repeats=len(repeats),
                how=cell.how,
            )

    def prefills(self, of: Sequence[Cell]) -> tuple[Prefill, ...]:
        """Return what prefills take beyond decode steps, of cells with at least two repeats."""
        found = []
        for cell in filter(_no_step, of):
            repeats = list(self.steps(cell).values())
            if len(repeats) >= FEWEST:
                ms, low, high = median_interval(repeats, difference=True)
                found.append(
                    Prefill(batch=cell.batch, context=cell.context, ms=ms, low=low, high=high, repeats=len(repeats))
                )
        return tuple(found)

    def notes(self, of: Sequence[Cell], repeats: int) -> list[str]:
        """Return what was not measured, or fewer times than asked for."""
        found = [f"{cell.label}: not measured: {why}" for cell, why in self.failures.items() if cell not in self.values]
        few: dict[int, list[str]] = {}
        for cell in of:
            count = len(self.steps(cell))
            if count < repeats and not (cell in self.failures and not count):
                why = f" (failed: {self.failures[cell]})" if cell in self.failures else ""
                few.setdefault(count, []).append(f"{cell.label}{why}")
        found += [
            f"{count} of {repeats} repeats{'' if count >= FEWEST else ' (left out)'}: {', '.join(names)}"
            for count, names in sorted(few.items())
        ]
        drowned = [cell.label for cell in of if not _no_step(cell) and min(self.steps(cell).values(), default=1.0) <= 0]
        if drowned:
            found.append(f"left out, a repeat came to no time at all (noise above the step): {', '.join(drowned)}")
        if self.disturbed:
            found.append(f"{self.disturbed} measurements left out: others' requests fell into them")
        return found


def _no_step(cell: Cell) -> bool:
    return cell.how == "prefix" and cell.tokens < REFERENCE


def biases(points: Sequence[StepCost], prefills: Sequence[Prefill] = ()) -> list[str]:
    """Return what the points do not say, by how they were measured."""
    hows = {(one.how, one.batch > 1) for one in points}
    found = []
    if ("concurrency", True) in hows:
        found.append(
            "concurrency: T(B, 1) is of B unrelated sequences: beside B tokens of one it reads B KV caches and more "
            "experts (too dear for verification), and has no rejection sampling (too cheap)"
        )
    if any(how == "prefix" for how, _ in hows):
        found.append(
            "prefix: T(B, n) = T(2 B, 1) by concurrency + time to the first token at n less that at 2, of one round: "
            "two tokens are taken to cost what two streams do, whose further KV caches are taken off when it is read"
        )
    found += [
        f"prefix, {one.batch} at a time at {one.context:,}: two new tokens take {one.ms:.3g} ms longer than one "
        f"({one.low:.3g} to {one.high:.3g}), more than half of a step: prefills are bound by something else than their "
        "tokens, so that T(B, n) by prefix is a lower end only, and concurrency tells its value"
        for one in prefills
        if bound_by_host(one, points)
    ]
    if ("prefix", True) in hows:
        found.append("prefix, several at a time: the server may spread them over more than one step (too dear)")
    return found
