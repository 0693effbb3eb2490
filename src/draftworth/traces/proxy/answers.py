"""From one completion request and its answer, as they went over the line, to rows of a trace.

Ids are told by vLLM with `return_token_ids` (`prompt_token_ids` in the first chunk or the answer, `token_ids` in each
choice), by SGLang with the same field on `/v1/completions`, and on `/v1/chat/completions` in `sglext` (`input_ids`, and
`output_ids` for each choice) or, unstreamed, as `response_token_ids`. Read in vLLM 0.32.0 (`entrypoints/openai`) and
SGLang 0.5.23 (`srt/entrypoints/openai`).
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from draftworth.bench.base import RequestRow
from draftworth.bench.sse import DONE, Choice, Chunk, Delta, SseParser, Usage, decode
from draftworth.bench.timing import StreamTimer

NO_IDS = "the answer has no token ids"
NO_PROMPT_IDS = "the answer does not tell the prompt's token ids"
NO_TOKENS = "the answer has no tokens"
NOT_ALL = "the answer's ids are not all of its tokens (reasoning that is not shown, or a field the server leaves out)"
CUT_OFF = "cut off before anything that can be kept"
NOT_READ = "the answer cannot be read"
BAD_REQUEST = "the request's body cannot be read"
_OK = 200


class UnusableError(Exception):
    """A request that makes no row; the text is the reason, the same for every request it happens to."""


class Tokenizes(Protocol):
    """Makes ids of text, for answers that have none."""

    def prompt(self, request: Mapping[str, Any], at: int) -> Sequence[int]:
        """Return the ids of a request's prompt, of the one at a place where it has several; ValueError for none."""

    def text(self, text: str) -> Sequence[int]:
        """Return the ids of an answer."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer.

    Attributes:
        choice: which of the request's.
        prompt: token ids.
        output: token ids, at least one.
        thinking: how many of the output are reasoning; None where that is not known.
        temperature: None where the request leaves it to the server.
        model: the model that the server says answered, else the one that was asked.
        exact: whether the ids came from the server.
        cut: whether the answer ended before it was whole.
    """

    choice: int
    prompt: Sequence[int]
    output: Sequence[int]
    thinking: int | None
    temperature: float | None
    model: str | None
    exact: bool
    cut: bool


class _Message(msgspec.Struct, gc=False):
    content: Any = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class _Finished(msgspec.Struct, gc=False):
    """A choice of an answer that was not streamed."""

    index: int = 0
    message: _Message | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    response_token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Whole(msgspec.Struct, gc=False):
    """An answer that was not streamed."""

    choices: list[_Finished] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    model: str | None = None
    prompt_token_ids: list[int] | None = None
    sglext: dict[str, Any] | None = None


class _Named(msgspec.Struct, gc=False):
    """What a chunk says of the model."""

    model: str | None = None


@dataclass(slots=True)
class _One:
    """What is known of one choice."""

    timer: StreamTimer = field(default_factory=StreamTimer)
    row: RequestRow | None = None
    prompt: Sequence[int] = ()
    ended: bool = False


