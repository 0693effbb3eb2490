"""A process as a service: recognised, started, stopped with everything it made, put back as it was."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.helpers import fake_command, free_port, listening, original, pids_with, wait_for

from draftworth.errors import RefusedError, ServerStartError, TrialError
from draftworth.services.base import MARK, Observed, Running, Start
from draftworth.services.ending import end
from draftworth.services.process import ProcessService
from draftworth.services.processes import exit_code, family, identify, is_alive, listener, mark_of, tail
from draftworth.services.recognise import same_command
from draftworth.trials.config import ServiceConfig


def say(_: str) -> None:
    pass


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def started() -> Iterator[list[Running]]:
    """Whatever a test starts and does not stop is killed after it."""
    running: list[Running] = []
    yield running
    for one in running:
        end(lambda one=one: family(one.leader, one.session, one.mark, one.seen), None, 0.0)  # type: ignore[misc]


def service(command: list[str], port: int, patience: float = 5.0) -> ProcessService:
    return ProcessService(ServiceConfig(command=tuple(command), port=port), tuple(command), stop_timeout_s=patience)


def launch(found: ProcessService, command: list[str], folder: Path, port: int, started: list[Running]) -> Running:
    start = Start(command=tuple(command), env={}, mark="trial/01", log=folder / "logs" / "01.log")
    running = found.start(start, say)
    started.append(running)
    wait_for(lambda: listening(port), what="the server listens")
    return found.refresh(running)


def test_an_idle_port_is_observed_as_nothing_running(port: int) -> None:
    assert service(["x"], port).observe() == Observed(running=False)


def test_the_running_original_is_recognised_with_all_that_puts_it_back(tmp_path: Path, port: int) -> None:
    command = fake_command(tmp_path, port)
    with original(command, port, tmp_path) as pid:
        observed = service(command, port).observe()
        assert observed.running
        assert observed.process == identify(pid)
        assert list(observed.command) == command
        assert observed.cwd == str(tmp_path)
        assert observed.log == str(tmp_path / "original.log")


def test_a_stranger_on_the_port_is_named_with_the_command_to_write(tmp_path: Path, port: int) -> None:
    command = fake_command(tmp_path, port)
    with original(command, port, tmp_path) as pid, pytest.raises(RefusedError) as caught:
        service(["vllm", "serve", "m"], port).observe()
    message = str(caught.value)
    assert f"port {port} is taken by pid {pid} of " in message
    assert json.dumps(command) in message
    assert "\n" not in message


def test_what_an_earlier_trial_left_is_not_taken_for_the_original(tmp_path: Path, port: int) -> None:
    command = fake_command(tmp_path, port)
    with (
        original(command, port, tmp_path, {MARK: "20260101-000000/03-start"}),
        pytest.raises(RefusedError, match=r"`draftworth trial restore 20260101-000000` first"),
    ):
        service(command, port).observe()


@pytest.mark.parametrize(
    ("argv", "command", "same"),
    [
        (["vllm", "serve", "m"], ["vllm", "serve", "m"], True),
        (["/usr/bin/python3", "/opt/bin/vllm", "serve", "m"], ["vllm", "serve", "m"], True),
        (["/opt/venv/bin/python", "-m", "x"], ["python", "-m", "x"], True),
        (["python", "-m", "x", "--flag"], ["python", "-m", "x"], False),
        (["vllm", "serve"], ["vllm", "serve", "m"], False),
        ([], ["vllm"], False),
    ],
)
def test_commands_are_compared_as_the_kernel_shows_them(argv: list[str], command: list[str], same: bool) -> None:  # noqa: FBT001
    assert same_command(argv, command) is same


def test_start_and_stop_leave_no_process_and_a_free_port(tmp_path: Path, port: int, started: list[Running]) -> None:
    script = {"spawn_children": 2, "detached_children": 1, "stubborn_children": 1}
    command = fake_command(tmp_path, port, script)
    found = service(command, port, patience=2.0)
    running = launch(found, command, tmp_path, port, started)
    assert found.owns_port(running)
    assert found.alive(running)
    assert mark_of(running.leader.pid) == "trial/01"
    assert len(running.seen) == 5, "the server, two children, one detached, one stubborn"
    remarks = found.stop(running, say)
    assert not listening(port)
    assert not [process for process in running.seen if is_alive(process)]
    assert pids_with(f"script-{port}.json") == []
    assert any("did not end on SIGTERM and was killed" in remark for remark in remarks)


def test_a_server_that_ignores_sigterm_is_killed_in_time(tmp_path: Path, port: int, started: list[Running]) -> None:
    command = fake_command(tmp_path, port, {"ignore_sigterm": True})
    found = service(command, port, patience=0.5)
    running = launch(found, command, tmp_path, port, started)
    began = time.monotonic()
    remarks = found.stop(running, say)
    assert time.monotonic() - began < 10
    assert len(remarks) == 1
    assert not found.alive(running)
    assert exit_code(running.leader.pid) == -9


def test_workers_left_by_a_killed_leader_are_found_and_ended(tmp_path: Path, port: int, started: list[Running]) -> None:
    # vllm#55510: the API server is killed, its workers live on, reparented.
    command = fake_command(tmp_path, port, {"spawn_children": 2, "detached_children": 1})
    found = service(command, port)
    running = launch(found, command, tmp_path, port, started)
    psutil.Process(running.leader.pid).kill()
    wait_for(lambda: not found.alive(running))
    assert len(family(running.leader, running.session, running.mark, running.seen)) == 3
    found.stop(running, say)
    assert not [process for process in running.seen if is_alive(process)]


def test_a_program_that_is_not_there_and_a_folder_that_is_not_there(tmp_path: Path, port: int) -> None:
    found = service(["/no/such/vllm"], port)
    start = Start(command=("/no/such/vllm",), env={}, mark="t/1", log=tmp_path / "log")
    with pytest.raises(ServerStartError, match="/no/such/vllm: no such file; is the engine installed"):
        found.start(start, say)
    (tmp_path / "plain").write_text("x", encoding="utf-8")
    with pytest.raises(ServerStartError, match="cannot be started: Permission denied"):
        found.start(start.model_copy(update={"command": (str(tmp_path / "plain"),)}), say)


def test_the_original_is_put_back_as_it_was(tmp_path: Path, port: int, started: list[Running]) -> None:
    command = fake_command(tmp_path, port)
    folder = tmp_path / "trial"
    (folder / "logs").mkdir(parents=True)
    secret = {"MY_API_KEY": "it's $ecret", "ODD": "a\nb"}
    with original(command, port, tmp_path, secret) as pid:
        psutil.Process(pid).nice(5)
        psutil.Process(pid).cpu_affinity([0])
        found = service(command, port)
        observed = found.observe()
        found.save_original(observed, folder)
        assert (folder / "original.json").stat().st_mode & 0o777 == 0o600
        assert (folder / "restore.sh").stat().st_mode & 0o777 == 0o700
        environment = psutil.Process(pid).environ()
        found.stop_original(observed, say)
        assert not listening(port)
        assert found.find_original(observed) is None

        other = service(command, port)  # as another process would: it has observed nothing
        running = other.start_original(observed, folder, say)
        started.append(running)
        wait_for(lambda: listening(port))
        back = psutil.Process(running.leader.pid)
        assert tuple(back.cmdline()) == observed.command
        assert back.cwd() == observed.cwd
        assert back.environ() == environment
        assert MARK not in back.environ()
        assert back.nice() == 5
        assert back.cpu_affinity() == [0]
        assert os.getsid(back.pid) == back.pid
        assert Path(f"/proc/{back.pid}/fd/1").readlink() == tmp_path / "original.log"
        assert other.find_original(observed) is not None
        other.forget_original(folder)
        assert list(folder.iterdir()) == [folder / "logs"], "the environment may hold keys, so it does not stay"


def test_the_shell_script_alone_puts_the_original_back(tmp_path: Path, port: int) -> None:
    command = fake_command(tmp_path, port)
    folder = tmp_path / "it's here"
    (folder / "logs").mkdir(parents=True)
    with original(command, port, tmp_path, {"MY_API_KEY": "it's $ecret"}):
        found = service(command, port)
        observed = found.observe()
        found.save_original(observed, folder)
        found.stop_original(observed, say)
    subprocess.run(["sh", str(folder / "restore.sh")], check=True, timeout=10)
    wait_for(lambda: listening(port))
    holder = listener(port, "127.0.0.1")
    assert holder is not None
    try:
        assert tuple(psutil.Process(holder.pid).cmdline()) == observed.command
        assert psutil.Process(holder.pid).environ()["MY_API_KEY"] == "it's $ecret"
        assert os.getsid(holder.pid) == holder.pid, "it must not die with the shell"
    finally:
        psutil.Process(holder.pid).kill()


def test_a_service_that_something_restarts_is_found_again(tmp_path: Path, port: int) -> None:
    command = fake_command(tmp_path, port)
    loop = "import subprocess, sys\nwhile True: subprocess.run(sys.argv[1:])\n"
    supervisor = subprocess.Popen([sys.executable, "-c", loop, *command], cwd=tmp_path, start_new_session=True)
    try:
        wait_for(lambda: listening(port))
        found = service(command, port)
        observed = found.observe()
        # The supervisor may be quicker than the look at the port or slower; either way it is the original again.
        with suppress(TrialError):
            found.stop_original(observed, say)
        wait_for(lambda: listening(port))
        assert found.find_original(observed) is not None
    finally:
        supervisor.kill()
        supervisor.wait()
        for pid in pids_with(f"script-{port}.json"):
            psutil.Process(pid).kill()


def test_the_tail_of_a_log_is_short_and_survives_odd_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" * 50000 + b"\xff odd\n\nlast\n")
    assert list(tail(path, lines=2)) == ["\N{REPLACEMENT CHARACTER} odd", "last"]
    assert tail(tmp_path / "none") == ()
