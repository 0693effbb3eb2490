"""Shared memory a server leaves is removed; a neighbour's, an older one and one in use are not."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftworth.services import shm


@pytest.fixture
def made() -> Iterator[list[Path]]:
    paths: list[Path] = []
    yield paths
    for path in paths:
        path.unlink(missing_ok=True)


def make(made: list[Path], name: str, size: int = 4096) -> Path:
    path = shm.SHM / name
    path.write_bytes(b"x" * size)
    made.append(path)
    return path


def test_only_what_the_start_made_and_nobody_uses_is_stale(made: list[Path]) -> None:
    older = make(made, "psm_dwtest_older")
    before = shm.names()
    left = make(made, "psm_dwtest_left")
    openmp = make(made, "__KMP_REGISTERED_LIB_4000001_0")
    foreign_openmp = make(made, "__KMP_REGISTERED_LIB_4000002_0")
    mapped, opened, unknown = (make(made, f"{p}_dwtest_x") for p in ("psm", "sem.mp-", "somebody"))
    with mapped.open("r+b") as first, mmap.mmap(first.fileno(), 0), opened.open("rb"):
        assert set(shm.stale(before, {4000001})) == {left, openmp}
    assert older.exists()
    assert foreign_openmp.exists()
    assert unknown.exists()


def test_removing_tells_what_became_free(made: list[Path]) -> None:
    paths = [make(made, "psm_dwtest_a", 8192), shm.SHM / "psm_dwtest_not_there"]
    assert shm.remove(paths) == 8192
    assert not paths[0].exists()
