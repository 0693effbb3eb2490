import threading
import time

import pytest
from tests.fakes.ssh_server import SshServer
from tests.hosts.reaching import reach, wait_for

from draftworth.hosts.base import HostError
from draftworth.hosts.ssh import SshHost


def test_lines_come_while_the_command_runs(host: SshHost) -> None:
    with host.stream(["sh", "-c", "echo one; sleep 0.4; printf 'two\\nthree'; echo oops >&2; exit 255"]) as lines:
        begun = time.monotonic()
        each = iter(lines)
        assert next(each) == "one"
        assert time.monotonic() - begun < 0.35
        assert list(each) == ["two", "three"]
        assert (lines.code, lines.err) == (255, b"oops\n")


def test_a_stream_can_be_given_input(host: SshHost) -> None:
    data = b"".join(b"%d\n" % number for number in range(100_000))
    with host.stream(["cat"], stdin=data) as lines:
        assert sum(map(int, lines)) == 4_999_950_000
    with host.stream(["sleep", "5"], stdin=data) as lines:
        pass


def test_leaving_a_stream_ends_the_command_there(own_server: SshServer) -> None:
    host = reach(own_server)
    with host.stream(["sh", "-c", "echo begun; sleep 600 & wait"]) as lines:
        assert next(iter(lines)) == "begun"
        assert own_server.running() == 1
    wait_for(lambda: own_server.running() == 0)
    host.close()


def test_a_lost_connection_ends_a_stream_and_the_command_there(own_server: SshServer) -> None:
    host = reach(own_server)
    with host.stream(["tail", "-f", "/dev/null"]) as lines:
        threading.Timer(0.3, own_server.drop).start()
        with pytest.raises(HostError, match=r"the connection was lost while this ran.*: tail -f /dev/null"):
            list(lines)
    wait_for(lambda: own_server.running() == 0)
    host.close()


def test_a_stream_to_nowhere_says_why(own_server: SshServer) -> None:
    own_server.refuse()
    with reach(own_server).stream(["true"]) as lines, pytest.raises(HostError, match="connection refused"):
        list(lines)
