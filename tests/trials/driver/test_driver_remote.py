"""The client of a trial on another machine: over the real ssh client, with an agent that says what a test wants."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.ssh_server import SshServer, ssh_server
from tests.trials.driver import stand_in

import draftworth
from draftworth.errors import DraftworthError, NotRestoredError, RefusedError, TrialError, UsageError
from draftworth.hosts.base import HostError
from draftworth.hosts.ssh import SshHost
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.reach import ssh_host
from draftworth.trials.driver.remote import RemoteStation
from draftworth.trials.driver.station import PlanShown

TRIAL = "20260101-000000"


@dataclass
class There:
    """A machine behind the ssh client, its home, and programs of the test in it."""

    folder: Path
    server: SshServer

    def program(self, name: str, text: str) -> str:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def draftworth(self, version: str = draftworth.__version__) -> str:
        """The real program, of some version."""
        code = f"import draftworth, sys; draftworth.__version__ = {version!r}; from draftworth.cli import main; main()"
        home = f"export DRAFTWORTH_HOME={self.folder}/there"
        return self.program(f"draftworth-{version}", f'{home}\nexec {sys.executable} -c {shlex.quote(code)} "$@"')

    def stand_in(self, *, log: Sequence[Any] = (), cuts: Sequence[int] = (), **answers: list[tuple[str, int]]) -> str:
        """What answers as the agent."""
        folder = self.folder / "stand-in"
        folder.mkdir(exist_ok=True)
        (folder / "log").write_text("".join(json.dumps(one) + "\n" for one in log), encoding="utf-8")
        (folder / "cuts").write_text("\n".join(map(str, cuts)), encoding="utf-8")
        (folder / "requests").write_text("", encoding="utf-8")
        (folder / "answers").write_text(json.dumps(answers), encoding="utf-8")
        return self.program("stand-in", f'STAND_IN={folder} exec {sys.executable} -S {stand_in.__file__} "$@"')

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "stand-in" / "requests").read_text().splitlines()]

    def station(self, program: str, *, sudo: bool = False, prefix: str = "", latest: str = "") -> RemoteStation:
        alias = prefix + self.server.alias
        host = SshHost(alias, ssh_config=self.server.config, connect_timeout_s=2)
        retry_s = (0.01, 0.01, 0.01)
        return RemoteStation(alias, program=program, sudo=sudo, latest=latest, host=host, retry_s=retry_s)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    keys = tmp_path / "ssh"
    keys.mkdir()
    path = f"{tmp_path}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with ssh_server(keys, prefix=["env", f"HOME={tmp_path}", f"PATH={path}"]) as server:
        yield There(tmp_path, server)


def texts(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in events if event["kind"] == "step"]


def test_it_is_found_by_name_by_path_and_below_home(there: There) -> None:
    path = there.draftworth()
    name = Path(path).name
    for program in (path, name, f"~/bin/{name}"):
        found = there.station(program).hello()
        assert (found["version"], found["home"], found["writable"]) == (
            draftworth.__version__,
            str(there.folder / "there"),
            True,
        )
        assert found["free"] > 0


def test_sudo(there: There) -> None:
    """It is asked without a terminal, and finds a program below the login's home, not root's."""
    program = Path(there.draftworth()).name
    there.program("sudo", '[ "$1 $2" = "-n --" ] && shift 2 && HOME=/root exec "$@"')
    for name in (program, f"~/bin/{program}"):
        assert there.station(name, sudo=True).hello()["version"] == draftworth.__version__
    there.program("sudo", 'echo "sudo: a password is required" >&2; exit 1')
    with pytest.raises(RefusedError, match=r"ssh machine: sudo does not let .* \(sudo: a password is required\).*NOPA"):
        there.station(program, sudo=True).hello()
    there.program("sudo", 'echo "sudo: $3: command not found" >&2; exit 1')
    with pytest.raises(UsageError, match=r"ssh machine: none: no such program there .*`draftworth host install mac"):
        there.station("none", sudo=True).hello()


def test_no_program_there(there: There) -> None:
    for program in ("no-such-program", "/no/such/program", "~/no/such/program"):
        for ask in (RemoteStation.hello, lambda one: one.fetch(TRIAL), lambda one: list(one.events(TRIAL))):
            with pytest.raises(
                UsageError, match=r"no such program there .*`draftworth host install machine` brings it"
            ):
                ask(there.station(program))


def test_another_version_there(there: There) -> None:
    message = (
        rf"Draftworth 0.0.1 is installed there and {draftworth.__version__} here.*`draftworth host install machine`"
    )
    for ask in (lambda one: one.status(None), lambda one: list(one.events(TRIAL)), lambda one: one.fetch(TRIAL)):
        with pytest.raises(UsageError, match=message):
            ask(there.station(there.draftworth("0.0.1")))


def test_a_version_without_an_agent(there: There) -> None:
    old = there.program("old", "echo 'draftworth: Unknown command \"agent\".' >&2; exit 1")
    with pytest.raises(
        UsageError, match=r'does not know what is asked .*Unknown command "agent".*host install machine'
    ):
        there.station(old).hello()


def test_what_is_said_instead_of_an_answer_is_told(there: There) -> None:
    with pytest.raises(TrialError, match=r"ssh machine: no answer: Segmentation fault"):
        there.station(there.program("odd", "echo Segmentation fault >&2; exit 139")).hello()


@pytest.mark.parametrize(
    ("code", "kind"), [(1, UsageError), (2, RefusedError), (4, NotRestoredError), (5, TrialError), (6, TrialError)]
)
def test_an_error_there_is_an_error_here(there: There, code: int, kind: type[DraftworthError]) -> None:
    answer = json.dumps({"error": {"exit": code, "text": "because", "commands": ["do this"]}})
    program = there.stand_in(status=[(answer + "\n", code)], events=[(answer, code)], fetch=[(answer, code)])
    station = there.station(program)
    for ask in (lambda: station.status(None), lambda: list(station.events(TRIAL)), lambda: station.fetch(TRIAL)):
        with pytest.raises(kind, match=r"ssh machine: because") as caught:
            ask()
        assert not isinstance(caught.value, NotRestoredError) or caught.value.commands == ("do this",)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, 12), st.lists(st.integers(0, 5), max_size=4))
def test_each_event_is_told_once_wherever_a_connection_ends(there: There, number: int, cuts: list[int]) -> None:
    log = [{"kind": "step", "text": f"step {one} \u2028 {'x' * one}"} for one in range(number)]
    told = list(there.station(there.stand_in(log=log, cuts=cuts)).events(TRIAL))
    assert texts(told) == [one["text"] for one in log]
    assert [event["kind"] for event in told].count("end") == 1
    assert told[-1]["kind"] == "end"
    same = [event for event in told if event.get("text") == "the same over each connection"]
    lost = [event for event in told if "the trial goes on there" in event.get("text", "")]
    again = [event for event in told if event.get("text") == "connected again"]
    assert len(same) <= 1 + len(lost)
    assert len(lost) == len(again)
    assert len(there.requests()) == 1 + len(lost)


def test_a_log_is_followed_from_where_it_was(there: There) -> None:
    log = [{"kind": "step", "text": f"step {one}"} for one in range(4)]
    size = len(json.dumps(log[0])) + 1
    station = there.station(there.stand_in(log=log, cuts=[2]))
    assert texts(list(station.events("latest", size))) == ["step 1", "step 2", "step 3"]
    # `latest` stays the trial that it was.
    assert [(one["trial"], one["offset"]) for one in there.requests()] == [("latest", size), (TRIAL, 3 * size)]


def test_latest_is_what_was_started_from_here(there: There) -> None:
    station = there.station(there.stand_in(status=[('{"trials": []}', 0)]), latest="20250505-050505")
    station.status("latest")
    station.status(None)
    assert [one["trial"] for one in there.requests()] == ["20250505-050505", None]


def test_a_machine_that_cannot_be_reached_is_told_of_at_once(there: There) -> None:
    program = there.stand_in()
    there.server.refuse()
    for ask in (
        lambda one: list(one.events(TRIAL)),
        lambda one: one.status(None),
        lambda one: one.release(TRIAL),
    ):
        with pytest.raises(HostError, match=r"ssh machine: connection refused"):
            ask(there.station(program))
    with pytest.raises(
        TrialError, match=r"refused.*not asked to end.*`draftworth trial stop 20260101-000000 --host mac"
    ):
        there.station(program).end(TRIAL)
    with pytest.raises(TrialError, match=r"ssh machine: connection refused.*the record is there"):
        there.station(program).fetch(TRIAL)
    config = SystemdTrial.model_validate_json(
        '{"service": {"type": "systemd", "unit": "llm", "host": "machine", "port": 1}, "arms": [{"name": "a"}]}'
    )
    with pytest.raises(RefusedError, match=r"ssh machine: connection refused"):
        there.station(program).plan(config)
    shown = PlanShown(lines=(), data={}, port=1, fingerprint="")
    with pytest.raises(TrialError, match=r"refused.*may have begun there: `draftworth trial status --host machine`"):
        there.station(program).start(config, shown)
    there.server.come_back()
    with pytest.raises(HostError, match=r"its host key is not known yet"):
        there.station(program, prefix="stranger-").status(None)


def test_a_fetch_that_is_cut_is_made_again(there: There, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))
    from draftworth.trials.driver.sending import pieces  # noqa: PLC0415 - beside its use

    trial = tmp_path / TRIAL
    trial.mkdir()
    (trial / "tag").write_text(f"{TRIAL}-abcdef", encoding="ascii")
    (trial / "trial.json").write_text("{}", encoding="utf-8")
    lines = [json.dumps(one) + "\n" for one in pieces(trial)]
    cut, whole = "".join(lines[:-1]), "".join(["Welcome!\n", *lines])
    status = ('{"trials": []}', 0)
    station = there.station(there.stand_in(status=[status], fetch=[(cut, 0), (cut, 0), (whole, 0)]))
    station.status(None)
    folder = station.fetch(TRIAL)
    assert folder == tmp_path / "home" / "trials" / TRIAL
    assert sorted(path.name for path in folder.iterdir()) == ["fetched.json", "tag", "trial.json"]
    station = there.station(there.stand_in(status=[status], fetch=[(cut, 0)]))
    station.status(None)
    with pytest.raises(
        TrialError, match=rf"only a part of trial {TRIAL} arrived; the record is there, `draftworth tri"
    ):
        station.fetch(TRIAL)
    assert len(there.requests()) == 4


def test_the_clients_own_configuration_of_ssh(there: There, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTWORTH_SSH_CONFIG", str(there.server.config))
    host = ssh_host(there.server.alias)
    assert host.run(["echo", "hi"]).out == b"hi\n"
    host.close()
    monkeypatch.setenv("DRAFTWORTH_SSH_CONFIG", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"DRAFTWORTH_SSH_CONFIG: .*none: no such file"):
        ssh_host(there.server.alias)
