"""Logs of OpenAI-style servers: a request and its response a record, as gateways, proxies and clients write them.

Fields that carry ids:

- vLLM's `prompt_token_ids` and `token_ids` (`return_token_ids`; vllm/entrypoints/openai/chat_completion/protocol.py and
  completion/protocol.py of vLLM 0.32), and `token_id:N` in log-probabilities (`return_tokens_as_token_ids`),
- SGLang's `sglext` (srt/entrypoints/openai/protocol.py of SGLang 0.5.23), and `output_ids` of its /generate
  (srt/managers/tokenizer_manager.py),
- `tokens` of llama.cpp's /completion (tools/server/README.md).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import (
    NO_ANSWER,
    NO_REQUEST,
    Found,
    Recorded,
    Sample,
    is_id_list,
    number_of,
    object_of,
    records,
    text_of,
)

FAILED = "the request failed"
TOOL_CALL = "the answer is a tool call, whose tokens cannot be told from the record"
SEVERAL_PROMPTS = "several prompts in one request"
_LINES = re.compile(r"\r\n|[\r\n]")
"""Ends of lines in an event stream; an answer may hold others that Python knows, unescaped (U+2028, U+0085)."""
_PAIRS = (("request", "response"), ("request_body", "response_body"), ("input", "output"))
_REQUEST_KEYS = frozenset({"messages", "prompt", "input_ids", "text", "body"})
_RESPONSE_KEYS = frozenset({"choices", "body", "output_ids", "tokens"})
_IDS = ("custom_id", "request_id", "id")
_TOKEN = "token_id:"  # noqa: S105 - how vLLM writes a token
_BAD_STATUS = 400


class OpenAI:
    """One request and its response a record.

    Understood: `{"request": …, "response": …}` and the same as `request_body`/`response_body` or `input`/`output`; a
    request's fields beside its `response`; each as an object or as JSON text. A response is one object, a list of
    stream chunks, or the text of an event stream. Every choice of a response is a request of its own.
    """

    name = "openai"
    title = "logs of OpenAI-style requests and responses"

    def fits(self, sample: Sample) -> bool:
        """Return whether the first record has a request and a response."""
        try:
            _, response = _parts(sample.first)
        except BadRow:
            return False
        return bool(_RESPONSE_KEYS & response.keys()) if isinstance(response, Mapping) else bool(response)

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every choice; see `Importer.read`."""
        for where, record in records(path):
            if isinstance(record, BadRow):
                yield where, record
                continue
            try:
                for one in exchange(record):
                    yield where, one
            except BadRow as reason:
                yield where, reason


def exchange(record: Mapping[str, Any]) -> list[Recorded]:
    """Return what one record holds: one for each choice.

    Raises:
        BadRow: it holds no request with an answer.
    """
    request, response = _parts(record)
    name = next((str(record[key]) for key in _IDS if record.get(key)), None)
    return joined(request, response, name)


def joined(request: Mapping[str, Any], response: Any, name: str | None) -> list[Recorded]:
    """Return a request with its response: one for each choice.

    Raises:
        BadRow: it failed, or something is missing.
    """
    if isinstance(response, Mapping):
        status = response.get("status_code", response.get("status"))
        if response.get("error") or (isinstance(status, int) and status >= _BAD_STATUS):
            raise BadRow(FAILED)
        body = response.get("body")
        if body is not None and "choices" not in response:
            response = _response(body)
    chunks: Sequence[Any] = response if isinstance(response, list) else [response]
    answer = _Answer()
    for chunk in chunks:
        if isinstance(chunk, Mapping):
            answer.add(chunk)
    found = _request(request, answer)
    model = answer.model or request.get("model")
    found = replace(found, model=model if isinstance(model, str) and model else None)
    name = name or answer.name
    several = len(answer.choices) > 1
    if not answer.choices:
        raise BadRow(NO_ANSWER)
    return [
        choice.recorded(
            replace(found, request_id=f"{name}#{index}" if several and name else name), answer, several=several
        )
        for index, choice in sorted(answer.choices.items())
    ]


@dataclass(slots=True)
class _Choice:
    text: str = ""
    reasoning: str = ""
    ids: list[int] = field(default_factory=list)
    prompt_ids: Sequence[int] | None = None
    logged: list[int] | None = field(default_factory=list)
    tools: bool = False

    def add(self, choice: Mapping[str, Any]) -> None:
        part = object_of(choice.get("message") or choice.get("delta"))
        self.text += text_of(part.get("content")) or text_of(choice.get("text")) or ""
        self.reasoning += text_of(part.get("reasoning_content")) or text_of(part.get("reasoning")) or ""
        self.tools = self.tools or bool(part.get("tool_calls") or part.get("function_call"))
        if isinstance(choice.get("token_ids"), list):
            self.ids += choice["token_ids"]
        if is_id_list(choice.get("prompt_token_ids")):
            self.prompt_ids = choice["prompt_token_ids"]
        logged = _logged(object_of(choice.get("logprobs")))
        self.logged = None if logged is None or self.logged is None else self.logged + logged

    def recorded(self, found: Recorded, answer: "_Answer", *, several: bool) -> Recorded:
        ids = self.ids or self.logged
        if not ids and self.tools:
            raise BadRow(TOOL_CALL)
        tokens = None if several else answer.tokens
        return replace(
            found,
            prompt_ids=found.prompt_ids or self.prompt_ids,
            output_ids=ids or None,
            output_text=self.text or None,
            reasoning=self.reasoning,
            thinking=None if several else answer.thinking,
            whole=not ids or tokens is None or tokens == len(ids),
        )


