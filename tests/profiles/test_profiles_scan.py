"""The incremental scanner: cut anywhere, with broken events, truncated, of any size."""

import gzip
import io
import json
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles.profiles_traces import BASE, GEMM, kernel, trace, two_steps

from draftworth.errors import UsageError
from draftworth.profiles import scan
from draftworth.profiles.chrome import read_chrome
from draftworth.profiles.read import read_profile
from draftworth.profiles.scan import Event, Scan

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"},{"', "}, {", "]}", '\\"', "{[", "é"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from("XMi"), "name": TEXT, "ts": st.floats(0, 1e9), "dur": st.floats(0, 100)},
        optional={
            "cat": TEXT,
            "pid": st.integers(0, 9) | TEXT,
            "extra": VALUES,
            "args": st.dictionaries(TEXT, VALUES, max_size=3),
        },
    ),
    max_size=12,
)


def scanned(data: bytes, piece: int) -> tuple[Scan, list[Event]]:
    with mock.patch.object(scan, "PIECE", piece):
        one = Scan(io.BytesIO(data), "t.json")
        return one, [event for batch in one.batches() for event in batch]


@settings(max_examples=200, deadline=None)
@given(events=EVENTS, piece=st.integers(1, 300), indent=st.sampled_from([None, 2]), tail=TEXT)
def test_events_are_those_of_a_whole_parser_wherever_pieces_end(
    events: list[dict[str, Any]], piece: int, indent: int | None, tail: str
) -> None:
    data = json.dumps(
        {"first": 1, "traceEvents": events, "traceName": tail}, indent=indent, ensure_ascii=False
    ).encode()
    one, found = scanned(data, piece)
    assert one.complete
    assert one.unread == 0
    assert [(event.ph, event.name, event.ts, event.dur) for event in found] == [
        (event["ph"], event["name"], event["ts"], event["dur"]) for event in events
    ]
    assert one.head == {"first": 1, "traceName": tail}


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, piece=st.integers(1, 300), part=st.floats(0, 1))
def test_a_cut_file_gives_the_events_before_the_cut(events: list[dict[str, Any]], piece: int, part: float) -> None:
    start = b'{"traceEvents": ['
    body = json.dumps(events).encode()[1:]
    data = (start + body)[: len(start) + int(part * max(len(body) - 1, 0))]
    one, found = scanned(data, piece)
    assert not one.complete
    assert one.broken == "the file is cut off"
    assert [event.name for event in found] == [event["name"] for event in events[: len(found)]]
    whole = [len(json.dumps(events[: number + 1])) - 2 for number in range(len(events))]
    assert len(found) == sum(1 for end in whole if end <= len(data) - len(start))


def test_a_bare_list_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(two_steps()), encoding="utf-8")
    assert read_profile([path]).steps == 2


def test_events_that_are_no_json_are_left_out_and_told(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [*two_steps(), kernel("nothing", 1, 1)])
    text = path.read_text(encoding="utf-8").replace('"name": "nothing"', '"name": nothing')
    path.write_text(text, encoding="utf-8")
    found = read_profile([path])
    assert found.steps == 2
    assert found.complete
    assert "1 events are no JSON and were left out" in found.notes


