"""Every recorded log, page and answer, spoilt in seeded ways: findings or one clear error, never a traceback.

The corpus is what the engines' tests read. CI spoils each file a few times by fixed seeds; `make torture` many times.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from draftworth.engines.counts import FIELDS, figures
from draftworth.errors import DraftworthError
from draftworth.readings.base import Reading
from draftworth.readings.file import read_file
from draftworth.reports.reading import lines

DATA = Path(__file__).parents[1] / "engines" / "data"
CORPUS = sorted(path for path in DATA.rglob("*") if path.suffix in {".txt", ".json", ".jsonl"})
NUMBERS = (b"NaN", b"-1", b"1e309", b"99999999999999999999", b"0", b"", b"\xff", b"1.5", b"null")


def cut(data: bytes, rolls: random.Random) -> bytes:
    return data[: rolls.randrange(len(data) + 1)]


def flip(data: bytes, rolls: random.Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(rolls.randrange(1, 30)):
        if spoilt:
            spoilt[rolls.randrange(len(spoilt))] = rolls.randrange(256)
    return bytes(spoilt)


def other_numbers(data: bytes, rolls: random.Random) -> bytes:
    digits = [at for at in range(len(data)) if data[at : at + 1].isdigit()]
    for at in sorted(rolls.sample(digits, min(len(digits), 8)), reverse=True):
        data = data[:at] + rolls.choice(NUMBERS) + data[at + 1 :]
    return data


def shuffled(data: bytes, rolls: random.Random) -> bytes:
    parts = data.split(b"\n")
    rolls.shuffle(parts)
    return b"\n".join(parts)


def doubled(data: bytes, rolls: random.Random) -> bytes:
    parts = data.split(b"\n")
    at = rolls.randrange(len(parts))
    return b"\n".join([*parts[: at + 1], *parts[max(0, at - 5) :]])


def binary(data: bytes, rolls: random.Random) -> bytes:
    at = rolls.randrange(len(data) + 1)
    return data[:at] + rolls.randbytes(rolls.randrange(1, 200)) + data[at:]


WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (cut, flip, other_numbers, shuffled, doubled, binary)


def check(found: Reading) -> None:
    """What holds of every reading, however its source was spoilt."""
    assert lines(found)
    assert found.document()
    for counts in (found.counts, *(window.counts for window in found.windows)):
        if counts is None:
            continue
        for name in FIELDS:
            value = getattr(counts, name)
            values = value if isinstance(value, tuple) else (value,)
            assert all(one is None or one >= 0 for one in values), (name, value)
            assert value is not None or counts.why_not(name)
        for figure in figures(counts):
            assert figure.name not in {"coverage", "acceptance_rate"} or 0 <= (figure.value or 0) <= 1


def read_or_refused(path: Path) -> Reading | DraftworthError:
    try:
        return read_file(path)
    except DraftworthError as error:
        return error


def spoil(path: Path, seed: int, folder: Path) -> None:
    rolls = random.Random(f"{path.name} {seed}")
    data = path.read_bytes()
    for _ in range(rolls.randrange(1, 3)):
        data = rolls.choice(WAYS)(data, rolls)
    file = folder / f"spoilt{path.suffix}"
    file.write_bytes(data)
    found = read_or_refused(file)
    if isinstance(found, Reading):
        check(found)
    else:
        assert len(str(found).splitlines()) == 1, found
        assert str(file) in str(found)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: str(path.relative_to(DATA)))
def test_a_spoilt_recording_gives_findings_or_one_clear_line(path: Path, tmp_path: Path) -> None:
    for seed in range(6):
        spoil(path, seed, tmp_path)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: str(path.relative_to(DATA)))
def test_a_whole_recording_is_read_or_refused_in_one_line(path: Path) -> None:
    found = read_or_refused(path)
    if isinstance(found, Reading):
        check(found)
    else:
        assert len(str(found).splitlines()) == 1, found


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: str(path.relative_to(DATA)))
def test_many_more_spoilt_recordings(path: Path, tmp_path: Path) -> None:
    for seed in range(6, 300):
        spoil(path, seed, tmp_path)
