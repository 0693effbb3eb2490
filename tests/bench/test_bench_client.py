"""One request against a scripted server: times, tokens and every way it can go wrong."""

import asyncio
import dataclasses
import time
from typing import Any

import pytest
from tests.fakes.openai_server import FakeServer, Script
from tests.fakes.raw import raw_server

from draftworth.bench import client as client_module
from draftworth.bench.base import Access, Prompt, RequestRow, Sampling, Target
from draftworth.bench.client import run_request
from draftworth.bench.http import Client


@pytest.fixture(autouse=True)
def _nobody_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port may be that of an earlier test's server."""
    monkeypatch.setattr(client_module, "_without", {})


PROMPT = Prompt("p-1", "coding", ({"role": "user", "content": "Say something long"},))


async def ask(
    server: FakeServer,
    sampling: Sampling | None = None,
    *,
    times: int = 1,
    timeout_s: float = 5.0,
    model: str = "fake/model-1b",
    prompt: Prompt = PROMPT,
    retries: int = 0,
    access: Access | None = None,
) -> list[RequestRow]:
    target = Target(server.base_url, model, token_timeout=timeout_s, access=access or Access())
    async with Client(server.base_url, target.access) as client:
        return [
            await run_request(
                client, target, prompt, sampling or Sampling(), arm="base", block=3, repeat=i, retries=retries
            )
            for i in range(times)
        ]


def once(
    script: Script,
    sampling: Sampling | None = None,
    *,
    prompt: Prompt = PROMPT,
    retries: int = 0,
    access: Access | None = None,
    **kwargs: Any,
) -> RequestRow:
    async def go() -> RequestRow:
        async with FakeServer(script, **kwargs) as server:
            return (await ask(server, sampling, prompt=prompt, retries=retries, access=access))[0]

    return asyncio.run(go())


def test_a_row_tells_what_was_asked_and_answered() -> None:
    row = once(Script(answers={"Say something long": "the quick brown fox"}, token_ms=0, first_token_ms=0))
    assert (row.arm, row.block, row.prompt_id, row.category, row.repeat) == ("base", 3, "p-1", "coding", 0)
    assert row.ok
    assert row.error is None
    assert row.text == "the quick brown fox"
    assert row.finish_reason == "stop"
    assert (row.tokens, row.token_source) == (5, "usage")  # four words and the end token
    assert len(row.token_ids) == 5
    assert row.prompt_tokens == len(row.prompt_token_ids) == 7  # start, turn, role, three words, answer mark


