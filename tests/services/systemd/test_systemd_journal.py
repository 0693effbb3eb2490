"""What a start prints, out of a real journal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tests.helpers import wait_for
from tests.real.private_systemd import PrivateSystemd

from draftworth.errors import UsageError
from draftworth.hosts.base import HostError
from draftworth.services.systemd import bus
from draftworth.services.systemd import logs as unit_logs
from draftworth.services.systemd.journal import End, Follower, dropped, end_of, follow

LONG = "x" * 30_000


def start(systemd: PrivateSystemd, folder: Path, script: str, more: str = "") -> str:
    """Start talk.service with a shell script and return its InvocationID."""
    path = folder / "talk.sh"
    path.write_text(script, encoding="ascii")
    systemd.write_unit("talk.service", f"[Service]\nExecStart=/bin/sh {path}\n{more}")
    systemd.systemctl("daemon-reload")
    systemd.systemctl("restart", "talk.service")
    return bytes(bus.property(systemd.host(), "talk.service", bus.UNIT, "InvocationID")).hex()


def test_a_start_is_copied_from_its_first_line_on_byte_for_byte(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    start(module_systemd, tmp_path, "echo an earlier start; sleep 600\n")
    script = (
        "echo first; printf 'a\\377b\\n'; printf 'caf\\303\\251\\n'; printf '\\033[31mred\\033[0m\\n'; echo; "
        f"echo {LONG}; printf '10%%\\r20%%\\r30%%\\n'; sleep 0.5; echo last; sleep 600\n"
    )
    invocation = start(module_systemd, tmp_path, script)
    file = tmp_path / "log"
    with Follower(file).start(module_systemd.exec(follow("talk.service", invocation))) as follower:
        assert wait_for(lambda: b"last\n" in file.read_bytes())
        assert follower.alive()
    assert not follower.alive()
    # The empty line is not there: journald keeps none.
    assert file.read_bytes() == (
        b"first\na\xffb\ncaf\xc3\xa9\n\x1b[31mred\x1b[0m\n" + LONG.encode() + b"\n10%\r20%\r30%\nlast\n"
    )


def test_a_journal_that_is_rotated_is_read_on(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo before; while [ ! -e {go} ]; do sleep 0.05; done; echo after; sleep 600\n"
    invocation = start(module_systemd, tmp_path, script)
    file = tmp_path / "log"
    with Follower(file).start(module_systemd.exec(follow("talk.service", invocation))):
        assert wait_for(lambda: file.read_bytes() == b"before\n")
        module_systemd.run(["journalctl", "--rotate"])
        module_systemd.run(["journalctl", "--vacuum-files=1"])
        go.touch()
        assert wait_for(lambda: file.read_bytes() == b"before\nafter\n")


def test_what_is_said_right_before_the_end_is_kept(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    invocation = start(
        module_systemd, tmp_path, "for i in $(seq 500); do echo line $i; done; sleep 600\n", "LogRateLimitBurst=0\n"
    )
    follower = Follower(tmp_path / "log").start(module_systemd.exec(follow("talk.service", invocation)))
    time.sleep(0.1)
    follower.stop()
    follower.stop()
    assert (tmp_path / "log").read_text(encoding="ascii").splitlines() == [f"line {at}" for at in range(1, 501)]


def test_it_ends_with_its_owner(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    invocation = start(module_systemd, tmp_path, "echo here; sleep 600\n")
    argv = module_systemd.exec(follow("talk.service", invocation))
    program = (
        "import sys, time; from pathlib import Path; from draftworth.services.systemd.journal import Follower\n"
        f"f = Follower(Path({str(tmp_path / 'log')!r})).start({argv!r})\n"
        "print(f._process.pid, flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        reader = psutil.Process(int(owner.stdout.readline()))
        assert wait_for(lambda: (tmp_path / "log").read_bytes() == b"here\n")
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert wait_for(lambda: not reader.is_running() or reader.status() == psutil.STATUS_ZOMBIE)
    finally:
        owner.kill()
        owner.wait()
        if owner.stdout is not None:
            owner.stdout.close()


def test_lines_that_journald_suppressed_are_counted(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    invocation = start(
        module_systemd,
        tmp_path,
        "for i in $(seq 300); do echo line $i; done; sleep 1.5; echo again; sleep 600\n",
        "LogRateLimitIntervalSec=1\nLogRateLimitBurst=50\n",
    )
    host = module_systemd.host()
    assert dropped(host, "talk.service", "0" * 32) == 0
    assert wait_for(lambda: dropped(host, "talk.service", invocation) > 0)
    kept = module_systemd.run(["journalctl", "-o", "cat", f"_SYSTEMD_INVOCATION_ID={invocation}"]).stdout.splitlines()
    assert dropped(host, "talk.service", invocation) == 301 - len(kept)


def test_a_unit_that_says_little_has_lost_nothing(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    invocation = start(module_systemd, tmp_path, "echo one; sleep 600\n")
    assert dropped(module_systemd.host(), "talk.service", invocation) == 0


ENDINGS = {
    "sleep 0.2; exit 3": End(told=True, exit_code=3),
    "sleep 0.2; kill -9 $$": End(told=True, exit_code=-9),
    "sleep 0.2; exit 0": End(told=True, exit_code=None),
}


@pytest.mark.parametrize("script", ENDINGS)
def test_how_a_start_ended_is_known_when_its_unit_runs_again(
    module_systemd: PrivateSystemd, tmp_path: Path, script: str
) -> None:
    host = module_systemd.host()
    invocation = start(module_systemd, tmp_path, f"{script}\n")
    assert wait_for(lambda: end_of(host, invocation).told)
    again = start(module_systemd, tmp_path, "sleep 600\n")
    assert end_of(host, invocation) == ENDINGS[script]
    assert end_of(host, again) == End(told=False, exit_code=None)


def test_the_last_words_of_a_start_are_waited_for_while_journald_gets_no_time(
    module_systemd: PrivateSystemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invocation = start(module_systemd, tmp_path, "echo loading; sleep 1; echo out of memory; exit 1\n")
    logs = unit_logs.Logs(module_systemd.host())
    found: Any = SimpleNamespace(snapshot=SimpleNamespace(standard_output="journal", properties={}))
    monkeypatch.setattr(unit_logs, "follow", lambda *start: module_systemd.exec(follow(*start)))
    file = tmp_path / "log"
    logs.follow(found, "talk.service", invocation, file)
    try:
        assert wait_for(lambda: file.read_bytes() == b"loading\n")
        module_systemd.systemctl("kill", "--signal=STOP", "systemd-journald.service")
        assert wait_for(lambda: module_systemd.systemctl("is-active", "talk.service", check=False) == "failed")
        resume = Timer(1.5, module_systemd.systemctl, ["kill", "--signal=CONT", "systemd-journald.service"])
        resume.start()
        assert logs.ended(found, "talk.service", invocation) == 1
        assert file.read_bytes() == b"loading\nout of memory\n"
        resume.join()
        begun = time.monotonic()
        assert logs.ended(found, "talk.service", invocation) == 1
        assert time.monotonic() - begun < 0.1, "it is asked again at every look at a server that is gone"
    finally:
        logs.close()


@pytest.mark.parametrize("invocation", ["", "x" * 32, "0" * 31, "0" * 32 + "\n", "_PID=1"])
def test_what_is_no_invocation_is_refused(module_systemd: PrivateSystemd, invocation: str) -> None:
    with pytest.raises(UsageError, match="InvocationID"):
        follow("talk.service", invocation)
    with pytest.raises(UsageError, match="InvocationID"):
        dropped(module_systemd.host(), "talk.service", invocation)
    with pytest.raises(UsageError, match="InvocationID"):
        end_of(module_systemd.host(), invocation)


def test_a_reader_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot copy the journal"):
        Follower(tmp_path / "log").start(["/not/there"])
    with pytest.raises(HostError, match="cannot copy the journal"):
        Follower(tmp_path / "no" / "log").start(["true"])
