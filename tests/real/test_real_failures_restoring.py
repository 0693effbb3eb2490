"""Failures 47 to 54 and 57 to 64: what goes wrong while a unit is put back, and the tool or its machine failing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guarantees.case import MEASURED, SLOW, Case, made_case, remarks
from tests.guarantees.gpu import OWN_MIB, TestGpu
from tests.guarantees.marks import failure, shows
from tests.guarantees.patch import DriverPatch, systemctl_fails
from tests.helpers import free_port, listening, wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK

DROP_IN = 'append_args = true\nway = "drop-in"'
WAYS = ["append_args = true", DROP_IN]


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[Case]:
    with made_case(module_systemd, tmp_path) as made:
        yield made


def fails_while(folder: Path, *, once: bool = False) -> tuple[str, Path]:
    """Return settings of a unit that does not start while a file is there, and the file."""
    broken = folder / "broken"
    script = folder / "pre.sh"
    script.write_text(f"[ ! -e {broken} ] || {{ {f'rm {broken};' if once else ''} exit 1; }}\n", encoding="utf-8")
    return f"ExecStartPre=/bin/sh {script}\nRestart=no", broken


@failure(
    47,
    produced="ExecStartPre= of the original fails at its first start after the variant",
    outcome="the restore is tried again and the trial goes on to its verdict",
)
def test_a_start_of_the_original_that_fails_once_is_tried_again(case: Case) -> None:
    settings, broken = fails_while(case.folder, once=True)
    case.serve(service=settings).trial().remember()
    done = case.run_while(case.runs_variant, broken.touch)
    assert not broken.exists(), "the original's start failed"
    assert done.code in MEASURED, done.err
    assert done.json["restored"] is True
    case.as_before()


@failure(
    47,
    produced="ExecStartPre= of the original fails until its cause is mended, after the trial has ended",
    outcome="exit code 4, on standard error what was tried, and the commands; the restore unit goes on and succeeds by "
    "itself as soon as that is possible, corrects the record and leaves nothing",
)
@shows("G6", "a restore that fails is repeated by the host until it is verified")
@shows("G18", "the record says NOT restored and the commands, and is corrected once the host has succeeded")
def test_an_original_that_cannot_start_is_loud_and_the_host_goes_on_trying(case: Case) -> None:
    settings, broken = fails_while(case.folder)
    case.serve(service=settings).trial().remember()
    done = case.run_while(case.runs_variant, broken.touch)
    assert done.code == 4, done.err
    assert "NOT restored" in done.err
    assert f"sh /run/draftworth/{case.tag()}/restore.sh" in done.err
    assert case.record()["restored"] is False
    assert case.state(f"draftworth-restore-{case.tag()}.service") == "activating"
    broken.unlink()
    case.wait_back(30)
    wait_for(lambda: case.record()["restored"], 20, "the record tells that it is back")
    again = case.cli("trial", "restore")
    assert again.code == 0, again.err


@failure(
    47,
    produced="the driver is killed, the restore unit stopped by a person, who runs the printed command: "
    "`sh /run/draftworth/…/restore.sh`, with no Python on PATH",
    outcome="the service is back and nothing of the trial's is left",
)
@shows("G1", "sh and systemctl alone put the service back, from a script written before the first change")
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_the_printed_command_puts_the_service_back_by_hand(case: Case, service: str) -> None:
    settings, broken = fails_while(case.folder)
    case.serve(SLOW, service=settings).trial(service=service).remember()
    case.start()
    wait_for(lambda: case.reached("measure-ngram-5"), 30, "the variant is measured")
    broken.touch()
    tag = case.tag()
    case.systemd.systemctl("kill", "-s", "KILL", case.driver())
    restore = f"draftworth-restore-{tag}.service"
    wait_for(lambda: "NOT restored yet" in case.journal(restore), 20, "the restore has failed")
    case.systemd.systemctl("stop", restore)
    broken.unlink()
    case.systemd.run(["env", "-i", "PATH=/usr/bin:/bin", "sh", f"/run/draftworth/{tag}/restore.sh"])
    case.wait_back(10)


@failure(
    48,
    produced="StartLimitBurst=1 within an hour: every further start is refused (start-limit-hit)",
    outcome="the restore resets the counter first; the original runs",
)
def test_a_start_limit_does_not_keep_the_original_away(case: Case) -> None:
    limits = "StartLimitIntervalSec=3600\nStartLimitBurst=1"
    case.serve({**QUICK, "speculating": {"die_at": "load"}}, unit=limits, service="Restart=no")
    refused = case.systemd.run(["systemctl", "restart", case.unit], check=False)
    assert refused.returncode != 0, "the limit works"
    case.systemd.systemctl("reset-failed", case.unit)
    case.systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.trial(service=DROP_IN).remember()
    done = case.run()
    assert done.code == 6, done.err
    case.wait_back(10)


@failure(
    49,
    produced="the memory of a killed variant stays in use for 3 s; the original fails to load while it does",
    outcome="the original's failed start is no end: it is started again when the memory is free",
)
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_an_original_that_finds_its_memory_taken_is_started_again(case: Case, service: str) -> None:
    settings, taken = fails_while(case.folder)
    gpu = TestGpu(case.systemd, case.folder, case.unit)
    try:
        case.serve(SLOW, service=settings).trial(service=service).remember()

        def die() -> None:
            taken.touch()
            gpu.tell(stuck=OWN_MIB)
            case.systemd.systemctl("kill", "-s", "KILL", next(iter(case.variants()), case.unit))
            time.sleep(3)
            gpu.tell()
            taken.unlink()

        done = case.run_while(lambda: case.reached("measure-ngram-5"), die)
        assert done.code == 6, done.err
        assert "died" in done.json["reason"]
        case.wait_back(10)
    finally:
        gpu.remove()


@failure(
    50,
    produced="the original's program is away while the variant runs, and comes back 4 s later (an upgrade)",
    outcome="the start that finds no program is tried again; the service is back by itself",
)
def test_a_program_that_is_replaced_meanwhile_is_waited_for(case: Case) -> None:
    program = case.folder / "serve"
    program.write_text(f'#!/bin/sh\nexec {case.exec_start()} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    case.serve(SLOW, exec_start=str(program), service="Restart=no")
    case.trial(service=f"append_args = true\nport = {case.port}").remember()
    away = program.with_suffix(".away")

    def upgrade() -> None:
        program.rename(away)
        case.systemd.systemctl("kill", "-s", "KILL", *case.variants())
        time.sleep(4)
        away.rename(program)

    done = case.run_while(lambda: case.reached("measure-ngram-5"), upgrade)
    assert done.code == 6, done.err
    case.wait_back(10)


@failure(
    51,
    produced="a person edits the original's unit file and disables it while the variant runs",
    outcome="the service is restored with the person's edit, which is not overwritten; the record says what differs",
)
@shows("G3", "no file of the original's is written, not even to undo what a person did meanwhile")
@shows("G5", "an edit by a person during the trial is left alone")
def test_an_edit_by_a_person_is_kept_and_told(case: Case) -> None:
    case.serve().trial(service=DROP_IN)
    path = case.systemd.etc / case.unit
    edited = path.read_text(encoding="utf-8").replace("[Service]", "[Service]\nEnvironment=BY_A_PERSON=1")

    def edit() -> None:
        path.write_text(edited, encoding="utf-8")
        case.systemd.systemctl("disable", case.unit)

    done = case.run_while(case.runs_variant, edit)
    assert done.json["restored"] is True
    assert path.read_text(encoding="utf-8") == edited
    assert case.systemd.systemctl("is-enabled", case.unit, check=False) == "disabled"
    said = remarks(done)
    assert f"/etc/systemd/system/{case.unit} (fragment) was edited" in said, said
    assert "unit file state was enabled, is disabled" in said
    environ = case.systemd.run(["cat", f"/proc/{case.pid()}/environ"]).stdout
    assert b"BY_A_PERSON=1" in environ
    case.wait_back(5)


@failure(
    52,
    produced="the restored original is healthy and answers 503 to everything that generates",
    outcome="exit code 4 with the commands; the host goes on asking and ends once a token comes",
)
@shows("G6", "a restore is over only when the original has generated a token")
def test_an_original_that_does_not_generate_is_not_restored(case: Case) -> None:
    case.serve().trial(limits="start_timeout_s = 2\ndrain_s = 1").remember()
    done = case.run_while(case.runs_variant, lambda: case.script({**QUICK, "warm_seconds": 600}))
    assert done.code == 4, done.err
    assert case.record()["restored"] is False
    assert case.state() == "active"
    case.script()
    case.systemd.systemctl("restart", case.unit)
    case.wait_back(30)
    wait_for(lambda: case.record()["restored"], 20, "the record tells that it is back")


@failure(
    53,
    produced="a gateway with BindsTo=, one with Requires=, one with PartOf=, a socket and a timer, all active before",
    outcome="the trial runs as a drop-in on the unit itself; each of them is active again, and was never disabled",
)
@failure(
    14,
    produced="units with Requires=, BindsTo= and PartOf= on the service: they stop with it and stay stopped",
    outcome="they are started again with the variant and with the restored original",
)
@shows("G2", "dependents, sockets and timers are as they were found")
def test_dependents_sockets_and_timers_are_back(case: Case) -> None:
    stem, port = case.unit.removesuffix(".service"), free_port()
    for relation in ("BindsTo", "Requires", "PartOf"):
        text = f"[Unit]\n{relation}={case.unit}\nAfter={case.unit}\n[Service]\nExecStart=/bin/sleep 1000\n"
        case.systemd.write_unit(f"{stem}-{relation.lower()}.service", text)
    case.systemd.write_unit(f"{stem}.socket", f"[Socket]\nListenStream=127.0.0.1:{port}\n")
    case.systemd.write_unit(f"{stem}.timer", f"[Timer]\nOnActiveSec=1000\nUnit={case.unit}\n")
    others = [f"{stem}-bindsto.service", f"{stem}-requires.service", f"{stem}-partof.service"]
    others += [f"{stem}.socket", f"{stem}.timer"]
    case.serve(SLOW, start=False)
    case.systemd.systemctl("start", f"{stem}.socket", f"{stem}.timer", case.unit, *others[:3])
    case.wait_serving()
    case.trial().remember()
    seen: dict[str, str] = {}
    # A person's connection to the socket must not start the original beside the variant either.
    done = case.run_while(
        lambda: case.reached("measure-ngram-5"),
        lambda: seen.update({one: case.state(one) for one in others}, port=str(listening(port))),
    )
    assert done.code in MEASURED, done.err
    assert seen == {**dict.fromkeys(others, "active"), "port": "True"}, "with the variant too"
    assert {one: case.state(one) for one in others} == dict.fromkeys(others, "active")
    case.wait_back(5)


@failure(
    54,
    produced="`systemctl daemon-reload` of the trial's driver does not end, from the stop of the original on",
    outcome="the variant is not started; the host's own restore unit puts the original back",
)
@failure(
    54,
    produced="every systemctl of the trial's driver hangs, from the stop of the original on",
    outcome="the driver cannot restore and says so; with its end the host does, and corrects the record",
)
@pytest.mark.parametrize(("word", "code"), [("daemon-reload", 6), ("", 4)], ids=["daemon-reload", "systemctl"])
def test_orders_to_systemd_that_hang_leave_the_restore_to_the_host(case: Case, word: str, code: int) -> None:
    patch = DriverPatch(case.folder / "patch", systemctl_fails(word))
    case.serve().trial().remember()
    done = case.run_while(lambda: case.reached("stop-original"), patch.begin, env=patch.env)
    assert done.code == code, done.err
    assert "did not end within 90 s" in done.err + done.out
    case.wait_back(40)
    wait_for(lambda: case.record()["restored"], 20, "the record tells that it is back")


@failure(
    54,
    produced="the D-Bus daemon is stopped while the variant runs, and comes back 5 s later",
    outcome="systemctl and the restore script go on through systemd's own socket; the service is back and verified",
)
def test_without_the_bus_the_service_is_back(case: Case) -> None:
    case.serve(SLOW).trial().remember()

    def silence() -> None:
        case.systemd.systemctl("stop", "dbus.socket", "dbus.service")
        time.sleep(5)
        case.systemd.systemctl("start", "dbus.socket", "dbus.service")

    case.run_while(lambda: case.reached("measure-ngram-5"), silence)
    case.wait_back(40)
    wait_for(lambda: case.record()["restored"], 20, "the record tells that it is back")


@failure(
    57,
    produced="while the original is stopped, the client's output is closed; three that watch get SIGHUP, TERM and KILL",
    outcome="the trial goes on by itself to its verdict; the record is complete",
)
def test_clients_that_are_gone_are_no_end_of_the_trial(case: Case) -> None:
    case.serve(SLOW).trial().remember()
    client = watching(case, "trial", "run", str(case.file), "--yes")
    wait_for(lambda: case.reached("stop-original"), 30, "the original is stopped")
    for stream in (client.stdout, client.stderr):
        assert stream is not None
        stream.close()
    watchers = [watching(case, "trial", "attach", "latest") for _ in range(3)]
    time.sleep(2)
    for watcher, number in zip(watchers, (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL), strict=True):
        os.killpg(watcher.pid, number)
        watcher.communicate(timeout=20)
    record = case.wait_record()
    client.wait(20)
    assert record["restored"] is True
    assert record["error"] is None
    case.wait_back(10)


@failure(
    57,
    produced="Ctrl-C at the client while a variant is measured, and once more",
    outcome="the first ends the trial, which puts the service back; the second ends the watching, and not the restore",
)
def test_ctrl_c_ends_the_trial_and_never_its_restore(case: Case) -> None:
    case.serve(SLOW).trial().remember()
    client = watching(case, "trial", "run", str(case.file), "--yes")
    wait_for(lambda: case.reached("measure-ngram-5"), 30, "the variant is measured")
    os.killpg(client.pid, signal.SIGINT)
    wait_for(lambda: case.reached("restore"), 20, "the driver restores")
    os.killpg(client.pid, signal.SIGINT)
    client.communicate(timeout=20)
    record = case.wait_record()
    assert record["restored"] is True
    assert "interrupted" in record["reason"]
    case.wait_back(10)


def watching(case: Case, *words: str) -> "subprocess.Popen[bytes]":
    """Start a client with a process group of its own: a signal to it reaches the client behind nsenter too."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(case.command(*words), stdin=null, stdout=pipe, stderr=pipe, start_new_session=True)


