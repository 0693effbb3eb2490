import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.errors import TrialError
from draftworth.trials.driver.sending import LARGEST, Received, pieces

NAMES = st.text("abcXYZ 0-_.é", min_size=1, max_size=12).filter(lambda name: name.strip(".") and name[-4:] != ".tmp")


def sent(folder: Path, largest: int = LARGEST) -> list[dict[str, object]]:
    """As it goes over the wire."""
    return [json.loads(json.dumps(one)) for one in pieces(folder, largest)]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=3000), max_size=6), st.integers(0, 200_000))
def test_a_folder_arrives_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], size: int
) -> None:
    folder, target = tmp_path_factory.mktemp("trial"), tmp_path_factory.mktemp("copy")
    (folder / "logs").mkdir()
    (folder / "logs" / "start.log").write_bytes(os.urandom(size))
    (folder / "tag").write_text("20260101-000000-abcdef\n", encoding="ascii")
    for name, data in files.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
    received = Received()
    for document in sent(folder):
        assert not received.whole
        received.take(document)
    assert received.whole
    assert (received.id, received.tag, received.left_out) == (folder.name, "20260101-000000-abcdef", ())
    received.unpack(target)
    received.close()
    assert tree(target) == tree(folder)


def test_what_is_huge_unfinished_or_a_link_stays(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "big.log").write_bytes(b"x" * 1001)
    (folder / "fits.log").write_bytes(b"x" * 1000)
    (folder / "record.tmp").touch()
    (folder / "passwords").symlink_to("/etc/shadow")
    os.mkfifo(folder / "pipe")
    received = Received()
    for document in sent(folder, 1000):
        received.take(document)
    received.unpack(tmp_path / "copy")
    received.close()
    assert received.whole
    assert received.left_out == ("logs/big.log",)
    assert list(tree(tmp_path / "copy")) == ["fits.log"]


def test_what_arrived_in_part_is_not_whole(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "data").write_bytes(os.urandom(200_000))
    documents = sent(folder)
    assert len(documents) > 5
    for missing in range(len(documents)):
        received = Received()
        for number, document in enumerate(documents):
            if number != missing:
                received.take(document)
        assert not received.whole
        received.close()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "data").write_bytes(b"1")
    received = Received()
    for document in sent(folder):
        received.take(document)
    (tmp_path / "taken").touch()
    with pytest.raises(TrialError, match=r"taken: what was fetched cannot be written"):
        received.unpack(tmp_path / "taken")
    received.close()


def test_a_large_folder_is_not_held_in_memory(tmp_path: Path) -> None:
    for number in range(16):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(2_000_000))
    tracemalloc.start()
    received = Received()
    for document in pieces(tmp_path):
        received.take(document)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert received.whole
    received.close()
    assert peak < 8_000_000
