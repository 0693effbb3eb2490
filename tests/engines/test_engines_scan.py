import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.scan import LONGEST, opened, scan
from draftworth.errors import UsageError


def naive(data: bytes, needles: list[bytes]) -> list[str]:
    """The lines that hold a needle, found the slow way."""
    lines = data.replace(b"\r", b"\n").split(b"\n")
    return [line.decode("utf-8", "replace") for line in lines if any(needle in line for needle in needles)]


PIECES = st.sampled_from([b"ab", b"c", b"abc", b"\n", b"\r", b"\r\n", b"\xff\x00", b"x" * 9, b"needle", b"nee"])


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=40).map(b"".join), st.integers(1, 17))
def test_the_lines_are_those_a_slow_reader_finds_wherever_blocks_end(data: bytes, block: int) -> None:
    needles = [b"abc", b"needle"]
    assert [hit.text for hit in scan(io.BytesIO(data), needles, block=block)] == naive(data, needles)


@given(st.lists(PIECES, max_size=40).map(b"".join), st.integers(1, 17))
def test_offsets_are_where_the_lines_stand(data: bytes, block: int) -> None:
    for hit in scan(io.BytesIO(data), [b"abc"], block=block):
        assert data[hit.offset :].decode("utf-8", "replace").startswith(hit.text)


def test_the_beginning_of_an_endless_line_is_kept_and_the_rest_skipped() -> None:
    data = b"needle" + b"x" * (3 * LONGEST) + b" needle\nneedle again\n"
    found = [hit.text for hit in scan(io.BytesIO(data), [b"needle"], block=1 << 16)]
    assert [len(text) for text in found] == [LONGEST, len("needle again")]


def test_a_message_that_journald_exports_as_bytes_is_found() -> None:
    said = list(b"\x1b[32mSpecDecoding\x1b[0m")
    lines = [{"MESSAGE": said, "PRIORITY": "6"}, {"MESSAGE": list(b"other")}, {"MESSAGE": [900]}, {"MESSAGE": None}]
    for separators in ((",", ":"), (", ", ": "), (", ", " : ")):
        log = "".join(json.dumps(line, separators=separators) + "\n" for line in lines)
        (hit,) = scan(io.BytesIO(b"other\n" + log.encode()), [b"SpecDecoding"])
        assert json.loads(hit.text) == {"MESSAGE": "\x1b[32mSpecDecoding\x1b[0m", "PRIORITY": "6"}
        assert hit.offset == len("other\n")


def test_a_gzipped_log_is_read_as_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "serve.log.gz"
    path.write_bytes(gzip.compress(b"one\nneedle\n"))
    with opened(path) as file:
        assert [hit.text for hit in scan(file, [b"needle"])] == ["needle"]


def test_a_gzipped_log_that_is_cut_off_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "serve.log.gz"
    path.write_bytes(gzip.compress(b"needle\n" * 10_000)[:-20])
    with pytest.raises(UsageError, match="cannot be read"), opened(path) as file:
        list(scan(file, [b"needle"]))


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_what_cannot_be_opened_is_one_clear_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"), opened(tmp_path / name):
        pass
