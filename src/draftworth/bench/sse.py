"""Server-sent events as they arrive: bytes in any pieces, events out; and what a chunk of an answer may carry.

The format is the event stream of the HTML standard (section 9.2.6). Splitting at bytes is safe: in UTF-8 the bytes of
CR, LF and the colon never occur inside another character.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

DONE = b"[DONE]"
"""The data of the event that ends an OpenAI stream."""


class SseParser:
    """Cuts a byte stream into events. Only the data of an event is kept; comments and other fields are skipped."""

    __slots__ = ("_after_cr", "_at_start", "_data", "_midway", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True
        self._midway = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of each event they complete, in order.

        Several data lines of one event are joined with a line feed. An event without data is none. What the stream
        leaves unfinished at its end is not an event.
        """
        events = self._cut(chunk)
        self._midway = bool(self._rest or self._data or self._after_cr)
        return events

    def each(self, chunks: Sequence[bytes]) -> list[bytes] | None:
        """Take the next pieces where each of them is one whole event of one line, as nearly all are.

        Returns:
            The data of each, in order; None where they are not, and nothing was taken: `feed` them.
        """
        if self._midway:
            return None
        # All at once: what stands where two pieces meet must be the end of an event and the start of the next.
        joined = b"\r".join(chunks)
        if not (joined.startswith(b"data: ") and joined.endswith(b"\n\n")):
            return None
        events = joined[6:-2].split(b"\n\n\rdata: ")
        data = b"".join(events)
        if len(events) != len(chunks) or b"\n" in data or b"\r" in data:
            return None
        self._at_start = False
        return events

    def _cut(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CR LF that was cut in two
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            if chunk:
                self._rest.append(chunk)
            return []
        lines = b"".join((*self._rest, chunk)).split(b"\n")
        last = lines.pop()
        self._rest = [last] if last else []
        events = []
        for line in lines:
            if self._at_start:
                line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901 - a byte order mark is no part of it
                self._at_start = False
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


# `gc=False`: the collector never looks at them. They hold no cycles and live for microseconds.


class Delta(msgspec.Struct, gc=False):
    """What one chunk adds to the answer."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """The older name of `reasoning`."""
    tool_calls: list[dict[str, Any]] | None = None


class Choice(msgspec.Struct, gc=False):
    """The part of a chunk that belongs to one answer."""

    index: int | None = None
    delta: Delta | None = None
    text: str | None = None
    """What it adds, in a stream of `/v1/completions`."""
    finish_reason: str | None = None
    stop_reason: Any = None
    """The stop string or token that ended it, where the server tells."""
    token_ids: list[int] | None = None
    """The ids of the chunk's tokens (vLLM, with `return_token_ids`)."""
    prompt_token_ids: list[int] | None = None
    avg_decoded_tokens_per_iter: float | None = None
    """TensorRT-LLM's figure of the answer."""
    speculative_decoding: dict[str, Any] | None = None
    """The same, in later releases."""


class CompletionDetails(msgspec.Struct, gc=False):
    """What the completion's tokens are made of."""

    reasoning_tokens: int | None = None


class PromptDetails(msgspec.Struct, gc=False):
    """What the prompt's tokens are made of."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The server's own token counts: of the whole answer, or up to here where every chunk has them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_tokens_details: PromptDetails | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event of a streamed completion: the fields that are measured."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
    metrics: dict[str, Any] | None = None
    """vLLM's figures of the request."""
    timings: dict[str, Any] | None = None
    """llama.cpp's."""
    sglext: dict[str, Any] | None = None
    """SGLang's."""
    error: Any = None
    object: str | None = None
    message: str | None = None


_decoder = msgspec.json.Decoder(Chunk)


def decode(data: bytes) -> Chunk:
    """Decode the data of one event.

    Raises:
        ValueError: it is no JSON, or no chunk of a completion; the text says what is wrong where.
    """
    return decode_all((data,))[0]


def decode_all(events: Sequence[bytes]) -> list[Chunk]:
    """Decode the data of several events.

    Raises:
        ValueError: one of them is no chunk, as in `decode`.
    """
    try:
        return list(map(_decoder.decode, events))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is a DecodeError
        raise ValueError(str(error)) from error
