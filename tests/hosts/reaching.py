"""How tests reach the fake machine, and wait for what happens there."""

import time
from collections.abc import Callable

from tests.fakes.ssh_server import SshServer

from draftworth.hosts.ssh import SshHost


def reach(server: SshServer, prefix: str = "", *, interval_s: int = 15, count: int = 4) -> SshHost:
    return SshHost(
        prefix + server.alias,
        ssh_config=server.config,
        connect_timeout_s=2,
        alive_interval_s=interval_s,
        alive_count=count,
    )


def wait_for(done: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not become so in time"
        time.sleep(0.02)
