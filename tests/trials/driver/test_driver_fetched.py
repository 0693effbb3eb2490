import json
from pathlib import Path

import pytest

from draftworth.errors import TrialError
from draftworth.trials.driver.fetched import keep_fetched
from draftworth.trials.driver.pointers import Pointer
from draftworth.trials.driver.sending import Received, pieces

TRIAL = "20260101-000000"
POINTER = Pointer(host="gpu1")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def there(folder: Path, tag: str = "aaaaaa", name: str = TRIAL, **files: str) -> Received:
    """A trial of another machine, received."""
    trial = folder / f"there-{tag}" / name
    trial.mkdir(parents=True, exist_ok=True)
    (trial / "tag").write_text(f"{TRIAL}-{tag}", encoding="ascii")
    for file, text in files.items():
        (trial / file).write_text(text, encoding="utf-8")
    received = Received()
    for document in pieces(trial, 100):
        received.take(document)
    return received


def keep(received: Received) -> tuple[Path, list[str]]:
    try:
        return keep_fetched(received, POINTER)
    finally:
        received.close()


def test_it_lies_beside_the_trials_of_this_machine(tmp_path: Path, home: Path) -> None:
    folder, said = keep(there(tmp_path, trial="one", log="x" * 101))
    assert folder == home / "trials" / TRIAL
    assert said == ["left on gpu1, for its size: log"]
    assert (folder / "trial").read_text() == "one"
    note = json.loads((folder / "fetched.json").read_text())
    assert (note["host"], note["id"], note["left_out"]) == ("gpu1", TRIAL, ["log"])
    assert oct(folder.stat().st_mode)[-3:] == "700"


def test_a_later_copy_replaces_an_earlier_one(tmp_path: Path, home: Path) -> None:
    first, _ = keep(there(tmp_path, trial="one", gone="x"))
    (tmp_path / "there-aaaaaa" / TRIAL / "gone").unlink()
    second, _ = keep(there(tmp_path, trial="two"))
    assert first == second
    assert sorted(path.name for path in second.iterdir()) == ["fetched.json", "tag", "trial"]
    assert (second / "trial").read_text() == "two"
    assert [path.name for path in (home / "trials").iterdir()] == [TRIAL]


def test_another_trial_of_the_same_id_is_left_alone(tmp_path: Path, home: Path) -> None:
    own = home / "trials" / TRIAL
    own.mkdir(parents=True)
    (own / "trial.json").write_text("mine", encoding="utf-8")
    folder, said = keep(there(tmp_path, "aaaaaa"))
    assert folder.name == f"{TRIAL}-2"
    assert said == [f"another trial here is called {TRIAL}; this one is kept as {TRIAL}-2"]
    other, _ = keep(there(tmp_path, "bbbbbb"))
    assert other.name == f"{TRIAL}-3"
    assert keep(there(tmp_path, "aaaaaa"))[0] == folder
    assert (own / "trial.json").read_text() == "mine"
    # The number that a trial has of its own machine is not counted twice.
    numbered, _ = keep(there(tmp_path, "cccccc", name=f"{TRIAL}-2"))
    assert numbered.name == f"{TRIAL}-4"


def test_the_trial_itself_is_not_replaced_by_its_copy(tmp_path: Path, home: Path) -> None:
    """Where the machine is this one, reached over SSH."""
    own = home / "trials" / TRIAL
    own.mkdir(parents=True)
    (own / "tag").write_text(f"{TRIAL}-aaaaaa", encoding="ascii")
    (own / "huge.log").touch()
    assert keep(there(tmp_path)) == (own, [])
    assert sorted(path.name for path in own.iterdir()) == ["huge.log", "tag"]


def test_a_home_that_cannot_be_written(tmp_path: Path, home: Path) -> None:
    home.write_text("a file", encoding="utf-8")
    with pytest.raises(TrialError, match=r"set DRAFTWORTH_HOME"):
        keep(there(tmp_path))
