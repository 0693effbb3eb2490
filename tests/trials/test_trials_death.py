"""The tool interrupted or killed at any moment: the service is as it was, and no process of a server is left."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from tests.helpers import listening, original, pids_with, wait_for
from tests.trials.conftest import QUICK, Case

from draftworth.services.processes import listener

SLOW = {**QUICK, "token_ms": 20.0, "speculating": {"token_ms": 15.0}}


def finish(tool: "subprocess.Popen[str]", seconds: float = 30) -> tuple[int, str, str]:
    out, err = tool.communicate(timeout=seconds)
    return tool.returncode, out, err


def record(case: Case) -> dict[str, object]:
    loaded = json.loads((case.trials()[-1] / "trial.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def guard_pid(case: Case) -> int:
    return next(int(event.data["pid"]) for event in case.events() if event.step == "guard")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("step", ["start-baseline", "measure-ngram"])
def test_a_signal_ends_the_trial_in_order(case: Case, step: str, number: signal.Signals) -> None:
    case.write(SLOW)
    tool = case.start("trial", "run", str(case.file), "--json")
    wait_for(lambda: case.reached(step), 20)
    time.sleep(0.3)
    tool.send_signal(number)
    code, out, err = finish(tool)
    assert code == 6, err
    found = json.loads(out)
    assert found["verdict"] == "error"
    assert found["error"] == f"interrupted by {number.name}"
    assert found["restored"] is True
    case.nothing_left()
    if step == "measure-ngram":
        assert next(arm for arm in found["arms"] if arm["name"] == "baseline")["requests"] == 4, (
            "measured rows are kept"
        )


def test_ctrl_c_twice_does_not_skip_the_restore(case: Case) -> None:
    case.write({**SLOW, "ignore_sigterm": True}, limits="stop_timeout_s = 2")
    with original(case.original_command(), case.port, case.folder):
        tool = case.start("trial", "run", str(case.file), "--json")
        wait_for(lambda: case.reached("measure-ngram"), 20)
        for _ in range(3):
            tool.send_signal(signal.SIGINT)
            time.sleep(0.3)
        code, out, err = finish(tool)
        assert code == 6, err
        assert json.loads(out)["restored"] is True
        assert "being put back first" in err
        assert listening(case.port)


def test_a_closed_output_changes_nothing(case: Case) -> None:
    case.write()
    tool = case.start("trial", "run", str(case.file))
    assert tool.stdout
    assert tool.stderr
    tool.stdout.close()
    tool.stderr.close()
    assert tool.wait(timeout=60) == 0
    assert record(case)["verdict"] == "faster"
    case.nothing_left()


def test_a_second_trial_is_refused_while_one_runs(case: Case) -> None:
    case.write(SLOW)
    tool = case.start("trial", "run", str(case.file), "--json")
    wait_for(lambda: case.reached("measure-baseline"), 20)
    second = case.cli("trial", "run", str(case.file))
    assert second.code == 2
    assert f"trial {case.trials()[0].name} is at work on the service on port {case.port} since 20" in second.err
    assert len(case.trials()) == 1
    restore = case.cli("trial", "restore", case.trials()[0].name)
    assert restore.code == 2, "a running trial is not restored under its feet"
    assert f"pid {tool.pid} of" in restore.err
    tool.send_signal(signal.SIGINT)
    finish(tool)
    case.nothing_left()


KILLER = """
import os, signal, sys
from draftworth.trials import journal
at, after = int(sys.argv[1]), sys.argv[2] == "after"
written, append = [0], journal.Journal.append

def counting(self, *args, **kwargs):
    written[0] += 1
    if written[0] == at and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, *args, **kwargs)
    if written[0] == at:
        os.kill(os.getpid(), signal.SIGKILL)

