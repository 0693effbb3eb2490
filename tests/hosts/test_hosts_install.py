"""`host install` over the real ssh client: a real virtual environment, with a pip that notes what it is asked for.

The requirements are borrowed from the environment of the tests; a real pip with its index takes most of a minute.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.fakes.ssh_server import SshServer, ssh_server
from tests.hosts.reaching import reach

import draftworth
from draftworth.errors import RefusedError, UsageError
from draftworth.hosts import install as installing
from draftworth.hosts.install import Installed, install
from draftworth.hosts.package import package

SITE = Path(np.__file__).parent.parent
VERSION = draftworth.__version__
_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  {python} -m venv --without-pip "$3" || exit
  for site in "$3"/lib/python3.*/site-packages; do cp {pip} "$site/pip.py"; echo {site} > "$site/borrowed.pth"; done
  exit
fi
exec {python} "$@"
"""
_PIP = """import json, sys
with open({asked!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if {fails!r}:
    sys.exit("ERROR: No matching distribution found for pyarrow>=19")
"""


@dataclass
class Machine:
    """A machine of a login that is not root's, or that is, by what `id -u` says there."""

    folder: Path
    server: SshServer

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def python(self, *, fails: bool = False) -> str:
        pip, python = self.folder / "pip.py", self.folder / "python"
        pip.write_text(_PIP.format(asked=str(self.folder / "asked"), fails=fails), encoding="utf-8")
        python.write_text(_PYTHON.format(python=sys.executable, pip=pip, site=SITE), encoding="utf-8")
        python.chmod(0o755)
        return str(python)

    def program(self, name: str, text: str) -> str:
        path = self.home / ".local" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def install(self, **options: object) -> Installed:
        host = reach(self.server)
        told: list[str] = []
        try:
            if "python" not in options:
                options["python"] = self.python()
            return install(host, **{"tell": told.append, **options})  # type: ignore[arg-type]
        finally:
            host.close()

    def asked(self) -> list[list[str]]:
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def leftovers(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob(".*.new")) + sorted(map(str, self.folder.rglob(".*.old")))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "ssh").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "home" / ".local" / "bin").mkdir(parents=True)
    who = tmp_path / "tools" / "id"
    who.write_text("#!/bin/sh\necho 1000\n", encoding="utf-8")
    who.chmod(0o755)
    path = f"{tmp_path}/tools:{tmp_path}/home/.local/bin:/usr/bin:/bin"
    with ssh_server(tmp_path / "ssh", prefix=["env", f"HOME={tmp_path}/home", f"PATH={path}"]) as server:
        yield Machine(tmp_path, server)


def test_it_is_installed_once_and_works(machine: Machine, tmp_path: Path) -> None:
    done = machine.install()
    final = machine.home / ".local" / "share" / "draftworth" / VERSION
    assert (done.version, done.folder, done.already, done.on_path) == (VERSION, str(final), False, True)
    assert done.link == str(machine.home / ".local" / "bin" / "draftworth")
    assert str(Path(done.link).readlink()) == done.program == str(final / "bin" / "draftworth")
    # Its own package, not the one the tests run: another folder, the same files.
    code = (
        "import draftworth, importlib.metadata as m; print(draftworth.__file__, *m.requires('draftworth'), sep='\\n')"
    )
    python = final / "venv" / "bin" / "python"
    shown = subprocess.run([python, "-c", code], cwd="/", check=True, capture_output=True, text=True).stdout.split("\n")
    assert Path(shown[0]).is_relative_to(final)
    assert tuple(shown[1:-1]) == package().requirements
    assert (Path(shown[0]).parent / "trials" / "schema.py").is_file()
    assert (Path(shown[0]).parent / "workloads").is_dir()
    # A folder with the names of modules in it does not disturb it.
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "json.py").write_text("raise SystemExit('wrong')", encoding="utf-8")
    ran = subprocess.run([done.link, "--version"], cwd=tmp_path / "cwd", check=True, capture_output=True, text=True)
    assert ran.stdout == f"{VERSION}\n"
    assert machine.asked() == [
        ["install", "--quiet", "--disable-pip-version-check", "--no-input", "-r", machine.asked()[0][-1]]
    ]
    assert machine.leftovers() == []

    again = machine.install()
    assert again == done.model_copy(update={"already": True})
    assert len(machine.asked()) == 1


