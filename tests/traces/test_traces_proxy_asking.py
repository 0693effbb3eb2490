"""Requests with fields put into them, in whatever pieces they come."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.traces.proxy.asking import Asker
from draftworth.traces.proxy.base import Asked

ASKED = Asked(b',"return_token_ids":true', b',"return_token_ids":true')
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def make(
    asked: Asked | None = ASKED, *, host: bytes | None = None, taken: Callable[[int], bool] = lambda _: True
) -> tuple[Asker, list[str]]:
    left: list[str] = []
    return Asker(asked, taken, host=host, left=left.append), left


def request(body: bytes, path: str = CHAT, *more: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: proxy:9", "content-TYPE: application/json", *more]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


def read(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    """Read requests as a server would: head, then as many bytes as Content-Length says."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        size = int({name.lower(): value for name, value in headers.items()}.get("content-length", "0"))
        assert len(data) >= size
        found.append((headers, data[:size]))
        data = data[size:]
    return found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(["model", "messages", "n", "x", "stream"]), json_values, min_size=1)


@given(st.lists(bodies, min_size=1, max_size=3), st.lists(st.integers(0, 300), max_size=30), st.integers(0, 4))
def test_every_object_gets_the_field_and_keeps_its_own(
    objects: list[dict[str, Any]], sizes: list[int], spaces: int
) -> None:
    asker, _ = make()
    texts = [json.dumps(one, ensure_ascii=False).encode() + b" " * spaces for one in objects]
    sent = b"".join(request(text) for text in texts)
    passed = b"".join(asker.feed(piece) for piece in cut(sent, sizes))
    got = read(passed)
    assert [json.loads(body) for _, body in got] == [{**one, "return_token_ids": True} for one in objects]
    assert asker.begun == len(objects)


@given(st.binary(max_size=600), st.lists(st.integers(0, 50), max_size=30))
def test_a_body_that_is_no_object_keeps_its_bytes_but_for_spaces(body: bytes, sizes: list[int]) -> None:
    asker, _ = make()
    passed = b"".join(asker.feed(piece) for piece in cut(request(body), sizes))
    ((_, got),) = read(passed)
    try:
        is_object = isinstance(json.loads(body), dict)
    except ValueError:
        is_object = False
    if not is_object and not body.rstrip().endswith(b"}"):
        assert got.rstrip(b" ") == body.rstrip(b" ")


@pytest.mark.parametrize("body", [b"{}", b"{ \n}", b"[1]", b"", b"}", b'"a"', b'{"a":1,}'])
def test_what_has_no_place_for_a_field_stays(body: bytes) -> None:
    asker, _ = make()
    ((_, got),) = read(asker.feed(request(body)))
    assert got.rstrip() == body.rstrip()


@given(st.integers(0, 4000), st.lists(st.integers(1, 400), max_size=30))
def test_the_clients_own_word_counts_and_an_echo_is_not_touched(pad: int, sizes: list[int]) -> None:
    own = {"x": "y" * pad, "return_token_ids": False, "z": 1}
    echo = {"prompt": "hi", "echo": True, "x": "y" * pad}
    asker, left = make()
    sent = request(json.dumps(own).encode()) + request(json.dumps(echo).encode(), PLAIN)
    got = read(b"".join(asker.feed(piece) for piece in cut(sent, sizes)))
    assert [json.loads(body) for _, body in got] == [own, echo]
    assert len(left) == 1
    assert "echo" in left[0]


def test_other_paths_methods_and_requests_out_of_the_sample_pass_unchanged() -> None:
    asker, _ = make(taken=lambda number: number == 3)
    body = b'{"a": 1}'
    same = request(body, "/v1/embeddings") + request(b"", "/metrics", method="GET") + request(body)
    assert asker.feed(same) == same
    ((_, got),) = read(asker.feed(request(body, "/team/v1/completions?x=1")))
    assert json.loads(got) == {"a": 1, "return_token_ids": True}


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.lists(st.integers(0, 30), max_size=40))
def test_a_chunked_body_passes_unchanged_and_the_next_request_is_found(chunks: list[bytes], sizes: list[int]) -> None:
    asker, left = make()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    framed = b"".join(b"%x;e=1\r\n%s\r\n" % (len(one), one) for one in chunks) + b"0\r\nTrailer: yes\r\n\r\n"
    passed = b"".join(asker.feed(piece) for piece in cut(head + framed + request(b'{"a": 1}'), sizes))
    assert passed.startswith(head + framed)
    ((_, got),) = read(passed[len(head + framed) :])
    assert json.loads(got) == {"a": 1, "return_token_ids": True}
    assert left == ["its body has no Content-Length"]


def test_the_body_of_expect_is_not_waited_for() -> None:
    asker, _ = make()
    sent = request(b'{"a": 1}', CHAT, "Expect: 100-continue")
    head, _, body = sent.partition(b"\r\n\r\n")
    passed = asker.feed(head + b"\r\n\r\n")
    assert b"Content-Length: 32" in passed
    assert b"Expect: 100-continue" in passed
    assert passed.endswith(b"\r\n\r\n")
    assert json.loads(asker.feed(body)) == {"a": 1, "return_token_ids": True}


def test_an_upgrade_and_what_is_no_http_end_the_reading() -> None:
    for first in (
        b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"x" * 70_000,
    ):
        asker, _ = make()
        noise = request(b'{"a": 1}')
        assert asker.feed(first) + asker.feed(noise) == first + noise


def test_the_host_is_rewritten_where_asked() -> None:
    asker, _ = make(None, host=b"gateway.example")
    passed = asker.feed(request(b'{"a": 1}') + request(b"", "/health", method="GET"))
    assert [headers["Host"] for headers, _ in read(passed)] == ["gateway.example"] * 2
    assert json.loads(read(passed)[0][1]) == {"a": 1}


def test_sglangs_two_fields_both_go_in() -> None:
    asker, _ = make(Asked(b',"a_b":true,"c_d":true', b""))
    ((_, got),) = read(asker.feed(request(b'{"x": {"y": 2} }\n')))
    assert json.loads(got) == {"x": {"y": 2}, "a_b": True, "c_d": True}
    assert asker.feed(request(b'{"x": 1}', PLAIN)) == request(b'{"x": 1}', PLAIN)
