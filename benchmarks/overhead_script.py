"""What the scripted server serves: the bytes of whole answers, lacking only the stamps."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
TOKEN_IDS = (704, 827, 1296, 1876, 2350, 3123, 4310, 5123)
STAMP = b"@@@@@@@@@@@@@@@@@"  # as wide as a printed stamp
STAMP_FORMAT = b"%17.6f"  # padded with blanks, which JSON allows before a number: every chunk has the same length
ID = b"################"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Script:
    """What is served.

    Attributes:
        rate: chunks a second of each stream; 0 sends as fast as they are taken.
        chunks: content chunks of an answer, fewer where `max_tokens` asks for fewer.
        tokens: tokens of each chunk.
        steps: all streams send at the same moments, as from an engine's steps, instead of evenly spread.
        model: the served model's name.
    """

    rate: float = 20.0
    chunks: int = 60
    tokens: int = 1
    steps: bool = False
    model: str = "scripted"


def frame(data: bytes) -> bytes:
    """Return one server-sent event as one HTTP chunk."""
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def envelope(script: Script, *, chat: bool) -> dict[str, Any]:
    """Return the fields that every chunk of an answer starts with."""
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": f"chatcmpl-{ID.decode()}", "object": kind, "created": 1796000111, "model": script.model}


def template(script: Script, word: int, *, chat: bool, ids: bool, last: bool) -> tuple[bytes, bytes]:
    """Return what comes before and after the stamp of a content chunk."""
    picked = [(word + number) % len(WORDS) for number in range(script.tokens)]
    text = "".join(" " + WORDS[number] for number in picked)
    choice: dict[str, Any] = {"index": 0} | ({"delta": {"content": text}} if chat else {"text": text})
    choice |= {"logprobs": None, "finish_reason": "length" if last else None}
    choice |= {"stop_reason": None} if last or not chat else {}
    choice |= {"token_ids": [TOKEN_IDS[number] for number in picked]} if ids else {}
    chunk = envelope(script, chat=chat) | {"choices": [choice], "sent": STAMP.decode()}
    # The stamp is a number, its placeholder is none: the quotes go.
    data = json.dumps(chunk, separators=(",", ":")).encode().replace(b'"' + STAMP + b'"', STAMP)
    before, _, after = frame(data).partition(STAMP)
    return before, after


@cache
def forms(script: Script, chunks: int, *, chat: bool, ids: bool, usage: bool) -> "Forms":
    """Return the bytes of an answer of so many chunks, with a placeholder for its id; made once."""
    cycle = [template(script, word, chat=chat, ids=ids, last=False) for word in range(len(WORDS))]
    head = envelope(script, chat=chat)
    role: dict[str, Any] = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    first = head | {"choices": [role | {"logprobs": None, "finish_reason": None}]}
    first |= {"prompt_token_ids": [1, 2, 3], "prompt_text": None} if ids else {}
    tokens = chunks * script.tokens
    counts = {"prompt_tokens": 3, "total_tokens": 3 + tokens, "completion_tokens": tokens}
    closing = _event(head | {"choices": [], "usage": counts}) if usage else b""
    return Forms(
        opening=STREAM_HEAD + (_event(first) if chat else b""),
        cycle=tuple(cycle),
        last=template(script, (chunks - 1) % len(WORDS), chat=chat, ids=ids, last=True),
        closing=closing + frame(b"[DONE]") + b"0\r\n\r\n",
    )


def _event(chunk: dict[str, Any]) -> bytes:
    return frame(json.dumps(chunk, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Forms:
    """The bytes of any answer of one kind; content chunks as what comes before and after the stamp."""

    opening: bytes
    cycle: tuple[tuple[bytes, bytes], ...]
    last: tuple[bytes, bytes]
    closing: bytes


class Answer:
    """The bytes of one streamed answer; its content chunks lack only their stamps."""

    def __init__(self, script: Script, body: dict[str, Any], number: int, *, chat: bool) -> None:
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or script.chunks * script.tokens
        self.chunks = max(min(script.chunks, int(limit) // script.tokens), 1)
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        made = forms(script, self.chunks, chat=chat, ids=bool(body.get("return_token_ids")), usage=usage)
        name = b"%016x" % number
        self.opening = made.opening.replace(ID, name)
        self._cycle = [(before.replace(ID, name), after) for before, after in made.cycle]
        self._last = (made.last[0].replace(ID, name), made.last[1])
        self._closing = made.closing.replace(ID, name)

    def chunk(self, number: int, stamp: float) -> bytes:
        """Return the bytes of content chunk `number`, and of all that follows the last one."""
        if number == self.chunks - 1:
            before, after = self._last
            return before + STAMP_FORMAT % stamp + after + self._closing
        before, after = self._cycle[number & 7]
        return before + STAMP_FORMAT % stamp + after
