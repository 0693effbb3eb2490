"""A unit as it is found, and what is told when it is not as it was, on a real systemd."""

import hashlib
import time
from pathlib import Path

import pytest
from tests.real.private_systemd import PrivateSystemd

from draftworth.errors import UsageError
from draftworth.services.systemd import bus
from draftworth.services.systemd.bus import ExecCommand
from draftworth.services.systemd.snapshot import UnitSnapshot, changed, observe_unit, unit_name

UNIT = """[Unit]
Description=A server
[Service]
Type=exec
ExecStartPre=/bin/true
ExecStart=/bin/sleep 600
Restart=on-failure
TimeoutStartSec=infinity
TimeoutStopSec=90
User=nobody
WorkingDirectory=-/tmp
[Install]
WantedBy=multi-user.target
Alias={alias}
"""


def up(systemd: PrivateSystemd, name: str, text: str) -> None:
    systemd.write_unit(name, text)
    systemd.systemctl("daemon-reload")
    systemd.systemctl("start", name)


def test_everything_a_restore_needs(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    settings = tmp_path / "a b.env"
    settings.write_text("SECRET=hunter2\n", encoding="ascii")
    settings.chmod(0o640)
    log = tmp_path / "server.log"
    text = UNIT.format(alias="other-name.service")
    fragment = module_systemd.write_unit("whole.service", text)
    extra = f"[Service]\nEnvironmentFile={tmp_path}/*.env\nEnvironmentFile=-/not/there\nStandardOutput=append:{log}\n"
    drop_in = module_systemd.write_unit("whole.service.d/10.conf", extra)
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("enable", "--now", "whole.service")
    host = module_systemd.host()
    found = observe_unit(host, "whole")
    assert (found.asked, found.unit, set(found.names)) == (
        "whole",
        "whole.service",
        {"whole.service", "other-name.service"},
    )
    assert (found.fragment, found.drop_ins) == (str(fragment), (str(drop_in),))
    assert (found.load, found.active, found.sub, found.unit_file_state) == ("loaded", "active", "running", "enabled")
    assert (found.type, found.restart, found.kill_mode) == ("exec", "on-failure", "control-group")
    assert (found.timeout_start_s, found.timeout_stop_s) == (None, 90.0)
    assert (found.user, found.dynamic_user, found.working_directory) == ("nobody", False, "/tmp")
    assert found.standard_output == f"append:{log}"
    assert found.exec_start == (ExecCommand(path="/bin/sleep", argv=("/bin/sleep", "600")),)
    assert found.environment_files == (f"{tmp_path}/*.env", "-/not/there")
    assert found.control_group == "/system.slice/whole.service"
    assert found.invocation == module_systemd.systemctl("show", "-p", "InvocationID", "--value", "whole.service")
    assert str(found.main_pid) == module_systemd.systemctl("show", "-p", "MainPID", "--value", "whole.service")
    assert found.started_s == pytest.approx(time.time(), abs=30)
    boot = module_systemd.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.decode().strip()
    assert found.boot == boot
    files = {one.path: one for one in found.files}
    assert {path: one.kind for path, one in files.items()} == {
        str(fragment): "fragment",
        str(drop_in): "drop-in",
        str(settings): "environment",
        "/not/there": "environment",
        "/etc/systemd/system/multi-user.target.wants/whole.service": "enablement",
        "/etc/systemd/system/other-name.service": "enablement",
    }
    assert files[str(fragment)].sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert (files[str(settings)].mode, files[str(settings)].size) == (0o640, 15)
    assert files["/not/there"].sha256 is None
    assert files["/etc/systemd/system/other-name.service"].target == str(fragment)
    assert "hunter2" not in found.model_dump_json()
    assert UnitSnapshot.model_validate_json(found.model_dump_json()) == found
    assert changed(found, observe_unit(host, "other-name.service")) == ()


def test_observing_changes_nothing(module_systemd: PrivateSystemd) -> None:
    up(module_systemd, "calm.service", UNIT.format(alias="calm2.service"))
    host = module_systemd.host()

    def everything() -> tuple[bytes, dict[str, object]]:
        files = module_systemd.run(["find", "/etc/systemd", "/run/systemd", "-printf", "%p %i %T@ %C@\\n"]).stdout
        return files, bus.properties(host, "calm.service")

    everything()
    before = everything()
    host.calls.clear()
    observe_unit(host, "calm.service")
    calls = list(host.calls)
    assert everything() == before
    # sh runs two fixed scripts that only read.
    assert {call[0] for call in calls} <= {"busctl", "systemctl", "find", "readlink", "sh", "cat", "test"}
    assert {call[call.index("org.freedesktop.DBus.Properties") + 1] for call in calls if call[0] == "busctl"} == {
        "Get",
        "GetAll",
    }


def test_units_that_stop_with_it_are_found_through_others(module_systemd: PrivateSystemd) -> None:
    up(module_systemd, "core.service", "[Service]\nExecStart=/bin/sleep 600\n[Install]\nWantedBy=multi-user.target\n")
    rows = {
        "need.service": ("Requires=core.service", "RequiredBy", "core.service"),
        "bound.service": ("BindsTo=core.service\nAfter=core.service", "BoundBy", "core.service"),
        "part.service": ("PartOf=core.service", "ConsistsOf", "core.service"),
        "far.service": ("BindsTo=need.service\nAfter=need.service", "BoundBy", "need.service"),
        "quisite.service": ("Requisite=core.service\nAfter=core.service", "RequisiteOf", "core.service"),
        "stops.service": ("StopPropagatedFrom=core.service", "PropagatesStopTo", "core.service"),
        "wants.service": ("Wants=core.service\nAfter=core.service", "", ""),
        "holds.service": ("Upholds=core.service", "UpheldBy", "core.service"),
    }
    for name, (line, _, _) in rows.items():
        up(module_systemd, name, f"[Unit]\n{line}\n[Service]\nExecStart=/bin/sleep 600\n")
    module_systemd.systemctl("enable", "core.service")
    host = module_systemd.host()
    found = observe_unit(host, "core.service")
    assert {(one.name, one.relation, one.of) for one in found.dependents} == {
        (name, relation, of) for name, (_, relation, of) in rows.items() if relation
    }
    assert {one.active for one in found.dependents} == {"active"}
    # What systemd does is the measure.
    module_systemd.systemctl("stop", "holds.service")
    module_systemd.systemctl("stop", "core.service")
    stopped = {name for name in rows if module_systemd.systemctl("is-active", name, check=False) != "active"}
    assert stopped - {"holds.service"} == {one.name for one in found.dependents if one.relation != "UpheldBy"}
    # Starting it again starts none of them: a restore has to.
    module_systemd.systemctl("start", "core.service")
    lines = changed(found, observe_unit(host, "core.service"))
    for name in stopped:
        assert any(line.startswith(f"{name}, which depends on it: was active (running)") for line in lines), name
    module_systemd.systemctl("stop", *rows)


def test_sockets_timers_and_paths_are_found(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    module_systemd.write_unit("lit.service", "[Service]\nExecStart=/bin/sleep 600\n")
    module_systemd.write_unit("lit.timer", "[Timer]\nOnActiveSec=1h\n")
    module_systemd.write_unit("lit.path", f"[Path]\nPathExists={tmp_path}/there\n")
    module_systemd.write_unit("knock.socket", f"[Socket]\nListenStream={tmp_path}/s\nService=lit.service\n")
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", "lit.timer", "knock.socket")
    found = observe_unit(module_systemd.host(), "lit.service")
    states = {one.name: one.active for one in found.triggers}
    assert states["lit.timer"] == states["knock.socket"] == "active"
    module_systemd.systemctl("stop", "lit.timer")
    lines = changed(found, observe_unit(module_systemd.host(), "lit.service"))
    assert len(lines) == 1
    assert lines[0].startswith("lit.timer, which triggers it: was active (waiting), static, is")
    module_systemd.systemctl("stop", "knock.socket")


def test_specifiers_count_in_values_only(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit(
        "spec.service",
        "# %a\n[Service]\nExecStart=/bin/sleep 600 %%n 50%% \\\n; %b\n  %i\nEnvironment=HF_TOKEN=hunter2%p %%\n",
    )
    module_systemd.write_unit("spec.service.d/x.conf", "[Service]\nRuntimeDirectory=%N\n#%c\n")
    module_systemd.systemctl("daemon-reload")
    found = observe_unit(module_systemd.host(), "spec.service")
    assert found.specifiers == ("%N", "%i", "%p")
    assert found.specifier_uses == (
        "ExecStart=/bin/sleep 600 %%n 50%% %i",
        "Environment=HF_TOKEN=(hidden) %%",
        "RuntimeDirectory=%N",
    )
    assert found.state_directories == ("RuntimeDirectory=spec",)


@pytest.mark.parametrize("unit", ["a-b-c.service", "x-y@1-2.service"])
def test_every_drop_in_that_is_new_is_found_without_a_reload(module_systemd: PrivateSystemd, unit: str) -> None:
    base = unit if "@" not in unit else "x-y@.service"
    module_systemd.write_unit(base, "[Service]\nExecStart=/bin/sleep 600\n")
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", unit)  # one that does not run is loaded anew whenever it is asked for
    host = module_systemd.host()
    assert observe_unit(host, unit).stale == ()
    stem = unit.removesuffix(".service")
    folders = {"service", f"{stem}.service", f"{base}", "a.service", "a-.service", "a-b-.service", "a-b.service"}
    folders |= {"x-@.service", "x-@1-2.service", "x.service", "x-y@1-.service", "x@.service", "x-y-.service"}
    for at, folder in enumerate(sorted(folders)):
        module_systemd.write_unit(f"{folder}.d/{at}.conf", "[Service]\nNice=1\n")
    # NeedDaemonReload tells of some of them, of others not.
    lines = observe_unit(host, unit).stale
    told = {line.split(" is there")[0] for line in lines if line.endswith("is there and not loaded")}
    module_systemd.systemctl("daemon-reload")
    # systemd's own choice is the measure.
    assert told == set(observe_unit(host, unit).drop_ins)
    assert observe_unit(host, unit).stale == ()
    for at, folder in enumerate(sorted(folders)):
        (module_systemd.etc / f"{folder}.d/{at}.conf").unlink()
    module_systemd.systemctl("daemon-reload")


def test_a_drop_in_that_is_switched_off_is_not_new(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("off.service", "[Service]\nExecStart=/bin/sleep 600\n")
    (module_systemd.etc / "off.service.d").mkdir()
    (module_systemd.etc / "off.service.d" / "10.conf").symlink_to("/dev/null")
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", "off.service")
    assert observe_unit(module_systemd.host(), "off.service").stale == ()


def test_what_changed_is_told(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    settings = tmp_path / "x.env"
    settings.write_text("A=1\n", encoding="ascii")
    text = f"{UNIT.format(alias='alias-mut.service')}[Service]\nEnvironmentFile={settings}\n"
    up(module_systemd, "mut.service", text)
    module_systemd.systemctl("enable", "mut.service")
    host = module_systemd.host()
    before = observe_unit(host, "mut.service")

    def lines() -> tuple[str, ...]:
        return changed(before, observe_unit(host, "mut.service"))

    # A new process of the same unit is the same unit.
    module_systemd.systemctl("restart", "mut.service")
    module_systemd.systemctl("daemon-reload")
    assert lines() == ()
    settings.write_text("A=2\n", encoding="ascii")
    assert lines() == (f"{settings} (environment) was edited",)
    settings.write_text("A=1\n", encoding="ascii")
    settings.chmod(0o600)
    assert lines() == (f"{settings} (environment) had mode 644, has 600",)
    settings.unlink()
    assert lines() == (f"{settings} (environment) is gone",)
    settings.write_text("A=1\n", encoding="ascii")
    settings.chmod(0o644)
    module_systemd.systemctl("disable", "mut.service")
    assert "mut.service: unit file state was enabled, is disabled" in lines()
    assert "/etc/systemd/system/multi-user.target.wants/mut.service (enablement) is gone" in lines()
    module_systemd.systemctl("enable", "mut.service")
    assert lines() == ()
    module_systemd.write_unit("mut.service.d/50.conf", "[Service]\nNice=3\n")
    assert lines() == ("/etc/systemd/system/mut.service.d/50.conf is there and not loaded",)
    module_systemd.systemctl("daemon-reload")
    assert "Nice: 0 → 3" in lines()
    (module_systemd.etc / "mut.service.d/50.conf").unlink()
    module_systemd.systemctl("daemon-reload")
    assert lines() == ()
    module_systemd.write_unit("mut.service", text + "# a comment\n")
    assert lines() == (
        "/etc/systemd/system/mut.service (fragment) was edited",
        "its files were edited since they were loaded",
    )
    module_systemd.write_unit("mut.service", text)
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("stop", "mut.service")
    assert lines()[:2] == (
        "mut.service: active was active, is inactive",
        "mut.service: sub was running, is dead",
    )
    module_systemd.systemctl("start", "mut.service")
    assert lines() == ()


def test_units_that_are_no_running_service_are_observed_too(module_systemd: PrivateSystemd) -> None:
    host = module_systemd.host()
    assert observe_unit(host, "nowhere").load == "not-found"
    assert observe_unit(host, "tpl@.service").load == "template"
    target = observe_unit(host, "multi-user.target")
    assert (target.load, target.type, target.exec_start, target.main_pid) == ("loaded", "", (), None)


def test_names_are_completed_as_systemctl_does() -> None:
    assert unit_name("vllm") == "vllm.service"
    assert unit_name("llama3.1") == "llama3.1.service"
    assert unit_name("vllm@a-b.service") == "vllm@a-b.service"
    assert unit_name("x.timer") == "x.timer"


@pytest.mark.parametrize(
    "name", ["", "a/b.service", "a b", "é", ".service", "-x.service", "@x.service", "a\nb", "x" * 300]
)
def test_names_that_no_unit_can_have_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a systemd unit"):
        unit_name(name)
