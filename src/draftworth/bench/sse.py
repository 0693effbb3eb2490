"""Server-sent events as they arrive: bytes in any pieces, events out; and what a chat chunk may carry.

The format is the event stream of the HTML standard (section 9.2.6). Splitting at bytes is safe: in UTF-8 the bytes of
CR, LF and the colon never occur inside another character.
"""

from typing import Any

import msgspec

DONE = b"[DONE]"
"""The data of the event that ends an OpenAI stream."""


class SseParser:
    """Cuts a byte stream into events. Only the data of an event is kept; comments and other fields are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of each event they complete, in order.

        Several data lines of one event are joined with a line feed. An event without data is none. What the stream
        leaves unfinished at its end is not an event.
        """
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CR LF that was cut in two
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
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


class Delta(msgspec.Struct):
    """What one chunk adds to the answer."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """The older name of `reasoning`."""
    tool_calls: list[dict[str, Any]] | None = None


class Choice(msgspec.Struct):
    """The part of a chunk that belongs to one answer."""

    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    """The ids of the chunk's tokens (vLLM, with `return_token_ids`)."""


class Usage(msgspec.Struct):
    """The server's own token counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Chunk(msgspec.Struct):
    """One event of a streamed chat completion: the fields that are measured."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
    metrics: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None
    message: str | None = None


_decoder = msgspec.json.Decoder(Chunk)


def decode(data: bytes) -> Chunk:
    """Decode the data of one event.

    Raises:
        ValueError: it is no JSON, or no chunk of a chat completion; the text says what is wrong where.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is a DecodeError
        raise ValueError(str(error)) from error
