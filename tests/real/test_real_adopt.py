"""Adopting a variant on a real unit, and taking it back: whole or not at all, and never without being asked."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.helpers import listening, wait_for
from tests.real.private_systemd import InsideHost, PrivateSystemd
from tests.real.remote_case import remote_case
from tests.real.unit_case import NGRAM, QUICK, UnitCase

from draftworth.hosts.base import CommandResult
from draftworth.trials.adopt import adopt

ARMS = (("ngram-5", NGRAM), ("same", None))
LIMITS = "start_timeout_s = 6\ndrain_s = 1"
# So much faster that a busy machine does not matter.
CLEAR: dict[str, Any] = {**QUICK, "token_ms": 8.0, "speculating": {**QUICK["speculating"], "token_ms": 1.5}}


def broken(**how: Any) -> dict[str, Any]:
    """Return a script under which only a speculating server is broken."""
    return {**CLEAR, "speculating": {**CLEAR["speculating"], **how}}


class Adopting(UnitCase):
    """A unit with a trial that has found `ngram-5` faster, and `same`, which is the baseline, not."""

    id: str = ""

    @property
    def trial_folder(self) -> Path:
        return self.home / "trials" / self.id

    def path(self, name: str = "50-draftworth-adopted.conf") -> Path:
        return self.systemd.etc / f"{self.unit}.d" / name

    def tried(self, **options: Any) -> "Adopting":
        """Run the trial."""
        self.trial(prompts=6, limits=LIMITS, **options)
        done = self.run()
        assert done.code == 0, done.err
        assert done.json["verdict"] == "faster", done.json["reason"]
        self.id = done.json["id"]
        self.remember()
        return self

    def adopt(self, *options: str) -> Any:
        return self.cli("trial", "adopt", self.id, *options)

    def unadopt(self, *options: str) -> Any:
        return self.cli("trial", "unadopt", self.id, *options)

    def pid(self) -> str:
        return self.systemd.systemctl("show", "-p", "MainPID", "--value", self.unit)

    def untouched(self) -> None:
        """Check that nothing is adopted: files, settings and command are as before the trial."""
        assert not (self.trial_folder / "adopted.json").exists()
        self.as_before()

    def clean(self) -> None:
        """Leave the unit as it was, whatever a test has done."""
        shutil.rmtree(self.systemd.etc / f"{self.unit}.d", ignore_errors=True)
        for folder in (self.home / "trials").iterdir():
            (folder / "adopted.json").unlink(missing_ok=True)
        self.script(CLEAR)
        self.systemd.systemctl("daemon-reload")
        self.systemd.systemctl("reset-failed", self.unit, check=False)
        if "--speculative-config" in (self.argv() if self.state() == "active" else "--speculative-config"):
            self.systemd.systemctl("restart", self.unit)
        self.wait_serving()


@pytest.fixture(scope="module")
def shared(module_systemd: PrivateSystemd, tmp_path_factory: pytest.TempPathFactory) -> Adopting:
    case = Adopting(module_systemd, tmp_path_factory.mktemp("adopt"), unit="adopt.service")
    module_systemd.write_unit(
        "consumer.service", "[Unit]\nRequires=adopt.service\nAfter=adopt.service\n[Service]\nExecStart=/bin/sleep inf\n"
    )
    case.serve(CLEAR, unit="Wants=consumer.service")
    return case.tried(arms=ARMS)


@pytest.fixture
def case(shared: Adopting) -> Iterator[Adopting]:
    shared.clean()
    yield shared
    shared.clean()


def shown(case: UnitCase) -> dict[str, str]:
    """Return what systemctl says of the unit, by name; lists of units have no order."""
    lines = case.systemd.systemctl("show", case.unit).splitlines()
    found = dict(line.partition("=")[::2] for line in lines)
    return {name: " ".join(sorted(found[name].split())) if name in _LISTS else found[name] for name in found}


_LISTS = ("After", "Before", "Requires", "Wants", "Conflicts", "WantedBy", "RequiredBy")
VOLATILE = ("Timestamp", "CPU", "Memory", "Tasks", "NFileDescriptor", "IO", "IP", "Effective")


def test_a_trial_by_itself_adopts_nothing(case: Adopting) -> None:
    assert not case.path().exists()
    case.untouched()


def test_only_the_command_changes_and_the_running_service_is_left_alone(case: Adopting) -> None:
    before, pid = shown(case), case.pid()
    done = case.adopt()
    after = shown(case)
    differs = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert done.code == 0, done.err
    assert case.pid() == pid
    assert {name for name in differs if not any(word in name for word in VOLATILE)} == {
        "ExecStart",
        "ExecStartEx",
        "DropInPaths",
    }
    assert f"systemctl restart {case.unit}" in done.out
    assert f"draftworth trial unadopt {case.id}" in done.out


def test_the_drop_in_says_where_it_is_from_and_how_to_undo_it(case: Adopting) -> None:
    case.adopt()
    text = case.path().read_text(encoding="utf-8")
    ratio = next(one for one in case.record()["comparisons"] if one["arm"] == "ngram-5")["tpot_ratio"]
    assert f"trial {case.id}" in text
    assert f"{ratio['estimate']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})" in text
    assert f"draftworth trial unadopt {case.id}" in text
    assert [line for line in text.splitlines() if not line.startswith("#")][:2] == ["[Service]", "ExecStart="]


def test_systemd_finds_nothing_wrong_with_it(case: Adopting) -> None:
    case.adopt()
    found = case.systemd.run(["systemd-analyze", "verify", case.unit], check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def test_the_next_start_speculates_without_what_only_measuring_needs(case: Adopting) -> None:
    case.adopt()
    case.systemd.systemctl("restart", case.unit)
    case.wait_serving()
    assert '--speculative-config {"method":"ngram","num_speculative_tokens":5}' in case.argv()
    assert "--per-request-spec-decode-metrics" not in case.argv()


def test_taken_back_everything_is_as_it_was(case: Adopting) -> None:
    case.adopt("--restart")
    done = case.unadopt("--restart")
    assert done.code == 0, done.err
    case.as_before()
    assert not case.path().parent.exists()


def test_each_of_both_may_be_said_twice(case: Adopting) -> None:
    case.adopt("--restart")
    pid = case.pid()
    again = case.adopt("--restart")
    assert (again.code, case.pid()) == (0, pid)
    assert "already" in again.out
    case.unadopt("--restart")
    pid = case.pid()
    again = case.unadopt("--restart")
    assert (again.code, case.pid()) == (0, pid)
    assert "nothing adopted" in again.out


def test_restarting_waits_for_a_token_and_what_depends_on_it_is_back(case: Adopting) -> None:
    case.systemd.systemctl("start", "consumer.service")
    done = case.adopt("--restart", "--json")
    assert done.code == 0, done.err
    assert (done.json["done"], done.json["restarted"], done.json["arm"]) == ("adopted", True, "ngram-5")
    assert "--speculative-config" in case.argv()
    assert listening(case.port)
    assert case.state("consumer.service") == "active"


@pytest.mark.parametrize(
    "how",
    [{"die_at": "load"}, {"die_at": "first_request"}, {"load_seconds": 60.0}],
    ids=["dies loading", "dies at its first token", "never done loading"],
)
def test_a_variant_that_does_not_serve_is_undone(case: Adopting, how: dict[str, Any]) -> None:
    case.systemd.systemctl("start", "consumer.service")
    case.script(broken(**how))
    done = case.adopt("--restart")
    assert done.code == 6, done.err
    assert "undone" in done.err
    wait_for(lambda: case.state() == "active" and listening(case.port), 20, "the original serves")
    case.as_before()
    assert case.state("consumer.service") == "active"


def test_where_nothing_serves_any_more_the_exit_code_and_the_commands_say_so(case: Adopting) -> None:
    case.script({**CLEAR, "die_at": "first_request"})
    done = case.adopt("--restart")
    assert done.code == 4
    assert f"systemctl restart {case.unit}" in done.err
    assert not case.path().exists()
    case.script(CLEAR)
    commands = [line.strip() for line in done.err.splitlines() if line.startswith("  ")]
    case.systemd.run(["sh", "-c", "\n".join(commands)])
    case.wait_serving()
    case.as_before()


def test_ctrl_c_while_it_restarts_undoes_it(case: Adopting) -> None:
    case.script(broken(load_seconds=4.0))
    process = subprocess.Popen(
        case.command("trial", "adopt", case.id, "--restart"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: case.state() == "active" and "--speculative-config" in case.argv(), 20, "it was restarted")
    (inside,) = psutil.Process(process.pid).children()  # nsenter waits for it
    inside.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 6, err
    assert "interrupted by SIGINT" in err
    case.as_before()


def test_another_arm_has_to_be_faster_too(case: Adopting) -> None:
    done = case.adopt("--arm", "same")
    assert done.code == 2
    assert "arm same" in done.err
    assert case.adopt("--arm", "nothing").code == 1
    case.untouched()
    assert case.adopt("--arm", "ngram-5").code == 0


@pytest.mark.parametrize("loaded", [True, False])
def test_a_unit_that_was_changed_since_is_refused_with_what_differs(case: Adopting, *, loaded: bool) -> None:
    case.systemd.write_unit(f"{case.unit}.d/10-more.conf", "[Service]\nEnvironment=MORE=1\n")
    if loaded:
        case.systemd.systemctl("daemon-reload")
    done = case.adopt()
    assert done.code == 2
    assert "10-more.conf" in done.err
    assert not case.path().exists()
    assert not (case.trial_folder / "adopted.json").exists()


def test_a_drop_in_that_a_person_has_edited_stays(case: Adopting) -> None:
    case.adopt()
    edited = case.path().read_text(encoding="utf-8") + "Environment=MINE=1\n"
    case.path().write_text(edited, encoding="utf-8")
    for done in (case.unadopt(), case.adopt()):
        assert done.code == 2
        assert "was edited" in done.err
    assert case.path().read_text(encoding="utf-8") == edited


def test_a_drop_in_that_a_person_has_removed_is_gone(case: Adopting) -> None:
    case.adopt()
    case.path().unlink()
    done = case.unadopt()
    assert done.code == 0
    assert "gone already" in done.out
    case.as_before()


def test_a_trial_on_an_adopted_unit_names_what_takes_it_back(case: Adopting) -> None:
    case.adopt("--restart")
    done = case.cli("trial", "run", str(case.file), "--yes")
    assert done.code == 2
    assert f"draftworth trial unadopt {case.id}" in done.err


def test_a_trial_on_a_unit_that_still_runs_what_was_taken_back_is_refused(case: Adopting) -> None:
    case.adopt("--restart")
    case.unadopt()
    done = case.cli("trial", "run", str(case.file), "--yes")
    assert done.code == 2
    assert f"draftworth trial unadopt {case.id} --restart" in done.err
    assert case.unadopt("--restart").code == 0
    case.as_before()
    assert case.cli("trial", "plan", str(case.file)).code == 0


def test_one_trial_at_a_time_is_adopted(case: Adopting) -> None:
    other = case.run()
    assert other.json["verdict"] == "faster"
    case.adopt()
    done = case.cli("trial", "adopt", other.json["id"])
    assert done.code == 2
    assert f"draftworth trial unadopt {case.id}" in done.err
    nothing = case.cli("trial", "unadopt", other.json["id"])
    assert nothing.code == 0
    assert case.path().exists()
    case.unadopt()
    assert case.cli("trial", "adopt", other.json["id"]).code == 0


def test_a_read_only_etc_is_refused_and_nothing_is_half_done(case: Adopting) -> None:
    case.systemd.run(["mount", "-o", "remount,bind,ro", "/etc/systemd"])
    try:
        done = case.adopt()
    finally:
        case.systemd.run(["mount", "-o", "remount,bind,rw", "/etc/systemd"])
    assert done.code == 2
    assert "Read-only file system" in done.err
    case.untouched()
    assert not case.path().parent.exists()


def test_what_cannot_be_removed_stays_adopted(case: Adopting) -> None:
    case.adopt()
    case.systemd.run(["mount", "-o", "remount,bind,ro", "/etc/systemd"])
    try:
        done = case.unadopt()
    finally:
        case.systemd.run(["mount", "-o", "remount,bind,rw", "/etc/systemd"])
    assert done.code == 2
    assert "nothing was changed" in done.err
    assert "--speculative-config" in shown(case)["ExecStart"]
    assert case.unadopt().code == 0
    case.as_before()


def test_a_full_disk_is_refused_and_nothing_is_half_done(case: Adopting) -> None:
    folder = f"/etc/systemd/system/{case.unit}.d"
    case.systemd.run(["mkdir", "-p", folder])
    case.systemd.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder])
    try:
        case.systemd.run(["sh", "-c", f"head -c 4096 /dev/zero > {folder}/full"])
        done = case.adopt()
        left = case.systemd.run(["ls", "-A", folder]).stdout.split()
    finally:
        case.systemd.run(["umount", folder])
    assert done.code == 2
    assert "No space left on device" in done.err
    assert left == [b"full"]
    assert not (case.trial_folder / "adopted.json").exists()


def test_a_unit_that_does_not_run_is_adopted_and_not_started(case: Adopting) -> None:
    case.systemd.systemctl("stop", case.unit)
    assert case.adopt("--restart").code == 2
    done = case.adopt()
    assert done.code == 0, done.err
    assert "is inactive" in done.out
    assert case.state() == "inactive"


class Killed(BaseException):
    """The process is gone."""


class Dying(InsideHost):
    """A host under which the process dies at the n-th change, before or after it."""

    def __init__(self, inside: PrivateSystemd, at: int, *, after: bool) -> None:
        super().__init__(inside)
        self.left, self.after = at, after

    def run(self, argv: Any, *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        changes = "daemon-reload" in argv or (argv[0] == "sh" and stdin is not None)
        self.left -= changes
        if changes and self.left == 0 and not self.after:
            raise Killed
        result = super().run(argv, stdin=stdin, timeout_s=timeout_s)
        if changes and self.left == 0:
            raise Killed
        return result


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2], ids=["the file", "the reload"])
def test_killed_in_between_the_same_command_finishes_it(
    case: Adopting, monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool
) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(case.home))
    monkeypatch.setenv("DRAFTWORTH_LOCKS", str(case.folder / "locks"))
    with pytest.raises(Killed):
        adopt(Dying(case.systemd, at, after=after), case.trial_folder, arm=None, restart=False, say=lambda _: None)
    done = case.adopt()
    assert done.code == 0, done.err
    assert "--speculative-config" in shown(case)["ExecStart"]
    assert case.unadopt().code == 0
    case.as_before()


@pytest.mark.parametrize("at", [1, 2], ids=["the file", "the reload"])
def test_killed_in_between_it_can_be_taken_back(case: Adopting, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(case.home))
    monkeypatch.setenv("DRAFTWORTH_LOCKS", str(case.folder / "locks"))
    with pytest.raises(Killed):
        adopt(Dying(case.systemd, at, after=True), case.trial_folder, arm=None, restart=False, say=lambda _: None)
    assert case.unadopt().code == 0
    case.as_before()


# ---------------------------------------------------------------------- other units


def test_a_command_that_another_drop_in_sets_is_still_replaced(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    case = Adopting(module_systemd, tmp_path, unit="overridden.service")
    module_systemd.write_unit(
        f"{case.unit}.d/override.conf", f"[Service]\nExecStart=\nExecStart={case.exec_start()} --dtype half\n"
    )
    case.serve(CLEAR, start=False, exec_start="/bin/false")
    module_systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.tried()
    assert case.adopt("--restart").code == 0
    assert "--dtype half --speculative-config" in case.argv()
    assert case.unadopt("--restart").code == 0
    case.as_before()
    # One that no name of ours is read behind: systemd would go on with the old command, so nothing stays.
    module_systemd.write_unit(
        f"{case.unit}.d/zzz.conf", f"[Service]\nExecStart=\nExecStart={case.exec_start()} --dtype half\n"
    )
    module_systemd.systemctl("daemon-reload")
    case.tried()
    done = case.adopt()
    assert done.code == 2
    assert "another drop-in" in done.err
    case.untouched()


def test_a_key_in_the_command_is_readable_to_nobody_new(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    key = "sk-0123456789abcdef"
    case = Adopting(module_systemd, tmp_path, unit="keyed.service")
    script = {**CLEAR, "api_key": key}
    case.serve(script, exec_start=f"{case.exec_start()} --api-key {key}", start=False)
    (module_systemd.etc / case.unit).chmod(0o600)
    module_systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.trial(prompts=6, limits=LIMITS, service='append_args = true\napi_key_env = "THE_KEY"')
    done = case.cli("trial", "run", str(case.file), "--yes", "--json", env={"THE_KEY": key})
    assert done.code == 0, done.err
    case.id = done.json["id"]
    case.remember()
    no_key = case.adopt("--restart")
    assert no_key.code == 1
    assert "THE_KEY" in no_key.err
    case.untouched()
    done = case.cli("trial", "adopt", case.id, "--restart", env={"THE_KEY": key})
    assert done.code == 0, done.err
    assert case.path().stat().st_mode & 0o777 == 0o600
    assert f"--api-key {key}" in case.argv()
    assert key not in (case.trial_folder / "adopted.json").read_text(encoding="utf-8")
    assert case.unadopt().code == 0
    module_systemd.systemctl("disable", "--now", case.unit)


def test_a_reboot_keeps_it(private_systemd: PrivateSystemd, tmp_path: Path) -> None:
    case = Adopting(private_systemd, tmp_path)
    case.serve(CLEAR)
    case.tried().adopt()
    private_systemd.reboot()
    case.wait_serving()
    assert "--speculative-config" in case.argv()
    assert case.unadopt("--restart").code == 0
    assert "--speculative-config" not in case.argv()


def test_over_ssh(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    with remote_case(module_systemd, tmp_path, "far.service") as case:
        case.serve(CLEAR)
        case.trial(prompts=6, limits=LIMITS)
        ran = case.run()
        assert ran.json["verdict"] == "faster", ran.err
        trial = ran.json["id"]
        case.remember()
        done = case.cli("trial", "adopt", trial, "--restart", "--json")
        assert done.code == 0, done.err
        assert (done.json["done"], done.json["restarted"]) == ("adopted", True)
        assert "--speculative-config" in case.argv()
        assert "generating the first token" in done.err
        refused = case.cli("trial", "adopt", trial, "--arm", "nothing")
        assert refused.code == 1
        assert "nothing" in refused.err
        done = case.cli("trial", "unadopt", trial, "--restart")
        assert done.code == 0, done.err
        case.as_before()
        # The copy on the client's machine is no trial of its own unit.
        shutil.rmtree(case.client / "remote")
        copied = case.cli("trial", "adopt", trial)
        assert copied.code == 2
        assert "--host" in copied.err


def test_a_lost_connection_does_not_stop_it(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    with remote_case(module_systemd, tmp_path, "lost.service") as case:
        case.serve(CLEAR)
        case.trial(prompts=6, limits=LIMITS)
        trial = case.run().json["id"]
        case.script(broken(load_seconds=3.0))
        process = subprocess.Popen(
            case.command("trial", "adopt", trial, "--restart"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: case.state() == "active" and "--speculative-config" in case.argv(), 20, "it was restarted")
        case.server.drop()
        _, err = process.communicate(timeout=30)
        assert process.returncode == 6, err
        assert "run the same command again" in err
        case.wait_serving()
        again = wait_for(lambda: (done := case.cli("trial", "adopt", trial)).code == 0 and done, 20, "it has finished")
        assert "already" in again.out
        assert case.cli("trial", "unadopt", trial).code == 0
