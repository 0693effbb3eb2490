import gc
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.ssh_server import SshServer, ssh_server
from tests.hosts.reaching import reach, wait_for

from draftworth.hosts.base import HostError
from draftworth.hosts.ssh import SshHost


def test_a_command_runs_there_and_tells_its_code(host: SshHost) -> None:
    result = host.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (result.argv[0], result.code, result.out, result.err) == ("sh", 7, b"out\n", b"err\n")
    assert host.name == "ssh machine"


@pytest.mark.parametrize("code", [0, 1, 127, 254, 255])
def test_every_code_is_the_commands_own(host: SshHost, code: int) -> None:
    result = host.run(["sh", "-c", f"exit {code}"])
    assert (result.code, result.out, result.err) == (code, b"", b"")


def test_a_command_that_is_not_there_is_a_result(host: SshHost) -> None:
    result = host.run(["no-such-command"])
    assert (result.code, result.why) == (127, "sh: 1: no-such-command: not found")


def test_a_signal_is_128_and_its_number(host: SshHost) -> None:
    assert host.run(["sh", "-c", "kill -9 $$"]).code == 137


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=15)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(WORDS, st.text("'\"\\$`!*; \n\t=%-", max_size=8)), min_size=1, max_size=6))
def test_nasty_words_arrive_exactly(host: SshHost, words: list[str]) -> None:
    result = host.run(["printf", r"%s\0", *words])
    assert result.out == b"".join(word.encode() + b"\0" for word in words)


def test_input_and_output_of_megabytes(host: SshHost) -> None:
    data = os.urandom(4_000_000)
    assert host.run(["cat"], stdin=data).out == data
    assert host.run(["cat"]).out == b""


def test_texts_are_stable_there_too(host: SshHost) -> None:
    shown = set(host.run(["env"]).text.splitlines())
    assert {"LANG=C", "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0"} <= shown


def test_commands_share_one_connection(own_server: SshServer) -> None:
    host = reach(own_server)
    for _ in range(5):
        assert host.run(["true"]).ok
    assert own_server.accepted == 1
    host.close()
    assert host.run(["true"]).ok
    assert own_server.accepted == 2
    host.close()


def test_nothing_connects_before_the_first_command_and_nothing_stays(own_server: SshServer) -> None:
    host = reach(own_server)
    assert own_server.accepted == 0
    host.run(["true"])
    folder = host._folder
    assert folder is not None
    assert oct(folder.stat().st_mode)[-3:] == "700"
    assert len(str(folder)) < 85
    del host
    gc.collect()
    assert not folder.exists()
    wait_for(lambda: not own_server._connections)


def test_a_connection_the_person_keeps_is_used_and_left(own_server: SshServer) -> None:
    socket = Path("/tmp") / f"dw-test-{os.getpid()}"
    text = own_server.config.read_text(encoding="utf-8")
    own_server.config.write_text(f"ControlPath {socket}\n" + text, encoding="utf-8")
    ssh = ["ssh", "-F", str(own_server.config)]
    subprocess.run([*ssh, "-MNf", own_server.alias], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        host = reach(own_server)
        assert host.run(["echo", "hi"]).out == b"hi\n"
        host.close()
        assert own_server.accepted == 1
        assert socket.exists()
    finally:
        subprocess.run([*ssh, "-O", "exit", own_server.alias], check=True, capture_output=True)


def test_a_login_file_that_talks_does_not_spoil_output(tmp_path: Path) -> None:
    shell = ("/bin/sh", "-c", 'echo "Welcome to gpu1"; printf "no newline"; eval "$1"', "login")
    with ssh_server(tmp_path, shell=shell) as server:
        host = reach(server)
        assert host.run(["printf", r"\0\1"]).out == b"\0\1"
        host.write(str(tmp_path / "file"), b"data")
        assert host.read(str(tmp_path / "file")) == b"data"
        with host.stream(["echo", "line"]) as lines:
            assert list(lines) == ["line"]
        host.close()


def test_files_there(host: SshHost, tmp_path: Path) -> None:
    path = tmp_path / "it's a $dir" / "unit.conf"
    data = os.urandom(300_000)
    host.write(str(path), data, 0o640)
    assert path.read_bytes() == data
    assert oct(path.stat().st_mode)[-3:] == "640"
    host.write(str(path), b"", 0o600)
    assert host.read(str(path)) == b""
    assert [one.name for one in path.parent.iterdir()] == ["unit.conf"]
    assert host.remove(str(path))
    assert not host.remove(str(path))
    assert host.read(str(path)) is None
    assert host.read(str(path / "below")) is None
    with pytest.raises(HostError, match=r"cannot be read: cat: .*Is a directory"):
        host.read(str(tmp_path))
    with pytest.raises(HostError, match="cannot be removed"):
        host.remove(str(tmp_path))
    with pytest.raises(HostError, match="cannot be written"):
        host.write(str(tmp_path), b"x")
    with pytest.raises(HostError, match="not an absolute path"):
        host.read("relative")


def test_a_prefix_stands_before_every_command(tmp_path: Path) -> None:
    with ssh_server(tmp_path, prefix=["env", "INSIDE=yes"]) as server:
        host = reach(server)
        assert host.run(["printenv", "INSIDE"]).text == "yes\n"
        host.close()
