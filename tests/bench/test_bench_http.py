"""The HTTP client: framing, times, kept connections, certificates and everything a server may do wrong."""

import asyncio
import itertools
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.openai_server import FakeServer, Script
from tests.fakes.raw import raw_server
from tests.fakes.tls import private_authority

from draftworth.bench.address import Address, address_of, clean_url
from draftworth.bench.backlog import TURN_S, Backlog
from draftworth.bench.base import Access, Prompt, Sampling, Target
from draftworth.bench.client import run_request
from draftworth.bench.connection import Connection
from draftworth.bench.exchange import GATHER, Exchange
from draftworth.bench.http import Client
from draftworth.errors import UsageError


async def request_of(reader: asyncio.StreamReader) -> bytes:
    """Read one whole request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def sized(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%s\r\n%s" % (len(body), more, body)


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def answered(*replies: bytes, close: bool = False, times: int = 1, wait_s: float = 0.0) -> list[Exchange]:
    """Send requests one after the other to a server that gives these replies in turn, over all its connections."""

    async def go() -> list[Exchange]:
        left = iter(replies)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for reply in left:
                await request_of(reader)
                writer.write(reply)
                await writer.drain()
                if close:
                    return

        async with raw_server(handle) as url, Client(url) as client:
            exchanges = []
            for _ in range(times):
                exchanges.append(await client.post("/x", b"{}", patience=2.0))
                await asyncio.sleep(wait_s)
            return exchanges

    return asyncio.run(go())


def test_a_request_is_written_as_it_should_be() -> None:
    async def go() -> bytes:
        seen = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(await request_of(reader))
            writer.write(sized(b"{}"))
            await writer.drain()

        access = Access(headers={"Authorization": "Bearer k", "X-Team": "a"})
        async with raw_server(handle) as url, Client(url + "/team-a", access) as client:
            assert (await client.post("/v1/x", b'{"a":1}', patience=2.0)).body == b"{}"
            return seen[0].replace(url.removeprefix("http://").encode(), b"HOST")

    head, _, body = asyncio.run(go()).partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /team-a/v1/x HTTP/1.1"
    assert lines[1] == b"Host: HOST"
    for line in (
        b"Accept-Encoding: identity",
        b"Content-Type: application/json",
        b"Authorization: Bearer k",
        b"X-Team: a",
        b"Content-Length: 7",
    ):
        assert line in lines


def test_the_body_comes_in_pieces_with_their_times() -> None:
    async def go() -> tuple[Exchange, float, float]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            for piece in (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"3\r\none\r\n", b"3\r\ntwo\r\n"):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)
            writer.write(b"0\r\n\r\n")
            await reader.read()

        async with raw_server(handle) as url, Client(url) as client:
            before = time.perf_counter()
            exchange = await client.post("/", b"{}", patience=2.0)
            return exchange, before, time.perf_counter()

    exchange, before, after = asyncio.run(go())
    assert exchange.error is None
    assert exchange.bodies == [b"one", b"two"]
    first, second = exchange.times
    assert before <= exchange.sent <= first < second <= exchange.ended <= after
    assert second - first == pytest.approx(0.05, abs=0.03)
    assert abs(exchange.sent_unix - time.time()) < 5


def test_every_kind_of_framing_is_read() -> None:
    until_close = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it"
    for reply, body in ((sized(b"abc"), b"abc"), (chunked(b"a", b"bc"), b"abc"), (until_close, b"all of it")):
        (exchange,) = answered(reply, close=True)
        assert (exchange.status, exchange.body, exchange.error) == (200, body, None)
    (empty,) = answered(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (empty.status, empty.body, empty.error) == (204, b"", None)


def test_interim_responses_are_passed_over() -> None:
    reply = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx-a: 1\r\n\r\n" + sized(b"abc", b"x-b: 2\r\n")
    first, second = answered(reply, reply, times=2)
    for exchange in (first, second):
        assert (exchange.status, exchange.body, exchange.resent) == (200, b"abc", 0)
        assert exchange.headers == {"content-length": "3", "x-b": "2"}


REPLY = b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(*[b"data: %d\n\n" % i for i in range(9)])


class Nobody:
    """Owns a connection in a test."""

    def __init__(self) -> None:
        self.finished: list[Exchange] = []
        self.waiting: list[Exchange] = []

    def released(self, connection: Connection) -> None:
        pass

    def lost(self, connection: Connection) -> None:
        pass

    def gathered(self, exchange: Exchange) -> None:
        self.waiting.append(exchange)

    def ended(self, exchange: Exchange) -> None:
        self.finished.append(exchange)


@given(cuts=st.lists(st.integers(min_value=1, max_value=len(REPLY) - 1), max_size=20))
def test_any_cutting_of_the_bytes_gives_the_same_body(cuts: list[int]) -> None:
    owner = Nobody()
    connection, exchange = Connection(owner), Exchange(None, 1.0)
    connection._exchange = exchange
    edges = sorted({0, *cuts, len(REPLY)})
    for start, end in itertools.pairwise(edges):
        connection.data_received(REPLY[start:end])
    assert owner.finished == [exchange]
    assert exchange.body == b"".join(b"data: %d\n\n" % i for i in range(9))
    assert exchange.times == sorted(exchange.times)
    assert len(exchange.times) == len(exchange.bodies)


class Keeps:
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.alive_at, self.done = 0.0, False
        self.times: list[float] = []
        self.bodies: list[bytes] = []

    def begin(self, status: int, headers: dict[str, str]) -> bool:
        return status == 200

    def take(self, times: Sequence[float], bodies: Sequence[bytes]) -> None:
        self.times += times
        self.bodies += bodies
        self.alive_at = self.times[-1]


LONG = chunked(*[b"data: %d\n\n" % i for i in range(3 * GATHER)])


@given(
    cuts=st.lists(st.integers(min_value=1, max_value=len(LONG) - 1), max_size=20),
    end=st.sampled_from([b"\r\n", b"x-sum: 7\r\n\r\n"]),
    most=st.sampled_from([1, 7, GATHER]),
)
def test_any_cutting_of_a_stream_gives_the_same_pieces_and_its_end_at_once(
    cuts: list[int], end: bytes, most: int
) -> None:
    owner, sink = Nobody(), Keeps()
    connection, exchange = Connection(owner), Exchange(sink, 1.0)
    connection._exchange, exchange.connection = exchange, connection
    reply = LONG.removesuffix(b"\r\n") + end
    edges = sorted({0, *cuts, len(reply)})
    received = []
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        assert not owner.finished
        connection.data_received(reply[start:stop])
        received.append(time.perf_counter())
        if number % 3 == 2:
            exchange.parse(most)
    assert owner.finished == [exchange]
    while not exchange.parse(most):
        pass
    assert (exchange.error, exchange.reads) == (None, [])
    assert b"".join(sink.bodies) == b"".join(b"data: %d\n\n" % i for i in range(3 * GATHER))
    assert sink.times == sorted(sink.times)
    assert len(set(sink.times)) <= len(received)
    assert sink.times[-1] <= exchange.ended <= received[-1]


def test_a_stream_is_framed_when_reads_have_gathered() -> None:
    owner, sink = Nobody(), Keeps()
    connection, exchange = Connection(owner), Exchange(sink, 1.0)
    connection._exchange, exchange.connection = exchange, connection
    connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
    stamps = [time.perf_counter()]
    for number in range(GATHER):
        assert owner.waiting == []
        connection.data_received(b"1\r\n%d\r\n" % (number % 10))
        stamps.append(time.perf_counter())
    assert owner.waiting == [exchange]
    assert exchange.bodies == [b"one"]
    assert exchange.last == exchange.reads[-2]
    assert not exchange.parse(GATHER // 2)
    while not exchange.parse(GATHER // 2):
        pass
    assert len(sink.times) == GATHER + 1
    assert all(at < stamp for at, stamp in zip(sink.times, stamps, strict=True))
    assert all(at > stamp for at, stamp in zip(sink.times[1:], stamps, strict=False))


@pytest.mark.parametrize(
    ("last", "error"),
    [(b"", "the server closed the connection before the answer was complete"), (b"oops", "the answer is no HTTP: ")],
)
def test_what_waits_is_kept_when_a_stream_breaks(last: bytes, error: str) -> None:
    async def go() -> tuple[Exchange, Keeps]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            for piece in (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                b"3\r\none\r\n",
                b"3\r\ntwo\r\n",
                last,
            ):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            if last:
                await reader.read()  # it is the client that ends it

        async with raw_server(handle) as url, Client(url) as client:
            sink = Keeps()
            return await client.post("/", b"{}", patience=5.0, sink=sink), sink

    exchange, sink = asyncio.run(go())
    assert str(exchange.error).startswith(error)
    assert sink.bodies == [b"one", b"two"]
    assert sink.times[1] - sink.times[0] == pytest.approx(0.02, abs=0.018)


def test_connections_are_kept() -> None:
    exchanges = answered(*[sized(b"a")] * 3, times=3)  # a server with three replies and one connection
    assert [(e.body, e.resent) for e in exchanges] == [(b"a", 0)] * 3


def test_a_connection_closed_in_between_is_replaced_without_a_word() -> None:
    exchanges = answered(*[sized(b"a")] * 2, close=True, times=2, wait_s=0.05)
    assert [(e.body, e.error, e.resent) for e in exchanges] == [(b"a", None, 0)] * 2


def test_a_request_into_a_closing_connection_is_sent_once_more() -> None:
    async def go() -> tuple[list[Exchange], int]:
        connections = 0

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await request_of(reader)
            writer.write(sized(b"a"))
            await writer.drain()
            await request_of(reader)  # and closes without a byte

        async with raw_server(handle) as url, Client(url) as client:
            return [await client.post("/", b"{}", patience=2.0) for _ in range(2)], connections

    (first, second), connections = asyncio.run(go())
    assert (first.resent, second.resent, second.body, second.error) == (0, 1, b"a", None)
    assert second.first_sent < second.sent
    assert connections == 2


def test_of_a_server_that_closes_every_connection_only_one_request_is_sent_twice() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(sized(b"a", b"Keep-Alive: timeout=5, max=100\r\n"))
        await writer.drain()
        await request_of(reader)  # and closes without a byte, as llama.cpp's server does behind a stream

    async def go() -> list[int]:
        async with raw_server(handle) as url:
            found = []
            for _ in range(2):  # a client for warming up, another to measure
                async with Client(url) as client:
                    found += [(await client.post("/", b"{}", patience=2.0)).resent for _ in range(4)]
            return found

    assert asyncio.run(go()) == [0, 1, 0, 0, 0, 0, 0, 0]


def test_a_row_tells_that_it_was_sent_again() -> None:
    event = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(chunked(event))
        await writer.drain()
        await request_of(reader)

    async def go() -> list[tuple[bool, int, str | None]]:
        async with raw_server(handle) as url, Client(url) as client:
            target, prompt = Target(url, "m", token_timeout=2.0), Prompt("p", "c")
            rows = [await run_request(client, target, prompt, Sampling(), arm="a", block=0, repeat=0) for _ in range(2)]
            return [(row.ok, row.retries, row.retry_reasons) for row in rows]

    assert asyncio.run(go()) == [(True, 0, None), (True, 1, "the connection was closed before an answer")]


def test_a_new_connection_that_is_closed_is_a_failure_at_once() -> None:
    (exchange,) = answered(b"", close=True)
    assert str(exchange.error) == "the server closed the connection before the answer was complete"
    assert exchange.resent == 0


def test_a_response_cut_short_is_an_error_and_keeps_its_pieces() -> None:
    for reply in (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", chunked(b"abc")[:-5]):
        (exchange,) = answered(reply, close=True)
        assert str(exchange.error) == "the server closed the connection before the answer was complete"
        assert exchange.body == b"abc"


def test_what_is_no_http_is_said_in_one_line() -> None:
    (exchange,) = answered(b"\x16\x03\x01 hello\r\n\r\n", close=True)
    assert str(exchange.error).startswith("the answer is no HTTP: ")


def test_a_response_nobody_asked_for_closes_the_connection() -> None:
    first, second = answered(sized(b"a") + sized(b"b")[:20], sized(b"c"), sized(b"c"), times=2, wait_s=0.05)
    assert first.body == b"a"
    assert (second.body, second.resent) == (b"c", 0)


def test_silence_ends_a_request() -> None:
    began = time.perf_counter()

    async def go() -> Exchange:
        async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with raw_server(handle) as url, Client(url) as client:
            return await client.post("/", b"{}", patience=0.3)

    assert str(asyncio.run(go()).error) == "no event for 0.3 s"
    assert 0.3 <= time.perf_counter() - began < 1.5


def test_giving_up_closes_the_connection() -> None:
    async def go() -> None:
        gone = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            await reader.read()
            gone.set()

        async with raw_server(handle) as url, Client(url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.post("/", b"{}", patience=60)
            await asyncio.wait_for(gone.wait(), 2)

    asyncio.run(go())


def test_a_large_request_arrives_whole() -> None:
    body = b'"' + b"x" * 8_000_000 + b'"'

    async def go() -> Exchange:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got = await request_of(reader)
            writer.write(sized(b"%d" % len(got.partition(b"\r\n\r\n")[2])))
            await writer.drain()

        async with raw_server(handle) as url, Client(url) as client:
            return await client.post("/", body, patience=10)

    assert asyncio.run(go()).body == b"%d" % len(body)


def test_due_is_kept_to_and_the_connection_is_there_before() -> None:
    async def go() -> tuple[float, Exchange]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            writer.write(sized(b"a"))
            await writer.drain()

        async with raw_server(handle) as url, Client(url) as client:
            due = time.perf_counter() + 0.2
            return due, await client.post("/", b"{}", patience=2, due=due)

    due, exchange = asyncio.run(go())
    assert 0 <= exchange.sent - due < 0.1


def test_ipv6(tmp_path: Path) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this host has no IPv6")
    port = listener.getsockname()[1]
    authority, context = private_authority(tmp_path)

    async def go(scheme: str) -> Exchange:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await request_of(reader)
            writer.write(sized(request.split(b"\r\n")[1]))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(handle, sock=listener.dup(), ssl=context if scheme == "https" else None)
        async with server, Client(f"{scheme}://[::1]:{port}", Access(ca_file=authority)) as client:
            return await client.post("/", b"{}", patience=2)

    with listener:
        for scheme in ("http", "https"):
            exchange = asyncio.run(go(scheme))
            assert exchange.error is None
            assert exchange.body == b"Host: [::1]:%d" % port


def test_tls_needs_the_right_authority(tmp_path: Path) -> None:
    authority, context = private_authority(tmp_path)

    async def go(access: Access) -> Exchange:
        async with FakeServer(Script(token_ms=0), tls=context) as server, Client(server.base_url, access) as client:
            return await client.post("/v1/completions", b'{"prompt":"a","max_tokens":1}', patience=5)

    assert asyncio.run(go(Access(ca_file=authority))).status == 200
    error = str(asyncio.run(go(Access())).error)
    assert error.startswith("the certificate of 127.0.0.1:")
    assert "service.ca_file (or --ca-file)" in error
    assert "\n" not in error


def test_https_where_none_is_spoken_is_said() -> None:
    async def go() -> Exchange:
        async with FakeServer() as server, Client(server.base_url.replace("http", "https")) as client:
            return await client.post("/", b"{}", patience=5)

    assert str(asyncio.run(go()).error).startswith("no TLS with 127.0.0.1:")


def test_a_file_of_no_authority_is_said(tmp_path: Path) -> None:
    odd = tmp_path / "odd.pem"
    odd.write_text("nothing")

    async def go(path: Path) -> None:
        Client("https://127.0.0.1", Access(ca_file=path))

    for path, text in ((odd, "no certificate in PEM form is in it"), (tmp_path / "none.pem", "No such file")):
        with pytest.raises(UsageError, match=text):
            asyncio.run(go(path))


def test_a_name_without_an_address_is_said() -> None:
    async def go() -> Exchange:
        async with Client("http://no-such-host.invalid:80") as client:
            return await client.post("/", b"{}", patience=20)

    assert str(asyncio.run(go()).error).startswith("cannot connect to no-such-host.invalid:80: ")


def test_urls_are_taken_apart() -> None:
    assert address_of("https://gateway.example/team-a/") == Address(
        tls=True, host="gateway.example", port=443, authority="gateway.example", path="/team-a"
    )
    assert address_of("http://[::1]:8000") == Address(tls=False, host="::1", port=8000, authority="[::1]:8000", path="")
    assert address_of("http://a:80").authority == "a"
    assert clean_url(" http://a:8000/x/v1/ ") == "http://a:8000/x"
    with pytest.raises(UsageError, match="has a user in it"):
        address_of("http://me:secret@a")
    with pytest.raises(UsageError, match=r"no part behind \? or #"):
        address_of("http://a/?key=1")


class Slow:
    """A sink that takes its time."""

    def __init__(self) -> None:
        self.alive_at, self.done, self.taken = 0.0, False, 0
        self.most = 0

    def begin(self, status: int, headers: dict[str, str]) -> bool:
        return True

    def take(self, times: Sequence[float], bodies: Sequence[bytes]) -> None:
        self.taken += len(times)
        self.most = max(self.most, len(times))
        end = time.perf_counter() + TURN_S * 1.5
        while time.perf_counter() < end:
            pass


def test_parsing_gives_way_to_the_network_after_each_turn() -> None:
    """Between any two pieces of slow parsing the loop looks at the network again: other callbacks get their turn."""

    async def go() -> tuple[list[Slow], int]:
        loop = asyncio.get_running_loop()
        backlog = Backlog(loop)
        sinks = [Slow() for _ in range(5)]
        futures = []
        for sink in sinks:
            exchange = Exchange(sink, 1.0)
            exchange.times, exchange.bodies = [0.0] * GATHER, [b"x"] * GATHER
            exchange.future = loop.create_future()
            futures.append(exchange.future)
            backlog.finish(exchange)
        looks = 0
        while not all(future.done() for future in futures):
            looks += 1
            await asyncio.sleep(0)
        return sinks, looks

    sinks, looks = asyncio.run(go())
    assert [sink.taken for sink in sinks] == [GATHER] * 5
    assert max(sink.most for sink in sinks) <= GATHER // 2
    assert looks >= 10  # two turns each
