"""The measured run of one arm: prompts under a load, and questions to a server for synchronous callers."""

import asyncio
import contextlib
import gc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from draftworth.bench import arrivals
from draftworth.bench.base import (
    Closed,
    Load,
    Measured,
    Open,
    Prompt,
    RequestRow,
    Sampling,
    Target,
)
from draftworth.bench.client import run_request
from draftworth.bench.http import Client
from draftworth.bench.loop import run_on_loop
from draftworth.bench.monitor import Monitor
from draftworth.bench.probes import (
    fetch_text,
    fetch_text_sync,
    healthy,
    healthy_sync,
    probe,
    probe_sync,
    served_models,
    served_models_sync,
)
from draftworth.errors import UsageError

__all__ = [
    "failed_share",
    "fetch_text",
    "fetch_text_sync",
    "healthy",
    "healthy_sync",
    "measure",
    "measure_sync",
    "probe",
    "probe_sync",
    "served_models",
    "served_models_sync",
]

OnRow = Callable[[RequestRow, int, int], None]
"""Called as each measured request ends: its row, how many have ended, how many there will be."""
OnTick = Callable[[], None]

_CLOSED = Closed()
_AHEAD_S = 1.0
_WARMUP_AT_ONCE = 8
_WARMUP_TOKENS = 64
_WARMUP_IDS = 256
# Repeats itself, so that a drafter that copies from the context drafts in the warm-up too.
_WARMUP_TEXT = (
    "Warm-up {n}. Count from one to ten, then repeat: one, two, three, four, five, one, two, three, four, five."
)


async def measure(
    target: Target,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    arm: str,
    block: int,
    start: int = 1,
    point: str = "",
    load: Load = _CLOSED,
    repeats: int = 1,
    warmup: int = 2,
    retries: int = 2,
    answers: MutableMapping[str, str] | None = None,
    on_row: OnRow | None = None,
    on_tick: OnTick | None = None,
) -> Measured:
    """Send every prompt `repeats` times under a load and return one row for each request.

    Conversations start in a fixed order: the whole list, then the whole list again. In a closed loop
    `load.concurrency` of them are under way at any time; otherwise each starts when it is due, whatever the server
    does. A conversation's next turn is sent as soon as the one before was answered; where one fails, its conversation
    ends. First, `warmup` requests with a text of their own are sent (as many at a time as the closed loop, or 8) and
    forgotten, whether they succeed or not.

    Args:
        target: the server.
        prompts: what to send, in this order.
        sampling: how answers are generated; `seed_of` makes each request's seed of its seed.
        arm: the arm's name, kept in every row.
        block: the block's number, kept in every row.
        start: the start's number, kept in every row.
        point: the sweep's point, kept in every row.
        load: how requests come.
        repeats: how often the whole list is sent.
        warmup: requests before the first measured one.
        retries: how often a request that was answered 429, 500, 502, 503 or 504 is sent again.
        answers: what the assistant said, by the id of the turn it answered, for turns whose `Turn.answer` is None.
            The server's own answer is put there where it is missing, so that later requests and arms are the same.
        on_row: sees each row when its request ends. Where the run is cancelled, what it has seen is what there is.
        on_tick: called about every 0.2 s, warm-up included. What it raises, whatever it is, ends the run.

    Returns:
        Rows in the order of the plan, failed requests among them, and how the client fared.

    Raises:
        UsageError: the URL or an access file cannot be used, a load makes no sense, or prompts do not fit it.
    """
    run = _Run(target, sampling, arm, block, start, point, retries, {} if answers is None else answers, on_row)
    plan = [(repeat, prompt) for repeat in range(repeats) for prompt in prompts]
    run.total = sum(1 + len(prompt.turns) for _, prompt in plan)
    times = _arrivals(load, prompts, repeats)
    for prompt in prompts:
        if prompt.token_ids is not None and prompt.turns:
            raise UsageError(f"prompt {prompt.id!r}: token ids cannot have later turns")
    at_once = load.concurrency if isinstance(load, Closed) else _WARMUP_AT_ONCE
    async with Monitor(on_tick) as monitor, Client(target.base_url, target.access) as client:

        async def warm(number: int) -> None:
            prompt, short = _warm_up(number, prompts, sampling)
            await run_request(client, target, prompt, short, arm=arm, block=block, repeat=0, retries=0)

        async def talk(number: int, due: float | None = None) -> None:
            repeat, prompt = plan[number]
            await run.conversation(client, number, repeat, prompt, due)

        await _closed_loop(warm, warmup, at_once)
        # What is there by now need not be looked at again: a full collection would stop the clock.
        gc.freeze()
        try:
            monitor.restart()
            if times is None:
                await _closed_loop(talk, len(plan), at_once)
            else:
                await _open_loop(talk, times)
        finally:
            gc.unfreeze()
        rows = [run.rows[key] for key in sorted(run.rows)]
        late = [row.late_ms for row in rows if row.late_ms is not None]
        return Measured(rows=rows, client=monitor.health(None if times is None else late))


def seed_of(seed: int, prompt_id: str, repeat: int) -> int:
    """Return the sampling seed of one request, below 2**31: the same in every arm, another for each prompt and repeat.

    Engines draw from a request's seed alone. With one seed for all, requests at temperature > 0 share their random
    numbers: repeats of a prompt are one answer, and where text hardly tells what comes next all answers are alike.

    Args:
        seed: the workload's.
        prompt_id: the prompt's, with its turn.
        repeat: which time the list is sent, from 0.
    """
    return zlib.crc32(f"{seed}/{prompt_id}/{repeat}".encode()) >> 1


