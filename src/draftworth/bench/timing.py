"""From the events of one stream to its times and counts: pure, fed with times read elsewhere."""

from typing import Any

from draftworth.bench.base import RequestRow
from draftworth.bench.sse import Chunk, Delta


class StreamTimer:
    """Takes the chunks of one stream, each with the time its bytes arrived.

    An *output chunk* is one that carries generated tokens or text: token ids, content, reasoning or a tool call. The
    chunk that only tells the role is none, nor is an empty one.

    Chunks that one network read completed have one time. They were not apart in time as far as anybody can tell, so
    for TPOT all output that came with the first read counts as the first chunk: TPOT = (time of the last output -
    time of the first) / (tokens - tokens that came at the time of the first).
    """

    def __init__(self, started: float) -> None:
        """Start at `started`, seconds of the clock that `add` is called with."""
        self.finish_reason: str | None = None
        self._started = started
        self._first: float | None = None
        self._last: float | None = None
        self._first_ids = 0
        self._first_chunks = 0
        self._chunks = 0
        self._ids: list[int] = []
        self._prompt_ids: list[int] = []
        self._text: list[str] = []
        self._completion_tokens: int | None = None
        self._prompt_tokens: int | None = None
        self._spec_stats: dict[str, Any] | None = None

    def add(self, at: float, chunk: Chunk) -> None:
        """Take one chunk whose last byte arrived at `at` seconds."""
        if chunk.prompt_token_ids:
            self._prompt_ids = chunk.prompt_token_ids
        if chunk.usage is not None:
            self._completion_tokens = chunk.usage.completion_tokens
            self._prompt_tokens = chunk.usage.prompt_tokens
        if chunk.metrics is not None:
            stats = chunk.metrics.get("speculative_decoding")
            self._spec_stats = stats if isinstance(stats, dict) else self._spec_stats
        for choice in chunk.choices or ():
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason
            text, called = _output(choice.delta)
            ids = choice.token_ids or []
            if ids or text or called:
                self._output(at, ids)
            self._ids += ids
            if text:
                self._text.append(text)

    def _output(self, at: float, ids: list[int]) -> None:
        if self._first is None:
            self._first = at
        if at == self._first:
            self._first_ids += len(ids)
            self._first_chunks += 1
        self._last = at
        self._chunks += 1

    def fill(self, row: RequestRow, ended: float) -> None:
        """Write what was measured into a row. `ended` is the time of the stream's last event.

        Tokens come from the server's usage, else from the token ids, else from the number of output chunks, which is
        an approximation. The tokens of the first chunk come from its token ids; without them each chunk of the first
        read is taken for one token, which is exact where the first token comes alone, as it does from a prefill.
        """
        row.e2e_ms = (ended - self._started) * 1000
        row.finish_reason = self.finish_reason
        row.text = "".join(self._text)
        row.token_ids = self._ids
        row.prompt_token_ids = self._prompt_ids
        row.prompt_tokens = self._prompt_tokens
        if row.prompt_tokens is None and self._prompt_ids:
            row.prompt_tokens = len(self._prompt_ids)
        row.chunks = self._chunks
        row.spec_stats = self._spec_stats
        if self._completion_tokens is not None:
            row.tokens, row.token_source = self._completion_tokens, "usage"
        elif self._ids:
            row.tokens, row.token_source = len(self._ids), "token_ids"
        elif self._chunks:
            row.tokens, row.token_source = self._chunks, "chunks"
        if self._first is None or self._last is None:
            return
        row.ttft_ms = (self._first - self._started) * 1000
        row.first_chunk_tokens = self._first_ids or self._first_chunks
        if self._last > self._first and row.tokens is not None:
            row.decode_ms = (self._last - self._first) * 1000
            if row.tokens > row.first_chunk_tokens:
                row.tpot_ms = row.decode_ms / (row.tokens - row.first_chunk_tokens)


def _output(delta: Delta | None) -> tuple[str, bool]:
    """Return the text a delta adds, and whether it adds to a tool call."""
    if delta is None:
        return "", False
    # Where a server sends both names of the reasoning, they carry the same text.
    text = (delta.reasoning or delta.reasoning_content or "") + (delta.content or "")
    return text, any(_says_something(call) for call in delta.tool_calls or ())


def _says_something(call: dict[str, Any]) -> bool:
    function = call.get("function")
    return isinstance(function, dict) and bool(function.get("name") or function.get("arguments"))
