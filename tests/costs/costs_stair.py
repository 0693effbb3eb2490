"""A fake server whose steps cost a known staircase: T by the tokens of a step, a prefix cache of blocks of 16."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from tests.fakes.openai_server import FakeServer, Script
from tests.fakes.stream import Answer

SIZES = {1: 10.0, 2: 12.0, 4: 17.0, 8: 26.0}
OVERHEAD_MS = 10.0
BLOCK = 16


def step(tokens: int) -> float:
    """Return T of a step: that of the next captured size; above the largest a little for each."""
    return next((ms for size, ms in SIZES.items() if size >= tokens), 26.0 + 0.02 * (tokens - 8))


class StairServer(FakeServer):
    """Streams one token a step, all streams at the pace of a step of them all; reads prompts behind its cache."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        caches: bool = True,
        tells: str = "usage",
        most: int = 1000,
        foreign_every: int = 0,
        prefill: float = 1.0,
        piecewise_ms: float = 0.0,
        **more: Any,
    ) -> None:
        super().__init__(script or Script(prefix_cache=True, tokenize=True), **more)
        self.caches = caches
        self.tells = tells
        self.foreign_every = foreign_every
        self.prefill = prefill
        self.piecewise_ms = piecewise_ms
        self.blocks: set[tuple[int, ...]] = set()
        self.computed: list[tuple[int, int]] = []
        self._slots = asyncio.Semaphore(most)

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        arrived = time.monotonic()
        engine = self.metrics.engine_of(answer.number)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        cached = self._cached(answer.prompt)
        engine.cache_queries += len(answer.prompt)
        engine.cache_hits += cached
        self.computed.append((len(answer.prompt), len(answer.prompt) - cached))
        if self.foreign_every and answer.number % self.foreign_every == 0:
            self.metrics.foreign(1)
        async with self._slots:
            engine.running += 1
            try:
                new = len(answer.prompt) - cached
                mode = self.piecewise_ms if new > 1 else 0.0  # one token is a decode step and runs as a full graph
                due = arrived + (OVERHEAD_MS + mode + self.prefill * step(new)) / 1000
                for at, token in enumerate(answer.out):
                    await asyncio.sleep(due - time.monotonic())
                    engine.step(1, 0.01, first=at == 0)
                    choice = {"index": 0, "text": "w", "token_ids": [token], "finish_reason": None}
                    await response.write(_event({"choices": [choice]}))
                    due += step(engine.running) / 1000
            finally:
                engine.running -= 1
        engine.success["length"] += 1
        usage: dict[str, Any] = {"prompt_tokens": len(answer.prompt), "completion_tokens": len(answer.out)}
        if self.tells == "usage":
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        await response.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _cached(self, prompt: list[int]) -> int:
        """Return how many tokens are in the cache, in whole blocks, less than all; and keep the prompt's blocks."""
        found = 0
        for end in range(BLOCK, len(prompt), BLOCK):
            if tuple(prompt[:end]) not in self.blocks:
                break
            found = end
        if self.caches:
            self.blocks |= {tuple(prompt[:end]) for end in range(BLOCK, len(prompt) + 1, BLOCK)}
            return found
        return 0


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps({"object": "text_completion", **document}).encode() + b"\n\n"


@contextmanager
def stairs(**more: Any) -> Iterator[StairServer]:
    """Run a staircase server in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = StairServer(**more)
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
