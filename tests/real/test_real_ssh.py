"""Trials driven on another machine through the real ssh client: from the first step to the record that was fetched.

Behind the server is a private systemd; its login shell prints a banner, as many do.
"""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.remote_case import RemoteCase, remote_case, result_of
from tests.real.unit_case import QUICK

from draftworth.trials.driver.remote import RemoteStation

BANNER = ("/bin/sh", "-c", 'echo "Welcome to gpu1"; eval "$1"', "login")
KEY = "sk-test-5f1c0a7be2d94e"
SLOW = {**QUICK, "token_ms": 40.0}


@pytest.fixture
def case(
    module_systemd: PrivateSystemd, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RemoteCase]:
    unit = f"ssh-{request.node.name[5:40].replace('[', '-').replace('_', '-').rstrip(']')}.service"
    with remote_case(module_systemd, tmp_path, unit, shell=BANNER) as made:
        monkeypatch.setenv("DRAFTWORTH_HOME", str(made.client))  # for what runs in this process
        yield made


def follow(station: RemoteStation, trial: str, told: list[dict[str, Any]], on_step: Any = None) -> None:
    """Collect what a trial says to its end; `on_step(number)` is called as each step begins."""
    steps = 0
    for event in station.events(trial):
        told.append(event)
        if event["kind"] == "step":
            steps += 1
            if on_step is not None:
                on_step(steps)


def each_once(case: RemoteCase, told: list[dict[str, Any]]) -> None:
    """Check that what was told is the trial's own log, in order, each event once."""
    shown = [{name: value for name, value in event.items() if name != "at"} for event in told if "at" in event]
    assert shown == case.logged()
    assert [event["kind"] for event in told].count("end") == 1


def outcome(told: list[dict[str, Any]]) -> tuple[str, int]:
    return str(told[-1]["kind"]), int(told[-1]["exit"])


def test_a_trial_from_another_machine(case: RemoteCase, tmp_path: Path) -> None:
    """Its key, prompts and file are the client's; the record comes to the client."""
    prompts = tmp_path / "mine" / "prompts.jsonl"
    prompts.parent.mkdir()
    prompts.write_text('{"prompt": "What is a unit of systemd?"}\n{"prompt": "And a timer?"}\n', encoding="utf-8")
    case.serve({**QUICK, "api_key": KEY}).remember()
    case.trial(service='api_key_env = "MY_KEY"')
    text = case.file.read_text(encoding="utf-8").replace('categories = ["coding"]\nprompts_per_category = 1\n', "")
    case.file.write_text(text.replace("[workload]", f'[workload]\nsource = "{prompts}"'), encoding="utf-8")
    env = {"MY_KEY": KEY}

    assert case.cli("trial", "plan", str(case.file)).code == 1
    plan = case.cli("trial", "plan", str(case.file), "--json", env=env)
    assert plan.code == 0, plan.err
    assert plan.json["unit"] == case.unit
    assert plan.json["requests"] > 0
    assert case.trials() == []

    process = case.begin(env=env)
    case.wait_step("measure-ngram")
    found = places_of(KEY, case)
    done = result_of(process)

    assert done.code in {0, 3}, done.err
    assert done.json["verdict"] in {"faster", "inconclusive"}
    assert done.json["restored"] is True
    trial = done.json["id"]
    here = case.client / "trials" / trial
    assert json.loads((here / "trial.json").read_text()) == case.record() == done.json
    assert (here / "requests.parquet").read_bytes() == (case.trials()[-1] / "requests.parquet").read_bytes()
    assert (here / "report.md").is_file()
    case.wait_back(5)

    # The key was in the environment's private file and in the restore's question; in neither's folder for others.
    assert found, "the trial has the key somewhere"
    assert {Path(path).name for path, _ in found} <= {"environment", "headers"}
    assert {mode for _, mode in found} == {"600"}
    assert all(path.startswith("/run/draftworth/") for path, _ in found)
    assert places_of(KEY, case) == []
    assert KEY not in done.out + done.err + "".join(case.server.commands)

    # By its id alone, from here.
    assert case.cli("trial", "show", trial).code == 0
    status = case.cli("trial", "status", trial, "--json")
    assert [(one["id"], one["running"], one["ended"]) for one in status.json["trials"]] == [(trial, False, done.code)]
    assert (
        "No trial is at work on a systemd unit of ssh machine" in case.cli("trial", "status", "--host", "machine").out
    )
    assert case.cli("trial", "stop", trial).out == f"Trial {trial} is not at work.\n"
    released = case.cli("trial", "release", "latest")
    assert (released.code, released.err) == (1, f"draftworth: trial {trial} holds no variant now\n")

    for words in (("attach",), ("stop",)):
        unknown = case.cli("trial", *words, "20200101-000000", "--host", "machine", "--draftworth", str(case.program))
        assert unknown.code == 1
        assert unknown.err.startswith("draftworth: ssh machine: no trial '20200101-000000' in ")
        assert len(unknown.err.splitlines()) == 1


