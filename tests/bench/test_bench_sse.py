import itertools
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.bench.sse import DONE, SseParser, decode


def naive(stream: bytes) -> list[bytes]:
    """The event stream format read from the whole text, line by line, as the HTML standard words it."""
    events = []
    data: list[str] = []
    lines = re.split("\r\n|\r|\n", stream.decode().removeprefix("\ufeff"))
    for line in lines[:-1]:  # what follows the last line end is no line yet
        if line == "":
            if data:
                events.append("\n".join(data).encode())
            data = []
            continue
        if line.startswith(":"):
            continue
        name, colon, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" ") if colon else "")
    return events


def feed_all(pieces: list[bytes]) -> list[bytes]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


LINE = st.one_of(
    st.sampled_from(
        [
            "data: [DONE]",
            "data:",
            "data",
            "data:  two spaces",
            ": comment",
            "event: message",
            "id: 7",
            "dataset: no",
            "",
        ]
    ),
    st.text(alphabet='aé漢🙂: {}"', max_size=12).map(lambda text: f"data: {text}"),
    st.text(alphabet="da:t é🙂", max_size=8),
)
STREAM = st.lists(st.tuples(LINE, st.sampled_from(["\n", "\r\n", "\r"])), max_size=20).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)


@given(
    stream=STREAM,
    bom=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    cuts=st.lists(st.integers(min_value=0, max_value=200), max_size=12),
)
def test_any_cutting_gives_the_events_of_the_whole_text(stream: bytes, bom: bytes, cuts: list[int]) -> None:
    stream = bom + stream
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert feed_all(pieces) == naive(stream)


@given(stream=STREAM)
def test_one_byte_at_a_time(stream: bytes) -> None:
    assert feed_all([bytes([byte]) for byte in stream]) == naive(stream)


WHOLE = st.text(alphabet='a漢: {}"', max_size=6).map(lambda text: f"data: {text}\n\n".encode())
ODD = st.sampled_from(
    [
        b"data: a",
        b"data: a\n\ndata: b\n\n",
        b"data: a\r\n\r\n",
        b"data: a\ndata: b\n\n",
        b"\n\n",
        b"",
        b": c\n\n",
        b"\rdata: ",
    ]
)


@given(start=st.lists(WHOLE, max_size=2), pieces=st.lists(WHOLE | ODD, max_size=5))
def test_pieces_that_are_one_event_each_can_be_taken_at_once(start: list[bytes], pieces: list[bytes]) -> None:
    parser = SseParser()
    if start:
        assert parser.each(start) == feed_all(start)
    events = parser.each(pieces)
    if events is None:
        events = [event for piece in pieces for event in parser.feed(piece)]
    else:
        assert len(events) == len(pieces)
    assert events == feed_all(start + pieces)[len(start) :]


def test_within_an_event_no_piece_is_taken_for_one() -> None:
    parser = SseParser()
    assert parser.each([b"data: a\n\n", b"data: b\n\n"]) == [b"a", b"b"]
    assert parser.feed(b"data: c\n") == []
    assert parser.each([b"data: d\n\n"]) is None
    assert parser.feed(b"data: d\n\n") == [b"c\nd"]
    assert parser.each([b"data: e\n\n"]) == [b"e"]
    assert parser.each([b"data: x", b"data: y\n\n\n\n"]) is None


def test_an_empty_piece_between_cr_and_lf_is_not_a_line() -> None:
    assert feed_all([b"data: a\r", b"", b"\ndata: b\r\n\r\n"]) == [b"a\nb"]


def test_what_is_unfinished_is_no_event() -> None:
    assert feed_all([b"data: whole\n\ndata: half"]) == [b"whole"]


def test_a_chunk_of_a_completion_is_decoded() -> None:
    chunk = decode(
        b'{"id":"x","choices":[{"index":0,"delta":{"content":"h\xc3\xa9"},"finish_reason":null,"token_ids":[4,5]}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":2,"new_field":1},"metrics":{"speculative_decoding":{"k":1}}}'
    )
    assert chunk.choices is not None
    assert chunk.choices[0].token_ids == [4, 5]
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "hé"
    assert chunk.usage is not None
    assert (chunk.usage.prompt_tokens, chunk.usage.completion_tokens) == (3, 2)
    assert chunk.metrics == {"speculative_decoding": {"k": 1}}


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"choices":[{"token_ids":"no"}]}', b'{"choices":7}', b'{"object":"\xff"}', b"", DONE]
)
def test_what_is_no_chunk_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode(data)


@given(st.binary(max_size=40))
def test_odd_bytes_never_raise_anything_else(data: bytes) -> None:
    SseParser().feed(data)
    try:
        decode(data)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either outcome is fine, another exception is not


def test_the_usual_json_is_read_whatever_its_spacing() -> None:
    text = msgspec.json.format(b'{"choices":[{"delta":{"content":"a"}}]}', indent=2)
    events = feed_all([b"".join(b"data: " + line + b"\n" for line in text.split(b"\n")) + b"\n"])
    chunk = decode(events[0])
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "a"
