"""`draftworth probe`: T(B, n) on a running baseline, without restarting it; rounds over all cells in random order."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from draftworth.bench.loop import run_on_loop
from draftworth.costs import prefix
from draftworth.costs.base import Costs
from draftworth.costs.cells import Cell, Results, biases, cells, order
from draftworth.costs.concurrency import step_ms, streams
from draftworth.costs.passages import RANDOM_IDS, Passages, passages
from draftworth.costs.subject import Subject
from draftworth.costs.traffic import Traffic
from draftworth.errors import MeasureError

T = TypeVar("T")

_WARM_TOKENS = 8
_TAIL = 8
_MOST_FAILURES = 3
_LONGEST_OUTPUT = 512

OnCell = Callable[[str, int, int], None]
"""Called before each measurement: its name, how many were done, how many there will be at most."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be measured.

    Attributes:
        concurrency: values of B for streams of one token a step.
        tokens: values of n behind a cached prefix; empty for none.
        contexts: tokens of each request in the KV cache.
        prefix_batch: how many prefixes at a time.
        repeats: rounds.
        output: tokens of each stream.
        budget_s: seconds after which no more is measured; what is under way then is given up.
        max_load: requests of others that the server may have at hand.
        wait_s: seconds to wait for others' requests to end before it is refused.
        anyway: measure a busy or a speculating server, and note it.
        seed: of prompts and orders.
    """

    concurrency: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    tokens: tuple[int, ...] = (2, 3, 4, 6, 9)
    contexts: tuple[int, ...] = (512,)
    prefix_batch: tuple[int, ...] = (1,)
    repeats: int = 6
    output: int = 64
    budget_s: float = 120.0
    max_load: int = 0
    wait_s: float = 10.0
    anyway: bool = False
    seed: int = 0


def probe(subject: Subject, options: Options, *, on_cell: OnCell | None = None) -> Costs:
    """Measure T(B, n).

    After a warm-up that is not counted (each shape once, and the prefixes into the cache), rounds over all cells
    follow, each in another random order, until there are as many as asked for or the budget is spent. A cell that
    others' requests fall into is left out of its round. Ctrl-C ends it like the budget: what was measured is returned.

    Args:
        subject: the server.
        options: what to measure.
        on_cell: told of progress.

    Raises:
        RefusedError: the server speculates, or is busy, and `anyway` is not set.
        UsageError: a value makes no sense.
        MeasureError: nothing at all could be measured.
    """
    return _Probe(subject, options, on_cell).run()


@dataclass(slots=True)
class _Probe:
    subject: Subject
    options: Options
    on_cell: OnCell | None
    notes: list[str] = field(default_factory=list)
    results: Results = field(default_factory=Results)
    plan: list[Cell] = field(default_factory=list)
    traffic: Traffic = field(init=False)
    deadline: float = 0.0
    outputs: dict[Cell, int] = field(default_factory=dict)
    took: dict[Cell, float] = field(default_factory=dict)
    failed: dict[Cell, int] = field(default_factory=dict)
    done: int = 0
    texts: Passages = field(default_factory=lambda: Passages((1,), natural=False))

    def run(self) -> Costs:
        options = self.options
        self.traffic = Traffic(self.subject, options.max_load, options.anyway)
        self.notes += self.traffic.admit(options.wait_s)
        self.deadline = time.monotonic() + self.options.budget_s
        self.plan = self._plan()
        self.texts = passages(self.subject.target, seed=self.options.seed)
        if not self.texts.natural:
            self.notes.append(RANDOM_IDS)
        try:
            self._warm_up()
            self._rounds()
        except TimeoutError:
            pass
        except KeyboardInterrupt:
            if not self.results.points(self.plan):
                raise
            self.notes.append("interrupted: what was measured until then")
        return self._costs()

    def _plan(self) -> list[Cell]:
        options = self.options
        grained = {context: prefix.cached_length(context) for context in options.contexts} if options.tokens else {}
        contexts = [grained.get(context, context) for context in options.contexts]
        found = cells(
            concurrency=options.concurrency,
            tokens=options.tokens,
            contexts=contexts,
            prefix_batch=options.prefix_batch,
        )
        limit = self.subject.max_model_len
        fits = [cell for cell in found if limit is None or cell.context + max(cell.tokens + 1, options.output) <= limit]
        if left_out := sorted({cell.context for cell in found} - {cell.context for cell in fits}):
            told = ", ".join(f"{one:,}" for one in left_out)
            self.notes.append(f"context {told}: left out, beyond the server's {limit:,} tokens (max_model_len)")
        there = {cell.context for cell in fits}
        if gone := [cell.label for cell in found if cell.context in there and cell not in fits]:
            self.notes.append(f"{', '.join(gone)}: left out, beyond the server's {limit:,} tokens (max_model_len)")
        return fits

    def _warm_up(self) -> None:
        """Meet every shape once, and fill the prefix cache."""
        for cell in self.plan:
            self._say(f"warm-up: {cell.label}")
            if cell.how == "concurrency":
                prompts = self._prompts(cell, 0)
                self._warm(cell, partial(streams, self.subject.target, prompts, _WARM_TOKENS))
        for context, batch in sorted({(one.context, one.batch) for one in self.plan if one.how == "prefix"}):
            self._cache(context, batch)
        for cell in self.plan:
            if cell.how == "prefix":
                self._warm(cell, partial(self._shoot, cell, 1))

    def _warm(self, cell: Cell, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self._in_time(work)
        except MeasureError as error:
            self._fails(cell, str(error))

    def _cache(self, context: int, batch: int) -> None:
        """Put the prefixes of a batch into the cache, and see that they are found there; else drop those cells."""
        target, mine = self.subject.target, self._prefixes(context, batch)
        try:
            self._in_time(lambda: prefix.fill(target, mine))
            before = self.subject.cache()
            shot = self._in_time(lambda: prefix.shoot(target, mine, 1, self.texts, shots=1))
            after = self.subject.cache()
        except MeasureError as error:
            self._drop(context, batch, str(error))
            return
        found = None
        if shot.cached is not None:
            found = min(shot.cached)
        elif before is not None and after is not None:
            found = (after[1] - before[1]) // (2 * batch)
        if found is None:
            self.notes.append(
                f"context {context:,}: the server does not tell what came from its prefix cache; n is exact only where "
                "prefix caching is on, with blocks that divide "
                f"{prefix.GRAIN} tokens"
            )
        elif found != context:
            why = "is prefix caching off?" if not found else "its blocks do not divide it"
            self._drop(context, batch, f"{found:,} of {context:,} prefix tokens came from the cache; {why}")

    def _drop(self, context: int, batch: int, why: str) -> None:
        gone = [one for one in self.plan if one.how == "prefix" and (one.context, one.batch) == (context, batch)]
        self.plan = [one for one in self.plan if one not in gone]
        self.notes.append(f"no prefix points at context {context:,}, {batch} at a time: {why}")

    # Rounds.

    def _rounds(self) -> None:
        for number in range(1, self.options.repeats + 1):
            for cell in order(self.plan, number, self.options.seed):
                if self.failed.get(cell, 0) >= _MOST_FAILURES:
                    continue
                if time.monotonic() + 0.7 * self.took.get(cell, 0.0) < self.deadline:
                    self._measure(cell, number)
                elif time.monotonic() >= self.deadline:
                    return

    def _measure(self, cell: Cell, number: int) -> None:
        self._say(cell.label)
        self.done += 1
        if not self.options.anyway and not self.traffic.falls_idle(self.deadline - time.monotonic()):
            raise TimeoutError
        self.traffic.begins()
        began = time.monotonic()
        try:
            ms = self._in_time(lambda: self._cell(cell, number))
        except MeasureError as error:
            self.traffic.forget()
            self._fails(cell, str(error))
            return
        finally:
            self.took[cell] = time.monotonic() - began
        self.traffic.ours += cell.batch * (1 if cell.how == "concurrency" else 2 * prefix.SHOTS)
        if self.traffic.disturbed():
            self.results.disturbed += 1
            return
        self.results.add(cell, number, ms)

    async def _cell(self, cell: Cell, number: int) -> float:
        if cell.how == "prefix":
            shot = await self._shoot(cell, prefix.SHOTS)
            if shot.cached is not None and set(shot.cached) != {cell.context}:
                told = f"{min(shot.cached):,} to {max(shot.cached):,}"
                raise MeasureError(f"{told} tokens came from the prefix cache, not {cell.context:,}")
            return shot.more_ms
        output = self.outputs.get(cell, self.options.output)
        found = await streams(self.subject.target, self._prompts(cell, number), output, seed=number)
        try:
            return step_ms(found)[0]
        except MeasureError:
            # Reading the prompts took most of it: the next round's answers are longer.
            limit = self.subject.max_model_len or _LONGEST_OUTPUT + cell.context
            self.outputs[cell] = max(output, min(2 * output, _LONGEST_OUTPUT, limit - cell.context))
            raise

    def _shoot(self, cell: Cell, shots: int) -> Coroutine[Any, Any, prefix.Shot]:
        mine = self._prefixes(cell.context, cell.batch)
        return prefix.shoot(self.subject.target, mine, cell.tokens, self.texts, shots=shots)

    def _prefixes(self, context: int, batch: int) -> list[tuple[int, ...]]:
        return [prefix.prefix_of(self.texts, context, number) for number in range(batch)]

    def _prompts(self, cell: Cell, number: int) -> list[tuple[int, ...]]:
        """Return a prompt for each stream, no two alike, another end each round; half of the output completes them."""
        length = max(_TAIL, cell.context - self.options.output // 2)
        return [
            (
                *self.texts.prompt(f"stream {cell.context} {at}", length - _TAIL),
                *self.texts.prompt(f"{number} {at}", _TAIL),
            )
            for at in range(cell.batch)
        ]

    def _fails(self, cell: Cell, why: str) -> None:
        """Note a failure; a cell that fails again and again is given up, and the probe where nothing else works."""
        self.results.failures[cell] = why
        self.failed[cell] = self.failed.get(cell, 0) + 1
        if not self.results.values and sum(self.failed.values()) >= max(_MOST_FAILURES, len(self.plan)):
            raise MeasureError(why)

    def _in_time(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something until the budget ends; TimeoutError then."""

        async def bounded() -> T:
            async with asyncio.timeout(max(0.0, self.deadline - time.monotonic())):
                return await work()

        return run_on_loop(bounded)

    def _say(self, what: str) -> None:
        if self.on_cell is not None:
            self.on_cell(what, self.done, self.options.repeats * len(self.plan))

    # What it came to.

    def _costs(self) -> Costs:
        points, prefills = self.results.points(self.plan), self.results.prefills(self.plan)
        told = self.results.notes(self.plan, self.options.repeats)
        if not points:
            why = next(iter(self.results.failures.values()), f"the budget of {self.options.budget_s:g} s was too short")
            raise MeasureError(f"nothing was measured at {self.subject.target.base_url}: {why}")
        subject = self.subject
        return Costs(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            url=subject.target.base_url,
            model=subject.target.model,
            engine=subject.live.engine.name,
            version=subject.version,
            machine=subject.machine,
            runner=subject.facts.runner,
            graph_sizes=subject.graph_sizes,
            points=points,
            prefills=prefills,
            reload_s=subject.reload_s,
            notes=(*subject.notes, *self.notes, *told, *biases(points, prefills)),
        )
