"""Finding out how a server is asked for token ids: one streamed token each from its two completion endpoints."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from draftworth import redact
from draftworth.bench.base import Access
from draftworth.bench.failures import one_line, status_line
from draftworth.bench.http import Client
from draftworth.bench.probes import choose_model, identify
from draftworth.errors import MeasureError, UsageError
from draftworth.traces.proxy.answers import Answer, UnusableError
from draftworth.traces.proxy.base import Asked

PLAIN = b',"return_token_ids":true'
_SGLEXT = b',"return_input_ids_in_sglext":true,"return_output_ids_in_sglext":true'
_WAYS = (PLAIN, _SGLEXT)
"""vLLM's, and SGLang's for chats: its `return_token_ids` is refused there with a stream."""
_PATIENCE_S = 60.0
_OK = 200
_FAILS = 500
_NOT_LET_IN = (401, 403, 429)


async def ask_how(base_url: str, access: Access, model: str | None = None) -> Asked:
    """Return the fields that make a server tell ids.

    Each endpoint is sent a request for one token, streamed, with the fields of each engine in turn.

    Args:
        base_url: the server's.
        access: what lets the probe in.
        model: the served name; None for the first there is.

    Raises:
        UsageError: it is no such server, or tells no ids in any of the known ways.
        MeasureError: it answers neither endpoint: it fails, or asks for a key.
    """
    base, names = await identify(base_url, access=access)
    name = choose_model(names, model)
    chat, why, fails = await _first_that_works(
        base, access, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, name
    )
    plain, why_plain, fails_plain = await _first_that_works(base, access, "/v1/completions", {"prompt": "Hi"}, name)
    if chat is None and plain is None:
        if fails and fails_plain:
            raise MeasureError(f"{base} cannot be asked how it tells token ids, it fails: {why}")
        raise UsageError(
            f"{base} tells no token ids when it is asked for them ({why or why_plain}): leave --ask-ids out; with "
            "--tokenizer DIR the text of answers is recorded instead, as inexact"
        )
    return Asked(chat or b"", plain or b"")


def ask_how_sync(base_url: str, access: Access, model: str | None = None) -> Asked:
    """Do what `ask_how` does, for a synchronous caller."""
    return asyncio.run(ask_how(base_url, access, model))


async def _first_that_works(
    base: str, access: Access, path: str, what: Mapping[str, Any], model: str
) -> tuple[bytes | None, str, bool]:
    """Return the fields that work, else why the last did not, and whether that tells nothing of ids: a failure."""
    why, fails = "", True
    has_key = any(one.lower() == "authorization" for one in access.headers)
    async with Client(base, access) as client:
        for fields in _WAYS:
            body = {"model": model, **what, "max_tokens": 1, "temperature": 0, "stream": True}
            request = msgspec.json.encode(body)[:-1] + fields + b"}"
            exchange = await client.post(path, request, patience=_PATIENCE_S)
            if exchange.error is not None:
                return None, redact.values(one_line(str(exchange.error)), access.headers), True
            if exchange.status != _OK:
                text = exchange.body.decode(errors="replace")
                said = status_line(exchange.status, text, location=exchange.headers.get("location"), has_key=has_key)
                why = redact.values(f"{path}: {said}", access.headers)
                fails = fails and (exchange.status >= _FAILS or exchange.status in _NOT_LET_IN)
                continue
            fails = False
            answer = Answer(exchange.status, exchange.headers)
            answer.body(exchange.body)
            try:
                rows = answer.rows(request, whole=True)
            except UnusableError as reason:
                why = f"{path}: {reason}"
                continue
            if all(row.exact for row in rows):
                return fields, "", False
    return None, why, fails
