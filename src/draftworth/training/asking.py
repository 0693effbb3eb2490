"""One answer of a server: asked for with its token ids, repeated where that helps, refused where it does not."""

import asyncio
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from draftworth.bench.base import Access
from draftworth.errors import MeasureError
from draftworth.traces.columns import BadRow
from draftworth.traces.imports.openai import TOOL_CALL, joined
from draftworth.traces.record import SGLANG_FIELDS
from draftworth.training.answers import Answer
from draftworth.training.capabilities import check_captures
from draftworth.training.capture import ASK, Capture
from draftworth.training.recipe import RegenerateConfig
from draftworth.training.sampling_check import check_sampling
from draftworth.training.sources.base import ASSISTANT, Ids, message_of

if TYPE_CHECKING:
    import aiohttp

EMPTY = "an empty answer"
REPEATED = "requests that were repeated"
RESUME = "what was answered is kept, run again to resume"
_ASK_IDS: Mapping[str, Any] = {"return_token_ids": True, **SGLANG_FIELDS}
"""Asks vLLM and SGLang for the ids of prompt and answer."""
_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_PASSING = {408, 425, 429}
"""Statuses below 500 that go by."""
_NOT_OURS = {401, 403, 404}
"""Statuses that every request will meet."""
_SERVERS = 500
_GONE = ("connection refused by ", "cannot connect to ")
_FEWEST = 8
_LONGEST_PAUSE_S = 30.0
_NOBODY = Access()


@dataclass(frozen=True, slots=True)
class Server:
    """Where answers come from. It is looked for when the first answer is missing.

    Attributes:
        url: as a person wrote it.
        model: the served model's name; None for the first that it lists.
        access: what lets the reader in.
    """

    url: str
    model: str | None = None
    access: Access = _NOBODY


class Asking:
    """Asks a server.

    Args:
        server: where.
        config: how.
        seed: of the server's sampling.
        capture: takes the states of every answer; None where they are not kept.

    Attributes:
        counts: what happened how often.
        last_error: why the latest request that was given up failed.
    """

    def __init__(self, server: Server, config: RegenerateConfig, seed: int, capture: Capture | None = None) -> None:
        self._server, self._config, self._seed = server, config, seed
        self._extra = dict(_ASK_IDS)
        self._capture = capture
        self._away = 0
        self._found: asyncio.Task[tuple[str, str]] | None = None
        self.counts: Counter[str] = Counter()
        self.last_error = ""

    async def ask(
        self, session: "aiohttp.ClientSession", path: str, body: Mapping[str, Any], place: Answer
    ) -> Answer | None:
        """Return the answer to a request, filled in; None where there is none after all retries.

        Args:
            session: of aiohttp.
            path: `/v1/chat/completions` or `/v1/completions`.
            body: what is asked, without sampling.
            place: where the answer belongs.

        Raises:
            UsageError: there is no such server, or it does not serve the model.
            RefusedError: states are to be kept, and the server does not store them.
            MeasureError: the server is gone, or lets nobody in.
        """
        from draftworth.bench.probes import post_json  # noqa: PLC0415 - lazy: aiohttp

        base_url, model = await self._look(session)
        stored = {} if self._capture is None else ASK
        tries = 0
        while True:
            extra = self._extra
            whole = {"model": model, **self._sampling(place), **extra, **stored, **body}
            try:
                said = await post_json(session, base_url + path, whole)
            except MeasureError as error:
                reason = str(error).removeprefix(f"POST {base_url}{path}: ")
                if self._extra is not extra or self._without_ids(reason):
                    continue
                if _for_good(reason):
                    place.error = reason
                    return place
                tries += 1
                self._see(reason)
                if tries > self._config.retries:
                    self.last_error = reason
                    return None
                self.counts[REPEATED] += 1
                await asyncio.sleep(min(_LONGEST_PAUSE_S, 2.0 ** (tries - 1)) * (0.5 + random.random()))  # noqa: S311
            else:
                self._away = 0
                answer = answer_of(said, body, place)
                if self._capture is not None:
                    await asyncio.to_thread(self._capture.keep, said, answer)
                return answer

    async def _look(self, session: "aiohttp.ClientSession") -> tuple[str, str]:
        """Return the server's base URL and the model's name, looked for once."""
        from draftworth.bench.probes import choose_model, identify, post_json  # noqa: PLC0415 - lazy: aiohttp

        async def looked() -> tuple[str, str]:
            base_url, names = await identify(self._server.url, access=self._server.access)
            model = choose_model(names, self._server.model)
            if self._capture is not None:
                test = partial(post_json, session, f"{base_url}/v1/completions")
                await check_captures(test, base_url, model, self._capture)
                if self._config.temperature > 0:
                    await check_sampling(test, base_url, model)
            return base_url, model

        self._found = self._found or asyncio.get_running_loop().create_task(looked())
        return await asyncio.shield(self._found)

    def _without_ids(self, reason: str) -> bool:
        """Stop asking for ids where a server refuses the fields. Returns whether that was so."""
        if not any(name in reason for name in self._extra):
            return False
        self._extra = {}
        return True

    def _see(self, reason: str) -> None:
        """Raise MeasureError where the server has been away for all retries of all requests at a time."""
        self._away = self._away + 1 if reason.startswith(_GONE) else 0
        if self._away > max(_FEWEST, self._config.concurrency) * (self._config.retries + 1):
            raise MeasureError(f"the server is gone: {reason}; {RESUME}")

    def _sampling(self, place: Answer) -> dict[str, Any]:
        config = self._config
        text = f"{self._seed}:{place.conversation}:{place.sample}:{place.turn}"
        made: dict[str, Any] = {
            "max_tokens": config.max_tokens,
            "temperature": config.temperature,
            "seed": int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1,
        }
        return made if config.top_p == 1 else {**made, "top_p": config.top_p}


