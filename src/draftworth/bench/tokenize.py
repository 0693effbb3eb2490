"""Counting the tokens of a text as a server's model would: `POST /tokenize` of vLLM, else an estimate."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftworth.bench.base import Target
from draftworth.bench.probes import new_session, post_json
from draftworth.errors import MeasureError

BYTES_PER_TOKEN = 4.0
"""What English text has in common tokenizers, where no server can be asked."""
_TIMEOUT_S = 10.0


def counter(target: Target) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text, without special ones.

    The server is asked once; where it cannot tokenize (no `/tokenize`), UTF-8 bytes over four are taken. What a prompt
    really has is in each row, from the server's usage.
    """
    known: dict[str, int] = {}
    asks = True

    def count(text: str) -> int:
        nonlocal asks
        if text not in known and asks:
            try:
                known[text] = asyncio.run(_ask(target, text))
            except MeasureError:
                asks = False
        return known[text] if text in known else max(1, round(len(text.encode()) / BYTES_PER_TOKEN))

    return count


async def _ask(target: Target, text: str) -> int:
    return await _count(target, {"prompt": text, "add_special_tokens": False})


async def count_chat(target: Target, messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tokens a conversation has as a prompt, as the server's chat template writes it.

    Raises:
        MeasureError: the server does not say.
    """
    return await _count(target, {"messages": [dict(message) for message in messages]})


async def _count(target: Target, what: Mapping[str, Any]) -> int:
    async with new_session(_TIMEOUT_S, access=target.access) as session:
        answer = await post_json(session, target.base_url + "/tokenize", {"model": target.model, **what})
    value = answer.get("count")
    if not isinstance(value, int):
        raise MeasureError("the answer of /tokenize has no count")
    return value
