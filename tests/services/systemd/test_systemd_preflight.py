"""What is refused before anything is changed, on a real systemd."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.real.private_systemd import InsideHost, PrivateSystemd

from draftworth.hosts.base import CommandResult
from draftworth.services.systemd import bus
from draftworth.services.systemd.preflight import expanded, refusals, way
from draftworth.services.systemd.snapshot import UnitSnapshot, observe_unit

SLEEP = "[Service]\nType=exec\nExecStart=/bin/sleep 600\n"


def write(systemd: PrivateSystemd, unit: str, text: str, *, start: bool = True) -> None:
    systemd.write_unit(unit, text)
    systemd.systemctl("daemon-reload")
    if start:
        systemd.systemctl("start", unit)


def why(systemd: PrivateSystemd, unit: str) -> str | None:
    """Return the refusal for a unit, and check that refusing has changed nothing."""
    host = systemd.host()
    snapshot = observe_unit(host, unit)
    asked = [snapshot.unit] if snapshot.load != "template" else []  # a template has no state
    before = bus.states(host, asked)
    found = refusals(snapshot, host)
    assert bus.states(host, asked) == before
    if found is None:
        return None
    assert found.exit_code == 2
    assert "\n" not in str(found)
    return str(found)


def test_a_service_that_runs_is_tried(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "good.service", SLEEP)
    assert why(module_systemd, "good") is None
    assert why(module_systemd, "good.service") is None


def test_names_that_are_near_are_suggested(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "vllm-kimi.service", SLEEP, start=False)
    said = why(module_systemd, "vllm-kimmi")
    assert said == "there is no unit vllm-kimmi.service on this machine: did you mean vllm-kimi.service?"
    assert "list-unit-files" in (why(module_systemd, "zzzzqqqq") or "")


def test_an_alias_is_told_its_name(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "real.service", f"{SLEEP}[Install]\nAlias=nick.service\nWantedBy=multi-user.target\n")
    module_systemd.systemctl("enable", "real.service")
    assert why(module_systemd, "nick") == 'nick.service is another name of real.service: write unit = "real.service"'
    assert why(module_systemd, "real") is None


def test_a_template_needs_an_instance(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "tpl@.service", SLEEP, start=False)
    assert "such as tpl@NAME.service" in (why(module_systemd, "tpl@.service") or "")
    module_systemd.systemctl("start", "tpl@kimi.service")
    assert "such as tpl@kimi.service" in (why(module_systemd, "tpl@") or "")
    assert why(module_systemd, "tpl@kimi") is None
    assert way(observe_unit(module_systemd.host(), "tpl@kimi"))[0] == "drop-in"


@pytest.mark.parametrize("runtime", [False, True])
def test_masked_units_are_told_how_to_unmask(module_systemd: PrivateSystemd, *, runtime: bool) -> None:
    option = ["--runtime"] if runtime else []
    module_systemd.systemctl("mask", *option, f"veiled{runtime}.service")
    said = why(module_systemd, f"veiled{runtime}.service") or ""
    fix = f"systemctl unmask {'--runtime ' if runtime else ''}veiled{runtime}.service"
    assert fix in said
    module_systemd.systemctl(*fix.split()[1:])
    assert "there is no unit" in (why(module_systemd, f"veiled{runtime}.service") or "")


def test_an_empty_file_is_what_a_full_disk_left(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "empty.service", "", start=False)
    said = why(module_systemd, "empty.service") or ""
    assert said.startswith("/etc/systemd/system/empty.service is empty, which systemd takes for masked")


def test_other_kinds_of_unit_are_told_apart(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "tick.service", SLEEP, start=False)
    write(module_systemd, "tick.timer", "[Timer]\nOnActiveSec=1h\n")
    assert why(module_systemd, "tick.timer") == (
        "tick.timer is a timer, not a service; it starts tick.service: name that"
    )
    assert why(module_systemd, "multi-user.target") == "multi-user.target is a target, not a service"


def test_a_transient_unit_would_be_gone(module_systemd: PrivateSystemd) -> None:
    module_systemd.run(["systemd-run", "--unit=passing", "/bin/sleep", "600"])
    assert "gone once stopped" in (why(module_systemd, "passing") or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[Service]\nExecStart=relative/path\n", "could not load"),
        ("[Service]\nType=simple\n", "could not load"),
        ("[Service]\nType=oneshot\nExecStart=/bin/true\n", "Type=oneshot"),
        ("[Service]\nExecStart=/bin/sleep 600\nRemainAfterExit=yes\n", "RemainAfterExit=yes"),
        ("[Service]\nType=oneshot\nExecStart=/bin/true\nExecStart=/bin/true\n", "Type=oneshot"),
        (f"[Unit]\nRefuseManualStop=yes\n{SLEEP}", "RefuseManualStop=yes, so a trial could not stop it"),
        (f"[Unit]\nRefuseManualStart=yes\n{SLEEP}", "RefuseManualStart=yes, so a trial could not start it"),
        (SLEEP, "is not running: `systemctl start kind.service`"),
    ],
)
def test_units_that_cannot_be_tried(module_systemd: PrivateSystemd, text: str, said: str) -> None:
    write(module_systemd, "kind.service", text, start=False)
    assert said in (why(module_systemd, "kind.service") or "")


def test_states_in_which_nothing_serves(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "fails.service", "[Service]\nExecStart=/bin/sh -c 'exit 3'\n")
    time.sleep(0.2)
    assert "fails.service is failed (result exit-code)" in (why(module_systemd, "fails.service") or "")
    write(module_systemd, "loops.service", "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=60\n")
    time.sleep(0.2)
    said = why(module_systemd, "loops.service") or ""
    assert "keeps ending and being restarted (0 times, last result exit-code)" in said
    module_systemd.systemctl("stop", "loops.service")
    write(module_systemd, "loads.service", f"{SLEEP}ExecStartPre=/bin/sleep 600\n", start=False)
    module_systemd.systemctl("start", "--no-block", "loads.service")
    time.sleep(0.2)
    assert why(module_systemd, "loads.service") == ("loads.service is activating (start-pre): wait until it serves")
    write(module_systemd, "ends.service", "[Service]\nExecStart=/bin/sleep 600\nExecStop=/bin/sleep 600\n")
    module_systemd.systemctl("stop", "--no-block", "ends.service")
    time.sleep(0.2)
    assert "ends.service is deactivating (stop)" in (why(module_systemd, "ends.service") or "")


def test_a_unit_whose_file_is_gone_while_it_runs(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "lost.service", SLEEP)
    (module_systemd.etc / "lost.service").unlink()
    module_systemd.systemctl("daemon-reload")
    assert "runs and its unit file is gone" in (why(module_systemd, "lost.service") or "")


def test_files_that_are_not_loaded(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "stale.service", SLEEP)
    drop_in = module_systemd.write_unit("stale.service.d/x.conf", "[Service]\nNice=2\n")
    assert f"{drop_in} is there and not loaded" in (why(module_systemd, "stale.service") or "")
    module_systemd.systemctl("daemon-reload")
    assert why(module_systemd, "stale.service") is None
    time.sleep(0.02)
    module_systemd.write_unit("stale.service", f"{SLEEP}Nice=3\n")
    said = why(module_systemd, "stale.service") or ""
    assert "systemctl daemon-reload` and `systemctl restart stale.service` first" in said


def test_a_process_that_was_started_before_an_edit(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "older.service", SLEEP)
    time.sleep(0.05)
    write(module_systemd, "older.service", SLEEP.replace("600", "601"), start=False)
    said = why(module_systemd, "older.service") or ""
    assert "was edited after older.service was started, and the running process has another command" in said
    module_systemd.systemctl("restart", "older.service")
    assert why(module_systemd, "older.service") is None


def test_variables_that_were_edited_since_the_start(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    settings = tmp_path / "x.env"
    settings.write_text("# a comment\nA='one word'\nB=hunter2\n", encoding="ascii")
    text = f"{SLEEP}Environment=C=1\nEnvironmentFile={settings}\n"
    write(module_systemd, "vars.service", text)
    time.sleep(0.05)
    # Touched only: nothing has changed.
    settings.touch()
    assert why(module_systemd, "vars.service") is None
    settings.write_text("A='one word'\nB=hunter3\n", encoding="ascii")
    said = why(module_systemd, "vars.service") or ""
    assert f"{settings} was edited" in said
    assert "another value of B" in said
    assert "hunter" not in said
    module_systemd.systemctl("restart", "vars.service")
    time.sleep(0.05)
    write(module_systemd, "vars.service", f"{SLEEP}Environment=C=2\n", start=False)
    assert "another value of C" in (why(module_systemd, "vars.service") or "")


def test_scripts_variables_and_titles_are_no_edit(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nsleep 600\n", encoding="ascii")
    script.chmod(0o755)
    text = f"[Service]\nEnvironment='A=x y' B=z\nExecStart={script} $A ${{B}}k $$ --flag\n"
    write(module_systemd, "script.service", text)
    time.sleep(0.05)
    (module_systemd.etc / "script.service").touch()
    module_systemd.systemctl("daemon-reload")
    assert why(module_systemd, "script.service") is None
    # It became another program, and no file is younger: nothing is wrong.
    write(module_systemd, "became.service", "[Service]\nExecStart=/bin/sh -c 'exec /bin/sleep 600'\n")
    time.sleep(0.2)
    assert "another command" not in (why(module_systemd, "became.service") or "")


def test_words_are_expanded_as_systemd_does(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    argv = [
        "$A",
        "${A}",
        "x$A",
        "x${A}y",
        "$$A",
        "$NONE",
        "${NONE}",
        "$A$B",
        "'$A'",
        "$1",
        "$",
        "a$",
        "${A",
        "${A}${B}$$",
        "$$$A",
        "$${A}",
    ]
    env = {"A": 'p "q r"', "B": "b"}
    out = tmp_path / "out"
    script = tmp_path / "dump.sh"
    script.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {out}\n", encoding="ascii")
    script.chmod(0o755)
    words = " ".join(f'"{word}"' for word in argv)
    write(
        module_systemd,
        "expand.service",
        f"[Service]\nType=oneshot\nEnvironment='A=p \"q r\"' B=b\nExecStart={script} {words}\n",
    )
    assert expanded(argv, env) == out.read_bytes().decode().removesuffix("\0").split("\0")


class Nobody(InsideHost):
    """Runs everything as a user without rights."""

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        return super().run(["setpriv", "--reuid=65534", "--clear-groups", *argv], stdin=stdin, timeout_s=timeout_s)


def test_a_user_without_rights_is_told_before_anything_happens(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "guarded.service", SLEEP)
    host = Nobody(module_systemd)
    found = refusals(observe_unit(host, "guarded.service"), host)
    assert found is not None
    assert "this user may not stop and start guarded.service on this machine: run it as root" in str(found)


def test_asking_for_rights_changes_nothing(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "asked.service", SLEEP)
    host = module_systemd.host()
    snapshot = observe_unit(host, "asked.service")
    before = bus.properties(host, "asked.service")
    files = module_systemd.run(["find", "/etc/systemd", "/run/systemd"]).stdout
    assert refusals(snapshot, host) is None
    assert bus.properties(host, "asked.service") == before
    assert module_systemd.run(["find", "/etc/systemd", "/run/systemd"]).stdout == files


class Users(InsideHost):
    """A machine on which the unit belongs to a user's own manager."""

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        if list(argv[:3]) == ["systemctl", "--user", "show"]:
            return CommandResult(tuple(argv), 0, b"loaded\n", b"")
        return super().run(argv, stdin=stdin, timeout_s=timeout_s)


