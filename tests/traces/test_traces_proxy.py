"""A proxy with its real recorder in front of servers: what clients see, and what is recorded."""

import asyncio
import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.openai_server import FakeServer, Script
from tests.fakes.raw import raw_server
from tests.traces.traces_proxy_kit import bare, connect, port_of, post, proxying, rows_of, said, settle, until

from draftworth.bench.address import address_of
from draftworth.bench.base import Access
from draftworth.errors import MeasureError, UsageError
from draftworth.traces.proxy.base import Asked, ProxyPlan
from draftworth.traces.proxy.probing import ask_how, ask_how_sync
from draftworth.traces.proxy.run import Proxy

CHAT = "/v1/chat/completions"
MiB = 2**20


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def chat(text: str = "hello", **more: Any) -> bytes:
    body = {
        "model": "fake/model-1b",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 12,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    return json.dumps(body).encode()


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def ids_in(answer: bytes) -> tuple[list[int], list[int]]:
    """Read prompt and output ids out of what a client got, in the simplest way."""
    prompt: list[int] = []
    output: list[int] = []
    for line in answer.split(b"\r\n"):
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            prompt = event.get("prompt_token_ids") or prompt
            for choice in event["choices"]:
                output += choice.get("token_ids") or []
    return prompt, output


# Bytes, whatever they are.


class Scripted:
    """A server that takes so many bytes as the first 8 say, answers with the pieces of `answer`, and closes."""

    def __init__(self) -> None:
        self.got = b""
        self.answer: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(8), "little")
        self.got = await reader.readexactly(size)
        for piece in self.answer:
            writer.write(piece)
            await asyncio.sleep(0)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scripted, str]]:
    """One server and one proxy for many examples, in a thread with its own loop."""
    server = Scripted()
    out = tmp_path_factory.mktemp("bytes") / "t.parquet"
    loop = uvloop.new_event_loop()
    ready, over, url = threading.Event(), asyncio.Event(), []

    async def work() -> None:
        async with raw_server(server.handle) as base, proxying(base, out) as proxy:
            url.append(proxy.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    assert ready.wait(10)
    yield server, url[0]
    loop.call_soon_threadsafe(over.set)
    thread.join(20)
    loop.close()


@settings(max_examples=60, deadline=None)
@given(
    sent=st.lists(st.binary(min_size=1, max_size=300), max_size=6),
    answer=st.lists(st.binary(min_size=1, max_size=300) | st.sampled_from([b"HTTP/1.1 200 OK\r\n\r\n"]), max_size=12),
)
def test_bytes_go_both_ways_unchanged(scripted: tuple[Scripted, str], sent: list[bytes], answer: list[bytes]) -> None:
    server, url = scripted
    server.answer = answer
    with socket.create_connection(("127.0.0.1", port_of(url)), timeout=10) as client:
        whole = b"".join(sent)
        client.sendall(len(whole).to_bytes(8, "little"))
        for piece in sent:
            client.sendall(piece)
        got = b""
        while data := client.recv(65536):
            got += data
    assert got == b"".join(answer)
    assert server.got == whole


def test_each_chunk_arrives_on_its_own(tmp_path: Path) -> None:
    """A piece is passed on before the next one is there: the server waits for the client's word in between."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(50):
            writer.write(b"%d\n" % number)
            assert await reader.readline() == b"%d\n" % number

    async def work() -> None:
        async with raw_server(handle) as base, proxying(base, tmp_path / "t.parquet") as proxy:
            reader, writer = await connect(proxy.url)
            for number in range(50):
                line = await asyncio.wait_for(reader.readline(), 5)
                assert line == b"%d\n" % number
                writer.write(line)
            assert await reader.read() == b""
            writer.close()

    run(work())


def test_a_large_upload_a_head_and_a_websocket_pass(tmp_path: Path) -> None:
    body = os.urandom(8 * MiB)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HEAD"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
        elif b"Upgrade: websocket" in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            writer.write(await reader.readexactly(4))
        else:
            assert b"Expect: 100-continue" in head
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            got = await reader.readexactly(len(body))
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Same\r\n\r\n2\r\nok\r\n0\r\n")
            writer.write(b"X-Same: %s\r\n\r\n" % str(got == body).encode())

    async def work() -> None:
        async with raw_server(handle) as base, proxying(base, tmp_path / "t.parquet") as proxy:
            assert (await said(proxy.url, b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"99\r\n\r\n")
            upgrade = (
                b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x00\x01\x02\x03"
            )
            assert (await said(proxy.url, upgrade)).endswith(b"\r\n\r\n\x00\x01\x02\x03")
            reader, writer = await connect(proxy.url)
            head, _, _ = post(CHAT, b"", "Expect: 100-continue").partition(b"\r\n\r\n")
            writer.write(head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body)) + b"\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert (await reader.read()).endswith(b"0\r\nX-Same: True\r\n\r\n")
            writer.close()

    run(work())


# Ends.


def test_a_server_that_dies_looks_as_it_does_without_a_proxy(tmp_path: Path) -> None:
    """A reset is a reset, an end an end, and what came before is the same."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:")
        await writer.drain()
        await asyncio.sleep(0.05)
        if b"reset" in head:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def seen(url: str, path: str) -> tuple[bytes, str]:
        reader, writer = await connect(url)
        writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        data, end = b"", "end"
        try:
            while piece := await asyncio.wait_for(reader.read(1000), 5):
                data += piece
        except ConnectionResetError:
            end = "reset"
        writer.close()
        return data, end

    async def work() -> None:
        async with raw_server(handle) as base, proxying(base, tmp_path / "t.parquet") as proxy:
            for path in ("/reset", "/end"):
                direct, via = await seen(base, path), await seen(proxy.url, path)
                assert via == direct
                assert direct[1] == path[1:]
                assert direct[0].endswith(b"data:")

    run(work())