def _for_good(reason: str) -> bool:
    """Tell whether a request need not be repeated.

    Raises:
        MeasureError: no other one need be sent either.
    """
    status = _STATUS.match(reason)
    code = int(status[1]) if status else _SERVERS
    if code in _NOT_OURS:
        raise MeasureError(f"{reason}; {RESUME}")
    return code < _SERVERS and code not in _PASSING


def api_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as OpenAI's API takes it: without reasoning, arguments of calls as text."""
    made = {name: message[name] for name in ("role", "content", "name", "tool_call_id") if name in message}
    if message.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return made


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or isinstance(function.get("arguments"), str):
        return dict(call)
    return {
        "type": "function",
        **call,
        "function": {**function, "arguments": json.dumps(function.get("arguments") or {})},
    }


def answer_of(said: Mapping[str, Any], body: Mapping[str, Any], place: Answer) -> Answer:
    """Return a server's answer with its ids, of vLLM (`return_token_ids`) or SGLang (`sglext`).

    Args:
        said: the decoded response.
        body: what was asked.
        place: where the answer belongs; filled in.
    """
    try:
        found = joined(body, said, None)[0]
    except BadRow as reason:
        found = None
        if str(reason) != TOOL_CALL:
            place.error = EMPTY
            return place
    choice = said["choices"][0]
    try:
        place.message = message_of({**(choice.get("message") or {"content": choice.get("text")}), "role": ASSISTANT})
    except BadRow:
        place.message = {"role": ASSISTANT, "content": ""}
    place.finish = str(choice.get("finish_reason") or "")
    if found is not None and found.whole and found.output_ids:
        place.prompt_ids = list(found.prompt_ids or ()) or None
        place.output_ids = list(found.output_ids)
        place.thinking = found.thinking
    if not place.output_ids and not place.message["content"] and not place.message.get("tool_calls"):
        place.error = EMPTY
    return place


def ids_of(answer: Answer) -> Ids | None:
    """Return an answer as ids; None where the server told none."""
    if not answer.prompt_ids or not answer.output_ids:
        return None
    prompt, output = np.array(answer.prompt_ids, np.int32), np.array(answer.output_ids, np.int32)
    return Ids(prompt, output, -1 if answer.thinking is None else answer.thinking, exact=True)
