"""One streamed request to an OpenAI-compatible server, measured token-exactly. Nothing is ever retried."""

import asyncio
import time
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from draftworth.bench.base import Prompt, RequestRow, Sampling, Target
from draftworth.bench.probes import error_text, failure, one_line, served_models, server_message
from draftworth.bench.sse import DONE, Chunk, SseParser, decode
from draftworth.bench.timing import StreamTimer
from draftworth.errors import MeasureError

if TYPE_CHECKING:
    import aiohttp

_OK = 200
_REJECTED = (400, 422)
_NO_SUCH_MODEL = (400, 404)

# Servers, by the session that found out, that refuse `return_token_ids`. A new session asks again: the server may be
# another one.
_without_ids: "WeakKeyDictionary[aiohttp.ClientSession, set[str]]" = WeakKeyDictionary()


class _RequestFailedError(Exception):
    """The request cannot become a measurement; the text says why, in one line."""


async def run_request(
    session: "aiohttp.ClientSession",
    target: Target,
    prompt: Prompt,
    sampling: Sampling,
    *,
    arm: str,
    block: int,
    repeat: int,
) -> RequestRow:
    """Send one prompt, read the streamed answer and return its times and tokens.

    The request is `POST {base_url}/v1/chat/completions` with `stream_options.include_usage` and vLLM's
    `return_token_ids`. A server that rejects the latter is asked again without it, and not bothered with it any more
    in this session; the row's `token_source` then tells where its counts come from.

    The clock is `time.perf_counter`, read once for each piece of the stream the network delivers. TTFT runs from
    sending the request to the first chunk that carries tokens or text; `e2e_ms` to the last event.

    Returns:
        A row. A failure of any kind is a row with `ok` False and one line in `error`; what arrived before it is kept.
    """
    row = RequestRow(
        arm=arm,
        block=block,
        prompt_id=prompt.id,
        category=prompt.category,
        repeat=repeat,
        started_unix=time.time(),
    )
    refused = _without_ids.setdefault(session, set())
    body = _body(target, prompt, sampling)
    if target.base_url in refused:
        del body["return_token_ids"]
    try:
        if not await _attempt(session, target, body, row):
            refused.add(target.base_url)
            del body["return_token_ids"]
            row.started_unix = time.time()
            await _attempt(session, target, body, row)
        row.ok = True
    except _RequestFailedError as error:
        row.error = str(error)
    return row


def _body(target: Target, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": target.model,
        "messages": [dict(message) for message in prompt.messages],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    if sampling.ignore_eos:
        body["ignore_eos"] = True
    return body


async def _attempt(session: "aiohttp.ClientSession", target: Target, body: dict[str, Any], row: RequestRow) -> bool:
    """Run one request into `row`. False where the server refuses `return_token_ids`; nothing is measured then."""
    import aiohttp  # noqa: PLC0415 - lazy: `draftworth --help` must not load it

    url = target.base_url + "/v1/chat/completions"
    loop = asyncio.get_running_loop()
    started = perf_counter()
    timer = StreamTimer(started)
    try:
        async with asyncio.timeout(target.token_timeout) as deadline, session.post(url, json=body) as response:
            if response.status != _OK:
                text = await response.text(errors="replace")
                if response.status in _REJECTED and "return_token_ids" in body and "return_token_ids" in text:
                    return False
                raise _RequestFailedError(await _refused(target, response.status, text))
            if response.content_type == "application/json":
                text = await response.text(errors="replace")
                raise _RequestFailedError(f"the server did not stream its answer: {server_message(text)}")
            await _read(response, timer, row, started, lambda: deadline.reschedule(loop.time() + target.token_timeout))
    except TimeoutError as error:
        raise _RequestFailedError(f"no event for {target.token_timeout:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _RequestFailedError(failure(error)) from error
    return True


async def _read(
    response: "aiohttp.ClientResponse", timer: StreamTimer, row: RequestRow, started: float, alive: Callable[[], None]
) -> None:
    """Read a stream to its end into `row`, also where it fails. `alive` is called whenever an event arrived."""
    parser = SseParser()
    ended = started
    done = False
    try:
        async for piece in response.content.iter_any():
            at = perf_counter()
            events = parser.feed(piece)
            if not events:
                continue
            alive()
            for event in events:
                if event == DONE:
                    done = True
                elif not done:
                    timer.add(at, _chunk(event))
            ended = at
    finally:
        timer.fill(row, ended)
    if not done and timer.finish_reason is None:
        raise _RequestFailedError("the stream ended before the answer did (no finish_reason, no [DONE])")
    if not row.tokens:
        raise _RequestFailedError("the answer carried no tokens")


def _chunk(event: bytes) -> Chunk:
    try:
        chunk = decode(event)
    except ValueError as error:
        seen = one_line(event.decode(errors="replace"))
        raise _RequestFailedError(one_line(f"malformed event ({error}): {seen}")) from error
    if chunk.error is not None:
        raise _RequestFailedError(one_line(f"the server failed in the stream: {error_text(chunk.error)}"))
    if chunk.object == "error":
        raise _RequestFailedError(one_line(f"the server failed in the stream: {chunk.message}"))
    return chunk


async def _refused(target: Target, status: int, text: str) -> str:
    """Say why a request was refused; for a wrong model, also which ones there are."""
    message = f"HTTP {status}: {server_message(text)}"
    if status not in _NO_SUCH_MODEL or "model" not in text or target.model not in text:
        return message
    try:
        names = await served_models(target.base_url)
    except MeasureError:
        return message
    return f"{message} (it serves: {', '.join(names)})" if target.model not in names else message
