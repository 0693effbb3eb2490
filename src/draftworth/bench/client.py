"""One streamed request to an OpenAI-compatible server, measured token-exactly."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Any

import msgspec

from draftworth import redact
from draftworth.bench.base import Prompt, RequestRow, Sampling, StatsOf, Target
from draftworth.bench.exchange import Exchange, HttpError
from draftworth.bench.failures import error_text, one_line, server_message, status_line
from draftworth.bench.http import RESENT, Client
from draftworth.bench.moment import unix
from draftworth.bench.probes import served_models
from draftworth.bench.sse import DONE, Chunk, SseParser, decode, decode_all
from draftworth.bench.timing import StreamTimer
from draftworth.errors import MeasureError

_OK = 200
_REJECTED = (400, 422)
_NO_SUCH_MODEL = (400, 404)
_BUSY = (429, 500, 502, 503, 504)
_LONGEST_WAIT_S = 10.0
_FIRST_WAIT_S = 0.5

_SPARED_S = 600.0
# Servers (URL, model) and the field they refused, until when (monotonic) it is not sent to them. Longer
# than a client lives, which in a trial between running servers is one turn; not for ever, since a restarted server may
# be another one.
_without: dict[tuple[str, str, str], float] = {}


class _RequestFailedError(Exception):
    """The request cannot become a measurement; the text says why, in one line."""


async def run_request(
    client: Client,
    target: Target,
    prompt: Prompt,
    sampling: Sampling,
    *,
    arm: str,
    block: int,
    repeat: int,
    start: int = 1,
    point: str = "",
    turn: int = 1,
    retries: int = 2,
    due: float | None = None,
) -> RequestRow:
    """Send one prompt, read the streamed answer and return its times and tokens.

    Messages go to `POST {base_url}/v1/chat/completions`, token ids to `/v1/completions`, with
    `stream_options.include_usage`, vLLM's `return_token_ids` and what the engine wants to be asked (`target.fields`). A
    server that rejects one of the latter is asked again without it, and not bothered with it for ten minutes, by
    whatever client; the row's `token_source` then tells where its counts come from.

    The clock is `time.perf_counter`, read once for each piece of the stream the network delivers. TTFT runs from
    sending the request, on a connection made before, to the first chunk that carries tokens or text; `e2e_ms` to the
    last event.

    Args:
        client: of the target's server.
        target: the server.
        prompt: what to send; its later turns are not looked at.
        sampling: how the answer is generated.
        arm: kept in the row.
        block: kept in the row.
        repeat: kept in the row.
        start: kept in the row.
        point: kept in the row.
        turn: kept in the row.
        retries: how often a request that was answered 429, 500, 502, 503 or 504 is sent again, after the server's
            Retry-After (10 s at most) or 0.5 s, 1 s, 2 s, …
        due: when to send it, seconds of `perf_counter`; None for at once.

    Returns:
        A row. A failure of any kind is a row with `ok` False and one line in `error`; what arrived before it is kept.
    """
    row = RequestRow(
        arm=arm,
        block=block,
        prompt_id=prompt.id,
        category=prompt.category,
        repeat=repeat,
        started_unix=unix(perf_counter()),
        start=start,
        point=point,
        turn=turn,
    )
    request = _Request(client, target, prompt, sampling)
    reasons: list[str] = []
    try:
        await request.run(row, reasons, retries, due)
        row.ok = True
    except _RequestFailedError as error:
        row.error = redact.values(str(error), target.access.headers)
    row.retries = len(reasons)
    row.retry_reasons = ", ".join(reasons) or None
    return row


class _Request:
    """One prompt on its way through as many attempts as it takes."""

    def __init__(self, client: Client, target: Target, prompt: Prompt, sampling: Sampling) -> None:
        self._client = client
        self._target = target
        self._path = "/v1/chat/completions" if prompt.token_ids is None else "/v1/completions"
        self._server = target.base_url, target.model
        self._body = _body(target, prompt, sampling)

    async def run(self, row: RequestRow, reasons: list[str], retries: int, due: float | None) -> None:
        """Fill the row. `reasons` takes a word for each time the request was sent again."""
        for name in self._optional():
            if time.monotonic() < _without.get((*self._server, name), 0.0):
                del self._body[name]
        while True:
            reader = _Reader(self._target.stats_of)
            exchange = await self._client.post(
                self._path,
                msgspec.json.encode(self._body),
                patience=self._target.token_timeout,
                sink=reader,
                due=due,
            )
            if exchange.sent:
                row.started_unix = exchange.sent_unix
            if due is not None and exchange.first_sent:
                row.late_ms = max(0.0, exchange.first_sent - due) * 1000
                due = None
            if exchange.resent:
                reasons.append(RESENT)
            if exchange.sink is not None and exchange.status == _OK:
                reader.fill(row, exchange)
                return
            if exchange.error is not None:
                raise _RequestFailedError(one_line(str(exchange.error))) from exchange.error
            if await self._again(exchange, reasons, retries):
                continue
            raise _RequestFailedError(await self._refused(exchange, len(reasons)))

    def _optional(self) -> list[str]:
        """Return the fields a server may not know, as far as they are still asked for."""
        return [name for name in (*self._target.fields, "return_token_ids") if name in self._body]

    async def _again(self, exchange: Exchange, reasons: list[str], retries: int) -> bool:
        """Prepare for another attempt where there is to be one."""
        status = exchange.status
        refused = [name for name in self._optional() if name.encode() in exchange.body] if status in _REJECTED else []
        if refused:  # one at a time: an error may quote the whole request
            _without[*self._server, refused[0]] = time.monotonic() + _SPARED_S
            del self._body[refused[0]]
            return True
        tried = sum(reason != RESENT for reason in reasons)
        if status not in _BUSY or tried >= retries:
            return False
        reasons.append(f"HTTP {status}")
        await asyncio.sleep(_wait(exchange.headers.get("retry-after"), tried))
        return True

    async def _refused(self, exchange: Exchange, retried: int) -> str:
        """Say why a request was refused; for a wrong model, also which ones there are."""
        text = exchange.body.decode(errors="replace")
        target, status = self._target, exchange.status
        if status == _OK:
            return f"the server did not stream its answer: {server_message(text)}"
        has_key = any(name.lower() == "authorization" for name in target.access.headers)
        message = status_line(status, text, location=exchange.headers.get("location"), has_key=has_key)
        if status in _BUSY and retried:
            return f"{message} (sent {retried + 1} times)"
        if status not in _NO_SUCH_MODEL or "model" not in text or target.model not in text:
            return message
        try:
            names = await served_models(target.base_url, access=target.access)
        except MeasureError:
            return message
        return f"{message} (it serves: {', '.join(names)})" if target.model not in names else message


def _body(target: Target, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {"model": target.model}
    if prompt.token_ids is None:
        body["messages"] = [dict(message) for message in prompt.messages]
    else:
        body["prompt"] = list(prompt.token_ids)
    body |= {
        "max_tokens": sampling.max_tokens if prompt.max_tokens is None else prompt.max_tokens,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **target.fields,
    }
    if sampling.ignore_eos:
        body["ignore_eos"] = True
    return body


def _wait(retry_after: str | None, tried: int) -> float:
    """Return the seconds to wait before the next attempt: what the server asks for within bounds, or a growing time."""
    wanted = _FIRST_WAIT_S * 2**tried
    if retry_after is not None:
        try:
            wanted = float(retry_after)
        except ValueError:
            with contextlib.suppress(ValueError):  # neither a number nor a date
                wanted = parsedate_to_datetime(retry_after).timestamp() - time.time()
    return min(max(wanted, 0.0), _LONGEST_WAIT_S) if wanted == wanted else _FIRST_WAIT_S  # noqa: PLR0124 - not NaN


class _Reader:
    """Reads a stream: the client's `Sink`."""

    def __init__(self, stats_of: StatsOf) -> None:
        self.alive_at = 0.0
        self.done = False
        self._compressed = False
        self._parser = SseParser()
        self._timer = StreamTimer(stats_of)

    def begin(self, status: int, headers: dict[str, str]) -> bool:
        """Take what is a stream."""
        if status != _OK or "application/json" in headers.get("content-type", ""):
            return False
        self._compressed = headers.get("content-encoding", "identity").lower() != "identity"
        return True

    def take(self, times: Sequence[float], bodies: Sequence[bytes]) -> None:
        """Take pieces of the stream."""
        if self._compressed:
            raise _RequestFailedError("the stream is compressed, although the request asked for it as it is")
        events = self._parser.each(bodies)
        if events is None:
            feed = self._parser.feed
            found = [(at, event) for at, body in zip(times, bodies, strict=True) for event in feed(body)]
            times, events = [at for at, _ in found], [event for _, event in found]
        if not events:
            return
        if not self.done:
            last = events.index(DONE) if DONE in events else len(events)
            self._read(times[:last], events[:last])
            self.done = last < len(events)
        # Comments do not count: a proxy sends them for a server that hangs.
        self.alive_at = times[-1]

    def _read(self, times: Sequence[float], events: Sequence[bytes]) -> None:
        """Take chunks of the answer, all at once where nothing is wrong with them."""
        try:
            chunks = decode_all(events)
        except ValueError:
            pass
        else:
            if not any(map(_wrong, chunks)):
                self._timer.add_all(times, chunks)
                return
        for at, event in zip(times, events, strict=True):
            self.alive_at = at
            self._timer.add(at, _chunk(event))

    def fill(self, row: RequestRow, exchange: Exchange) -> None:
        """Write what was read into the row, and raise where the answer is not whole."""
        self._timer.fill(row, started=exchange.sent, ended=self.alive_at or exchange.sent)
        error = exchange.error
        if error is not None and not isinstance(error, HttpError | _RequestFailedError):
            raise error  # a bug
        if error is not None and not self.done:
            raise _RequestFailedError(str(error)) from error
        if not self.done and self._timer.finish_reason is None:
            raise _RequestFailedError("the stream ended before the answer did (no finish_reason, no [DONE])")
        if not row.tokens:
            raise _RequestFailedError("the answer carried no tokens")


def _chunk(event: bytes) -> Chunk:
    try:
        chunk = decode(event)
    except ValueError as error:
        seen = one_line(event.decode(errors="replace"))
        raise _RequestFailedError(one_line(f"malformed event ({error}): {seen}")) from error
    if message := _wrong(chunk):
        raise _RequestFailedError(one_line(message))
    return chunk


def _wrong(chunk: Chunk) -> str | None:
    """Say why a chunk cannot be measured, or None."""
    if chunk.error is not None:
        return f"the server failed in the stream: {error_text(chunk.error)}"
    if chunk.object == "error":
        return f"the server failed in the stream: {chunk.message}"
    if chunk.choices and chunk.choices[-1].index:
        return "n > 1: the answer has several choices; their tokens share one stream and cannot be timed"
    return None