@pytest.mark.parametrize("reset", [True, False])
def test_a_client_that_leaves_ends_the_request_at_once(tmp_path: Path, reset: bool) -> None:  # noqa: FBT001
    async def work() -> None:
        async with (
            FakeServer(Script(token_ms=20, tokens=4000)) as server,
            proxying(server.base_url, tmp_path / "t.parquet") as proxy,
        ):
            reader, writer = await connect(proxy.url)
            writer.write(post(CHAT, chat(max_tokens=1000, return_token_ids=True)))
            await reader.readuntil(b"token_ids")
            while b'"token_ids": [' not in await reader.readline():
                pass
            if reset:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
            await until(lambda: server.metrics.engines[0].success["abort"], 1)
            await settle(proxy, 1)
        (row,) = rows_of(tmp_path / "t.parquet")
        assert proxy.recording.cut == 1
        assert 1 <= len(row["output_token_ids"]) < 100

    run(work())


def test_a_slow_client_holds_the_server_back(tmp_path: Path) -> None:
    """What waits between the two is bounded: the server cannot write on while nobody reads."""
    total, piece = 48 * MiB, os.urandom(MiB)
    written = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readline()
        for _ in range(total // MiB):
            writer.write(piece)
            await writer.drain()
            written += MiB

    async def work() -> None:
        async with raw_server(handle) as base, proxying(base, tmp_path / "t.parquet") as proxy:
            client = socket.create_connection(("127.0.0.1", port_of(proxy.url)))
            client.setblocking(False)  # noqa: FBT003 - its only form
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"go\n")
            before = -1
            while written != before:
                before = written
                await asyncio.sleep(0.3)
            assert written < total / 2
            got = 0
            while data := await loop.sock_recv(client, MiB):
                got += len(data)
            assert got == total
            client.close()

    run(work())


def test_a_server_that_is_not_there_is_a_502_that_says_so(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{probe.getsockname()[1]}"

    async def work() -> None:
        async with proxying(base, tmp_path / "t.parquet") as proxy:
            answer = await said(proxy.url, post(CHAT, b"x" * 3 * MiB))
            assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert "draftworth trace proxy: " in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]

    run(work())


# What is recorded.


def test_64_streams_at_once_are_recorded_as_the_clients_saw_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            FakeServer(Script(token_ms=2, first_token_ms=5, tokens=60, role_chunk=True)) as server,
            proxying(server.base_url, tmp_path / "t.parquet") as proxy,
        ):
            requests = [post(CHAT, chat(f"number {n}", max_tokens=40, return_token_ids=True)) for n in range(64)]
            answers = await asyncio.gather(*(said(proxy.url, one) for one in requests))
            await settle(proxy, 64)
        wanted = sorted(ids_in(answer) for answer in answers)
        found = sorted((row["prompt_token_ids"], row["output_token_ids"]) for row in rows_of(tmp_path / "t.parquet"))
        assert found == wanted
        assert all(len(output) == 40 for _, output in wanted)
        assert (proxy.recording.rows, proxy.recording.cut, proxy.recording.left_out) == (64, 0, {})

    run(work())


