from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.ssh_server import SshServer, ssh_server
from tests.hosts.reaching import reach

from draftworth.hosts.ssh import SshHost


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[SshServer]:
    """A server whose connections a test cuts."""
    folder = tmp_path / "server"
    folder.mkdir()
    with ssh_server(folder) as running:
        yield running


@pytest.fixture(scope="module")
def host(server: SshServer) -> Iterator[SshHost]:
    made = reach(server)
    yield made
    made.close()
