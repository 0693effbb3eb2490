"""The way back where it is not alone: company of the unit's own, strangers of its name, a slow load, a shutdown."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.guarantees.marks import failure, shows
from tests.guarantees.patch import DriverPatch
from tests.helpers import free_port, wait_for
from tests.real.company import active, company
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, UnitCase


def kill_driver(case: UnitCase) -> None:
    case.systemd.systemctl("kill", "-s", "KILL", f"draftworth-trial-{case.tag()}.service", check=False)


@shows("G5", "a process in another manager's control group of the unit's name lives")
def test_a_stranger_in_a_control_group_of_the_units_name_is_left_alone(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path).serve().trial().remember()
    # What a user's own manager, or a container, would have.
    there = "/sys/fs/cgroup/user.slice/user-1000.slice/llm.service"
    script = f"mkdir -p {there} && echo 0 >{there}/cgroup.procs && exec sleep 300"
    stranger = private_systemd.run(["systemd-run", "--unit=stranger", "--property=Delegate=yes", "sh", "-c", script])
    assert stranger.returncode == 0
    listed = f"{there}/cgroup.procs"
    pid = wait_for(lambda: private_systemd.run(["cat", listed], check=False).stdout.decode().strip(), 10)
    case.start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30, "the variant serves")
    kill_driver(case)
    case.wait_back(60)
    assert private_systemd.run(["cat", listed]).stdout.decode().strip() == pid, "it lives"


@failure(
    53,
    produced="SIGKILL of the driver in three phases, a socket and a gateway that needs answers",
    outcome="both are back",
)
@pytest.mark.parametrize("moment", ["stop-original", "start-ngram-5", "measure-ngram-5"])
def test_sockets_and_dependents_come_back_although_the_tool_is_gone(
    private_systemd: PrivateSystemd, tmp_path: Path, moment: str
) -> None:
    case = company(UnitCase(private_systemd, tmp_path)).trial().remember()
    case.start()
    wait_for(lambda: case.reached(moment), 30)
    kill_driver(case)
    case.wait_back(60)
    assert active(case) == {"llm.socket": "active", "gateway.service": "active"}


@failure(53, produced="only the socket was stopped when the driver died", outcome="the socket is back too")
def test_a_socket_that_was_stopped_alone_comes_back(private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    """The driver died between the socket and its service: systemd does not start a socket whose service runs."""
    case = company(UnitCase(private_systemd, tmp_path)).trial().remember()
    case.start()
    wait_for(lambda: case.reached("measure-baseline"), 30)
    private_systemd.systemctl("stop", "llm.socket")
    kill_driver(case)
    case.wait_back(60)
    assert active(case) == {"llm.socket": "active", "gateway.service": "active"}


SLOW: dict[str, Any] = {**QUICK, "load_seconds": 6.0, "speculating": {**QUICK["speculating"], "load_seconds": 0.1}}


@shows("G7", "a downtime that ends while the original loads ends nothing that was measured")
def test_a_downtime_that_ends_while_the_original_loads_costs_no_result(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path).serve(SLOW)
    case.trial(limits="start_timeout_s = 20\ndrain_s = 1\ndowntime_s = 4").remember()
    patch = DriverPatch(tmp_path / "patch", "from draftworth.services.systemd import net\nnet._SLACK_S = 1.0\n")
    done = case.cli("trial", "run", str(case.file), "--yes", "--json", env=patch.env)
    assert done.code in {0, 3, 6}, done.err
    arms = {arm["name"]: arm["requests"] for arm in done.json["arms"]}
    assert arms["ngram-5"] == 1, "what was measured is kept"
    assert done.json["restored"] is True
    case.wait_back()


def test_a_variant_that_dies_before_a_slow_original_is_no_failed_restore(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path).serve({**SLOW, "speculating": {"load_seconds": 0.1, "die_at": "load"}})
    case.trial().remember()
    code = """\
    from draftworth.services.systemd import service
    service.SystemdService._clearing_s = lambda self: 2.0
    """
    done = case.cli("trial", "run", str(case.file), "--yes", "--json", env=DriverPatch(tmp_path / "patch", code).env)
    assert done.code == 6, done.err
    assert "trying again" not in done.err
    assert done.json["restored"] is True
    case.wait_back()


@failure(59, produced="an orderly shutdown in mid-trial", outcome="it serves after the boot; the record is completed")
def test_an_orderly_shutdown_in_mid_trial_leaves_a_record_that_can_be_completed(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path).serve().trial().remember()
    case.start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30)
    private_systemd.reboot(orderly=True)
    case.wait_serving()
    plan = case.cli("trial", "plan", str(case.file))
    assert plan.code == 2, "a plan says what a run would say"
    assert "trial restore" in plan.err
    restored = case.cli("trial", "restore")
    assert restored.code == 0, restored.err
    assert case.record()["restored"] is True
    case.wait_back()


@failure(59, produced="a power cut, an escaped instance that is not enabled", outcome="it serves after the boot")
def test_an_escaped_instance_comes_back_after_a_power_cut_although_it_is_not_enabled(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path, unit=r"vllm@meta\x2dllama.service")
    case.script()
    private_systemd.write_unit("vllm@.service", f"[Service]\nExecStart={case.exec_start()}\nRestart=on-failure\n")
    private_systemd.systemctl("daemon-reload")
    private_systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.trial(service="append_args = true").file.write_text(
        case.file.read_text(encoding="utf-8").replace(f'"{case.unit}"', f"'{case.unit}'"), encoding="utf-8"
    )
    case.start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30)
    private_systemd.reboot()
    case.wait_serving()
    restored = case.cli("trial", "restore")
    assert restored.code == 0, restored.err
    case.wait_back()


def test_a_variants_unit_is_as_private_as_the_originals(private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    case = UnitCase(private_systemd, tmp_path).serve(start=False)
    (private_systemd.etc / case.unit).chmod(0o600)
    private_systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.trial().start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30)
    name = f"/run/systemd/system/draftworth-{case.tag()}-ngram-5.service"
    assert private_systemd.run(["stat", "-c", "%a", name]).stdout.decode().strip() == "600"
    case.cli("trial", "stop", "latest")
    case.wait_back(60)


def test_a_hold_ends_with_the_downtime(private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    case = UnitCase(private_systemd, tmp_path).serve()
    case.trial(limits="start_timeout_s = 20\ndrain_s = 1\ndowntime_s = 0.5").remember()
    began = time.monotonic()
    done = case.run("--hold", "4s")
    assert time.monotonic() - began < 25
    assert json.loads(done.out)["restored"] is True
    case.wait_back()


@failure(23, produced="the file names a port that another unit answers", outcome="refused by plan and run")
def test_a_port_that_another_service_answers_is_refused(private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    """Its figures and its tokens would be taken for the unit's, and the unit could never be verified."""
    port = UnitCase(private_systemd, tmp_path).serve().port
    other = UnitCase(private_systemd, tmp_path, unit="other.service")
    private_systemd.write_unit("other.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    private_systemd.systemctl("daemon-reload")
    private_systemd.systemctl("start", "other.service")
    other.trial(service=f"append_args = true\nport = {port}")
    for verb, options in (("plan", ()), ("run", ("--yes",))):
        done = other.cli("trial", verb, str(other.file), *options)
        assert done.code == 2, done.err
        assert "which is no process of other.service: set service.port or unit" in done.err
    other.trial(service=f"append_args = true\nport = {free_port()}")
    nobody = other.cli("trial", "plan", str(other.file))
    assert nobody.code == 2
    assert "nothing listens on port" in nobody.err


def test_a_trial_is_found_while_the_host_puts_the_service_back(private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    case = UnitCase(private_systemd, tmp_path).serve({**SLOW, "load_seconds": 3.0}).trial().remember()
    trial = case.start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30)
    kill_driver(case)
    wait_for(lambda: case.state(f"draftworth-restore-{case.tag()}.service") == "activating", 20)
    status = case.cli("trial", "status")
    assert trial in status.out
    assert "without its driver" in status.out
    case.wait_back(60)
    assert "No trial is at work" in case.cli("trial", "status").out


@failure(7, produced="DRAFTWORTH_HOME on a file system of 1 MiB", outcome="refused, nothing changed")
def test_a_disk_without_room_for_a_record_is_refused_before_the_start(
    private_systemd: PrivateSystemd, tmp_path: Path
) -> None:
    case = UnitCase(private_systemd, tmp_path).serve().trial().remember()
    case.home.mkdir()
    private_systemd.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(case.home)])
    done = case.run()
    assert done.code == 2, done.err
    assert "MiB are free there" in done.err
    case.as_before()
