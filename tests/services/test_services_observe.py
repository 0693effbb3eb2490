"""What holds the port is told from replicas, loading servers, strangers, units and containers."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.helpers import free_port, listener_command, listening, spawned, wait_for

from draftworth.errors import RefusedError, TrialError
from draftworth.services import observe, places, process, processes
from draftworth.services.base import MARK, Observed, ProcessId, Running
from draftworth.services.process import ProcessService
from draftworth.services.processes import addresses, describe, environment_hash, family, identify, is_alive, listener
from draftworth.trials.config import ServiceConfig

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
REPLICA = "import os, socket, time; s = socket.create_server(('127.0.0.1', int(os.environ['DW_PORT']))); time.sleep(60)"


def say(_: str) -> None:
    pass


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def run() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def service(command: list[str], port: int, host: str = "127.0.0.1") -> ProcessService:
    config = ServiceConfig(command=tuple(command), port=port, host=host)
    return ProcessService(config, tuple(command), stop_timeout_s=5.0)


def serving(run: ExitStack, command: list[str], port: int, **options: Any) -> int:
    pid: int = run.enter_context(spawned(command, **options))
    wait_for(lambda: listening(port), what="it listens")
    return pid


def known(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def test_marks_that_differ_in_their_token_are_told_apart(run: ExitStack, port: int) -> None:
    marks = [f"20260101-030000-{port}{token}/02-start" for token in "ab"]
    pids = [run.enter_context(spawned(SLEEP, env={**os.environ, MARK: mark})) for mark in marks]
    wait_for(lambda: all(processes.mark_of(pid) for pid in pids))
    found = service(["x"], port).find_marked(f"20260101-030000-{port}a/")
    assert [one.pid for one in found] == pids[:1]


def test_a_recycled_session_id_is_a_strangers(run: ExitStack, port: int, tmp_path: Path) -> None:
    stranger = known(run.enter_context(spawned(SLEEP)))
    ours = stranger.model_copy(update={"started": stranger.started - 1})
    assert family(ours, stranger.pid, None, ()) == set()
    assert family(stranger, stranger.pid, None, ()) == {stranger}
    running = Running(leader=ours, session=stranger.pid, mark="gone/01", log=tmp_path / "log")
    assert list(service(["x"], port).clear([running], [], say)) == []
    assert is_alive(stranger)


def test_a_session_of_another_boot_is_a_strangers(run: ExitStack) -> None:
    leader = known(run.enter_context(spawned(SLEEP)))
    assert family(leader.model_copy(update={"boot": "another"}), leader.pid, None, ()) == set()


def test_a_replica_is_never_taken_for_the_original(run: ExitStack, port: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", REPLICA]
    other = free_port()
    env = {**os.environ, "DW_PORT": str(port)}
    replica = serving(run, command, other, cwd=tmp_path, env={**env, "DW_PORT": str(other)})
    pid = serving(run, command, port, cwd=tmp_path, env=env)
    found = service(command, port)
    observed = found.observe()
    assert observed.process == known(pid)
    assert observed.twins == (known(replica),)
    assert observed.env_hash == environment_hash(env)
    assert found.find_original(observed) == found.as_found(observed)
    found.stop_original(observed, say)
    assert found.find_original(observed) is None
    assert is_alive(known(replica))
    # Also where only one of the two tells them apart.
    assert found.find_original(observed.model_copy(update={"twins": ()})) is None
    assert found.find_original(observed.model_copy(update={"env_hash": None})) is None
    again = serving(run, command, port, cwd=tmp_path, env={**env, MARK: "t/1"})
    assert found.find_original(observed) is None, "what a trial started is no original"
    assert found.find_holder(observed) is None
    psutil.Process(again).kill()
    wait_for(lambda: not listening(port))
    back = serving(run, command, port, cwd=tmp_path, env=env)
    running = found.find_original(observed)
    assert running is not None
    assert running.leader == known(back)


def test_a_service_restarted_by_hand_is_the_ports_holder(run: ExitStack, port: int, tmp_path: Path) -> None:
    command = listener_command(port)
    pid = serving(run, command, port, cwd=tmp_path)
    found = service(command, port)
    observed = found.observe()
    found.stop_original(observed, say)
    assert found.find_holder(observed) is None
    with (tmp_path / "by-hand.log").open("wb") as log:
        by_hand = serving(run, command, port, cwd="/", env={**os.environ, "SHELL_OF": "somebody"}, stdout=log)
    assert by_hand != pid
    assert found.find_original(observed) is None
    holder = found.find_holder(observed)
    assert holder is not None
    assert holder.leader == known(by_hand)
    assert holder.log == tmp_path / "by-hand.log"
    assert found.owns_port(holder)
    assert found.find_holder(observed.model_copy(update={"command": ("other",)})) is None


def test_every_listener_of_a_shared_port_must_be_of_the_start(run: ExitStack, port: int, tmp_path: Path) -> None:
    command = listener_command(port)
    first = known(serving(run, command, port))
    found = service(command, port)
    running = Running(leader=first, session=first.pid, mark="", log=tmp_path / "log")
    assert found.owns_port(running)
    second = known(run.enter_context(spawned(listener_command(port, state="too"))))
    wait_for(lambda: len(processes.listeners(port)) == 2)
    assert not found.owns_port(running)
    assert not found.owns_port(running.model_copy(update={"leader": second, "session": second.pid}))
    assert found.owns_port(running.model_copy(update={"seen": (second,)}))
    with pytest.raises(RefusedError, match=f"port {port} is shared: .*stop the one that is not the service"):
        found.observe()


def test_nobody_on_the_port_is_owned_by_nobody(run: ExitStack, port: int, tmp_path: Path) -> None:
    leader = known(run.enter_context(spawned(SLEEP)))
    assert not service(["x"], port).owns_port(Running(leader=leader, session=0, mark="", log=tmp_path / "log"))


def test_a_server_that_still_loads_is_refused(run: ExitStack, port: int) -> None:
    command = listener_command(port, state="loading")
    pid = run.enter_context(spawned(command))
    wait_for(lambda: psutil.Process(pid).cmdline() == command)
    with pytest.raises(RefusedError) as caught:
        service(command, port).observe()
    assert str(caught.value).startswith(f"the service is starting (pid {pid} of ")
    assert str(caught.value).endswith(f"does not listen on port {port} yet; wait until it serves, or stop it")


def test_what_a_trial_left_loading_is_refused_as_such(run: ExitStack, port: int) -> None:
    command = listener_command(port, state="loading")
    pid = run.enter_context(spawned(command, env={**os.environ, MARK: "20260101-000000-ab/03"}))
    wait_for(lambda: psutil.Process(pid).cmdline() == command)
    with pytest.raises(RefusedError, match=r"left behind .*run `draftworth trial restore 20260101-000000-ab` first"):
        service(command, port).observe()


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/vllm.service\n", "/system.slice/vllm.service"),
        ("0::/system.slice/vllm.service/workers\n", "/system.slice/vllm.service"),
        (
            "2:cpu:/\n1:name=systemd:/system.slice/system-vllm.slice/vllm@0.service\n0::/\n",
            "/system.slice/system-vllm.slice/vllm@0.service",
        ),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service\n",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service",
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-term-1.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_is_read_from_the_cgroups(cgroup: str, unit: str | None) -> None:
    assert places.unit_of(cgroup) == unit


def test_an_original_in_a_unit_is_refused_unless_the_tool_is_in_it_too(
    run: ExitStack, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = listener_command(port)
    pid = serving(run, command, port)
    units = {pid: "0::/system.slice/vllm.service"}
    monkeypatch.setattr(places, "_cgroup", lambda one: units.get(one, "0::/user.slice/session-1.scope"))
    for name in (command, ["another"]):
        with pytest.raises(RefusedError, match=r"belongs to the systemd unit vllm\.service; .*stop it first") as caught:
            service(name, port).observe()
        assert "service.command" not in str(caught.value)
    units[os.getpid()] = "0::/system.slice/vllm.service/sub"
    assert service(command, port).observe().running


@pytest.mark.parametrize("flags", [["--mount"], ["--pid", "--fork", "--kill-child"]])
def test_an_original_in_a_container_is_refused(run: ExitStack, port: int, flags: list[str]) -> None:
    unshare = [shutil.which("unshare") or "unshare", *flags]
    if os.geteuid():
        unshare[1:1] = ["--user", "--map-root-user"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("namespaces cannot be made here")
    command = listener_command(port)
    serving(run, [*unshare, *command], port)
    with pytest.raises(RefusedError, match=r"runs in a container \(another (mount|pid) namespace\); .*stop it first"):
        service(command, port).observe()


def test_a_port_forwarded_to_a_container_is_not_offered_as_a_command(run: ExitStack, port: int) -> None:
    serving(run, ["docker-proxy", *listener_command(port)[1:]], port, executable=sys.executable)
    with pytest.raises(RefusedError, match="forwards the port to a container") as caught:
        service(["vllm"], port).observe()
    assert "set service.command" not in str(caught.value)


def test_localhost_is_every_address_it_resolves_to(run: ExitStack, port: int) -> None:
    command = listener_command(port)
    pid = serving(run, command, port)
    assert listener(port, "localhost") == known(pid)
    assert service(command, port, "localhost").observe().process == known(pid)
    assert listener(port, "127.0.0.2") is None


def test_hosts_are_resolved_or_compared_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses("127.0.0.1") == frozenset({"127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::"})
    assert addresses("::1") == frozenset({"::1", "0.0.0.0", "::"})
    assert addresses("0.0.0.0") is None

    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert addresses("gpu.invalid") == frozenset({"gpu.invalid", "::ffff:gpu.invalid", "0.0.0.0", "::"})


def test_a_description_hides_secrets(run: ExitStack) -> None:
    pid = run.enter_context(spawned([*SLEEP, "--api-key", "sk-very-secret"]))
    wait_for(lambda: "--api-key" in psutil.Process(pid).cmdline())
    assert "sk-very-secret" not in describe(known(pid))
    assert "--api-key (hidden)" in describe(known(pid))


def test_a_strangers_secret_is_not_shown(run: ExitStack, port: int) -> None:
    serving(run, [*listener_command(port), "--api-key", "sk-very-secret"], port)
    with pytest.raises(RefusedError, match="with what is hidden here written out") as caught:
        service(["vllm"], port).observe()
    assert "sk-very-secret" not in str(caught.value)


def test_what_cannot_be_kept_is_told(run: ExitStack, port: int, tmp_path: Path) -> None:
    command = listener_command(port)
    with (tmp_path / "errors").open("wb") as errors:
        reader, writer = os.pipe()
        run.callback(os.close, reader)
        run.callback(os.close, writer)
        pid = run.enter_context(spawned(command, stdout=writer, stderr=errors))
    wait_for(lambda: listening(port))
    observed = service(command, port).observe()
    assert observed.process == known(pid)
    assert observed.log is None
    assert observed.notes == (
        "its standard output went to a pipe; after the restore it goes to the trial's logs/original.log",
    )


def test_a_folder_that_is_gone_is_refused(run: ExitStack, port: int, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    command = listener_command(port)
    serving(run, command, port, cwd=folder)
    folder.rmdir()
    with pytest.raises(RefusedError, match=r"its folder .* is gone"):
        service(command, port).observe()


@pytest.mark.parametrize("problem", [psutil.NoSuchProcess(1), psutil.AccessDenied(1), PermissionError(13, "no")])
def test_what_the_kernel_refuses_is_one_clear_line(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise problem

    for module in (observe, process):
        monkeypatch.setattr(module, "listeners", fail)
    monkeypatch.setattr(process, "port_taken", fail)
    found = service(["x"], port)
    with pytest.raises(RefusedError, match=f"the service on port {port} cannot be looked at"):
        found.observe()
    leader = ProcessId(pid=1, started=1, boot="x")
    with pytest.raises(TrialError, match="cannot be looked at"):
        found.owns_port(Running(leader=leader, session=0, mark="", log=tmp_path))
    with pytest.raises(TrialError, match="cannot be looked at"):
        found.find_holder(Observed(running=True))
    with pytest.raises(TrialError, match="cannot be looked at"):
        found.holder()