def _arrivals(load: Load, prompts: Sequence[Prompt], repeats: int) -> list[float] | None:
    """Return when each conversation is due, in seconds from the first moment; None in a closed loop."""
    if isinstance(load, Open):
        return arrivals.poisson(load.rate, load.seed, len(prompts) * repeats)
    if isinstance(load, Closed):
        if load.concurrency < 1:
            raise UsageError(f"{load.concurrency} requests at a time: there must be at least 1")
        return None
    return arrivals.recorded(prompts, load.speed, repeats)


def _warm_up(number: int, prompts: Sequence[Prompt], sampling: Sampling) -> tuple[Prompt, Sampling]:
    """Return a request that makes the server work like the measured ones, and fills its prefix cache with none."""
    short = replace(sampling, max_tokens=min(sampling.max_tokens, _WARMUP_TOKENS))
    name = f"warm-up-{number}"
    if prompts and all(prompt.token_ids for prompt in prompts):
        ids = prompts[number % len(prompts)].token_ids or ()
        return Prompt(name, "warm-up", token_ids=tuple(reversed(ids[-_WARMUP_IDS:]))), short
    return Prompt(name, "warm-up", ({"role": "user", "content": _WARMUP_TEXT.format(n=number)},)), short


@dataclass
class _Run:
    """What the requests of one run share."""

    target: Target
    sampling: Sampling
    arm: str
    block: int
    start: int
    point: str
    retries: int
    answers: MutableMapping[str, str]
    on_row: OnRow | None
    total: int = 0
    rows: dict[tuple[int, int], RequestRow] = field(default_factory=dict)
    sent_ids: dict[str, Sequence[int]] = field(default_factory=dict)

    async def conversation(self, client: Client, number: int, repeat: int, prompt: Prompt, due: float | None) -> None:
        """Send a prompt and its later turns, the first of them when it is due."""
        asked = replace(prompt, turns=())
        for turn in range(1, len(prompt.turns) + 2):
            row = await run_request(
                client,
                self.target,
                asked,
                replace(self.sampling, seed=seed_of(self.sampling.seed, asked.id, repeat)),
                arm=self.arm,
                block=self.block,
                repeat=repeat,
                start=self.start,
                point=self.point,
                turn=turn,
                retries=self.retries,
                due=due if turn == 1 else None,
            )
            self._share_ids(row)
            self.rows[number, turn] = row
            if self.on_row is not None:
                self.on_row(row, len(self.rows), self.total)
            if not row.ok or turn > len(prompt.turns):
                return
            following = prompt.turns[turn - 1]
            said = following.answer
            if said is None:
                said = self.answers.setdefault(asked.id, row.text)
            asked = replace(
                asked,
                id=f"{prompt.id}#{turn + 1}",
                messages=(
                    *asked.messages,
                    {"role": "assistant", "content": said},
                    {"role": "user", "content": following.content},
                ),
            )

    def _share_ids(self, row: RequestRow) -> None:
        """Keep the ids of a prompt once, however often it was sent."""
        if row.prompt_token_ids:
            known = self.sent_ids.setdefault(row.prompt_id, row.prompt_token_ids)
            if known == row.prompt_token_ids:
                row.prompt_token_ids = known


async def _closed_loop(work: Callable[[int], Awaitable[None]], count: int, at_once: int) -> None:
    """Run `work(0)` to `work(count - 1)`, started in order, `at_once` at a time. The first error ends them all."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:  # shared: each number is taken once
            await work(number)

    async with _together() as tasks:
        for _ in range(min(at_once, count)):
            tasks.create_task(worker())


async def _open_loop(work: Callable[[int, float], Coroutine[Any, Any, None]], times: Sequence[float]) -> None:
    """Run `work(number, due)` for each time, in the order of the times. The first error ends them all."""
    began = perf_counter()
    async with _together() as tasks:
        for number in sorted(range(len(times)), key=times.__getitem__):
            due = began + times[number]
            # A little ahead, for the connection to be there when it is due.
            if (ahead := due - _AHEAD_S - perf_counter()) > 0:
                await asyncio.sleep(ahead)
            tasks.create_task(work(number, due))


@contextlib.asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """Tasks that end together: the first error cancels the others and comes out as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def failed_share(rows: Sequence[RequestRow]) -> float:
    """Return the share of requests that failed, 0 to 1. Of no request at all it is 1: nothing was measured."""
    return sum(not row.ok for row in rows) / len(rows) if rows else 1.0


def measure_sync(
    target: Target,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    arm: str,
    block: int,
    start: int = 1,
    point: str = "",
    load: Load = _CLOSED,
    repeats: int = 1,
    warmup: int = 2,
    retries: int = 2,
    answers: MutableMapping[str, str] | None = None,
    on_row: OnRow | None = None,
    on_tick: OnTick | None = None,
) -> Measured:
    """Do what `measure` does, on uvloop, for a synchronous caller.

    What the caller's signal handlers raise, Ctrl-C's KeyboardInterrupt among it, ends the run at once and is raised.
    """
    return run_on_loop(
        lambda: measure(
            target,
            prompts,
            sampling,
            arm=arm,
            block=block,
            start=start,
            point=point,
            load=load,
            repeats=repeats,
            warmup=warmup,
            retries=retries,
            answers=answers,
            on_row=on_row,
            on_tick=on_tick,
        )
    )
