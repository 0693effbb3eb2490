"""T(B, 1) on a running server: B streams at a time, timed only while all of them decode."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from draftworth import redact
from draftworth.bench.base import Target
from draftworth.bench.exchange import HttpError
from draftworth.bench.failures import error_text, one_line, status_line
from draftworth.bench.http import Client
from draftworth.bench.sse import DONE, SseParser, Usage, decode
from draftworth.errors import MeasureError

FEWEST_STEPS = 8
"""Fewest steps in which all streams decode that make a measurement."""
_OK = 200
_REJECTED = (400, 422)


@dataclass(slots=True)
class Stream:
    """The chunks of one answer as they came: the client's `Sink`.

    Attributes:
        times: of chunks with tokens, seconds of `perf_counter`.
        tokens: how many tokens each of them carried; 1 where the server tells no ids.
        usage: the server's closing counts.
        sent: when the request was sent, of the same clock.
    """

    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    usage: Usage | None = None
    sent: float = 0.0
    alive_at: float = 0.0
    done: bool = False
    _parser: SseParser = field(default_factory=SseParser)

    def begin(self, status: int, headers: dict[str, str]) -> bool:
        """Take what is a stream."""
        return status == _OK and "application/json" not in headers.get("content-type", "")

    def take(self, times: Sequence[float], bodies: Sequence[bytes]) -> None:
        """Take pieces of the stream, each with its arrival."""
        for at, body in zip(times, bodies, strict=True):
            for event in self._parser.feed(body):
                self._event(at, event)

    def _event(self, at: float, event: bytes) -> None:
        self.alive_at = at
        if event == DONE:
            self.done = True
            return
        try:
            chunk = decode(event)
        except ValueError as error:
            raise MeasureError(one_line(f"malformed event: {error}")) from error
        if chunk.error is not None or chunk.object == "error":
            raise MeasureError(f"the server failed in the stream: {error_text(chunk.error or chunk.message)}")
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices or ():
            if choice.token_ids or choice.text:
                self.times.append(at)
                self.tokens.append(len(choice.token_ids or ()) or 1)

    @property
    def cached(self) -> int | None:
        """Prompt tokens that came from the prefix cache, where the server tells."""
        details = None if self.usage is None else self.usage.prompt_tokens_details
        return None if details is None else details.cached_tokens

    @property
    def first_ms(self) -> float:
        """Milliseconds from sending to the first token."""
        return (self.times[0] - self.sent) * 1000


async def ask(client: Client, target: Target, ids: Sequence[int], max_tokens: int, *, seed: int = 0) -> Stream:
    """Send ids to `/v1/completions` for exactly so many tokens, the end token notwithstanding, and read the stream.

    A server that refuses `return_token_ids` is asked again without it; each of its chunks is then taken for one token.

    Raises:
        MeasureError: the request failed, or the answer carried no token.
    """
    body: dict[str, Any] = {
        "model": target.model,
        "prompt": list(ids),
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "ignore_eos": True,
    }
    while True:
        stream = Stream()
        exchange = await client.post(
            "/v1/completions", msgspec.json.encode(body), patience=target.token_timeout, sink=stream
        )
        refused = exchange.status in _REJECTED and b"return_token_ids" in exchange.body
        if not (refused and body.pop("return_token_ids", False)):
            break
    stream.sent = exchange.sent
    error = exchange.error
    if error is not None and not stream.done:
        if isinstance(error, HttpError | MeasureError):
            raise MeasureError(redact.values(str(error), target.access.headers)) from error
        raise error
    if exchange.status != _OK or not stream.times:
        text = exchange.body.decode(errors="replace")
        why = status_line(exchange.status, text) if exchange.status != _OK else "its answer carried no token"
        raise MeasureError(redact.values(f"a request of the probe failed: {why}", target.access.headers))
    return stream


async def at_once(
    client: Client, target: Target, prompts: Sequence[Sequence[int]], max_tokens: int, *, seed: int = 0
) -> list[Stream]:
    """Send all prompts at once and read their answers.

    Raises:
        MeasureError: one of them failed; the others are ended.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(ask(client, target, ids, max_tokens, seed=seed)) for ids in prompts]
    except* MeasureError as group:
        raise _first(group) from None
    return [task.result() for task in made]


async def streams(target: Target, prompts: Sequence[Sequence[int]], max_tokens: int, *, seed: int = 0) -> list[Stream]:
    """Do what `at_once` does, over connections of its own.

    Raises:
        MeasureError: as there.
    """
    async with Client(target.base_url, target.access) as client:
        return await at_once(client, target, prompts, max_tokens, seed=seed)


def _first(group: BaseExceptionGroup[MeasureError]) -> MeasureError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, MeasureError)
    return error


def step_ms(found: Sequence[Stream]) -> tuple[float, float]:
    """Return the milliseconds of a step in which all streams decode, and the tokens each had generated by then.

    The window begins when the last stream has its first token and ends when the first stream has its last one, so that
    neither prompts being read nor a batch that empties is in it. In each stream it is the time between the first and
    the last chunk in the window over the tokens behind the first: one token a step. That is a mean over steps, as TPOT
    is, and does not depend on how tokens were put into chunks. Of the streams the median is taken.

    Args:
        found: the streams, sent together.

    Returns:
        The step's milliseconds, and the generated tokens in the middle of the window (median over the streams).

    Raises:
        MeasureError: fewer than eight steps had all streams decoding.
    """
    opens, closes = max(one.times[0] for one in found), min(one.times[-1] for one in found)
    steps: list[float] = []
    middles: list[float] = []
    for one in found:
        first, last = bisect_left(one.times, opens), bisect_right(one.times, closes) - 1
        tokens = sum(one.tokens[first + 1 : last + 1])
        if tokens < FEWEST_STEPS:
            raise MeasureError(
                f"only {max(tokens, 0)} steps had all {len(found)} streams decoding; does the server run so many at a "
                "time (max_num_seqs, KV cache)?"
            )
        steps.append((one.times[last] - one.times[first]) * 1000 / tokens)
        middles.append(sum(one.tokens[: first + 1]) + tokens / 2)
    return median(steps), median(middles)
