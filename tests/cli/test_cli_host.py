"""`draftworth host`: what a person sees, over the real ssh client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.ssh_server import SshServer, ssh_server

import draftworth
from draftworth.gpus.base import Gpu, Gpus
from draftworth.hosts.package import package

VERSION = draftworth.__version__


@dataclass
class Machine:
    """A machine whose programs a test writes; those of this one come behind them."""

    folder: Path
    server: SshServer

    def program(self, name: str, text: str) -> Path:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def login(self, user: str, uid: int) -> None:
        self.program("id", f"case $1 in -u) echo {uid} ;; *) echo {user} ;; esac")

    def draftworth(self, name: str = "draftworth") -> Path:
        return self.program(name, f'DRAFTWORTH_HOME={self.folder}/there exec {sys.executable} -m draftworth "$@"')

    def check(self, *words: str) -> tuple[int, dict[str, tuple[str, str, str | None]]]:
        """Return the exit code and each check: its state, what was found, what to do."""
        done = self.run("check", self.server.alias, "--json", *words)
        found = json.loads(done.stdout)
        assert found["ok"] == (done.returncode == 0)
        return done.returncode, {one["name"]: (one["state"], one["text"], one["fix"]) for one in found["checks"]}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DRAFTWORTH_SSH_CONFIG": str(self.server.config)}
        argv = [sys.executable, "-m", "draftworth", "host", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    for name in ("ssh", "bin", "home"):
        (tmp_path / name).mkdir()
    prefix = ["env", f"HOME={tmp_path}/home", f"PATH={tmp_path}/bin:/usr/bin:/bin"]
    with ssh_server(tmp_path / "ssh", prefix=prefix) as server:
        made = Machine(tmp_path, server)
        made.login("root", 0)
        made.program("systemctl", 'case $1 in --version) echo "systemd 252 (252.38-1)" ;; *) echo running ;; esac')
        yield made


def test_a_machine_that_is_fit(machine: Machine) -> None:
    """Whether it runs systemd at all is the real machine's; the others are made."""
    machine.draftworth()
    machine.program("nvidia-smi", "exit 9")
    code, found = machine.check()
    booted = Path("/run/systemd/system").is_dir()
    assert code == (0 if booted else 2)
    assert {name for name, one in found.items() if one[0] == "failed"} <= (set() if booted else {"systemd"})
    assert list(found) == ["reachable", "login", "systemd", "programs", "draftworth", "trials", "gpus", "clock"]
    assert found["login"][1] == "root, which may change units"
    assert found["draftworth"] == ("ok", f"draftworth {VERSION}, as here", None)
    assert found["trials"][1].startswith(f"kept in {machine.folder}/there, ")
    assert found["gpus"][0] == "note"
    assert found["gpus"][1].endswith("no memory is waited for")
    assert found["clock"][0] == "ok"


def test_what_is_missing_and_what_to_do(machine: Machine) -> None:
    machine.login("tester", 1000)
    machine.program("sudo", "exit 1")
    machine.program("date", "echo 1000000000.0")
    code, found = machine.check()
    assert code == 2
    assert found["login"][:2] == ("failed", "tester is not root and sudo asks for a password")
    assert found["draftworth"][0] == "failed"
    assert found["draftworth"][2] == "draftworth host install machine"
    assert found["clock"][0] == "note"
    assert "s behind this one" in found["clock"][1]
    assert "trials" not in found

    machine.program("sudo", 'shift; [ "$1" = -- ] && shift; exec "$@"')
    assert machine.check()[1]["login"] == (
        "failed",
        "tester is not root; sudo needs no password",
        "set service.sudo = true, and check with --sudo",
    )
    assert machine.check("--sudo")[1]["login"][:2] == ("ok", "tester, root by sudo without a password")


