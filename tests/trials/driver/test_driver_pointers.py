from pathlib import Path

import pytest

from draftworth.errors import UsageError
from draftworth.trials.driver.pointers import Pointer, keep, pointer_to, way_to

OLD, NEW = "20260101-000000", "20260101-000001"
A, B = Pointer(host="a"), Pointer(host="b", draftworth="~/bin/draftworth", sudo=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path))
    return tmp_path


def of(pointer: Pointer, trial: str) -> Pointer:
    return pointer.model_copy(update={"trial": trial})


def test_a_trial_is_found_by_its_id() -> None:
    assert pointer_to(OLD) is None
    assert pointer_to("latest") is None
    keep(OLD, A)
    keep(NEW, B)
    assert pointer_to(OLD) == of(A, OLD)
    assert pointer_to(NEW) == of(B, NEW)
    assert pointer_to("latest") == of(B, NEW)
    assert pointer_to("latest", "a") == of(A, OLD)
    assert pointer_to("../../etc/passwd") is None
    assert (way_to("b"), way_to("c")) == (of(B, NEW), None)


def test_trials_of_one_second_on_two_machines() -> None:
    keep(OLD, A)
    keep(OLD, B)
    keep(OLD, B)
    with pytest.raises(UsageError, match=rf"trials {OLD} are on a and b: say which with --host"):
        pointer_to(OLD)
    assert pointer_to(OLD, "a") == of(A, OLD)
    assert pointer_to(OLD, "b") == of(B, OLD)
    assert pointer_to(OLD, "c") is None


def test_the_tenth_of_a_second_is_later_than_the_second() -> None:
    for number in (10, 2, 9):
        keep(f"{OLD}-{number}", A)
    assert pointer_to("latest") == of(A, f"{OLD}-10")


def test_latest_is_of_this_machine_where_that_is_newer(home: Path) -> None:
    keep(OLD, A)
    (home / "trials" / NEW).mkdir(parents=True)
    assert pointer_to("latest") is None
    assert pointer_to("latest", "a") == of(A, OLD)
    # A copy of a trial of another machine is none of this one.
    (home / "trials" / NEW / "fetched.json").touch()
    assert pointer_to("latest") == of(A, OLD)


def test_what_cannot_be_read_is_told(home: Path) -> None:
    (home / "remote").mkdir()
    (home / "remote" / f"{OLD}.json").write_text("{", encoding="utf-8")
    (home / "remote" / "notes.json").write_text("{", encoding="utf-8")
    for asked in (OLD, "latest"):
        with pytest.raises(
            UsageError, match=rf"{OLD}.json: cannot be read; remove it, and name the machine with --host"
        ):
            pointer_to(asked)
