"""The measured run of one arm: a closed loop over the prompts, and questions to a server for synchronous callers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from draftworth.bench.base import Prompt, RequestRow, Sampling, Target
from draftworth.bench.client import run_request
from draftworth.bench.probes import fetch_text, healthy, new_session, probe, served_models

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

_WARMUP_TOKENS = 64
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
    repeats: int = 1,
    concurrency: int = 1,
    warmup: int = 2,
    on_row: OnRow | None = None,
) -> list[RequestRow]:
    """Send every prompt `repeats` times and return one row for each request.

    A closed loop: `concurrency` requests are under way at any time, and the next is sent when one ends. Requests
    start in a fixed order: the whole list, then the whole list again. First, `warmup` requests with a text of their
    own are sent (up to `concurrency` at a time) and forgotten, whether they succeed or not.

    Args:
        target: the server.
        prompts: what to send, in this order.
        sampling: how answers are generated.
        arm: the arm's name, kept in every row.
        block: the block's number, kept in every row.
        repeats: how often the whole list is sent.
        concurrency: requests under way at a time.
        warmup: requests before the first measured one.
        on_row: sees each row when its request ends. Where the run is cancelled, what it has seen is what there is.

    Returns:
        Rows in the order the requests were started; failed requests are among them, with `ok` False.
    """
    plan = [(repeat, prompt) for repeat in range(repeats) for prompt in prompts]
    rows: dict[int, RequestRow] = {}
    async with new_session() as session:

        async def warm(number: int) -> None:
            prompt = Prompt(
                f"warm-up-{number}", "warm-up", ({"role": "user", "content": _WARMUP_TEXT.format(n=number)},)
            )
            short = replace(sampling, max_tokens=min(sampling.max_tokens, _WARMUP_TOKENS))
            await run_request(session, target, prompt, short, arm=arm, block=block, repeat=0)

        async def send(number: int) -> None:
            repeat, prompt = plan[number]
            row = await run_request(session, target, prompt, sampling, arm=arm, block=block, repeat=repeat)
            rows[number] = row
            if on_row is not None:
                on_row(row, len(rows), len(plan))

        await _closed_loop(warm, warmup, concurrency)
        await _closed_loop(send, len(plan), concurrency)
    return [rows[number] for number in range(len(plan))]


async def _closed_loop(work: Callable[[int], Awaitable[None]], count: int, at_once: int) -> None:
    """Run `work(0)` to `work(count - 1)`, started in order, `at_once` at a time. The first error ends them all."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:  # shared: each number is taken once
            await work(number)

    workers = [asyncio.create_task(worker()) for _ in range(min(max(at_once, 1), count))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


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
    repeats: int = 1,
    concurrency: int = 1,
    warmup: int = 2,
    on_row: OnRow | None = None,
) -> list[RequestRow]:
    """Do what `measure` does, for a synchronous caller. Ctrl-C ends it at once as a KeyboardInterrupt."""
    return asyncio.run(
        measure(
            target,
            prompts,
            sampling,
            arm=arm,
            block=block,
            repeats=repeats,
            concurrency=concurrency,
            warmup=warmup,
            on_row=on_row,
        )
    )


def probe_sync(base_url: str, *, model: str | None = None, timeout: float = 60.0) -> str:
    """Do what `probe` does, for a synchronous caller."""
    return asyncio.run(probe(base_url, model=model, timeout=timeout))


def served_models_sync(base_url: str, *, timeout: float = 10.0) -> tuple[str, ...]:
    """Do what `served_models` does, for a synchronous caller."""
    return asyncio.run(served_models(base_url, timeout=timeout))


def fetch_text_sync(base_url: str, path: str, *, timeout: float = 10.0) -> str:
    """Do what `fetch_text` does, for a synchronous caller."""
    return asyncio.run(fetch_text(base_url, path, timeout=timeout))


def healthy_sync(base_url: str, *, timeout: float = 2.0) -> bool:
    """Do what `healthy` does, for a synchronous caller."""
    return asyncio.run(healthy(base_url, timeout=timeout))
