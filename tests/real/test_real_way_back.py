"""The way back where it is not alone: company of the unit's own, strangers of its name, a slow load, a shutdown."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.guarantees.patch import DriverPatch
from tests.helpers import wait_for
from tests.real.company import active, company
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, UnitCase


def kill_driver(case: UnitCase) -> None:
    case.systemd.systemctl("kill", "-s", "KILL", f"draftworth-trial-{case.tag()}.service", check=False)


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