def test_without_being_asked_nothing_is_put_in_and_rows_without_ids_are_counted(tmp_path: Path) -> None:
    async def work() -> None:
        async with FakeServer() as server:
            async with proxying(server.base_url, tmp_path / "t.parquet") as proxy:
                body = chat()
                await said(proxy.url, post(CHAT, body))
                await said(proxy.url, post(CHAT, chat(model="other")))
                await settle(proxy, 2)
            assert server.requests[0][1] == json.loads(body)
        assert proxy.recording.left_out == {"the answer has no token ids": 1, "answered with HTTP 404": 1}

    run(work())
    assert list(tmp_path.iterdir()) == [], "a recording of no rows leaves no file"


def test_asked_for_ids_the_sample_and_nothing_else_is_asked(tmp_path: Path) -> None:
    async def work() -> None:
        async with FakeServer(Script(tokens=5)) as server:
            asked = await ask_how(server.base_url, Access())
            assert asked == Asked(b',"return_token_ids":true', b',"return_token_ids":true')
            probes = len(server.requests)
            async with proxying(server.base_url, tmp_path / "t.parquet", asked=asked, sample=0.5, seed=3) as proxy:
                for number in range(40):
                    await said(proxy.url, post(CHAT, chat(f"number {number}")))
                await settle(proxy, 40)
            sent = [body for _, body in server.requests[probes:]]
        told = proxy.recording
        assert told.seen == 40
        assert told.recorded + told.sampled_out == 40
        assert told.recorded == sum(body.get("return_token_ids", False) for body in sent)
        assert 8 <= told.recorded <= 32
        assert told.left_out == {}

    run(work())


def test_a_server_without_ids_is_refused_where_it_is_to_be_asked() -> None:
    async def work() -> None:
        async with FakeServer(Script(token_ids=False)) as server:
            with pytest.raises(UsageError, match=r"tells no token ids .*leave --ask-ids out"):
                await ask_how(server.base_url, Access())

    run(work())


def test_a_server_that_fails_when_it_is_to_be_asked_is_said_to_fail() -> None:
    with bare(500) as url, pytest.raises(MeasureError, match=r"it fails: \S+: HTTP 500: out of memory$"):
        ask_how_sync(url, Access())
    with bare(400) as url, pytest.raises(UsageError, match="tells no token ids"):
        ask_how_sync(url, Access())


def test_keys_and_texts_are_not_in_the_trace(tmp_path: Path) -> None:
    key = "sk-very-secret-0123456789"

    async def work() -> None:
        async with (
            FakeServer(Script(api_key=key, tokens=5)) as server,
            proxying(server.base_url, tmp_path / "t.parquet") as proxy,
        ):
            body = chat("a private matter", return_token_ids=True)
            answer = await said(proxy.url, post(CHAT, body, f"Authorization: Bearer {key}"))
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"401" in (await said(proxy.url, post(CHAT, body)))[:20]
            await settle(proxy, 2)
        assert proxy.recording.rows == 1
        data = all_bytes(tmp_path)
        text = json.dumps(rows_of(tmp_path / "t.parquet"))
        for secret in (key, "private"):
            assert secret.encode() not in data
            assert secret not in text

    run(work())


def test_the_recording_is_complete_after_so_many_and_traffic_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            FakeServer(Script(tokens=5)) as server,
            proxying(server.base_url, tmp_path / "t.parquet", max_requests=2) as proxy,
        ):
            for number in range(4):
                await said(proxy.url, post(CHAT, chat(f"{number}", return_token_ids=True)))
            await until(lambda: proxy.recording.finished, 5)
            assert len(rows_of(tmp_path / "t.parquet")) == 2
            assert (await said(proxy.url, post(CHAT, chat()))).startswith(b"HTTP/1.1 200")

    run(work())


# What goes wrong with the recording.


