import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from draftworth.errors import EXIT_NOT_MEASURED
from draftworth.hosts import host_for
from draftworth.hosts.base import CommandResult, HostError, HostTimeoutError
from draftworth.hosts.children import finish, start
from draftworth.hosts.local import LocalHost
from draftworth.services.processes import reap

HOST = LocalHost()


def test_no_alias_is_this_machine() -> None:
    assert host_for(None).name == "this machine"


def test_a_command_gets_its_words_as_they_are() -> None:
    words = ["$HOME", "a b", "", "'", '"', "*", ";", "ü", "\n", "%s"]
    result = HOST.run(["printf", r"%s\0", *words])
    assert result.out.decode().split("\0")[:-1] == words
    assert result.ok


def test_a_code_is_a_result_and_never_an_error() -> None:
    result = HOST.run(["sh", "-c", "echo out; echo first >&2; echo '  last   words ' >&2; echo >&2; exit 7"])
    assert (result.ok, result.code, result.text, result.why) == (False, 7, "out\n", "last words")
    assert HOST.run(["sh", "-c", "kill -9 $$"]).code == -9


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (CommandResult(("x",), 1, b"said\n", b" \n"), "said"),
        (CommandResult(("x",), 3, b"", b""), "exit code 3"),
        (CommandResult(("x",), -15, b"", b""), "ended by signal 15"),
        (CommandResult(("x",), 1, b"", b"\xff\n"), "�"),
    ],
)
def test_why_is_one_line(result: CommandResult, why: str) -> None:
    assert result.why == why


def test_standard_input_is_empty_unless_given() -> None:
    assert HOST.run(["cat"]).out == b""
    assert HOST.run(["readlink", "/proc/self/fd/0"]).text == "/dev/null\n"
    assert HOST.run(["cat"], stdin=b"").out == b""
    data = os.urandom(3_000_000)
    assert HOST.run(["cat"], stdin=data).out == data


def test_a_command_that_does_not_read_its_input_is_no_error() -> None:
    assert HOST.run(["true"], stdin=b"x" * 3_000_000).ok


def test_texts_do_not_depend_on_a_persons_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("SYSTEMD_PAGER", "less")
    monkeypatch.setenv("KEPT", "yes")
    shown = HOST.run(["env"]).text.splitlines()
    assert {"LANG=C", "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "KEPT=yes"} <= set(shown)


def test_a_timeout_ends_the_whole_group_and_names_the_command() -> None:
    begun = time.monotonic()
    with pytest.raises(HostTimeoutError, match=r"sh -c .*not done after 0.4 s, killed") as caught:
        HOST.run(["sh", "-c", "sleep 987.123 & sleep 987.123"], timeout_s=0.4)
    assert time.monotonic() - begun < 5
    assert caught.value.exit_code == EXIT_NOT_MEASURED
    time.sleep(0.1)
    left = [p for p in psutil.process_iter(["cmdline"]) if "987.123" in (p.info["cmdline"] or [])]
    assert left == []


def test_a_child_left_behind_does_not_hold_the_result_up() -> None:
    begun = time.monotonic()
    result = HOST.run(["sh", "-c", "sleep 30 & echo $!; echo done"])
    assert time.monotonic() - begun < 5
    pid, done = result.text.split()
    assert done == "done"
    os.kill(int(pid), signal.SIGKILL)


def test_a_command_that_closes_its_output_is_still_waited_for() -> None:
    assert HOST.run(["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 5"]).code == 5


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "no command was given"),
        (["no-such-command-here", "--x"], "no-such-command-here: no such command"),
        (["/etc/passwd"], "cannot be executed: Permission denied"),
        (["echo", "a\0b"], "embedded null byte"),
        (["echo", "\ud800"], "cannot be executed"),
        (["true", "x" * 200_000], "Argument list too long"),
    ],
)
def test_what_cannot_be_run_is_an_error_in_one_line(argv: list[str], words: str) -> None:
    with pytest.raises(HostError) as caught:
        HOST.run(argv)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_secrets_of_a_command_are_not_told() -> None:
    with pytest.raises(HostError) as caught:
        HOST.run(["sleep", "9", "--api-key", "topsecret1"], timeout_s=0.0)
    assert "topsecret1" not in str(caught.value)


