"""Finding requests and answers in bytes, and rows in answers, whatever the pieces."""

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.traces.proxy import following
from draftworth.traces.proxy.answers import (
    CUT_OFF,
    NO_IDS,
    NO_PROMPT_IDS,
    NO_TOKENS,
    NOT_ALL,
    Answer,
    Recorded,
    UnusableError,
)
from draftworth.traces.proxy.following import Exchange, Following, Held

STREAM = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
ASKED = b'{"model": "m", "temperature": 0.5, "messages": []}'


def events(*chunks: dict[str, Any], done: bool = True) -> bytes:
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return text.encode() + (b"data: [DONE]\n\n" if done else b"")


def part(ids: list[int], index: int = 0, *, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "model": "served",
        "choices": [{"index": index, "delta": delta or {"content": "x"}, "finish_reason": finish, "token_ids": ids}],
    }


def rows(body: bytes, headers: dict[str, str], *, asked: bytes = ASKED, whole: bool = True) -> list[Recorded]:
    answer = Answer(200, headers)
    answer.body(body)
    return answer.rows(asked, whole=whole)


def reason(body: bytes, headers: dict[str, str], **options: Any) -> str:
    with pytest.raises(UnusableError) as caught:
        rows(body, headers, **options)
    return str(caught.value)


def test_a_streamed_chat_with_reasoning_and_usage() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 5}
    body = events(
        {**part([], role="assistant", content=""), "prompt_token_ids": [7, 8]},
        part([1, 2], reasoning="a"),
        part([3], reasoning="b"),
        part([4, 5], content="c", finish="stop"),
        {"model": "served", "choices": [], "usage": usage},
    )
    (row,) = rows(body, STREAM)
    assert (list(row.prompt), list(row.output)) == ([7, 8], [1, 2, 3, 4, 5])
    assert (row.thinking, row.temperature, row.model) == (3, 0.5, "served")
    assert row.exact
    assert not row.cut


def test_several_choices_and_several_prompts_each_make_a_row() -> None:
    body = events(
        {**part([1], 0), "prompt_token_ids": [7]},
        {**part([2], 1), "prompt_token_ids": [7]},
        part([3], 1, finish="stop"),
        part([4], 0, finish="stop"),
    )
    found = rows(body, STREAM)
    assert [(one.choice, list(one.output)) for one in found] == [(0, [1, 4]), (1, [2, 3])]
    plain = {
        "model": "served",
        "choices": [
            {
                "index": at,
                "text": "x",
                "token_ids": [at, at],
                "prompt_token_ids": [50 + at // 2],
                "finish_reason": "stop",
            }
            for at in range(4)
        ],
        "usage": {"completion_tokens": 8},
    }
    found = rows(json.dumps(plain).encode(), JSON, asked=b'{"prompt": ["a", "b"], "n": 2}')
    assert [(list(one.prompt), list(one.output)) for one in found] == [
        ([50], [0, 0]), ([50], [1, 1]), ([51], [2, 2]), ([51], [3, 3]),
    ]  # fmt: skip


def test_prompts_sent_as_ids_need_not_be_told() -> None:
    choices = [{"index": at, "text": "x", "token_ids": [at], "finish_reason": "stop"} for at in range(4)]
    body = json.dumps({"choices": choices}).encode()
    found = rows(body, JSON, asked=b'{"prompt": [[1, 2], [3]], "n": 2}')
    assert [list(one.prompt) for one in found] == [[1, 2], [1, 2], [3], [3]]
    one = json.dumps({"choices": choices[:1]}).encode()
    assert [list(row.prompt) for row in rows(one, JSON, asked=b'{"prompt": [5, 6]}')] == [[5, 6]]
    assert reason(one, JSON, asked=b'{"prompt": [5, 6], "truncate_prompt_tokens": 1}') == NO_PROMPT_IDS
    assert reason(one, JSON, asked=b'{"prompt": "text"}') == NO_PROMPT_IDS


def test_sglang_tells_a_chats_ids_at_its_end() -> None:
    said = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    ids = {"choices": [], "sglext": {"input_ids": [7, 8], "output_ids": [[1, 2, 3]]}}
    usage = {"choices": [], "usage": {"completion_tokens": 3}}
    (row,) = rows(events(said, ended, ids, usage), STREAM)
    assert (list(row.prompt), list(row.output), row.exact) == ([7, 8], [1, 2, 3], True)
    whole = {"choices": [{"index": 0, "message": {"content": "x"}, "response_token_ids": [1], "prompt_token_ids": [9]}]}
    (row,) = rows(json.dumps(whole).encode(), JSON)
    assert (list(row.prompt), list(row.output)) == ([9], [1])


def test_a_stream_that_was_cut_keeps_what_came() -> None:
    (row,) = rows(events({**part([1, 2]), "prompt_token_ids": [7]}, done=False), STREAM, whole=False)
    assert (list(row.output), row.cut) == ([1, 2], True)
    assert reason(b"", STREAM, whole=False) == CUT_OFF
    assert reason(b'{"choices": [', JSON, whole=False) == CUT_OFF


def test_what_cannot_be_recorded_says_why() -> None:
    text = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}
    assert reason(events(text), STREAM) == NO_IDS
    assert reason(events(part([1], finish="stop")), STREAM) == NO_PROMPT_IDS
    assert reason(events(), STREAM) == NO_TOKENS
    hidden = [{**part([1], finish="stop"), "prompt_token_ids": [7]}, {"choices": [], "usage": {"completion_tokens": 9}}]
    assert reason(events(*hidden), STREAM) == NOT_ALL
    assert reason(events({"error": {"message": "died"}}), STREAM) == "the server failed in the stream"
    assert "read" in reason(b"data: {not json\n\n", STREAM)
    assert "read" in reason(b"not json", JSON)
    assert "request" in reason(events(part([1])), STREAM, asked=b"[1]")
    assert "compressed" in reason(b"", {**JSON, "content-encoding": "br"})
    refused = Answer(429, JSON)
    refused.body(b"{}")
    with pytest.raises(UnusableError, match="HTTP 429"):
        refused.rows(ASKED, whole=True)


