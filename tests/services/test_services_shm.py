"""Shared memory a server leaves is removed; a neighbour's, an older one and one in use are not."""

import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers import free_port, wait_for

from draftworth.services import shm
from draftworth.services.base import Start
from draftworth.services.process import ProcessService
from draftworth.trials.config import ServiceConfig


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


def test_only_what_the_start_used_and_nobody_uses_is_stale(made: list[Path]) -> None:
    older = make(made, "psm_dwtest_older")
    before = shm.names()
    left = make(made, "psm_dwtest_left")
    by_pid = [make(made, f"{p}_4000001_dw") for p in ("__KMP_REGISTERED_LIB", "torch", "sgl_shm_mm")]
    neighbours = [make(made, f"{p}_4000002_dw") for p in ("__KMP_REGISTERED_LIB", "torch", "sgl_shm_mm")]
    neighbours.append(make(made, "psm_dwtest_neighbour"))
    mapped, opened, unknown = (make(made, f"{p}_dwtest_x") for p in ("psm", "sem.mp-", "somebody"))
    seen = {path.name for path in (older, left, mapped, opened, unknown)}
    with mapped.open("r+b") as first, mmap.mmap(first.fileno(), 0), opened.open("rb"):
        assert set(shm.stale(before, {4000001}, seen)) == {left, *by_pid}
    assert all(path.exists() for path in (older, unknown, *neighbours))


def test_a_file_of_another_user_is_not_stale(made: list[Path]) -> None:
    before = shm.names()
    left = make(made, "psm_dwtest_user")
    assert shm.stale(before, set(), {left.name}, uid=os.getuid() + 1) == []
    assert shm.stale(before, set(), {left.name}, uid=os.getuid()) == [left]


def test_what_a_process_maps_or_has_open_is_seen(made: list[Path]) -> None:
    mapped, opened, unused = (make(made, f"psm_dwtest_seen_{i}") for i in range(3))
    with mapped.open("r+b") as first, mmap.mmap(first.fileno(), 0), opened.open("rb"):
        used = shm.used_by([os.getpid()])
    assert {mapped.name, opened.name} <= used
    assert unused.name not in used


def test_only_the_memory_a_start_was_seen_with_is_removed_at_its_stop(tmp_path: Path, made: list[Path]) -> None:
    port = free_port()
    name = f"psm_dwtest_{port}"
    code = f"import mmap, time; f = open('/dev/shm/{name}', 'w+b'); f.write(bytes(2**21)); f.flush()\n"
    command = (sys.executable, "-c", code + "m = mmap.mmap(f.fileno(), 0); time.sleep(60)")
    service = ProcessService(ServiceConfig(command=command, port=port), command, stop_timeout_s=5)
    start = Start(command=command, env={}, mark=f"shm-{port}/01", log=tmp_path / "log")
    running = service.start(start, lambda _: None)
    made.append(shm.SHM / name)
    wait_for(lambda: name in service.refresh(running).shm_seen, what="the server's memory is seen")
    neighbour = make(made, f"psm_dwtest_{port}_neighbour")
    remarks = service.stop(running, lambda _: None)
    assert list(remarks) == ["left 2 MiB of shared memory in 1 files of /dev/shm, which were removed"]
    assert not (shm.SHM / name).exists()
    assert neighbour.exists()


def test_removing_tells_what_became_free(made: list[Path]) -> None:
    paths = [make(made, "psm_dwtest_a", 8192), shm.SHM / "psm_dwtest_not_there"]
    assert shm.remove(paths) == 8192
    assert not paths[0].exists()