def places_of(secret: str, case: RemoteCase) -> list[tuple[str, str]]:
    """Return each file of the machine that holds a secret, with its mode; fail where a unit or the journal does."""
    folders = ["/run", "/etc/systemd", "/var/lib", "/var/log", "/var/tmp", "/dev/shm", str(case.home), str(case.client)]
    find = case.systemd.run(
        ["grep", "-rlsF", "--exclude-dir=private-systemd", "--", secret, *folders], check=False
    ).stdout.decode()
    files = [path for path in find.splitlines() if path]
    assert secret not in case.systemd.run(["journalctl", "--no-pager", "-o", "export"]).stdout.decode(errors="replace")
    assert secret not in case.systemd.systemctl("show", "--all", "*")
    modes = [case.systemd.run(["stat", "-c", "%a", path], check=False).stdout.decode().strip() for path in files]
    return list(zip(files, modes, strict=True))


def test_ctrl_c_ends_the_trial_and_the_service_is_back(case: RemoteCase) -> None:
    """Meanwhile a second one is refused, and nothing of it stays."""
    case.serve().trial().remember()
    case.script({**QUICK, "speculating": {**QUICK["speculating"], "load_seconds": 8}})
    process = case.begin()
    case.wait_step("start-ngram")
    second = case.run(timeout_s=30)
    assert second.code == 2
    assert f"trial {case.trials()[0].name} is at work" in second.err
    os.kill(process.pid, signal.SIGINT)
    done = result_of(process)
    assert done.code == 6, done.err
    assert done.err.count("Ctrl-C: ending the trial; the service is put back first") == 1
    assert "[1/8] measure baseline" in done.err
    titles = [line.partition("[")[2] for line in done.err.splitlines() if "[" in line]
    assert len(titles) == len(set(titles))
    assert (done.json["verdict"], done.json["restored"]) == ("error", True)
    case.wait_back(5)


def test_a_killed_client_is_not_missed(case: RemoteCase, tmp_path: Path) -> None:
    case.serve(SLOW).trial(prompts=2).remember()
    process = case.begin()
    case.wait_step("measure-ngram")
    wait_for(lambda: any(event["kind"] == "step" and "measure ngram" in event["text"] for event in case.logged()))
    os.kill(process.pid, signal.SIGKILL)
    result_of(process)
    trial = case.trials()[-1].name
    assert case.state() == "inactive"

    other = {"DRAFTWORTH_HOME": str(tmp_path / "other")}
    way = ("--host", case.server.alias, "--draftworth", str(case.program))
    status = case.cli("trial", "status", *way, "--json", env=other)
    assert [(one["id"], one["running"]) for one in status.json["trials"]] == [(trial, True)]
    attached = case.cli("trial", "attach", "latest", *way, "--json", env=other)
    assert attached.code in {0, 3}, attached.err
    assert attached.json == case.record()
    assert attached.json["restored"] is True
    assert (tmp_path / "other" / "trials" / trial / "requests.parquet").is_file()
    case.wait_back(5)


