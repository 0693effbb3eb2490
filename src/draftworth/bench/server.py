"""Finding out what a running server is and whether the requests fit it, before anything is measured."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftworth.bench.base import Access, Prompt, Target
from draftworth.bench.points import Point
from draftworth.bench.probes import choose_model, fetch_text_sync, identify_sync
from draftworth.bench.tokenize import count_chat
from draftworth.engines import engine as engine_named
from draftworth.engines.base import Engine
from draftworth.errors import MeasureError, UsageError

_MOST_ASKED = 5
_BYTES_PER_TOKEN = 2
"""Text with fewer bytes a token than this is rare; prompts that are shorter by it are not asked about."""


@dataclass(frozen=True, slots=True)
class Found:
    """A server that runs.

    Attributes:
        target: where and how it is asked.
        version: what it says its version is (`/version` of vLLM), None where it does not tell.
        max_model_len: the longest context of the chosen model, in tokens; None where it does not tell.
    """

    target: Target
    version: str | None
    max_model_len: int | None = None
    engine: str = "vllm"


def look_at(url: str, *, access: Access, model: str | None, token_timeout_s: float, engine: str | None = None) -> Found:
    """Ask a server what it serves.

    Args:
        url: as a person wrote it, with or without `/v1`.
        access: what lets the client in.
        model: the served name, None for the first there is.
        token_timeout_s: seconds without any event after which a request has failed.
        engine: what runs there; None to recognise it by its metrics and pages. What shows neither is read as vLLM.

    Raises:
        UsageError: the URL leads to no such server, or the model is not served.
    """
    base, names = identify_sync(url, access=access)
    adapter, version = _engine_at(base, access, engine)
    target = Target(
        base,
        choose_model(names, model),
        token_timeout_s,
        access,
        fields=adapter.request_fields(),
        stats_of=adapter.request_stats,
    )
    return Found(target, version or _version(base, access), _max_model_len(target), adapter.name)


def _engine_at(base: str, access: Access, name: str | None) -> tuple[Engine, str | None]:
    """Return the engine that answers at a URL, and its version where a page tells it."""
    from draftworth.readings.server import find_server  # noqa: PLC0415 - lazy: only here

    try:
        live = find_server(base, access=access, name=name)
    except UsageError:
        return engine_named(name or "vllm"), None
    return engine_named(live.engine.name), live.engine.version


def check_fits(found: Found, prompts: Sequence[Prompt], sweep: Sequence[Point]) -> None:
    """Refuse requests that the server would refuse because they are longer than its context.

    vLLM 0.32 refuses a prompt that leaves no room for one token, and a `max_tokens` above its context. Prompt and
    answer together may be longer: the answer is then cut at the context.

    Recorded token ids are counted. Of texts, the server is asked about the longest few that could be too long; where it
    cannot tell, nothing is refused. Of conversations, what is known beforehand counts, all turns together.

    Args:
        found: the server.
        prompts: what will be sent, before it is filled up.
        sweep: the points.

    Raises:
        UsageError: names the prompt or the option, its tokens and the limit.
    """
    limit = found.max_model_len
    if limit is None:
        return
    context = f"the server's context of {limit:,} tokens (max_model_len)"
    _check_points(sweep, limit, context)
    _check_recorded(prompts, limit, context)
    _check_texts(found.target, prompts, limit, context)


def _check_points(sweep: Sequence[Point], limit: int, context: str) -> None:
    for point in sweep:
        asked, most = point.context_tokens, point.max_tokens
        if most > limit:
            raise UsageError(f"max_tokens: {most:,} is more than {context}; ask for less")
        if asked is not None and asked - _tolerance(asked) >= limit:
            raise UsageError(f"context_tokens: {asked:,} leaves no room for an answer in {context}; ask for less")


def _check_recorded(prompts: Sequence[Prompt], limit: int, context: str) -> None:
    for prompt in prompts:
        if prompt.token_ids is not None and len(prompt.token_ids) >= limit:
            raise UsageError(_too_long(prompt, len(prompt.token_ids), context))
        if prompt.max_tokens is not None and prompt.max_tokens > limit:
            raise UsageError(
                f"prompt {prompt.id!r}: its max_tokens of {prompt.max_tokens:,} is more than {context}; lower it, or "
                "leave the prompt out"
            )


def _check_texts(target: Target, prompts: Sequence[Prompt], limit: int, context: str) -> None:
    texts = [(prompt, _messages(prompt)) for prompt in prompts if prompt.token_ids is None]
    sized = [(_size(messages), prompt, messages) for prompt, messages in texts]
    doubtful = [one for one in sized if one[0] / _BYTES_PER_TOKEN >= limit]
    for _, prompt, messages in sorted(doubtful, key=lambda one: -one[0])[:_MOST_ASKED]:
        try:
            tokens = asyncio.run(count_chat(target, messages))
        except MeasureError:
            return  # it cannot tokenize
        if tokens >= limit:
            raise UsageError(_too_long(prompt, tokens, context))


def _too_long(prompt: Prompt, tokens: int, context: str) -> str:
    together = " with all its turns" if prompt.turns else ""
    return (
        f"prompt {prompt.id!r} has {tokens:,} tokens{together}, which leaves no room for an answer in {context}; leave "
        "it out or shorten it, or serve the model with a longer context"
    )


def _tolerance(tokens: int) -> int:
    from draftworth.workloads.context import tolerance  # noqa: PLC0415 - lazy

    return tolerance(tokens)


def _messages(prompt: Prompt) -> list[Mapping[str, Any]]:
    """Return the last request of a conversation as far as it is known: an answer of the server's is left empty."""
    messages: list[Mapping[str, Any]] = list(prompt.messages)
    for turn in prompt.turns:
        messages.append({"role": "assistant", "content": turn.answer or ""})
        messages.append({"role": "user", "content": turn.content})
    return messages


def _size(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(str(message.get("content", "")).encode(errors="replace")) for message in messages)


def _version(base: str, access: Access) -> str | None:
    told = _told(base, "/version", access)
    version = told.get("version") if isinstance(told, dict) else None
    return version if isinstance(version, str) else None


def _max_model_len(target: Target) -> int | None:
    told = _told(target.base_url, "/v1/models", target.access)
    entries = told.get("data") if isinstance(told, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("id") == target.model:
            length = entry.get("max_model_len")
            return length if isinstance(length, int) and not isinstance(length, bool) and length > 0 else None
    return None


def _told(base: str, path: str, access: Access) -> Any:
    """Return the JSON of a page; None where there is none."""
    try:
        return json.loads(fetch_text_sync(base, path, access=access))
    except (MeasureError, ValueError):
        return None