@dataclass(slots=True)
class _Answer:
    """A response, from one object or from its chunks."""

    model: str | None = None
    name: str | None = None
    prompt_ids: Sequence[int] | None = None
    tokens: int | None = None
    thinking: int | None = None
    choices: dict[int, _Choice] = field(default_factory=dict)

    def add(self, chunk: Mapping[str, Any]) -> None:
        self.model = chunk["model"] if isinstance(chunk.get("model"), str) else self.model
        self.name = chunk["id"] if isinstance(chunk.get("id"), str) else self.name
        if is_id_list(chunk.get("prompt_token_ids")):
            self.prompt_ids = chunk["prompt_token_ids"]
        self._usage(object_of(chunk.get("usage")))
        self._sglext(object_of(chunk.get("sglext")))
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, Mapping):
                    index = choice.get("index")
                    self.choices.setdefault(index if isinstance(index, int) else 0, _Choice()).add(choice)
        elif is_id_list(chunk.get("output_ids")):
            self._native(chunk["output_ids"], chunk)
        elif is_id_list(chunk.get("tokens")):
            self._native(chunk["tokens"], chunk)
        elif isinstance(chunk.get("content"), str):
            self.choices.setdefault(0, _Choice()).text += chunk["content"]

    def _usage(self, usage: Mapping[str, Any]) -> None:
        if isinstance(usage.get("completion_tokens"), int):
            self.tokens = usage["completion_tokens"]
            thinking = object_of(usage.get("completion_tokens_details")).get("reasoning_tokens")
            self.thinking = thinking if isinstance(thinking, int) else self.thinking

    def _sglext(self, extra: Mapping[str, Any]) -> None:
        """Take SGLang's own fields: ids of the prompt, and all of each choice's at once."""
        if is_id_list(extra.get("input_ids")):
            self.prompt_ids = extra["input_ids"]
        outputs = extra.get("output_ids")
        for index, ids in enumerate(outputs if isinstance(outputs, list) else ()):
            if is_id_list(ids):
                self.choices.setdefault(index, _Choice()).ids = ids

    def _native(self, ids: list[int], chunk: Mapping[str, Any]) -> None:
        """Take the answer of an engine's own endpoint."""
        meta = object_of(chunk.get("meta_info"))
        if isinstance(meta.get("completion_tokens"), int):
            self.tokens = meta["completion_tokens"]
        choice = self.choices.setdefault(0, _Choice())
        # SGLang's chunks hold all that came before, its incremental ones and llama.cpp's only what is new.
        everything = "output_ids" in chunk and self.tokens in {None, len(ids)}
        choice.ids = ids if everything else choice.ids + ids


def _parts(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    for asked, answered in _PAIRS:
        request = object_of(record.get(asked))
        if _REQUEST_KEYS & request.keys():
            return object_of(request["body"]) if "body" in request else request, _response(record.get(answered))
    if "response" in record:  # the request's fields beside it, or, in a batch's output, none
        return record, _response(record["response"])
    raise BadRow(NO_REQUEST)


def _response(value: Any) -> Any:
    """Return a response: an object, or a list of chunks."""
    if isinstance(value, str):
        if value.lstrip().startswith(("data:", "event:", "id:", ":")):
            return [one for line in _LINES.split(value) if (one := object_of(line.removeprefix("data:").strip()))]
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return {}
    if isinstance(value, list):
        return [object_of(one.removeprefix("data:").strip() if isinstance(one, str) else one) for one in value]
    return value if isinstance(value, Mapping) else {}


def _request(request: Mapping[str, Any], answer: _Answer) -> Recorded:
    made = Recorded(
        prompt_ids=answer.prompt_ids,
        temperature=number_of(request.get("temperature", object_of(request.get("sampling_params")).get("temperature"))),
        category=request["category"] if isinstance(request.get("category"), str) else "",
    )
    messages, tools = request.get("messages"), request.get("tools")
    if isinstance(messages, list) and all(isinstance(one, Mapping) for one in messages):
        return replace(made, messages=messages, tools=tools if isinstance(tools, list) else None)
    for key in ("prompt", "input_ids", "text"):
        prompt = request.get(key)
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise BadRow(SEVERAL_PROMPTS)
            prompt = prompt[0]
        if isinstance(prompt, str):
            return replace(made, prompt_text=prompt)
        if is_id_list(prompt):
            return replace(made, prompt_ids=made.prompt_ids or prompt)
    return made


def _logged(logprobs: Mapping[str, Any]) -> list[int] | None:
    """Return the ids that log-probabilities name; None where they name tokens by their text."""
    content = logprobs.get("content")
    if isinstance(content, list):
        tokens = [object_of(one).get("token") for one in content]
    else:
        tokens = logprobs["tokens"] if isinstance(logprobs.get("tokens"), list) else []
    found = []
    for token in tokens:
        number = token.removeprefix(_TOKEN) if isinstance(token, str) and token.startswith(_TOKEN) else ""
        if not number.isdecimal():
            return None
        found.append(int(number))
    return found