def test_another_build_of_the_version_takes_its_place(machine: Machine) -> None:
    """Unless a trial is at work there, perhaps with the files that would go."""
    folder = machine.home / "there"
    machine.install(folder=str(folder))
    marker = folder / "installed.json"
    marker.write_text(marker.read_text().replace(package().digest, "0" * 64), encoding="utf-8")
    machine.program("systemctl", "echo 'draftworth-trial-20260101-000000-abcdef.service loaded active running Draftw'")
    with pytest.raises(RefusedError, match=r"draftworth-trial-20260101-000000-abcdef.service is at work.*wait for it"):
        machine.install(folder=str(folder))
    machine.program("systemctl", "exit 0")
    (folder / "old").touch()
    done = machine.install(folder=str(folder))
    assert (done.folder, done.already) == (str(folder), False)
    assert not (folder / "old").exists()
    assert json.loads(marker.read_text())["digest"] == package().digest
    assert machine.leftovers() == []


def test_what_has_the_name_already_is_left_alone(machine: Machine) -> None:
    other = machine.program("draftworth", "echo 9.9.9")
    done = machine.install()
    assert (done.link, done.on_path) == (None, False)
    assert "9.9.9" in Path(other).read_text()
    # A link of an installation that is gone is replaced.
    Path(other).unlink()
    Path(other).symlink_to(machine.home / "gone" / "bin" / "draftworth")
    again = machine.install()
    assert (again.already, again.link, again.on_path) == (True, other, True)


@pytest.mark.parametrize("step", ["pip", "first run", "wheels"])
def test_what_fails_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step: str, tmp_path: Path
) -> None:
    if step == "wheels":
        (tmp_path / "wheels").mkdir()
        with pytest.raises(UsageError, match=r"--wheelhouse: no wheels in .*draftworth host requirements"):
            machine.install(wheelhouse=tmp_path / "wheels")
    elif step == "pip":
        with pytest.raises(
            RefusedError, match=r"what it requires could not be put there: ERROR: No matching distribut"
        ):
            machine.install(python=machine.python(fails=True))
    else:
        monkeypatch.setattr(installing, "_TRY", "import no_such_module")
        with pytest.raises(
            RefusedError, match=r"a first run could not .*No module named 'no_such_module'; nothing was"
        ):
            machine.install()
    assert not (machine.home / ".local" / "share" / "draftworth" / VERSION).exists()
    assert list((machine.home / ".local" / "bin").iterdir()) == []
    assert machine.leftovers() == []


def test_wheels_are_sent_along(machine: Machine, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a-1-py3-none-any.whl").write_bytes(os.urandom(200_000))
    (wheels / "notes.txt").write_text("not a wheel", encoding="utf-8")
    done = machine.install(wheelhouse=wheels)
    (asked,) = machine.asked()
    assert asked[4:7] == ["--no-index", "--find-links", asked[6]]
    assert asked[6].endswith("/wheels")
    assert not (Path(done.folder) / "wheels").exists()


def test_python_is_looked_at_first(machine: Machine) -> None:
    with pytest.raises(RefusedError, match=r"ssh machine: no-python: no Python there .*not found"):
        machine.install(python="no-python")
    old = machine.program("old", "echo 3.9.2; echo venv")
    with pytest.raises(RefusedError, match=r"old is 3\.9\.2, and Draftworth needs 3\.11 or newer; "):
        machine.install(python=old)
    machine.program("python3.12", "exit 0")
    with pytest.raises(RefusedError, match=r"; there is python3\.12.*: add --python python3\.12"):
        machine.install(python=old)
    bare = machine.program("bare", "echo 3.11.2; echo \"ModuleNotFoundError: No module named 'ensurepip'\" >&2; exit 1")
    with pytest.raises(RefusedError, match=r"3\.11\.2 has no venv .*ensurepip.*apt-get install python3-venv"):
        machine.install(python=bare)


def test_a_folder_of_something_else_is_left_alone(machine: Machine) -> None:
    there = machine.home / "precious"
    there.mkdir()
    (there / "file").touch()
    with pytest.raises(RefusedError, match=r"precious is there and not of `draftworth host install`; remove it"):
        machine.install(folder=str(there))
    with pytest.raises(UsageError, match=r"--folder: 'here' is not an absolute path"):
        machine.install(folder="here")
    assert [path.name for path in there.iterdir()] == ["file"]


def test_a_lost_connection_leaves_no_version(machine: Machine) -> None:
    from draftworth.hosts.base import HostError  # noqa: PLC0415 - beside its use

    def drop(text: str) -> None:
        if text.startswith("sending Draftworth"):
            machine.server.refuse()
            machine.server.drop()

    with pytest.raises(HostError):
        machine.install(tell=drop)
    assert not (machine.home / ".local" / "share" / "draftworth" / VERSION).exists()
    machine.server.come_back()
    (left,) = machine.leftovers()
    os.utime(left, (1e9, 1e9))
    assert machine.install().already is False
    assert machine.leftovers() == []