@failure(
    60,
    produced="the driver's wall clock is set back by a day while the original is stopped",
    outcome="limits and waits are counted by the monotonic clock: the trial comes to its verdict",
)
def test_a_clock_that_is_set_back_changes_nothing(case: Case) -> None:
    code = """\
    import time
    real = time.time
    time.time = lambda: real() - (86400 if now() else 0)
    """
    patch = DriverPatch(case.folder / "patch", code)
    case.serve().trial(limits="start_timeout_s = 20\ndrain_s = 1\ndowntime_s = 300").remember()
    done = case.run_while(lambda: case.reached("stop-original"), patch.begin, env=patch.env)
    assert done.code in MEASURED, done.err
    unix = [event.unix for event in case.events()]
    assert unix[-1] < unix[0], "the clock was set back"
    case.wait_back(10)


@failure(
    64,
    produced="the virtual environment that the trial runs from is moved away and its driver killed",
    outcome="the restore needs sh and systemctl alone: the service is back; the record is written by the next "
    "`trial restore`",
)
@shows("G1", "with the tool's Python gone and its driver killed, systemd puts the service back")
def test_a_restore_needs_no_python(case: Case) -> None:
    venv = case.folder / "venv"
    (venv / "bin").mkdir(parents=True)
    own = Path(sys.prefix)
    shutil.copy(own / "pyvenv.cfg", venv)
    (venv / "lib").symlink_to(own / "lib")
    python = venv / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    case.serve(SLOW).trial().remember()
    command = [str(python) if word == sys.executable else word for word in case.command("trial", "run", str(case.file))]
    started = subprocess.run([*command, "--yes", "--detach"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    wait_for(lambda: case.reached("measure-ngram-5"), 30, "the variant is measured")
    venv.rename(case.folder / "venv.old")
    case.systemd.systemctl("kill", "-s", "KILL", case.driver())
    case.wait_back(30)
    assert not (case.trials()[-1] / "trial.json").exists(), started.stderr
    done = case.cli("trial", "restore")
    assert done.code == 0, done.err
    assert case.record()["restored"] is True
    case.as_before()
