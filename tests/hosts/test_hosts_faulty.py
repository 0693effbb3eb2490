import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from draftworth.hosts.base import Host, HostError
from draftworth.hosts.faulty import Call, FaultyHost
from draftworth.hosts.local import LocalHost


def work(host: Host, folder: Path) -> None:
    """Four calls, one of each kind."""
    path = str(folder / "unit")
    host.run(["touch", str(folder / "ran")])
    host.write(path, b"0123456789")
    host.read(path)
    host.remove(path)


def test_without_faults_everything_is_passed_on_and_counted(tmp_path: Path) -> None:
    host = FaultyHost(LocalHost())
    work(host, tmp_path)
    path = str(tmp_path / "unit")
    assert host.name == "this machine"
    assert host.calls == [
        Call(1, "run", ("touch", str(tmp_path / "ran"))),
        Call(2, "write", (path,)),
        Call(3, "read", (path,)),
        Call(4, "remove", (path,)),
    ]
    assert [one.name for one in tmp_path.iterdir()] == ["ran"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_nth_call_fails_and_no_other(tmp_path: Path, number: int) -> None:
    error = HostError("lost")
    host = FaultyHost(LocalHost(), fail={number: error})
    with pytest.raises(HostError, match="lost"):
        work(host, tmp_path)
    assert len(host.calls) == number
    assert (tmp_path / "ran").exists() == (number > 1)
    assert (tmp_path / "unit").exists() == (number > 2)
    host.run(["true"])


def test_a_failure_after_the_effect(tmp_path: Path) -> None:
    host = FaultyHost(LocalHost(), fail={1: HostError("lost")}, when="after")
    with pytest.raises(HostError, match="lost"):
        work(host, tmp_path)
    assert (tmp_path / "ran").exists()


def test_a_failure_that_lasts() -> None:
    host = FaultyHost(LocalHost(), fail={2: HostError("lost")}, lasting=True)
    assert host.run(["true"]).ok
    for _ in range(3):
        with pytest.raises(HostError, match="lost"):
            host.run(["true"])


def test_a_full_disk_leaves_half_a_temporary_file_and_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    path.write_bytes(b"old")
    host = FaultyHost(LocalHost(), full={1})
    with pytest.raises(HostError, match="unit: cannot be written: No space left on device"):
        host.write(str(path), b"0123456789")
    assert path.read_bytes() == b"old"
    (left,) = (one for one in tmp_path.iterdir() if one != path)
    assert left.name.startswith(".unit.")
    assert left.read_bytes() == b"01234"
    host.write(str(path), b"new")
    assert path.read_bytes() == b"new"


def test_a_delay() -> None:
    host = FaultyHost(LocalHost(), delay={2: 0.3})
    begun = time.monotonic()
    host.run(["true"])
    assert time.monotonic() - begun < 0.3
    host.run(["true"])
    assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(("when", "there"), [("before", False), ("after", True)])
def test_a_kill_before_or_after_the_effect(tmp_path: Path, when: str, there: bool) -> None:  # noqa: FBT001 - a parameter
    script = (
        "import signal\n"
        "from draftworth.hosts.faulty import FaultyHost\n"
        "from draftworth.hosts.local import LocalHost\n"
        f"host = FaultyHost(LocalHost(), kill={{2: signal.SIGKILL}}, when={when!r})\n"
        "host.run(['true'])\n"
        f"host.write({str(tmp_path / 'unit')!r}, b'x')\n"
        "print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""
    assert (tmp_path / "unit").exists() == there
