"""Every failure and every guarantee has its test, and docs/guarantees.md says what the tests' marks say."""

from pathlib import Path

import pytest
from tests.guarantees.failures import FAILURES, GUARANTEES
from tests.guarantees.marks import Held, Shown, marked
from tests.guarantees.page import PAGE, all_named, merged, outdated, page, problems, results_in
from tests.guarantees.references import UNTESTED


def test_every_failure_and_guarantee_is_shown_or_has_a_reason() -> None:
    assert list(FAILURES) == list(range(1, 65))
    assert list(GUARANTEES) == [f"G{number}" for number in range(1, 21)]
    assert problems() == []
    assert all(UNTESTED.values())


def test_the_page_is_what_the_marks_say() -> None:
    assert outdated() == "", "run: make guarantees"


def test_the_page_names_no_test_that_fails() -> None:
    bad = {test: result for test, result in results_in(PAGE.read_text(encoding="utf-8")).items() if result == "failed"}
    assert not bad, "run: make guarantees"


TEXT = """
import pytest
from tests.guarantees.marks import failure, shows

@failure(17, produced="a " "b", outcome="c")
@pytest.mark.parametrize("x", [1, 2])
@failure(18, produced="d", outcome="e", how="fake")
@shows("G5", "f")
def test_one(x: int) -> None:
    pass

def helper() -> None:
    pass

async def test_two() -> None:
    pass
"""


def test_marks_are_read_without_importing(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_x.py").write_text(TEXT, encoding="utf-8")
    (folder / "test_y.py").write_text("@failure(1)\ndef test_of_another_kind(): ...", encoding="utf-8")
    name = "tests/test_x.py::test_one"
    assert marked(folder) == (
        [Shown(17, name, "a b", "c", "real systemd"), Shown(18, name, "d", "e", "fake")],
        [Held("G5", name, "f")],
    )


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        (["passed", "passed"], "passed"),
        (["passed", "failed"], "failed"),
        (["passed", "known gap: x"], "known gap: x"),
        (["known gap: x", "skipped"], "skipped"),
        ([], "not run"),
    ],
)
def test_a_test_ends_as_its_worst_case(outcomes: list[str], whole: str) -> None:
    assert merged(outcomes) == whole


def test_results_are_read_back_from_the_page() -> None:
    results = dict.fromkeys(all_named(), "passed")
    results[all_named()[0]] = "failed"
    results[all_named()[1]] = "known gap: so it is"
    assert results_in(page(results, "today")) == results