class Answer:
    """Takes an answer as it comes."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        """Make one.

        Args:
            status: HTTP's.
            headers: the answer's, names in lower case.
        """
        self.status = status
        self._streams = "text/event-stream" in headers.get("content-type", "")
        coding = headers.get("content-encoding", "identity").lower().strip()
        self._coded = coding not in ("identity", "gzip", "deflate", "")
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding in ("gzip", "deflate") else None
        self._parser = SseParser()
        self._body: list[bytes] = []
        self._wrong: str | None = None
        self._done = False
        self._choices: dict[int, _One] = {}
        self._usage: Usage | None = None
        self._model: str | None = None
        self._sglext: dict[str, Any] = {}

    def body(self, data: bytes) -> int:
        """Take a piece of the body. Returns how many bytes are kept of it."""
        if self._wrong is not None or self.status != _OK or self._coded:
            return 0
        if self._unzip is not None:
            try:
                data = self._unzip.decompress(data)
            except zlib.error:
                self._wrong = NOT_READ
                return 0
        if not self._streams:
            self._body.append(data)
            return len(data)
        for event in self._parser.feed(data):
            if event == DONE:
                self._done = True
            elif self._wrong is None:
                self._event(event)
        return 0

    def _event(self, event: bytes) -> None:
        try:
            chunk = decode(event)
            if self._model is None:
                self._model = msgspec.json.decode(event, type=_Named).model
        except ValueError:
            self._wrong = NOT_READ
            return
        if chunk.error is not None or chunk.object == "error":
            self._wrong = "the server failed in the stream"
            return
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.sglext is not None:
            self._sglext.update(chunk.sglext)
        choices = chunk.choices or ()
        for choice in choices:
            one = self._choices.setdefault(choice.index or 0, _One())
            part = Chunk(choices=[choice], usage=chunk.usage if len(choices) == 1 else None)
            one.timer.add(0.0, part)
            one.prompt = choice.prompt_token_ids or chunk.prompt_token_ids or one.prompt
            one.ended = one.ended or choice.finish_reason is not None

    def rows(self, request: bytes, *, whole: bool, tokenizer: Tokenizes | None = None) -> list[Recorded]:
        """Return the rows, at least one.

        Args:
            request: the request's body.
            whole: whether the answer came to its end.
            tokenizer: makes ids where the answer has none.

        Raises:
            UnusableError: there are none; says why.
        """
        if self.status != _OK:
            raise UnusableError(f"answered with HTTP {self.status}")
        if self._coded:
            raise UnusableError("the answer is compressed in a way that is not read")
        if self._wrong is not None:
            raise UnusableError(self._wrong)
        try:
            asked = msgspec.json.decode(request)
        except ValueError:
            raise UnusableError(BAD_REQUEST) from None
        if not isinstance(asked, dict):
            raise UnusableError(BAD_REQUEST)
        if not self._streams:
            self._read_whole(whole=whole)
        else:
            whole = self._done or (bool(self._choices) and all(one.ended for one in self._choices.values()))
        if not self._choices:
            raise UnusableError(NO_TOKENS if whole else CUT_OFF)
        return self._made(asked, whole=whole, tokenizer=tokenizer)

    def _read_whole(self, *, whole: bool) -> None:
        try:
            answer = msgspec.json.decode(b"".join(self._body), type=_Whole)
        except ValueError:
            raise UnusableError(NOT_READ if whole else CUT_OFF) from None
        self._body.clear()
        self._usage, self._model = answer.usage, answer.model
        self._sglext = answer.sglext or {}
        for choice in answer.choices:
            one = self._choices.setdefault(choice.index, _One())
            said = choice.message or _Message()
            content = said.content if isinstance(said.content, str) else None
            # Reasoning and answer in one piece: how the ids are shared between them is for the usage to tell.
            delta = Delta(content=content, reasoning=said.reasoning or said.reasoning_content)
            part = Choice(
                delta=delta if choice.message is not None else None,
                text=choice.text,
                token_ids=choice.token_ids or choice.response_token_ids,
                finish_reason="told",
            )
            one.timer.add(0.0, Chunk(choices=[part], usage=answer.usage if len(answer.choices) == 1 else None))
            one.prompt = choice.prompt_token_ids or answer.prompt_token_ids or ()
            one.ended = True

    def _made(self, asked: dict[str, Any], *, whole: bool, tokenizer: Tokenizes | None) -> list[Recorded]:
        sent = _sent_prompts(asked)
        each = max(1, asked["n"]) if isinstance(asked.get("n"), int) else 1
        temperature = asked.get("temperature")
        shared: Sequence[int] = self._sglext.get("input_ids") or ()
        found: list[Recorded] = []
        counted = 0
        for index, one in sorted(self._choices.items()):
            row = RequestRow(arm="", block=0, prompt_id="", category="", repeat=0, started_unix=0.0)
            one.timer.fill(row, started=0.0, ended=0.0)
            output = row.token_ids or self._sglext_output(index)
            counted += len(output)
            prompt = one.prompt or shared or (sent[index // each] if index // each < len(sent) else ())
            exact = bool(output and prompt)
            if not exact and tokenizer is not None:
                prompt, output = _retokenised(tokenizer, asked, row, index // each, prompt)
            if not output:
                if len(self._choices) > 1 and (row.text or counted):
                    continue  # one of several that said nothing
                raise UnusableError(NO_IDS if row.text or row.reasoning or row.tool_calls or row.tokens else NO_TOKENS)
            if not prompt:
                raise UnusableError(NO_PROMPT_IDS)
            found.append(
                Recorded(
                    choice=index,
                    prompt=prompt,
                    output=output,
                    thinking=self._thinking(row, len(output), exact=exact),
                    temperature=float(temperature) if isinstance(temperature, int | float) else None,
                    model=self._model or (asked["model"] if isinstance(asked.get("model"), str) else None),
                    exact=exact,
                    cut=not (whole and one.ended),
                )
            )
        told = None if self._usage is None else self._usage.completion_tokens
        if whole and told is not None and all(one.exact for one in found) and told != counted:
            raise UnusableError(NOT_ALL)
        if not found:
            raise UnusableError(NO_TOKENS)
        return found

    def _sglext_output(self, index: int) -> Sequence[int]:
        outputs = self._sglext.get("output_ids")
        return outputs[index] if isinstance(outputs, list) and index < len(outputs) else ()

    def _thinking(self, row: RequestRow, tokens: int, *, exact: bool) -> int | None:
        """Return the tokens of reasoning; a usage of several choices tells only their sum."""
        thinking = row.reasoning_tokens
        if not exact or thinking is None or thinking > tokens:
            return None
        return thinking


def _sent_prompts(asked: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    """Return prompts that were sent as ids, which the server takes as they are."""
    prompt = asked.get("prompt")
    if not isinstance(prompt, list) or not prompt or asked.get("truncate_prompt_tokens") is not None:
        return ()
    if all(type(one) is int for one in prompt):
        return (prompt,)
    if all(isinstance(one, list) and one and all(type(token) is int for token in one) for one in prompt):
        return prompt
    return ()


def _retokenised(
    tokenizer: Tokenizes, asked: Mapping[str, Any], row: RequestRow, at: int, known: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    if row.tool_calls:
        raise UnusableError("the answer has no token ids, and a tool call's text is not what the model wrote")
    try:
        return known or tokenizer.prompt(asked, at), row.token_ids or tokenizer.text(row.reasoning + row.text)
    except ValueError as error:
        raise UnusableError(f"cannot be tokenised: {error}") from None