journal.Journal.append = counting
from draftworth.cli import main
main(sys.argv[3:])
"""


def killed_at(case: Case, write: int, when: str) -> bool:
    """Run a trial that is killed right before or after its n-th journal write. Returns whether it got that far."""
    command = [sys.executable, "-c", KILLER, str(write), when, "trial", "run", str(case.file), "--json"]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, check=False, timeout=120)
    return done.returncode == -signal.SIGKILL


# A whole trial with a running original makes 24 journal writes; both sides of each are a different world.
@pytest.mark.parametrize("write", range(2, 25))
def test_killed_at_any_journal_write_the_guard_puts_the_original_back(case: Case, write: int) -> None:
    when = "before" if write % 2 else "after"
    case.write(QUICK, prompts=1)
    with original(case.original_command(), case.port, case.folder) as pid:
        before = _argv(pid)
        assert killed_at(case, write, when), "the trial makes fewer journal writes than the sweep expects"
        wait_for(lambda: not _alive(guard_pid(case)), 30, "the guard is done")
        _as_before(case, before)
        assert case.cli("trial", "restore").code == 0
        _as_before(case, before)
        if write > 2:
            assert record(case)["restored"] is True
            assert record(case)["verdict"] == "error"
        assert not (case.trials()[-1] / "original.json").exists()


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_journal_write(case: Case, when: str) -> None:
    case.write(QUICK, prompts=1)
    write = 3
    while True:
        with original(case.original_command(), case.port, case.folder) as pid:
            before = _argv(pid)
            if not killed_at(case, write, when):
                break
            wait_for(lambda: not _alive(guard_pid(case)), 30, "the guard is done")
            _as_before(case, before)
        for left in pids_with(f"script-{case.port}.json"):
            os.kill(left, signal.SIGKILL)
        wait_for(lambda: not listening(case.port))
        write += 1
    assert write > 20


def test_killed_with_its_guard_a_person_restores(case: Case) -> None:
    case.write({**SLOW, "spawn_children": 1, "detached_children": 1})
    with original(case.original_command(), case.port, case.folder) as pid:
        before = _argv(pid)
        tool = case.start("trial", "run", str(case.file), "--json")
        wait_for(lambda: case.reached("04-measure"), 30)
        os.kill(guard_pid(case), signal.SIGKILL)
        tool.kill()
        finish(tool)
        assert len(pids_with(f"DRAFTWORTH_START={case.trials()[0].name}/")) >= 3, "the variant and its children live on"
        assert "unfinished" in case.cli("trial", "list").out
        again = case.cli("trial", "run", str(case.file))
        assert again.code == 2
        assert f"draftworth trial restore {case.trials()[0].name}" in again.err
        assert case.cli("trial", "plan", str(case.file)).code == 2, "the plan says it too"
        elsewhere = case.start("trial", "restore", env={"DRAFTWORTH_HOME": str(case.folder / "other")})
        code, _, err = finish(elsewhere)
        assert code == 2
        assert f"DRAFTWORTH_HOME={case.home} draftworth trial restore {case.trials()[0].name}" in err
        script = case.trials()[0] / "restore.sh"
        by_hand = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=False, timeout=20)
        assert by_hand.returncode == 1, "the original must not be started beside the variant"
        assert "the trial's own server still runs; first: kill -9 " in by_hand.stderr
        done = case.cli("trial", "restore")
        assert done.code == 0, done.err
        assert "has generated a token" in done.out
        _as_before(case, before)
        assert "nothing to do" in case.cli("trial", "restore").out
        assert case.cli("trial", "run", str(case.file)).code == 0, "and the next trial runs"


def test_killed_between_a_start_and_its_record_the_mark_finds_the_server(case: Case) -> None:
    # The journal has the intent only: nothing but the mark in its environment tells whose the server is.
    case.write({**SLOW, "load_seconds": 1.0})
    tool = case.start("trial", "run", str(case.file), "--json")
    wait_for(lambda: case.reached("01-start", "effect"), 20)
    os.kill(guard_pid(case), signal.SIGKILL)
    tool.kill()
    finish(tool)
    with_effects = case.trials()[0] / "journal.db"
    _forget_effects(with_effects)
    assert pids_with(f"DRAFTWORTH_START={case.trials()[0].name}/")
    assert case.cli("trial", "restore").code == 0
    case.nothing_left()


def test_killed_after_its_restore_a_trial_owes_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its name stays on the machine's lock; neither this home nor another may take that for an outstanding restore.
    case.write(QUICK, prompts=1)
    with original(case.original_command(), case.port, case.folder):
        assert killed_at(case, 24, "after")
        wait_for(lambda: not _alive(guard_pid(case)), 30)
        note = {"trial": case.trials()[0].name, "folder": str(case.trials()[0]), "pid": 1, "started": 1, "boot": "x"}
        (case.folder / "locks" / f"port-{case.port}.lock").write_text(json.dumps(note), encoding="utf-8")
        assert case.cli("trial", "restore").code == 0
        monkeypatch.setenv("DRAFTWORTH_HOME", str(case.folder / "other"))
        assert case.cli("trial", "restore").code == 0
        assert case.cli("trial", "plan", str(case.file)).code == 0


def test_a_killed_restore_is_finished_by_the_next(case: Case) -> None:
    case.write({**QUICK, "load_seconds": 1.5})
    with original(case.original_command(), case.port, case.folder) as pid:
        before = _argv(pid)
        tool = case.start("trial", "run", str(case.file), "--json")
        wait_for(lambda: case.reached("04-measure"), 30)
        os.kill(guard_pid(case), signal.SIGKILL)
        tool.kill()
        finish(tool)
        first = case.start("trial", "restore")
        wait_for(lambda: case.reached("start-original", "effect"), 30)
        first.kill()
        finish(first)
        # The original is loading already: it must be waited for, not started twice.
        assert case.cli("trial", "restore").code == 0
        _as_before(case, before)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_killed_at_random_moments(case: Case) -> None:
    """A hundred kills of the tool, half of them with a kill of the guard's restore on top."""
    rolls = random.Random(20260101)
    case.write(QUICK)
    for number in range(100):
        with original(case.original_command(), case.port, case.folder) as pid:
            before = _argv(pid)
            tool = case.start("trial", "run", str(case.file), "--json")
            # The newest trial must be this one, not the one before.
            wait_for(partial(case.begun, number + 1, "01-measure"), 30)
            time.sleep(rolls.uniform(0, 3))
            tool.kill()
            finish(tool)
            if number % 2:
                time.sleep(rolls.uniform(0, 1))
                if _alive(guard_pid(case)):
                    os.kill(guard_pid(case), signal.SIGKILL)
            wait_for(lambda: not _alive(guard_pid(case)), 60)
            assert case.cli("trial", "restore").code == 0
            _as_before(case, before)
        for left in pids_with(f"script-{case.port}.json"):
            os.kill(left, signal.SIGKILL)
        wait_for(lambda: not listening(case.port))


def _argv(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _as_before(case: Case, argv: bytes) -> None:
    """Assert that the original, and nothing else, serves."""
    wait_for(lambda: listening(case.port), 20, "the original serves")
    holder = listener(case.port, "127.0.0.1")
    assert holder is not None
    assert _argv(holder.pid) == argv
    wait_for(lambda: pids_with(f"script-{case.port}.json") == [holder.pid], 10, "nothing else is left")


def _forget_effects(path: Path) -> None:
    import sqlite3  # noqa: PLC0415 - only here

    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM events WHERE kind = 'effect' OR (kind = 'note' AND step != 'guard')")
    connection.commit()
    connection.close()