def test_a_connection_that_drops_in_every_phase(case: RemoteCase) -> None:
    """Two clients watch; each is cut at each step, and is told everything once."""
    case.serve().trial().remember()
    stations = case.station(), case.station()
    shown = stations[0].plan(case.config())
    trial = stations[0].start(case.config(), shown)
    told: tuple[list[dict[str, Any]], ...] = ([], [])
    drops = []

    def cut(step: int) -> None:
        if step == 4:
            case.server.refuse()
            threading.Timer(0.6, case.server.come_back).start()
        drops.append(case.server.drop())

    second = threading.Thread(target=follow, args=(stations[1], trial, told[1]))
    second.start()
    follow(stations[0], trial, told[0], cut)
    second.join(30)
    assert len(drops) == 8
    assert sum(drops) >= 8
    for one in told:
        each_once(case, one)
        assert outcome(one) in {("end", 0), ("end", 3)}
    lost = [event["text"] for event in told[0] if "the trial goes on there" in event.get("text", "")]
    # On a busy machine several steps go by while one connection is made again.
    assert len(lost) >= 4
    assert any("connection refused" in text for text in lost)
    folder = stations[0].fetch(trial)
    assert json.loads((folder / "trial.json").read_text()) == case.record()
    assert case.record()["restored"] is True
    case.wait_back(5)


@pytest.mark.parametrize("step", [3, 6])
def test_a_connection_that_falls_silent(case: RemoteCase, step: int) -> None:
    """Half-open: nobody says that it is lost, the keep-alive finds out."""
    case.serve().trial().remember()
    station = case.station(interval_s=1, count=1)
    trial = station.start(case.config(), station.plan(case.config()))
    told: list[dict[str, Any]] = []
    silent = []

    def stall(number: int) -> None:
        if number == step:
            silent.append(time.monotonic())
            case.server.stall()
            threading.Timer(3.5, case.server.come_back).start()

    follow(station, trial, told, stall)
    assert len(silent) == 1
    each_once(case, told)
    assert outcome(told) in {("end", 0), ("end", 3)}
    assert any("the trial goes on there" in event.get("text", "") for event in told)
    assert case.record()["restored"] is True
    case.wait_back(5)


def test_a_start_whose_answer_is_lost_begins_one_trial(case: RemoteCase) -> None:
    """And Ctrl-C while its beginning is not known yet ends it."""
    case.serve().trial().remember()
    before = set(case.server.commands)

    def begun() -> bool:
        return any("agent start" in text for text in set(case.server.commands) - before)

    process = case.begin()
    wait_for(begun)
    wait_for(case.trials, 10)
    os.kill(process.pid, signal.SIGINT)
    case.server.drop()
    done = result_of(process)
    assert done.code == 6, done.err
    assert len(case.trials()) == 1
    wait_for(lambda: not case.left(), 20, str(case.left()))
    case.wait_back(20)


def test_a_driver_that_dies_is_told_of(case: RemoteCase) -> None:
    """The host puts the service back, and whoever follows learns how that went, over a connection that drops."""
    case.serve().trial().remember()
    case.script({**QUICK, "speculating": {**QUICK["speculating"], "load_seconds": 8}})
    process = case.begin()
    case.wait_step("start-ngram")
    case.systemd.systemctl("kill", "-s", "KILL", f"draftworth-trial-{case.tag()}.service")
    time.sleep(0.5)
    case.server.drop()
    done = result_of(process)
    assert done.code == 6, done.err
    assert "the trial's driver died; the host puts the service back by itself" in done.err
    assert (done.json["verdict"], done.json["restored"]) == ("error", True)
    case.wait_back(10)


def test_what_was_fetched_is_gone_and_can_be_fetched_again(case: RemoteCase) -> None:
    """A held variant is released from here; the client's copy is replaced, never another trial's folder."""
    case.serve().trial(limits="start_timeout_s = 20\ndrain_s = 1").remember()
    trial = case.start("--hold", "60s")
    wait_for((case.trials()[-1] / "held").exists, 30, "the variant is held")
    stranger = case.client / "trials" / trial
    stranger.mkdir(parents=True)
    (stranger / "tag").write_text(f"{trial}-ffffff", encoding="ascii")
    assert case.cli("trial", "release", trial).out == f"Trial {trial} goes on.\n"
    attached = case.cli("trial", "attach", trial, "--json")
    assert attached.code in {0, 3}, attached.err
    assert f"another trial here is called {trial}; this one is kept as {trial}-2" in attached.err
    assert [path.name for path in stranger.iterdir()] == ["tag"]
    copy = case.client / "trials" / f"{trial}-2"
    assert json.loads((copy / "trial.json").read_text()) == attached.json
    shutil.rmtree(copy / "logs")
    assert case.cli("trial", "attach", trial, "--json").json == attached.json
    assert (copy / "logs").is_dir()
    assert sorted(path.name for path in copy.parent.iterdir()) == [trial, f"{trial}-2"]
    case.wait_back(5)