def test_the_request_is_what_every_arm_gets() -> None:
    async def go() -> dict[str, Any]:
        async with FakeServer(Script(token_ms=0)) as server:
            await ask(server, Sampling(max_tokens=7, temperature=0.0, seed=11))
            assert server.requests[0][0] == "/v1/chat/completions"
            return server.requests[0][1]

    assert asyncio.run(go()) == {
        "model": "fake/model-1b",
        "messages": [{"role": "user", "content": "Say something long"}],
        "max_tokens": 7,
        "temperature": 0.0,
        "seed": 11,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


@pytest.mark.parametrize(("per_chunk", "chunks"), [((1,), 40), ((4,), 11), ((1, 6, 2), 15)])
def test_times_equal_the_scripted_ones(per_chunk: tuple[int, ...], chunks: int) -> None:
    # 40 tokens at 5 ms however they are packed; the first after 60 ms.
    row = once(Script(token_ms=5, first_token_ms=60, tokens_per_chunk=per_chunk), Sampling(max_tokens=40))
    assert row.ok
    assert row.chunks == chunks
    assert row.tokens == 40
    assert row.tpot_ms == pytest.approx(5, rel=0.25)  # by chunks it would be 20 or 14
    assert row.ttft_ms is not None
    assert 59 < row.ttft_ms < 150
    assert row.e2e_ms is not None
    assert 60 + 39 * 5 - 2 < row.e2e_ms < 60 + 39 * 5 + 150


def test_the_role_chunk_is_not_the_first_token() -> None:
    row = once(Script(token_ms=0, first_token_ms=40, role_chunk=False), Sampling(max_tokens=4))
    assert row.ok
    assert row.ttft_ms is not None
    assert row.ttft_ms > 39
    assert row.prompt_token_ids


def test_slow_headers_are_part_of_the_ttft() -> None:
    row = once(Script(slow_headers_ms=50, first_token_ms=0, token_ms=0))
    assert row.ttft_ms is not None
    assert row.ttft_ms > 49


def test_ignore_eos_writes_to_the_limit() -> None:
    script = Script(token_ms=0, tokens=5)
    assert once(script, Sampling(max_tokens=20)).tokens == 5
    longer = once(script, Sampling(max_tokens=20, ignore_eos=True))
    assert (longer.tokens, longer.finish_reason) == (20, "length")


def test_reasoning_and_tool_calls_are_measured() -> None:
    plain = once(Script(token_ms=1), Sampling(max_tokens=20))
    thinking = once(Script(token_ms=1, reasoning_field="reasoning_content"), Sampling(max_tokens=20))
    assert thinking.reasoning + thinking.text == plain.text
    assert len(thinking.reasoning.split()) == thinking.reasoning_tokens == 8
    assert thinking.chunks == 20
    assert thinking.ttfa_ms is not None
    assert thinking.ttft_ms is not None
    assert thinking.ttfa_ms > thinking.ttft_ms + 5  # seven tokens more at 1 ms
    assert plain.ttfa_ms == plain.ttft_ms
    assert plain.reasoning_tokens is None
    calling = once(Script(token_ms=1, tool_calls=True, token_ids=False), Sampling(max_tokens=20))
    assert (calling.chunks, calling.text, calling.tool_calls) == (20, "", 1)
    assert calling.tpot_ms is not None


def test_empty_chunks_do_not_count() -> None:
    row = once(Script(token_ms=1, empty_chunks=True), Sampling(max_tokens=20))
    assert (row.chunks, row.tokens) == (20, 20)


def test_counts_without_usage_or_token_ids() -> None:
    chunked = Script(token_ms=1, tokens_per_chunk=(3,), usage=False)
    row = once(chunked, Sampling(max_tokens=10))
    assert (row.ok, row.tokens, row.token_source) == (True, 10, "token_ids")
    bare = Script(token_ms=1, tokens_per_chunk=(3,), usage=False, token_ids=False)
    row = once(bare, Sampling(max_tokens=10))
    assert (row.ok, row.tokens, row.token_source) == (True, 4, "chunks")
    assert list(row.token_ids) == []


def test_the_servers_own_speculative_figures_are_kept() -> None:
    row = once(
        Script(token_ms=0, tokens_per_chunk=(3, 1)),
        Sampling(max_tokens=9),
        speculative_config={"num_speculative_tokens": 4},
        spec_stats="summary",
    )
    # After the first token: 3 + 1 + 3 + 1 tokens in four steps, so 2 + 0 + 2 + 0 accepted of 16 drafted.
    assert row.spec_stats == {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 0.25,
        "acceptance_histogram": [2, 0, 2, 0, 0],
        "num_spec_steps": 4,
        "num_accepted_draft_tokens": 4,
        "num_draft_tokens": 16,
        "num_spec_tokens": 4,
    }


def test_a_server_without_token_ids_is_asked_once_and_then_spared() -> None:
    async def go() -> tuple[list[RequestRow], list[bool]]:
        async with FakeServer(Script(token_ms=1, reject_token_ids=True)) as server:
            rows = await ask(server, Sampling(max_tokens=6), times=2)
            return rows, ["return_token_ids" in body for _, body in server.requests]

    rows, asked = asyncio.run(go())
    assert asked == [True, False, False]
    assert [(r.ok, r.tokens, r.token_source, list(r.token_ids)) for r in rows] == [(True, 6, "usage", [])] * 2


@pytest.mark.parametrize(("spared_s", "asked"), [(600.0, [True, False, False]), (0.0, [True, False, True, False])])
def test_the_next_client_spares_it_too_for_a_while(
    spared_s: float, asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> list[bool]:
        async with FakeServer(Script(token_ms=0, reject_token_ids=True)) as server:
            await ask(server)
            await ask(server)
            return ["return_token_ids" in body for _, body in server.requests]

    monkeypatch.setattr(client_module, "_SPARED_S", spared_s)
    assert asyncio.run(go()) == asked


def test_a_server_is_not_spared_for_what_another_refused() -> None:
    async def go() -> list[list[int]]:
        async with FakeServer(Script(token_ms=0, reject_token_ids=True)) as one, FakeServer(Script(token_ms=0)) as two:
            return [list((await ask(server))[0].token_ids) for server in (one, two)]

    one, two = asyncio.run(go())
    assert one == []
    assert two


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (
            Script(error_every=1),
            "HTTP 500: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        ),
        (Script(reset_every=1), "the server closed the connection before the answer was complete"),
        (Script(truncate_every=1), "the stream ended before the answer did (no finish_reason, no [DONE])"),
        (Script(error_event_every=1), "the server failed in the stream: EngineCore died"),
    ],
)
def test_a_failed_request_is_a_row_with_one_line(script: Script, error: str) -> None:
    row = once(script)
    assert (row.ok, row.error) == (False, error)


def test_a_malformed_event_is_shown() -> None:
    row = once(Script(malformed_every=1, token_ms=0))
    assert not row.ok
    assert row.error is not None
    assert row.error.startswith("malformed event (JSON is malformed")
    assert row.error.endswith(": {not json")


def test_what_came_before_the_failure_is_kept() -> None:
    row = once(Script(truncate_every=1, token_ms=1), Sampling(max_tokens=20))
    assert not row.ok
    assert len(row.token_ids) == 10
    assert row.ttft_ms is not None


def test_a_stalled_stream_ends_at_its_deadline() -> None:
    async def go() -> tuple[RequestRow, float]:
        loop = asyncio.get_running_loop()
        async with FakeServer(Script(hang_at_request=1)) as server:
            begin = loop.time()
            (row,) = await ask(server, timeout_s=0.2)
            return row, loop.time() - begin

    row, took = asyncio.run(go())
    assert (row.ok, row.error) == (False, "no event for 0.2 s")
    assert took < 1


def test_the_deadline_is_for_each_event_not_for_the_whole() -> None:
    async def go() -> RequestRow:
        async with FakeServer(Script(token_ms=20, first_token_ms=1)) as server:
            return (await ask(server, Sampling(max_tokens=20), timeout_s=0.2))[0]

    row = asyncio.run(go())  # 380 ms in all
    assert row.ok
    assert row.e2e_ms is not None
    assert row.e2e_ms > 300


def test_nobody_listening() -> None:
    async def go() -> RequestRow:
        async with FakeServer() as server:
            base_url = server.base_url
        async with Client(base_url) as client:
            return await run_request(client, Target(base_url, "m"), PROMPT, Sampling(), arm="a", block=0, repeat=0)

    row = asyncio.run(go())
    assert not row.ok
    assert row.error is not None
    assert row.error.startswith("connection refused by 127.0.0.1:")


def test_a_wrong_model_is_answered_with_the_right_ones() -> None:
    async def go() -> RequestRow:
        async with FakeServer(names=("alpha", "beta")) as server:
            return (await ask(server, model="gamma"))[0]

    row = asyncio.run(go())
    assert row.error == (
        "HTTP 404: The model `gamma` does not exist. Valid aliases: alpha, beta. (it serves: alpha, beta)"
    )


def test_a_prompt_too_long_says_so() -> None:
    row = once(Script(), Sampling(max_tokens=64), max_model_len=32)
    assert row.error is not None
    assert row.error.startswith("HTTP 400: This model's maximum context length is 32 tokens")


async def raw(reply: bytes) -> RequestRow:
    """Ask a server that sends exactly these bytes and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        await writer.drain()

    async with raw_server(handle) as base_url, Client(base_url) as client:
        target = Target(base_url, "m", token_timeout=2.0)
        return await run_request(client, target, PROMPT, Sampling(), arm="a", block=0, repeat=0, retries=0)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def test_done_is_enough_to_end_a_stream_and_so_is_a_finish_reason() -> None:
    done = HEAD + b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
    assert asyncio.run(raw(done)).ok
    finished = HEAD + b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    row = asyncio.run(raw(finished))
    assert (row.ok, row.text, row.tokens, row.token_source) == (True, "a", 1, "chunks")


def test_an_answer_without_a_token_is_a_failure() -> None:
    row = asyncio.run(raw(HEAD + b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'))
    assert (row.ok, row.error) == (False, "the answer carried no tokens")


def test_comments_do_not_keep_a_dead_stream_alive() -> None:
    async def pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        while True:
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def go() -> RequestRow:
        async with raw_server(pings) as base_url, Client(base_url) as client:
            target = Target(base_url, "m", token_timeout=0.2)
            return await run_request(client, target, PROMPT, Sampling(), arm="a", block=0, repeat=0)

    assert asyncio.run(go()).error == "no event for 0.2 s"


def test_a_server_that_does_not_stream_is_named() -> None:
    body = b'{"choices":[{"message":{"content":"a"}}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    row = asyncio.run(raw(head + body))
    assert row.error is not None
    assert row.error.startswith("the server did not stream its answer")


def test_an_error_page_is_cut_to_one_short_line() -> None:
    page = b"<html>\n" + b"nginx says no " * 100 + b"</html>"
    head = b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)
    row = asyncio.run(raw(head + page))
    assert row.error is not None
    assert row.error.startswith("HTTP 502: an HTML page: nginx says no")
    assert len(row.error) == len("HTTP 502: ") + 200
    assert "\n" not in row.error


def test_what_the_server_said_before_it_broke_off_is_kept() -> None:
    head = HEAD.replace(b"connection: close", b"transfer-encoding: chunked")
    event = b'data: {"error":{"message":"EngineCore died"}}\n\n'
    row = asyncio.run(raw(head + b"%x\r\n%s\r\n" % (len(event), event)))  # and no last chunk
    assert row.error == "the server failed in the stream: EngineCore died"


GOOD = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null,"token_ids":[1]}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("events", "text", "error"),
    [
        ((GOOD, GOOD, b"data: {not\n\n", GOOD, DONE), "aa", "malformed event (JSON is malformed"),
        ((GOOD, b'data: {"error":{"message":"died"}}\n\n', GOOD, DONE), "a", "the server failed in the stream: died"),
        ((GOOD, GOOD, GOOD, DONE, b"data: {not\n\n", GOOD), "aaa", ""),
    ],
)
def test_one_wrong_event_among_many_ends_the_answer_there(
    events: tuple[bytes, ...], text: str, error: str, *, whole: bool
) -> None:
    pieces = events if whole else (b"".join(events)[:70], b"".join(events)[70:])
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    row = asyncio.run(raw(HEAD.replace(b"connection: close", b"transfer-encoding: chunked") + body))
    assert (row.text, row.ok) == (text, not error)
    assert (row.error or "").startswith(error)
    assert list(row.token_ids) == [1] * len(text)


def test_an_old_style_error_event_is_understood() -> None:
    row = asyncio.run(raw(HEAD + b'data: {"object":"error","message":"out of memory","code":500}\n\n'))
    assert row.error == "the server failed in the stream: out of memory"


def test_what_is_no_http_is_a_row_too() -> None:
    row = asyncio.run(raw(b"SSH-2.0-OpenSSH_9.6\r\n"))
    assert not row.ok
    assert row.error
    assert "\n" not in row.error


def test_recorded_token_ids_are_sent_as_they_are() -> None:
    async def go() -> tuple[RequestRow, tuple[str, dict[str, Any]]]:
        async with FakeServer(Script(token_ms=1, tokens_per_chunk=(3,))) as server:
            prompt = Prompt("p", "c", token_ids=(1, 1000, 1001), max_tokens=7)
            (row,) = await ask(server, Sampling(max_tokens=50), prompt=prompt)
            return row, server.requests[0]

    row, (path, body) = asyncio.run(go())
    assert path == "/v1/completions"
    assert body["prompt"] == [1, 1000, 1001]
    assert body["max_tokens"] == 7
    assert "messages" not in body
    assert (row.ok, row.tokens, row.chunks) == (True, 7, 3)  # 1 + 3 + 3
    assert list(row.prompt_token_ids) == [1, 1000, 1001]
    assert len(row.text.split()) == 7
    assert row.tpot_ms is not None


def test_what_usage_tells_is_kept() -> None:
    row = once(
        Script(token_ms=0, reasoning_field="reasoning", token_ids=False, usage_details=True), Sampling(max_tokens=20)
    )
    assert (row.reasoning_tokens, row.prompt_tokens, row.cached_tokens) == (8, 7, 6)


def test_a_buffered_tool_call_has_no_tpot_rather_than_a_wrong_one() -> None:
    # 3 tokens, then 17 in one chunk. Without ids nobody can tell how many came first: 3 or 1.
    script = Script(token_ms=1, tool_calls=True, buffered=True, first_chunk_tokens=3, token_ids=False)
    row = once(script, Sampling(max_tokens=20))
    assert (row.ok, row.tokens, row.chunks) == (True, 20, 2)
    assert row.first_chunk_tokens is None
    assert row.tpot_ms is None
    told = once(dataclasses.replace(script, continuous_usage=True), Sampling(max_tokens=20))
    assert told.first_chunk_tokens == 3
    assert told.tpot_ms == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize("retry_after", ["0", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_busy_server_is_asked_again(retry_after: str) -> None:
    row = once(Script(token_ms=0, busy=(429, 503), retry_after=retry_after), retries=2)
    assert (row.ok, row.retries, row.retry_reasons) == (True, 2, "HTTP 429, HTTP 503")
    assert not row.timed
    assert row.ttft_ms is not None
    assert row.ttft_ms < 400  # of the attempt that was answered


def test_without_a_header_the_wait_is_half_a_second_and_doubles() -> None:
    began = time.perf_counter()
    row = once(Script(token_ms=0, busy=(502, 504)), retries=2)
    assert row.ok
    assert 1.5 <= time.perf_counter() - began < 3
    assert [client_module._wait(header, 2) for header in ("7", "3600", "-1", "nan", "soon")] == [7, 10, 0, 0.5, 2]


def test_a_server_that_stays_busy_is_one_failed_row() -> None:
    row = once(Script(busy=(429,) * 9, retry_after="0"), retries=2)
    assert (row.ok, row.retries) == (False, 2)
    assert row.error == "HTTP 429: try again later (sent 3 times)"
    assert once(Script(busy=(429,))).error == "HTTP 429: try again later"


def test_no_other_status_is_asked_again() -> None:
    row = once(Script(busy=(418,)), retries=2)
    assert (row.ok, row.retries, row.error) == (False, 0, "HTTP 418: try again later")


def test_a_key_is_sent_and_its_lack_is_explained() -> None:
    script = Script(token_ms=0, api_key="s3cret")
    assert once(script, access=Access(headers={"Authorization": "Bearer s3cret"})).ok
    lacking, wrong = once(script), once(script, access=Access(headers={"authorization": "Bearer guess"}))
    assert lacking.error == (
        "HTTP 401: Unauthorized; it asks for a key: set service.api_key_env (or --api-key-env) to the variable that "
        "holds it"
    )
    assert wrong.error is not None
    assert wrong.error.startswith("HTTP 401: Unauthorized; it does not accept the key")


def test_several_answers_in_one_stream_are_refused() -> None:
    row = asyncio.run(raw(HEAD + b'data: {"choices":[{"index":1,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'))
    assert (row.ok, row.error) == (
        False,
        "n > 1: the answer has several choices; their tokens share one stream and cannot be timed",
    )


@pytest.mark.parametrize("inside", [b"\xff", b"\xe6\xbc"])
def test_what_is_no_utf8_is_one_line(inside: bytes) -> None:
    row = asyncio.run(raw(HEAD + b'data: {"choices":[{"delta":{"content":"' + inside + b'"}}]}\n\n'))
    assert row.error is not None
    assert row.error.startswith("malformed event (")
    assert "\n" not in row.error


def test_characters_may_be_cut_anywhere() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for byte in 'data: {"choices":[{"delta":{"content":"漢🙂"},"finish_reason":"stop"}]}\n\n'.encode():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async def go() -> RequestRow:
        async with raw_server(drip) as base_url, Client(base_url) as client:
            return await run_request(client, Target(base_url, "m"), PROMPT, Sampling(), arm="a", block=0, repeat=0)

    assert asyncio.run(go()).text == "漢🙂"


def test_a_compressed_stream_is_refused() -> None:
    head = HEAD.replace(b"connection", b"content-encoding: gzip\r\nconnection")
    row = asyncio.run(raw(head + b"\x1f\x8b"))
    assert row.error == "the stream is compressed, although the request asked for it as it is"


def test_a_redirect_is_not_followed_but_named() -> None:
    head = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: https://elsewhere/v1\r\ncontent-length: 0\r\n\r\n"
    row = asyncio.run(raw(head))
    assert row.error == (
        "HTTP 307: it redirects to https://elsewhere/v1, which is not followed; use that address instead"
    )


def test_an_answer_that_is_not_ended_by_the_server_is_ended_by_its_done() -> None:
    async def keeps_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n')
        await writer.drain()
        await reader.read(100_000)
        await reader.read()

    async def go() -> tuple[RequestRow, float]:
        async with raw_server(keeps_open) as base_url, Client(base_url) as client:
            began = time.perf_counter()
            row = await run_request(client, Target(base_url, "m"), PROMPT, Sampling(), arm="a", block=0, repeat=0)
            return row, time.perf_counter() - began

    row, took = asyncio.run(go())
    assert (row.ok, row.text) == (True, "a")
    assert took < 1
    assert row.e2e_ms is not None
    assert row.e2e_ms < 100  # to [DONE], not to when the client gave up waiting
