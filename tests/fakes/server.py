"""The fake server inside this process: its HTTP routes and what each of them does."""

import asyncio
import contextlib
import dataclasses
import json
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Self

from aiohttp import web
from tests.fakes import replies
from tests.fakes.metrics import EngineCounters, Metrics
from tests.fakes.model import PseudoModel, encode, encode_chat
from tests.fakes.script import Script
from tests.fakes.stream import Answer, plan


class FakeServer:
    """The server inside this process, on a free port of 127.0.0.1.

    Attributes:
        base_url: where it listens.
        requests: every POST so far: path and decoded body.
        headers: those of every request so far.
        metrics: its counters.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        speculative_config: Mapping[str, Any] | None = None,
        names: tuple[str, ...] = ("fake/model-1b",),
        max_model_len: int = 2048,
        spec_stats: str = "none",
        log_stats: bool = True,
        die: Callable[[], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = None if speculative_config is None else dict(speculative_config)
        self.script = (script or Script()).effective(
            speculating=config is not None, k=(config or {}).get("num_speculative_tokens")
        )
        self.names = names
        self.max_model_len = max_model_len
        self.spec_stats = spec_stats if config is not None else "none"
        self.k = None if config is None else int(config.get("num_speculative_tokens", 3))
        self.metrics = Metrics(
            self.script.engines, self.k, prefix_cache=self.script.prefix_cache, shown=self.script.engines_shown
        )
        self.model = PseudoModel(self.script)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.base_url = ""
        self._tls = tls
        self._log_stats = log_stats
        self._die = die
        self._dead = False
        self._seen: set[tuple[int, ...]] = set()
        self._chats = 0
        self._scrapes = 0
        self._generations = 0
        self._ready_at = time.monotonic() + self.script.warm_seconds
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0))
        await self.listen(listener)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def listen(self, listener: socket.socket) -> None:
        """Serve on a bound socket."""
        app = web.Application(client_max_size=64 * 2**20, middlewares=[self._admit])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/tokenize", self._tokenize),
                web.post("/start_profile", self._start_profile),
                web.post("/stop_profile", self._stop_profile),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2, access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, listener, backlog=2048, ssl_context=self._tls).start()
        host, port = listener.getsockname()[:2]
        self.base_url = f"http{'s' if self._tls else ''}://{host}:{port}"
        self._ready_at = time.monotonic() + self.script.warm_seconds

    async def close(self) -> None:
        """Stop serving; open requests are cut off."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Ask for the key below /v1, as vLLM does."""
        self.headers.append(dict(request.headers))
        key = self.script.api_key
        if key and request.path.startswith("/v1") and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if self.script.echo_headers and request.method == "POST":
            return replies.error(400, f"cannot parse the headers {dict(request.headers)}")
        return await handler(request)

    # What it tells about itself.

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self._dead else 200)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.script.version})

    async def _metrics(self, _request: web.Request) -> web.Response:
        if not self.script.metrics:
            return web.json_response({"detail": "Not Found"}, status=404)
        self._scrapes += 1
        if self._scrapes in self.script.metrics_missing:
            return web.Response(status=503, text="try again later")
        self.metrics.foreign(self.script.foreign_requests)
        page = self.metrics.render(self.names[0]) if self._log_stats else "# HELP python_info Python\n"
        return web.Response(text=page, headers={"content-type": "text/plain; version=1.0.0; charset=utf-8"})

    async def _models(self, _request: web.Request) -> web.Response:
        entries = [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "vllm",
                "root": self.names[0],
                "parent": None,
                "max_model_len": self.max_model_len,
            }
            for name in self.names
        ]
        return web.json_response({"object": "list", "data": entries})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if not self.script.tokenize:
            return web.json_response({"detail": "Not Found"}, status=404)
        body = await request.json()
        ids = encode_chat(body["messages"]) if "messages" in body else encode(body["prompt"])
        return web.json_response({"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids})

    async def _start_profile(self, _request: web.Request) -> web.Response:
        return web.Response() if self.script.profiler else web.json_response({"detail": "Not Found"}, status=404)

    async def _stop_profile(self, request: web.Request) -> web.Response:
        if self.script.profiler == "hangs":
            await asyncio.Event().wait()
        return await self._start_profile(request)

    # What it generates.

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._accept(request)
        self._chats += 1
        number, script = self._chats, self.script
        if script.die_at == f"request:{number}":
            self._end(request)
        refusal = self._refusal(body)
        if refusal is not None:
            return refusal
        if number <= len(script.busy):
            return replies.error(script.busy[number - 1], "try again later", retry_after=script.retry_after)
        if script.reject_token_ids and "return_token_ids" in body:
            return replies.error(400, "Unrecognized request argument supplied: return_token_ids", "return_token_ids")
        if _every(number, script.error_every):
            return replies.error(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
        prompt = encode_chat(body["messages"])
        most = int(body.get("max_tokens") or self.max_model_len - len(prompt))
        if len(prompt) + most > self.max_model_len:
            return replies.too_long(self.max_model_len, len(prompt), most)
        out = self.model.write(prompt, most, ignore_eos=bool(body.get("ignore_eos")))
        answer = Answer(body=body, prompt=prompt, out=out, most=most, number=number, model=self.names[0])
        return await self._stream(request, answer)

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        engine = self.metrics.engine_of(answer.number)
        script, number = self._for(answer, engine), answer.number
        await asyncio.sleep(script.slow_headers_ms / 1000)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        half = len(answer.out) // 2
        sent = 0
        engine.prompt_tokens += len(answer.prompt)
        engine.running += 1
        try:
            clock = time.monotonic()
            due = clock
            for piece in plan(script, answer, self.model, self.k, self.spec_stats):
                due += piece.wait_ms / 1000
                if not piece.first:
                    due += piece.tokens * script.crowd_ms * (engine.running - 1) / 1000
                await asyncio.sleep(due - time.monotonic())
                if piece.tokens:
                    now = time.monotonic()
                    engine.step(piece.tokens, now - clock, first=piece.first)
                    clock = now
                    if piece.drafted and not script.zero_spec_counters:
                        engine.draft(piece.drafted, piece.accepted)
                    elif script.placeholders and not piece.drafted and self.k and not piece.first:
                        engine.draft(self.k, 0)
                await response.write(piece.data)
                sent += piece.tokens
                if number == script.hang_at_request and not piece.tokens:
                    await asyncio.Event().wait()
                if sent >= half and piece.tokens and await self._break(request, response, number):
                    return response
            engine.success[answer.finish_reason] += 1
        except asyncio.CancelledError:
            engine.success["abort"] += 1
            raise
        finally:
            engine.running -= 1
            if number == script.reset_counters_after:
                self.metrics.reset()
        await response.write_eof()
        return response

    def _for(self, answer: Answer, engine: EngineCounters) -> Script:
        """Return the script of one request, what its prompt and its temperature change in it."""
        script, prompt = self.script, tuple(answer.prompt)
        if script.prefix_cache:
            engine.cache_queries += len(prompt)
            if prompt in self._seen:
                engine.cache_hits += len(prompt) - 1
                script = _slowed(script, script.cached_token_ms)
            self._seen.add(prompt)
        sampled = script.greedy_drafts and bool(answer.body.get("temperature"))
        if sampled or 0 < script.draft_limit < len(prompt):
            script = _slowed(dataclasses.replace(script, tokens_per_chunk=(1,)), script.rejected_token_ms)
        return script

    async def _break(self, request: web.Request, response: web.StreamResponse, number: int) -> bool:
        """Break the stream off where the script says so; True where it has ended."""
        script = self.script
        if _every(number, script.reset_every):
            replies.reset(request)
            return True
        if _every(number, script.truncate_every):
            await response.write_eof()
            return True
        if _every(number, script.malformed_every):
            await response.write(b"data: {not json\n\n")
        if _every(number, script.error_event_every):
            error = {"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}}
            await response.write(f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode())
            await response.write_eof()
            return True
        return False

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await self._accept(request)
        refusal = self._refusal(body)
        if refusal is not None:
            return refusal
        asked = body["prompt"]
        prompt = encode(asked) if isinstance(asked, str) else [int(token) for token in asked]
        most = int(body.get("max_tokens", 16))
        if most < 1:
            return replies.error(400, f"max_tokens must be at least 1, got {most}.", "max_tokens")
        if len(prompt) + most > self.max_model_len:
            return replies.too_long(self.max_model_len, len(prompt), most)
        if body.get("stream"):
            self._chats += 1
            out = self.model.write(prompt, most, ignore_eos=bool(body.get("ignore_eos")))
            answer = Answer(body=body, prompt=prompt, out=out, most=most, number=self._chats, model=self.names[0])
            return await self._stream(request, answer)
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length", "stop_reason": None}
        if body.get("prompt_logprobs") is not None:
            if self.script.score_error:
                return replies.error(500, self.script.score_error)
            choice["prompt_logprobs"] = self.model.score(prompt)
        out = self.model.write(prompt, most, ignore_eos=True)
        choice["text"] = self.model.text(out)
        engine = self.metrics.engines[0]
        engine.prompt_tokens += len(prompt)
        engine.success["length"] += 1
        for i in range(len(out)):
            engine.step(1, 0.001, first=i == 0)
        usage = {"prompt_tokens": len(prompt), "total_tokens": len(prompt) + len(out), "completion_tokens": len(out)}
        return web.json_response(
            {
                "id": "cmpl-0",
                "object": "text_completion",
                "created": int(time.time()),
                "model": self.names[0],
                "choices": [choice],
                "usage": usage,
            }
        )

    async def _accept(self, request: web.Request) -> dict[str, Any]:
        body: dict[str, Any] = await request.json()
        self.requests.append((request.path, body))
        if self._dead:
            replies.reset(request)
        if time.monotonic() >= self._ready_at:
            self._generations += 1
            if self.script.die_at == "first_request" and self._generations == 1:
                self._end(request)
        return body

    def _end(self, request: web.Request) -> None:
        """Die in the middle of a request."""
        if self._die is not None:
            self._die()
        self._dead = True
        replies.reset(request)

    def _refusal(self, body: Mapping[str, Any]) -> web.Response | None:
        if time.monotonic() < self._ready_at:
            return replies.error(503, "The model is not loaded yet.")
        asked = body.get("model", self.names[0])
        if asked not in self.names:
            message = f"The model `{asked}` does not exist. Valid aliases: {', '.join(self.names)}."
            return replies.error(404, message, "model", "NotFoundError")
        return None


def _slowed(script: Script, token_ms: float | None) -> Script:
    return script if token_ms is None else dataclasses.replace(script, token_ms=token_ms)


def _every(number: int, n: int) -> bool:
    return n > 0 and number % n == 0


@contextlib.contextmanager
def serving(script: Script | None = None, **kwargs: Any) -> Iterator[FakeServer]:
    """Run a FakeServer in a thread of its own, for synchronous tests."""
    server = FakeServer(script, **kwargs)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
