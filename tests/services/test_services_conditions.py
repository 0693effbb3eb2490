"""The original comes back, and every arm starts, under the conditions the original was found in."""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import free_port, listener_command, listening, spawned, wait_for

from draftworth.errors import ServerStartError, TrialError
from draftworth.services.base import Observed, Running, Start
from draftworth.services.conditions import Conditions, conditions_of
from draftworth.services.ending import end
from draftworth.services.launch import Found, launch, script
from draftworth.services.process import ProcessService
from draftworth.services.processes import environment_hash, environment_of, family, identify, listener
from draftworth.trials.config import ServiceConfig

ODD = {
    b"BASH_FUNC_x%%": b"() {  echo 'hi'\n}",
    b"BASH_FUNC_y()": b"() { :; }",
    b"BYTES": bytes(range(1, 256)),
    b"MY_API_KEY": b"it's $ecret",
}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may switch users and lower a nice value")


def say(_: str) -> None:
    pass


@pytest.fixture
def run() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ended_after(run: ExitStack, running: Running) -> Running:
    run.callback(end, lambda: family(running.leader, running.session, None, ()), None, 0.0)
    return running


def runs_as_nobody(python: str) -> bool:
    try:
        return not subprocess.run([python, "-c", ""], user=65534, check=False, capture_output=True).returncode
    except OSError:
        return False


def environment() -> dict[bytes, bytes]:
    return {**os.environb, **ODD}


class Case:
    """An original under unusual conditions, and its service."""

    def __init__(self, run: ExitStack, folder: Path, python: str = sys.executable, **account: object) -> None:
        self.port = free_port()
        self.command = [python, *listener_command(self.port)[1:]]
        self.folder = folder / "it's a trial"
        (self.folder / "logs").mkdir(parents=True)
        config = ServiceConfig(command=tuple(self.command), port=self.port)
        self.service = ProcessService(config, tuple(self.command), stop_timeout_s=5.0)
        with (folder / "out.log").open("ab") as out, (folder / "err.log").open("ab") as errors:
            pid = run.enter_context(
                spawned(self.command, cwd=folder, env=environment(), stdout=out, stderr=errors, umask=0o027, **account)
            )
        os.setpriority(os.PRIO_PROCESS, pid, 3)
        os.sched_setaffinity(pid, {0})
        if not account:  # another user's needs CAP_SYS_RESOURCE, which root in a container lacks
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (512, 1024))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        Path(f"/proc/{pid}/oom_score_adj").write_text("500", encoding="ascii")
        wait_for(lambda: listening(self.port))
        self.pid = pid
        self.before = conditions_of(pid)

    def saved(self) -> Observed:
        observed = self.service.observe()
        self.service.save_original(observed, self.folder)
        return observed


def check_conditions(found: Conditions) -> None:
    assert found.nice == 3
    assert found.affinity == (0,)
    assert found.umask == 0o027
    assert found.oom_score_adj == 500
    assert found.limits["RLIMIT_NOFILE"] == (512, 1024)
    assert found.limits["RLIMIT_CORE"] == (0, 0)


def test_an_arm_and_the_restored_original_run_as_the_original_did(run: ExitStack, tmp_path: Path) -> None:
    case = Case(run, tmp_path)
    check_conditions(case.before)
    assert case.before.unread() == ()
    observed = case.saved()
    assert observed.notes == ()
    mine = conditions_of(os.getpid())
    case.service.stop_original(observed, say)
    start = Start(command=tuple(case.command), env={}, mark=f"c-{case.port}/1", log=tmp_path / "arm.log")
    arm = ended_after(run, case.service.start(start, say))
    assert conditions_of(arm.leader.pid) == case.before
    wait_for(lambda: listening(case.port))
    case.service.stop(arm, say)

    back = ended_after(run, case.service.start_original(observed, case.folder, say))
    wait_for(lambda: listening(case.port))
    pid = back.leader.pid
    assert conditions_of(pid) == case.before
    assert environment_of(pid) == {os.fsdecode(k): os.fsdecode(v) for k, v in environment().items()}
    assert Path(f"/proc/{pid}/fd/1").readlink() == tmp_path / "out.log"
    assert Path(f"/proc/{pid}/fd/2").readlink() == tmp_path / "err.log"
    assert case.service.find_original(observed) is not None
    assert conditions_of(os.getpid()) == mine, "the tool itself keeps its own"


def test_the_script_restores_the_same(run: ExitStack, tmp_path: Path) -> None:
    case = Case(run, tmp_path)
    observed = case.saved()
    case.service.stop_original(observed, say)
    path = case.folder / "restore.sh"
    assert path.stat().st_mode & 0o777 == 0o700
    subprocess.run(["sh", "-n", str(path)], check=True, timeout=10)
    subprocess.run(["sh", str(path)], check=True, timeout=10)
    wait_for(lambda: listening(case.port))
    found = listener(case.port, "127.0.0.1")
    assert found is not None
    run.callback(psutil.Process(found.pid).kill)
    assert environment_hash(environment_of(found.pid)) == observed.env_hash
    assert case.service.find_original(observed) is not None
    after = conditions_of(found.pid)
    assert (after.umask, after.nice, after.affinity, after.oom_score_adj) == (0o027, 3, (0,), 500)
    assert Path(f"/proc/{found.pid}/fd/1").readlink() == tmp_path / "out.log"
    assert Path(f"/proc/{found.pid}/fd/2").readlink() == tmp_path / "err.log"