def test_a_unit_of_a_user_is_said_to_be_one(module_systemd: PrivateSystemd) -> None:
    host = Users(module_systemd)
    assert "user's own manager" in str(refusals(observe_unit(host, "mine.service"), host))


def snapshot_of(systemd: PrivateSystemd, unit: str, text: str, *, start: bool = True) -> UnitSnapshot:
    write(systemd, unit, text, start=start)
    return observe_unit(systemd.host(), unit)


def test_a_plain_unit_is_tried_beside_the_original(module_systemd: PrivateSystemd) -> None:
    text = f"{SLEEP}User=nobody\nEnvironment=HOME=%h\nExecStartPre=/bin/true 50%%n\n# %n\n"
    found = snapshot_of(module_systemd, "plain.service", text)
    assert way(found) == ("parallel", "nothing about the unit depends on its name, and nothing depends on it")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Environment=A=%n", "%n in its files would stand for another name"),
        ("DynamicUser=yes", "DynamicUser="),
        ("StateDirectory=x", "StateDirectory=x"),
        ("RuntimeDirectory=x", "RuntimeDirectory=x"),
        ("LogsDirectory=x", "LogsDirectory=x"),
        ("CacheDirectory=x", "CacheDirectory=x"),
        ("PIDFile=/run/x.pid", "PIDFile=/run/x.pid"),
        ("BusName=org.example.X", "its D-Bus name (org.example.X)"),
        ("FileDescriptorStoreMax=2", "stored file descriptors"),
    ],
)
def test_what_belongs_to_the_name_needs_a_drop_in(module_systemd: PrivateSystemd, line: str, reason: str) -> None:
    found = snapshot_of(module_systemd, "named.service", f"{SLEEP}{line}\n", start=False)
    how, why_ = way(found)
    assert how == "drop-in"
    assert reason in why_
    assert "\n" not in why_


def test_what_depends_on_it_needs_a_drop_in(module_systemd: PrivateSystemd) -> None:
    write(module_systemd, "heart.service", SLEEP)
    write(module_systemd, "edge.service", f"[Unit]\nRequires=heart.service\nAfter=heart.service\n{SLEEP}")
    write(module_systemd, "beat.timer", "[Timer]\nOnActiveSec=1h\nUnit=heart.service\n")
    how, why_ = way(observe_unit(module_systemd.host(), "heart.service"))
    assert how == "drop-in"
    assert "beat.timer would start the original meanwhile; edge.service would stop with it" in why_