def test_figures_that_are_no_numbers_cost_no_kernel(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", two_steps())
    text = path.read_text(encoding="utf-8")
    for bad in ("nan", "-inf", "NaN", "Infinity"):
        path.write_text(
            text.replace('"stream": 7,', f'"stream": 7, "est. achieved occupancy %": {bad},'), encoding="utf-8"
        )
        found = read_profile([path])
        assert found.of("matrix work") == pytest.approx(0.6)
        assert not any("JSON" in note for note in found.notes)


def test_odd_types_bad_bytes_and_control_characters_are_read(tmp_path: Path) -> None:
    odd = kernel(GEMM, 2860, 100, correlation=10) | {"ts": "2860", "dur": "100"}
    odd["args"] = {"device": "0", "stream": 7, "correlation": "10"}
    path = trace(tmp_path / "a.json", [*two_steps(), odd, kernel("tab", 2990, 10, correlation=10)])
    path.write_bytes(path.read_bytes().replace(b'"tab"', b'"a\tb\xff"'))
    found = read_profile([path])
    assert found.of("matrix work") == pytest.approx(0.7)
    assert [one.name for one in found.unknown] == ["a\tb\ufffd"]


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_truncated_gzip_gives_what_could_be_read(tmp_path: Path, part: float) -> None:
    data = BASE.read_bytes()
    path = tmp_path / "cut_rank0.pt.trace.json.gz"
    path.write_bytes(data[: int(len(data) * part)])
    found = read_chrome(path)
    assert not found.complete
    assert found.notes[0].startswith("the gzip file is cut off: ")
    assert 0.5 * part < len(found.ops) / len(read_chrome(BASE).ops) <= part + 0.3


def test_a_truncated_trace_with_decode_says_so(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", two_steps())
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b'"ph"', 0, len(data) - 200)])
    found = read_profile([path])
    assert not found.complete
    assert "the file is cut off" in found.notes[0]
    assert found.span_ms == 2.0


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(BASE.read_bytes())
    data[len(data) // 2 :] = random.Random(1).randbytes(len(data) - len(data) // 2)
    path = tmp_path / "a.json.gz"
    path.write_bytes(data)
    found = read_chrome(path)
    assert not found.complete
    assert "damaged" in found.notes[0]
    assert len(found.ops) > 1000


def test_gzip_in_several_parts(tmp_path: Path) -> None:
    text = gzip.decompress(BASE.read_bytes())
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(text[:100_000]) + gzip.compress(text[100_000:]) + bytes(7))
    assert read_profile([path]).classes == read_profile([BASE]).classes


def test_a_gpu_trace_that_ends_before_its_kernels(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [one for one in two_steps() if one["cat"] not in {"kernel", "gpu_memcpy"}])
    with pytest.raises(
        UsageError, match="of a process that uses a GPU, but without GPU kernels; record its activities"
    ):
        read_profile([path])
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"ts")])
    with pytest.raises(UsageError, match=r"without GPU kernels; the file is cut off: 0\.0 MB of text with 9 events"):
        read_profile([path])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty; was the profiler stopped"),
        (b"  \n", "empty; was the profiler stopped"),
        (b"INFO hello", "not a profile: neither a Chrome trace"),
        (b'{"model": "x"}', "not a profile: JSON without `traceEvents`"),
        (b'{"traceEvents": []}', "a trace without events"),
        (b'{"traceEvents": [', "a trace without events; the file is cut off"),
        (b'{"traceEvents": [{"ph": "M", "name": "x"}]}', "without GPU kernels and without operations of a CPU"),
        (b"\x1f\x8b\x08\x00", "the gzip file is cut off, and nothing could be read"),
    ],
)
def test_what_is_no_profile_is_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=said.replace("(", r"\(")) as caught:
        read_profile([path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_memory_does_not_grow_with_what_is_skipped() -> None:
    # 40 MB of ranges of Python functions, of which nothing is kept.
    one = json.dumps(
        {"ph": "X", "cat": "python_function", "name": "f" * 300, "ts": 1, "dur": 1, "args": {"a": [1] * 20}}
    )

    class Many(io.RawIOBase):
        left = 100_000

        def read(self, size: int = -1, /) -> bytes:
            if Many.left <= 0:
                return b""
            count = min(max(size // len(one), 1), Many.left)
            Many.left -= count
            return (("[" if Many.left + count == 100_000 else "") + (one + ",\n") * count).encode()

    scanner = Scan(Many(), "many.json")
    sizes = [len(batch) for batch in scanner.batches()]
    assert sum(sizes) == 100_000
    assert max(sizes) * len(one) < 3 * scan.PIECE
