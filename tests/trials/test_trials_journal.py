"""The journal: intent before effect, readable after any death, and the lock beside it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.errors import RefusedError, UsageError
from draftworth.trials.journal import Journal
from draftworth.trials.lock import dead, locked


def test_a_step_writes_intent_then_effect(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", create=True) as journal:
        with journal.step("01-start", command=["a"]) as effect:
            assert [event.kind for event in journal.events()] == ["intent"], "the intent is there before the effect"
            effect["pid"] = 7
        events = journal.events()
    assert [(event.kind, event.step) for event in events] == [("intent", "01-start"), ("effect", "01-start")]
    assert events[0].data == {"command": ["a"]}
    assert events[1].data == {"pid": 7}


def test_a_failed_step_writes_why(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db", create=True) as journal:
        with pytest.raises(KeyboardInterrupt), journal.step("01-x"):
            raise KeyboardInterrupt("SIGINT")
        assert journal.events()[-1].kind == "failure"
        assert journal.events()[-1].data["error"] == "KeyboardInterrupt: SIGINT"


def test_what_was_written_survives_a_kill_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom draftworth.trials.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]), create=True)\njournal.append('intent', 'a', n=1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with Journal(path) as journal:
        assert [(event.kind, event.data) for event in journal.events()] == [("intent", {"n": 1})]


def test_a_journal_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, create=True)
    journal._db.execute("PRAGMA user_version=99")
    journal.close()
    with pytest.raises(UsageError, match=r"later Draftworth \(format 99"):
        Journal(path)
    with pytest.raises(UsageError, match="no such journal"):
        Journal(tmp_path / "none.db")
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(UsageError, match="cannot be read"):
        Journal(path)


@given(st.dictionaries(st.text(max_size=8), st.one_of(st.integers(-(2**53), 2**53), st.text(max_size=20)), max_size=5))
def test_data_comes_back_as_it_went_in(tmp_path_factory: pytest.TempPathFactory, data: dict[str, int | str]) -> None:
    with Journal(tmp_path_factory.mktemp("j") / "journal.db", create=True) as journal:
        journal.append("note", "s", data=data)
        assert journal.events()[0].data == {"data": data}


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTWORTH_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.mark.usefixtures("locks")
def test_a_second_trial_is_refused_and_told_who() -> None:
    with locked(8000, Path("/home/x/trials/first")):
        with pytest.raises(RefusedError) as caught, locked(8000, Path("/home/x/trials/second")):
            pass
        message = str(caught.value)
        assert "trial first is at work on the service on port 8000 since 20" in message
        assert f"pid {os.getpid()} of " in message
        with locked(8001, Path("/home/x/trials/other port")):
            pass
    with locked(8000, Path("/home/x/trials/third")) as died:
        assert died is None, "a holder that left in good order is no dead one"


def die_holding(port: int) -> None:
    """Let another process take a service's lock and be killed while it holds it."""
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom draftworth.trials.lock import locked\n"
        "with locked(int(sys.argv[1]), Path('/home/x/trials/the-dead')):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(port)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("locks")
def test_a_lock_whose_holder_was_killed_is_taken_and_named() -> None:
    die_holding(8000)
    with locked(8000, Path("/home/x/trials/next")) as died:
        assert died == Path("/home/x/trials/the-dead")


@pytest.mark.usefixtures("locks")
def test_a_refusal_because_of_a_dead_holder_does_not_forget_it() -> None:
    die_holding(8000)
    for _ in range(2):
        with pytest.raises(RefusedError, match="the-dead died"):
            _refuse_because_of_the_dead()
    with locked(8000, Path("/home/x/trials/restorer")):
        pass
    with locked(8000, Path("/home/x/trials/next")) as died:
        assert died is None


def _refuse_because_of_the_dead() -> None:
    with locked(8000, Path("/home/x/trials/next")) as died:
        raise RefusedError(f"{died.name if died else died} died")


def test_a_recycled_pid_is_not_taken_for_the_holder(locks: Path) -> None:
    locks.mkdir()
    note = {"trial": "old", "pid": os.getpid(), "started": 1, "boot": "another boot", "unix": time.time()}
    (locks / "port-8000.lock").write_text(json.dumps(note), encoding="utf-8")
    with locked(8000, Path("/home/x/trials/new")) as died:
        assert died == Path("old")


def test_a_damaged_lock_file_is_no_obstacle(locks: Path) -> None:
    locks.mkdir()
    (locks / "port-8000.lock").write_text('{"trial": ', encoding="utf-8")
    with locked(8000, Path("/home/x/trials/new")) as died:
        assert died is None


@pytest.mark.usefixtures("locks")
def test_the_dead_of_every_home_are_known() -> None:
    die_holding(8002)
    with locked(8001, Path("/home/x/trials/alive")):
        assert dead() == [(8002, Path("/home/x/trials/the-dead"))]


@pytest.mark.usefixtures("locks")
def test_nobody_is_told_to_end_a_restore() -> None:
    with (
        locked(8000, Path("/home/x/trials/first"), role="guard"),
        pytest.raises(RefusedError, match=r"is being put back after trial first \(pid .*\); wait for it$"),
        locked(8000, Path("/home/x/trials/second")),
    ):
        pass