def test_too_much_at_once_is_counted_and_recording_goes_on_behind_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            FakeServer(Script(tokens=400, token_ms=0.01, first_token_ms=1)) as server,
            proxying(server.base_url, tmp_path / "t.parquet", queue_bytes=300_000) as proxy,
        ):
            assert proxy._child is not None
            reader, writer = await connect(proxy.url)
            body = chat(max_tokens=400, return_token_ids=True)
            os.kill(proxy._child.pid, signal.SIGSTOP)
            try:
                for number in range(12):
                    writer.write(post(CHAT, body, close=False))
                    text = await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 10)
                    assert len(ids_in(text)[1]) == 400, number
                assert proxy.tap.lost >= 1
            finally:
                os.kill(proxy._child.pid, signal.SIGCONT)
            queue = proxy.tap._transport
            assert queue is not None
            await until(lambda: not queue.get_write_buffer_size(), 10)
            before = proxy.recording.rows
            writer.write(post(CHAT, body, close=False))
            await reader.readuntil(b"\r\n0\r\n\r\n")
            await until(lambda: not (proxy.recording.rows <= before), 10)
            writer.close()
        assert proxy.recording.lost >= 1
        assert all(len(row["output_token_ids"]) == 400 for row in rows_of(tmp_path / "t.parquet") if row["exact"])

    run(work())


def test_a_recorder_that_dies_stops_the_recording_and_nothing_else(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            FakeServer(Script(tokens=50, token_ms=4)) as server,
            proxying(server.base_url, tmp_path / "t.parquet") as proxy,
        ):
            assert proxy._child is not None
            task = asyncio.create_task(said(proxy.url, post(CHAT, chat(max_tokens=50, return_token_ids=True))))
            await asyncio.sleep(0.05)
            os.kill(proxy._child.pid, signal.SIGKILL)
            assert len(ids_in(await task)[1]) == 50
            assert len(ids_in(await said(proxy.url, post(CHAT, chat(return_token_ids=True))))[1]) == 12
        assert proxy.recording.stopped is not None

    run(work())


@pytest.mark.parametrize("what", ["there", "folder"])
def test_a_trace_that_cannot_be_begun_is_said_before_anything_is_passed_on(tmp_path: Path, what: str) -> None:
    out = tmp_path / "t.parquet" if what == "there" else tmp_path / "none" / "t.parquet"
    if what == "there":
        out.write_bytes(b"x")

    async def work() -> None:
        plan = ProxyPlan(upstream=address_of("http://127.0.0.1:9"), host="127.0.0.1", port=0, out=out)
        proxy, told = Proxy(plan), []
        with pytest.raises(UsageError, match=r"is there already|no such folder"):
            await proxy.run(lambda one: told.append(one.recording.stopped), lambda _: None)
        assert not any(told), "nothing had begun that could be stopped"

    run(work())


# The end.


def test_it_ends_when_streams_have_and_closes_idle_connections(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            FakeServer(Script(tokens=60, token_ms=15)) as server,
            proxying(server.base_url, tmp_path / "t.parquet", drain_s=10.0) as proxy,
        ):
            idle_reader, idle_writer = await connect(proxy.url)
            idle_writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            await idle_reader.readuntil(b"\r\n\r\n")
            body = chat(max_tokens=60, return_token_ids=True)
            task = asyncio.create_task(said(proxy.url, post(CHAT, body, close=False)))
            await asyncio.sleep(0.2)
            proxy.stop()
            assert await asyncio.wait_for(idle_reader.read(), 2) == b""
            with pytest.raises(OSError, match=r"refused|Connect"):
                await connect(proxy.url)
            assert len(ids_in(await asyncio.wait_for(task, 5))[1]) == 60
            idle_writer.close()
        assert proxy.cut_off == 0
        assert [row["exact"] for row in rows_of(tmp_path / "t.parquet")] == [True]
        assert proxy.recording.cut == 0

    run(work())


def test_at_the_deadline_streams_are_cut_and_kept_as_far_as_they_came(tmp_path: Path) -> None:
    async def work() -> None:
        async with FakeServer(Script(tokens=4000, token_ms=10)) as server:
            async with proxying(server.base_url, tmp_path / "t.parquet", drain_s=0.5) as proxy:
                task = asyncio.create_task(said(proxy.url, post(CHAT, chat(max_tokens=1500, return_token_ids=True))))
                await asyncio.sleep(0.2)
            with pytest.raises(ConnectionResetError):
                await task
        assert (proxy.cut_off, proxy.recording.cut) == (1, 1)
        assert len(rows_of(tmp_path / "t.parquet")[0]["output_token_ids"]) > 1

    run(work())