def test_a_gzipped_answer_is_read() -> None:
    body = gzip.compress(events({**part([1], finish="stop"), "prompt_token_ids": [7]}))
    (row,) = rows(body, {**STREAM, "content-encoding": "gzip"})
    assert list(row.output) == [1]


# Connections.


class Seen:
    def __init__(self, number: int = 1) -> None:
        self.ended: list[tuple[int, str | None, list[Recorded]]] = []
        self.held = Held()
        self.one = Following(number, lambda _c, _n: True, self._end, self.held)

    def _end(self, exchange: Exchange) -> None:
        found: list[Recorded] = []
        why = exchange.why_not
        if why is None and exchange.answer is not None:
            found = exchange.answer.rows(b"".join(exchange.request), whole=exchange.whole)
        self.ended.append((exchange.number, why, found))

    @property
    def outputs(self) -> list[list[int]]:
        return [list(row.output) for _, _, found in self.ended for row in found]


def asking(path: str = "/v1/chat/completions") -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(ASKED), ASKED)


def answering(ids: list[int], kind: str) -> bytes:
    body = events({**part(ids, finish="stop"), "prompt_token_ids": [7]})
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    if kind == "length":
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (body[:half], body[half:]))
    return b"%sTransfer-Encoding: chunked\r\n\r\n%s0\r\nX-Sum: 1\r\n\r\n" % (head, chunks)


HEAD = (b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
PAGE = (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
EMPTY = (b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n")
ids_lists = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([HEAD, PAGE, EMPTY])
        | st.tuples(ids_lists, st.sampled_from(["length", "chunked"]), st.booleans()),
        max_size=6,
    ),
    st.lists(st.integers(1, 200), max_size=60),
)
def test_a_kept_connection_in_any_pieces(exchanges: list[Any], sizes: list[int]) -> None:
    seen = Seen()
    wanted = []
    at = iter(sizes)
    for one in exchanges:
        if isinstance(one[0], bytes):
            sent, got = one
        else:
            ids, kind, interim = one
            wanted.append(ids)
            sent, got = asking(), (b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b"") + answering(ids, kind)
        for data, take in ((sent, seen.one.request), (got, seen.one.answer)):
            rest = data
            while rest:
                size = next(at, 1000)
                take(rest[:size])
                rest = rest[size:]
    assert seen.one.idle
    seen.one.server_end()
    assert seen.outputs == wanted
    assert seen.held.size == 0


def test_pipelined_requests_and_a_body_that_ends_with_the_connection() -> None:
    seen = Seen()
    seen.one.request(asking() + PAGE[0] + asking())
    seen.one.answer(answering([1], "chunked") + PAGE[1])
    assert not seen.one.idle
    body = events({**part([2], finish="stop"), "prompt_token_ids": [7]})
    seen.one.answer(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body)
    seen.one.server_end()
    assert seen.outputs == [[1], [2]]


def test_a_connection_that_is_not_http_is_counted_once_and_left() -> None:
    for data in (b"\x16\x03\x01\x02\x00nonsense", b"SSH-2.0-x\r\n"):
        seen = Seen()
        seen.one.request(asking())
        seen.one.answer(data)
        seen.one.answer(answering([1], "length"))
        assert [why for _, why, _ in seen.ended] == [following.NOT_FOLLOWED]
        assert not seen.one.idle


def test_a_websocket_is_not_read() -> None:
    seen = Seen()
    seen.one.request(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    seen.one.answer(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01a")
    seen.one.request(b"\x81\x81aaaa")
    assert seen.ended == []
    assert not seen.one.idle


def test_an_offer_to_upgrade_that_is_not_taken_up_changes_nothing() -> None:
    seen = Seen()
    offer = asking().replace(b"Host: x", b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c")
    seen.one.request(offer)
    seen.one.answer(answering([1], "length"))
    assert seen.outputs == [[1]]


def test_after_a_loss_the_next_request_is_recorded() -> None:
    seen = Seen()
    seen.one.request(asking())
    seen.one.lose()
    assert [why for _, why, _ in seen.ended] == [following.MISSED]
    seen.one.answer(b"the rest of a stream\r\n")
    seen.one.again(5)
    seen.one.request(asking())
    seen.one.answer(b"more of the old stream")
    seen.one.answer(answering([3], "length"))
    assert seen.outputs == [[3]]
    assert seen.ended[-1][0] == 5


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LARGEST_BODY", 40)
    seen = Seen()
    seen.one.request(asking())
    seen.one.answer(answering([1], "length"))
    assert [why for _, why, _ in seen.ended] == [following.TOO_LARGE]
    assert seen.held.size == 0


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=8))
def test_no_bytes_break_it(pieces: Sequence[bytes]) -> None:
    seen = Seen()
    for at, piece in enumerate(pieces):
        (seen.one.request if at % 2 else seen.one.answer)(piece)
    seen.one.server_end()