@AS_ROOT
@pytest.mark.parametrize("groups", [(), (54321, 54322)])
def test_arms_restore_and_script_switch_to_the_originals_user(
    run: ExitStack, tmp_path: Path, groups: tuple[int, ...]
) -> None:
    python = next((path for path in (sys.executable, "/usr/bin/python3") if runs_as_nobody(path)), None)
    if python is None:
        pytest.skip("every interpreter lies where nobody else may read")
    case = Case(run, tmp_path, python, user=65534, group=65533, extra_groups=groups)
    observed = case.saved()
    case.service.stop_original(observed, say)
    start = Start(command=("id",), env={}, mark="c/1", log=tmp_path / "arm.log")
    arm = case.service.start(start, say)
    assert arm.uid == 65534
    wait_for(lambda: (tmp_path / "arm.log").read_text(encoding="utf-8"))
    shown = (tmp_path / "arm.log").read_text(encoding="utf-8")
    assert "uid=65534" in shown
    assert "gid=65533" in shown
    assert all(str(group) in shown for group in groups)
    back = case.service.start_original(observed, case.folder, say)
    wait_for(lambda: listening(case.port))
    assert conditions_of(back.leader.pid) == case.before
    case.service.stop(back, say)
    subprocess.run(["sh", str(case.folder / "restore.sh")], check=True, timeout=10)
    wait_for(lambda: listening(case.port))
    found = listener(case.port, "127.0.0.1")
    assert found is not None
    run.callback(psutil.Process(found.pid).kill)
    after = conditions_of(found.pid)
    assert (after.uid, after.gid, after.groups) == (65534, 65533, groups)


@AS_ROOT
def test_the_nice_value_is_lowered_too(run: ExitStack, tmp_path: Path) -> None:
    got: list[int] = []

    def as_under_nice() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 10)  # of this thread alone
        started = launch(["sleep", "60"], dict(os.environ), "/", tmp_path / "log", "", conditions=Conditions(nice=0))
        ended_after(run, started)
        got.append(os.getpriority(os.PRIO_PROCESS, started.leader.pid))

    thread = threading.Thread(target=as_under_nice)
    thread.start()
    thread.join()
    assert got == [0]


def test_what_may_not_be_set_does_not_prevent_the_start(run: ExitStack, tmp_path: Path) -> None:
    wild = Conditions(
        nice=-99,
        affinity=(4095,),
        oom_score_adj=99999,
        limits={"RLIMIT_NOFILE": (2**40, 2**40), "RLIMIT_OF_A_LATER_PYTHON": (1, 1), "RLIMIT_STACK": (2**20, 2**19)},
    )
    gone = tmp_path / "none" / "errors"
    running = launch(["sleep", "60"], dict(os.environ), "/", tmp_path / "log", "", errors=gone, conditions=wild)
    ended_after(run, running)
    assert identify(running.leader.pid) == running.leader
    assert Path(f"/proc/{running.leader.pid}/fd/2").readlink() == tmp_path / "log"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.prlimit(running.leader.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_process_that_is_gone_has_no_conditions() -> None:
    assert conditions_of(2**22 + 1) == Conditions()
    assert Conditions().unread() == (
        "user and groups", "nice value", "processors", "umask", "OOM score", "resource limits",
    )  # fmt: skip


def test_a_thread_bound_by_a_library_does_not_count(run: ExitStack) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    code = (
        "import os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "print(flush=True)\ntime.sleep(60)\n"
    )
    reader, writer = os.pipe()
    pid = run.enter_context(spawned([sys.executable, "-c", code], stdout=writer))
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    assert conditions_of(pid).affinity == tuple(sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"env": 3, "cwd": "/", "log": null}', "\x00"])
def test_a_broken_save_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "original.json").write_text(text, encoding="utf-8")
    found = ProcessService(ServiceConfig(command=("x",), port=1), ("x",), stop_timeout_s=1)
    with pytest.raises(TrialError, match=r"original\.json cannot be read .*start the service by hand") as caught:
        found.start_original(Observed(running=True, command=("x",)), tmp_path, say)
    assert "\n" not in str(caught.value)


def test_an_original_that_was_not_looked_at_is_not_saved_as_nothing(tmp_path: Path) -> None:
    found = ProcessService(ServiceConfig(command=("x",), port=1), ("x",), stop_timeout_s=1)
    with pytest.raises(TrialError, match="not looked at"):
        found.save_original(Observed(running=True, process=identify(os.getpid())), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_value_no_process_can_have_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="sleep: cannot be started: embedded null byte"):
        launch(["sleep", "1"], {"A": "a\0b"}, "/", tmp_path / "log", "")


@given(st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=20), max_size=4))
def test_any_environment_survives_the_script(env: dict[bytes, bytes]) -> None:
    clean = {k.replace(b"\0", b"").replace(b"=", b"") or b"K": v.replace(b"\0", b"") for k, v in env.items()}
    texts = {os.fsdecode(k): os.fsdecode(v) for k, v in clean.items()}
    found = Found(env=texts, cwd="/", errors=None, conditions=Conditions())
    text = script(Observed(running=True, command=("/usr/bin/env", "-0")), found, Path("/dev/stdout"))
    # In the foreground and onto standard output, to read what the command gets.
    text = text.replace("setsid ", "").replace(" </dev/null >>/dev/stdout 2>&1 &", "")
    shown = subprocess.run(["sh"], input=os.fsencode(text), check=True, capture_output=True, timeout=10).stdout
    entries = dict(entry.split(b"=", 1) for entry in shown.split(b"\0") if entry)
    assert entries == clean
    assert json.loads(json.dumps(texts)) == texts