def test_output_is_bounded_and_says_so() -> None:
    process = start(["sh", "-c", "head -c 5000 /dev/zero; echo gone >&2; exit 3"], os.environ, stdin=False)
    result = finish(process, ["x"], stdin=None, timeout_s=10, most=1000)
    assert (len(result.out), result.cut, result.code) == (1000, True, 3)
    assert result.err == b"(standard output cut after 1000 bytes)\ngone\n"
    assert result.why == "gone"


def test_a_code_that_somebody_else_collected_is_still_the_right_one() -> None:
    # The tool adopts orphans and reaps every child there is (services.processes.reap), in between too.
    process = start(["sh", "-c", "exit 4"], os.environ, stdin=False)
    time.sleep(0.3)
    reap()
    assert finish(process, ["x"], stdin=None, timeout_s=10).code == 4


def test_no_process_is_left_when_a_person_interrupts() -> None:
    script = (
        "from draftworth.hosts.local import LocalHost\n"
        "try: LocalHost().run(['sleep', '976.123'])\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as tool:
        for _ in range(200):
            if psutil.Process(tool.pid).children():
                break
            time.sleep(0.05)
        tool.send_signal(signal.SIGINT)
        out, _ = tool.communicate(timeout=20)
    assert out == b"interrupted\n"
    assert [p for p in psutil.process_iter(["cmdline"]) if "976.123" in (p.info["cmdline"] or [])] == []


def test_a_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "unit.conf"
    old = os.umask(0o077)
    try:
        HOST.write(str(path), b"one\0two", 0o640)
    finally:
        os.umask(old)
    assert path.read_bytes() == b"one\0two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    HOST.write(str(path), b"three")
    assert path.read_bytes() == b"three"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in path.parent.iterdir()] == ["unit.conf"]
    assert HOST.read(str(path)) == b"three"


def test_what_is_not_there_is_none_and_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert HOST.read(str(tmp_path / "none")) is None
    (tmp_path / "file").write_bytes(b"")
    assert HOST.read(str(tmp_path / "file" / "below")) is None
    assert HOST.read(str(tmp_path / "file")) == b""
    os.mkfifo(tmp_path / "fifo")
    for name, words in ((".", "not an absolute path"), ("fifo", "not a regular file")):
        with pytest.raises(HostError, match=words):
            HOST.read(str(tmp_path / name) if name != "." else "relative")
    with pytest.raises(HostError, match="Is a directory"):
        HOST.read(str(tmp_path))
    assert HOST.read("/proc/self/status")


def test_a_file_is_removed_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert HOST.remove(str(tmp_path / "file"))
    assert not HOST.remove(str(tmp_path / "file"))
    assert not HOST.remove(str(tmp_path / "file" / "below"))
    with pytest.raises(HostError, match="cannot be removed"):
        HOST.remove(str(tmp_path))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(HostError, match=r"folder: cannot be written: Is a directory"):
        HOST.write(str(folder), b"x")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    mount = ["unshare", "-m", "sh", "-c"]
    script = (
        f'mount -t tmpfs -o size=64k none {tmp_path} && cd / && exec {sys.executable} -c "\n'
        "from draftworth.hosts.local import LocalHost\n"
        "import os\n"
        f"path = '{tmp_path}/unit'\n"
        "LocalHost().write(path, b'old')\n"
        "try: LocalHost().write(path, b'x' * 200000)\n"
        "except Exception as error: print(error)\n"
        f"print(open(path).read(), os.listdir('{tmp_path}'))\n"
        '"'
    )
    result = HOST.run([*mount, script])
    assert result.text == f"{tmp_path}/unit: cannot be written: No space left on device\nold ['unit']\n", result.err