def test_a_program_that_is_elsewhere_or_of_another_version(machine: Machine) -> None:
    elsewhere = machine.folder / "home" / ".local" / "bin" / "draftworth"
    elsewhere.parent.mkdir(parents=True)
    machine.draftworth("other").rename(elsewhere)
    code, found = machine.check()
    assert code == 2
    assert found["draftworth"][2] == f'set service.draftworth = "{elsewhere}", and check with --draftworth {elsewhere}'
    for name in (str(elsewhere), "~/.local/bin/draftworth"):
        assert machine.check("--draftworth", name)[1]["draftworth"] == ("ok", f"{name} {VERSION}, as here", None)
    machine.program("draftworth", "echo 0.0.1")
    assert machine.check()[1]["draftworth"] == (
        "failed",
        f"draftworth is 0.0.1, here it is {VERSION}",
        "draftworth host install machine",
    )


def test_a_machine_that_cannot_be_reached(machine: Machine) -> None:
    machine.server.refuse()
    done = machine.run("check", machine.server.alias)
    assert done.returncode == 2
    assert done.stdout.startswith("FAILED  reachable   ssh machine: connection refused: no SSH server listens there;")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    done = machine.run("install", machine.server.alias)
    assert done.returncode == 2
    assert done.stderr.startswith("draftworth: ssh machine: connection refused")
    for word in ("-oProxyCommand=x", "a b"):
        assert machine.run("check", "--", word).returncode == 1


def test_gpus_are_listed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from draftworth.hosts.ssh import SshHost  # noqa: PLC0415 - beside its use
    from draftworth.trials.driver import check  # noqa: PLC0415 - beside its use

    def gpu(index: int, **more: object) -> Gpu:
        values = {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA L4", "total_bytes": 24 * 2**30}
        return Gpu.model_validate({**values, "used_bytes": 2**30, "processes": (), **more})

    class Reader:
        name = "nvidia-smi"

        def read(self) -> Gpus:
            return Gpus(source="nvidia-smi", gpus=(gpu(0), gpu(1), gpu(0, uuid="MIG-1", parent="GPU-1")))

    monkeypatch.setattr(check, "reader", lambda _: Reader())
    host = SshHost(machine.server.alias, ssh_config=machine.server.config)
    found = {one.name: one for one in check.check(host, alias="machine")}
    host.close()
    assert found["gpus"].text == "2 x NVIDIA L4, 2.0 GiB in use (nvidia-smi)"


def test_what_install_says(machine: Machine) -> None:
    """Python that is too old, and what it would need."""
    machine.program("python3", "echo 3.9.2")
    done = machine.run("install", machine.server.alias, "--folder", str(machine.folder / "new"))
    assert done.returncode == 2
    assert "ssh machine: python3 is 3.9.2, and Draftworth needs 3.11 or newer" in done.stderr
    assert tuple(machine.run("requirements").stdout.split("\n")[:-1]) == package().requirements


def test_it_says_what_the_trials_file_needs() -> None:
    from draftworth.cli.host import _said  # noqa: PLC0415 - beside its use
    from draftworth.hosts.install import Installed  # noqa: PLC0415 - beside its use

    done = Installed(
        host="ssh gpu1",
        version="1.2.3",
        folder="/opt/draftworth/1.2.3",
        program="/opt/draftworth/1.2.3/bin/draftworth",
        python="3.11.7",
        already=False,
        link="/usr/local/bin/draftworth",
        on_path=True,
    )
    assert _said(done, "gpu1", sudo=False) == [
        "Draftworth 1.2.3 is installed: ssh gpu1, /opt/draftworth/1.2.3/bin/draftworth (Python 3.11.7)",
        "Next: draftworth host check gpu1",
    ]
    hidden = done.model_copy(update={"on_path": False, "link": None, "already": True})
    line = "`draftworth` is another program's name there; in the trial's file write:  "
    line += 'service.draftworth = "/opt/draftworth/1.2.3/bin/draftworth"'
    assert _said(hidden, "gpu1", sudo=True) == [
        "Draftworth 1.2.3 is there already: ssh gpu1, /opt/draftworth/1.2.3/bin/draftworth (Python 3.11.7)",
        line,
        "Next: draftworth host check gpu1 --draftworth /opt/draftworth/1.2.3/bin/draftworth --sudo",
    ]
