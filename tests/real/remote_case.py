"""A trial on a unit of a private manager, driven over the real ssh client from a person's own machine."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.ssh_server import SshServer, ssh_server
from tests.helpers import Result, wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import UnitCase

from draftworth.hosts.ssh import SshHost
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.remote import RemoteStation
from draftworth.trials.load import load


@dataclass
class RemoteCase(UnitCase):
    """A `UnitCase` whose commands are given on another machine: this one, outside of the manager.

    Attributes:
        server: what the ssh client reaches; behind it is the manager.
        client: the person's DRAFTWORTH_HOME.
    """

    server: SshServer = field(kw_only=True)
    client: Path = field(kw_only=True)
    clients: list[subprocess.Popen[str]] = field(default_factory=list, kw_only=True)

    @property
    def program(self) -> Path:
        """Draftworth there, keeping its trials in `home`."""
        path = self.folder / "bin" / "draftworth"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                f"#!/bin/sh\nexport DRAFTWORTH_HOME={self.home} HOME={self.folder}\n"
                f"export DRAFTWORTH_LOCKS={self.folder}/locks\n"
                f'exec {sys.executable} -m draftworth "$@"\n',
                encoding="utf-8",
            )
            path.chmod(0o755)
        return path

    def trial(self, *, service: str = "", **options: Any) -> "RemoteCase":
        where = f'append_args = true\nhost = "{self.server.alias}"\ndraftworth = "{self.program}"\n'
        super().trial(service=where + service, **options)
        return self

    def config(self) -> SystemdTrial:
        """Return the trial's file as the command line reads it."""
        found = load(self.file)
        assert isinstance(found, SystemdTrial)
        return found

    def station(self, *, interval_s: int = 15, count: int = 4) -> RemoteStation:
        """Return the machine as this process reaches it, impatiently."""
        alias = self.server.alias
        host = SshHost(
            alias,
            ssh_config=self.server.config,
            connect_timeout_s=2,
            alive_interval_s=interval_s,
            alive_count=count,
        )
        return RemoteStation(alias, program=str(self.program), host=host, retry_s=(0.1, 0.2, 0.5, 0.5))

    def command(self, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the command line, run outside of the manager."""
        variables = {
            "DRAFTWORTH_HOME": str(self.client),
            "DRAFTWORTH_SSH_CONFIG": str(self.server.config),
            **(env or {}),
        }
        pairs = [f"{name}={value}" for name, value in variables.items()]
        return ["env", *pairs, sys.executable, "-m", "draftworth", *arguments]

    def begin(self, *options: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Begin to run the trial; the client goes on beside the test."""
        client = subprocess.Popen(
            self.command("trial", "run", str(self.file), "--yes", "--json", *options, env=env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.clients.append(client)
        return client

    def logged(self) -> list[dict[str, Any]]:
        """Return the newest trial's own log."""
        lines = (self.trials()[-1] / "progress.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def wait_step(self, step: str, seconds: float = 30.0) -> None:
        """Wait until the newest trial has begun a step."""
        wait_for(lambda: bool(self.trials()) and self.reached(step), seconds, step)


def result_of(process: subprocess.Popen[str], timeout_s: float = 60.0) -> Result:
    """Wait for a client and return what it printed."""
    out, err = process.communicate(timeout=timeout_s)
    return Result(process.returncode, out, err)


@contextmanager
def remote_case(systemd: PrivateSystemd, folder: Path, unit: str, **options: Any) -> Iterator[RemoteCase]:
    """Give a case with an SSH server of its own, and a unit that serves."""
    keys = folder / "ssh"
    keys.mkdir()
    with ssh_server(keys, prefix=systemd.exec(), **options) as server:
        case = RemoteCase(systemd, folder, unit=unit, server=server, client=folder / "client")
        try:
            yield case
        finally:
            for client in case.clients:
                client.kill()
                client.communicate()
            systemd.systemctl("disable", "--now", unit, check=False)
