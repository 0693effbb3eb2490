"""From the events of one stream to its times and counts: pure, fed with times read elsewhere."""

from array import array
from collections.abc import Sequence
from typing import Any

from draftworth.bench.base import RequestRow, StatsOf, metrics_of
from draftworth.bench.sse import Choice, Chunk, Delta, Usage


class StreamTimer:
    """Takes the chunks of one stream, each with the time its bytes arrived.

    An *output chunk* is one that carries generated tokens or text: token ids, content, reasoning or a tool call. The
    chunk that only tells the role is none, nor is an empty one.

    Chunks that one network read completed have one time. They were not apart in time as far as anybody can tell, so
    for TPOT all output that came with the first read counts as the first chunk: TPOT = (time of the last output -
    time of the first) / (tokens - tokens that came at the time of the first).
    """

    __slots__ = (
        "_answer",
        "_answer_at",
        "_calls",
        "_chunks",
        "_first",
        "_first_called",
        "_first_chunks",
        "_first_ids",
        "_first_usage",
        "_ids",
        "_last",
        "_mixed",
        "_prompt_ids",
        "_reasoned",
        "_reasoning",
        "_stats_of",
        "_told",
        "_unsaid",
        "_usage",
        "finish_reason",
    )

    def __init__(self, stats_of: StatsOf = metrics_of) -> None:
        self._stats_of = stats_of
        self.finish_reason: str | None = None
        self._first: float | None = None
        self._last = 0.0
        self._answer_at: float | None = None
        self._chunks = 0
        self._first_chunks = 0
        self._first_ids = 0
        self._first_usage: int | None = None
        self._first_called = False
        self._ids: list[int] = []
        self._prompt_ids: list[int] = []
        self._answer: list[str] = []
        self._reasoning: list[str] = []
        self._reasoned = 0
        self._unsaid = 0
        self._mixed = False
        self._calls: set[int | str] = set()
        self._usage: Usage | None = None
        self._told: dict[str, Any] = {}

    def add(self, at: float, chunk: Chunk) -> None:
        """Take one chunk whose last byte arrived at `at` seconds. Times must not decrease."""
        for choice in chunk.choices or ():
            self._choice(at, choice)
        if chunk.prompt_token_ids:
            self._prompt_ids = chunk.prompt_token_ids
        usage = chunk.usage
        if usage is not None:
            self._usage = usage
            if at == self._first:
                self._first_usage = usage.completion_tokens
        if chunk.metrics is not None or chunk.timings is not None or chunk.sglext is not None:
            self._keep("metrics", chunk.metrics)
            self._keep("timings", chunk.timings)
            self._keep("sglext", chunk.sglext)

    def _keep(self, name: str, value: dict[str, Any] | None) -> None:
        """Keep a field of an answer; a later chunk's counts, since servers send what it came to at the end."""
        if value is not None:
            self._told[name] = {**self._told.get(name, {}), **value}

    def add_all(self, times: Sequence[float], chunks: Sequence[Chunk]) -> None:
        """Take several chunks, as `add` takes each."""
        text, ids = self._answer, self._ids
        for at, chunk in zip(times, chunks, strict=True):
            # Nearly all are text in the midst of an answer, and nothing else; here it is read without a call.
            if (
                self._answer_at is not None
                and at != self._first
                and chunk.usage is None
                and chunk.metrics is None
                and chunk.timings is None
                and chunk.sglext is None
                and chunk.prompt_token_ids is None
                and (choices := chunk.choices) is not None
                and len(choices) == 1
                and (delta := (choice := choices[0]).delta) is not None
                and delta.content
                and delta.reasoning is None
                and delta.reasoning_content is None
                and delta.tool_calls is None
                and choice.finish_reason is None
                and choice.prompt_token_ids is None
            ):
                text.append(delta.content)
                if choice.token_ids:
                    ids += choice.token_ids
                self._last = at
                self._chunks += 1
            else:
                self.add(at, chunk)

    def _choice(self, at: float, choice: Choice) -> None:
        delta, ids, answer = choice.delta, choice.token_ids, choice.text
        thought, called = None, False
        if delta is not None:
            answer = delta.content
            # Where a server sends both names of the reasoning, they carry the same text.
            thought = delta.reasoning or delta.reasoning_content
            called = delta.tool_calls is not None and self._called(delta)
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
            if choice.avg_decoded_tokens_per_iter is not None or choice.speculative_decoding is not None:
                self._told["choices"] = [
                    {
                        "avg_decoded_tokens_per_iter": choice.avg_decoded_tokens_per_iter,
                        "speculative_decoding": choice.speculative_decoding,
                        "finish_reason": choice.finish_reason,
                        "stop_reason": choice.stop_reason,
                    }
                ]
        if choice.prompt_token_ids:
            self._prompt_ids = choice.prompt_token_ids
        if answer:
            self._answer.append(answer)
        if thought:
            self._reasoning.append(thought)
        if not (ids or answer or thought or called):
            return
        self._output(at, ids or [], called=called)
        if (answer or called) and self._answer_at is None:
            self._answer_at = at
        if self._answer_at is None or thought:
            self._think(len(ids or ()), thought=bool(thought), answered=bool(answer or called))

    def _output(self, at: float, ids: list[int], *, called: bool) -> None:
        if self._first is None:
            self._first = at
        if at == self._first:
            self._first_ids += len(ids)
            self._first_chunks += 1
            self._first_called |= called
        self._last = at
        self._chunks += 1
        self._ids += ids

    def _called(self, delta: Delta) -> bool:
        """Take the tool calls of a delta; whether they say something."""
        said = False
        for call in delta.tool_calls or ():
            function = call.get("function")
            if isinstance(function, dict) and (function.get("name") or function.get("arguments")):
                said = True
                which = call.get("index", call.get("id"))
                self._calls.add(which if isinstance(which, int | str) else 0)
        return said

    def _think(self, ids: int, *, thought: bool, answered: bool) -> None:
        """Count the tokens of reasoning.

        A chunk of ids alone between two chunks of reasoning held a character back: it is reasoning, too. One before
        the first or behind the last (the marks around it) is not.
        """
        if not thought:
            self._unsaid += ids
            return
        if answered or not ids:
            self._mixed = True
        self._reasoned += ids + (self._unsaid if len(self._reasoning) > 1 else 0)
        self._unsaid = 0

    def fill(self, row: RequestRow, *, started: float, ended: float) -> None:
        """Write what was measured into a row.

        Tokens come from the server's usage, else from the token ids, else from the number of output chunks, which is
        an approximation. The tokens of the first chunk come from its token ids; without them from the usage that came
        with it; without either each chunk of the first read is taken for one token, which is exact where the first
        token comes alone, as it does from a prefill. A tool call may have been held back by the server's parser:
        where a stream begins with one and there are fewer chunks than tokens, they are not known and neither is TPOT.

        Args:
            row: filled in.
            started: when the request was sent, seconds of the clock that `add` is called with.
            ended: the time of the stream's last event.
        """
        row.e2e_ms = max(0.0, ended - started) * 1000
        row.finish_reason = self.finish_reason
        row.text, row.reasoning = "".join(self._answer), "".join(self._reasoning)
        row.tool_calls = len(self._calls)
        row.token_ids = _packed(self._ids)
        row.prompt_token_ids = _packed(self._prompt_ids)
        row.chunks = self._chunks
        usage = {} if self._usage is None else {"usage": {"completion_tokens": self._usage.completion_tokens}}
        stats = self._stats_of({**self._told, **usage}) if self._told else None
        row.spec_stats = None if stats is None else dict(stats)
        self._fill_counts(row)
        if self._first is None:
            return
        row.ttft_ms = (self._first - started) * 1000
        row.ttfa_ms = None if self._answer_at is None else (self._answer_at - started) * 1000
        row.first_chunk_tokens = self._first_tokens(row.tokens)
        if self._last > self._first and row.tokens is not None:
            row.decode_ms = (self._last - self._first) * 1000
            if row.first_chunk_tokens is not None and row.tokens > row.first_chunk_tokens:
                row.tpot_ms = row.decode_ms / (row.tokens - row.first_chunk_tokens)

    def _fill_counts(self, row: RequestRow) -> None:
        usage = self._usage or Usage()
        row.prompt_tokens = usage.prompt_tokens
        if row.prompt_tokens is None and self._prompt_ids:
            row.prompt_tokens = len(self._prompt_ids)
        if usage.prompt_tokens_details is not None:
            row.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if usage.completion_tokens is not None:
            row.tokens, row.token_source = usage.completion_tokens, "usage"
        elif self._ids:
            row.tokens, row.token_source = len(self._ids), "token_ids"
        elif self._chunks:
            row.tokens, row.token_source = self._chunks, "chunks"
        told = None if usage.completion_tokens_details is None else usage.completion_tokens_details.reasoning_tokens
        if told is not None and (told or not self._reasoning):
            row.reasoning_tokens = told
        elif self._reasoned and not self._mixed:
            row.reasoning_tokens = self._reasoned

    def _first_tokens(self, tokens: int | None) -> int | None:
        if self._first_ids:
            return self._first_ids
        if self._first_usage:
            return self._first_usage
        # The end token is counted and comes in no chunk.
        if self._first_called and tokens is not None and tokens > self._chunks + 1:
            return None
        return self._first_chunks


def _packed(ids: Sequence[int]) -> "array[int]":
    """Return token ids as 4 bytes each; none where one is no token id of any vocabulary."""
    try:
        return array("i", ids)
    except OverflowError:
        return array("i")
