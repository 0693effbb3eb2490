import re
import threading
import time
from pathlib import Path

import pytest
from tests.fakes.ssh_server import SshServer
from tests.hosts.reaching import reach, wait_for

from draftworth.errors import UsageError
from draftworth.hosts import host_for
from draftworth.hosts.base import HostError, HostTimeoutError
from draftworth.hosts.ssh import SshHost


def test_a_write_cut_in_the_middle_changes_nothing(own_server: SshServer, tmp_path: Path) -> None:
    path = tmp_path / "unit.conf"
    path.write_bytes(b"old")
    host = reach(own_server)
    host.run(["true"])

    def cut_once_a_part_has_arrived() -> None:
        wait_for(lambda: any(one.stat().st_size for one in tmp_path.glob(".unit.conf.*")))
        own_server.drop()

    cutting = threading.Thread(target=cut_once_a_part_has_arrived)
    cutting.start()
    with pytest.raises(HostError, match="the connection was lost while this ran"):
        host.write(str(path), b"x" * 60_000_000)
    cutting.join()
    wait_for(lambda: own_server.running() == 0)
    assert path.read_bytes() == b"old"
    host.write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["server", "unit.conf"]
    host.close()


def test_a_connection_cut_in_mid_command_is_an_error_and_the_next_one_connects_anew(own_server: SshServer) -> None:
    host = reach(own_server)
    host.run(["true"])
    threading.Timer(0.3, own_server.drop).start()
    begun = time.monotonic()
    with pytest.raises(HostError, match=r"ssh machine: the connection was lost while this ran.*: sleep 20"):
        host.run(["sleep", "20"])
    assert time.monotonic() - begun < 5
    assert host.run(["echo", "again"]).out == b"again\n"
    host.close()


def test_a_timeout_says_that_the_command_may_go_on(host: SshHost) -> None:
    with pytest.raises(HostTimeoutError, match=r"ssh machine: sleep 3: not done after 0.3 s.*may still run there"):
        host.run(["sleep", "3"], timeout_s=0.3)
    assert host.run(["true"]).ok


def test_a_half_open_connection_is_given_up_within_the_keep_alive_bound(own_server: SshServer) -> None:
    host = reach(own_server, interval_s=1, count=2)
    host.run(["true"])
    threading.Timer(0.5, own_server.stall).start()
    begun = time.monotonic()
    with pytest.raises(HostError, match="the connection was lost while this ran"):
        host.run(["sleep", "30"])
    # The last sign of life came at most an interval after the stall; then two questions without an answer.
    assert 2 < time.monotonic() - begun < 6
    begun = time.monotonic()
    with pytest.raises(HostError, match="timed out"):
        host.run(["true"])
    assert time.monotonic() - begun < 4
    own_server.come_back()
    assert host.run(["echo", "back"]).out == b"back\n"
    host.close()


def test_refused(own_server: SshServer) -> None:
    own_server.refuse()
    with pytest.raises(HostError, match=r"ssh machine: connection refused: no SSH server listens there"):
        reach(own_server).run(["true"])
    own_server.come_back()
    host = reach(own_server)
    assert host.run(["true"]).ok
    host.close()


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("stranger-", "its host key is not known yet: log in once by hand (ssh stranger-machine)"),
        ("changed-", "its host key is not the known one"),
        ("keyless-", "it refuses the login: no key in the agent or the configuration is accepted"),
    ],
)
def test_what_ssh_refuses_is_one_line_with_what_to_do(server: SshServer, prefix: str, words: str) -> None:
    with pytest.raises(HostError, match=re.escape(words)) as caught:
        reach(server, prefix).run(["true"])
    assert "\n" not in str(caught.value)


def test_an_unknown_alias(server: SshServer) -> None:
    with pytest.raises(HostError, match=r"ssh nowhere.invalid: no such host: neither an alias of ~/.ssh/config"):
        SshHost("nowhere.invalid", ssh_config=server.config).run(["true"])


def test_a_broken_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Nonsense yes\n", encoding="ascii")
    with pytest.raises(HostError, match="config"):
        SshHost("machine", ssh_config=config).run(["true"])


def test_no_ssh_client(server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="ssh: no such command; install it"):
        reach(server).run(["true"])


@pytest.mark.parametrize("alias", ["", "-oProxyCommand=id", "a b", "a\nb", "a\0b"])
def test_what_is_no_alias_is_refused(alias: str) -> None:
    with pytest.raises(UsageError, match="not an SSH host"):
        host_for(alias)


def test_words_that_no_command_can_have(host: SshHost) -> None:
    with pytest.raises(HostError, match="embedded null byte"):
        host.run(["echo", "a\0b"])
    with pytest.raises(HostError, match="no command was given"):
        host.run([])
