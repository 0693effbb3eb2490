import multiprocessing
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.decisions.base import Assumptions, Decision, Evidence, Option, Ratio, Tree
from draftworth.decisions.records import (
    history_remarks,
    next_number,
    parse,
    read_all,
    render,
    rewrite,
    slug,
    write_new,
    writing,
)
from draftworth.decisions.states import STATES
from draftworth.decisions.tomltext import dumps
from draftworth.errors import UsageError

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FINITE
TABLE = st.dictionaries(TEXT, SCALAR | st.lists(SCALAR, max_size=3) | st.dictionaries(TEXT, SCALAR, max_size=2))
DOCUMENT = st.dictionaries(
    TEXT, SCALAR | st.lists(SCALAR, max_size=3) | TABLE.filter(bool) | st.lists(TABLE, min_size=1)
)


@given(DOCUMENT)
def test_toml_reads_back_as_it_was_written(data: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(data)) == data


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), "\ud800"])
def test_toml_has_no_form_for_it(value: object) -> None:
    with pytest.raises(TypeError, match="no TOML"):
        dumps({"x": value})


DECISIONS = st.builds(
    Decision,
    number=st.integers(1, 99999),
    date=st.dates().map(lambda day: f"{day.year:04}-{day.month:02}-{day.day:02}"),
    option=TEXT,
    title=TEXT,
    state=st.sampled_from(STATES),
    before=st.sampled_from(STATES),
    by=st.sampled_from(["trial", "reported", "person", "check"]),
    trial=TEXT,
    arm=TEXT,
    verdict=TEXT,
    pairs=st.integers(0, 10**6),
    reopen_at_speed_up=st.none() | FINITE,
    needs=st.lists(TEXT, max_size=3).map(tuple),
    reasons=st.lists(TEXT, max_size=3).map(tuple),
    ratio=st.none() | st.builds(Ratio, metric=TEXT, value=FINITE, low=st.none() | FINITE, high=st.none() | FINITE),
    assumptions=st.builds(Assumptions, engine=TEXT, setting=TEXT, categories=st.dictionaries(TEXT, st.integers(0, 99))),
    evidence=st.lists(
        st.builds(Evidence, kind=st.just("published"), says=TEXT.filter(bool), source=TEXT, date=st.just("2026-09")),
        max_size=2,
    ).map(tuple),
)


@given(DECISIONS, TEXT, TEXT)
@settings(max_examples=150)
def test_a_record_reads_back_as_it_was_written(decision: Decision, body: str, notes: str) -> None:
    body, notes = body.replace("\r", ""), notes.replace("\r", "")
    found = parse(render(decision, body, notes), Path("0001-x.md"))
    assert found.decision == decision
    assert found.notes == notes
    assert found.body == body.strip()
    assert not found.edited


def decision(number: int = 1, **more: Any) -> Decision:
    said: dict[str, Any] = {"date": "2026-11-30", "option": "A", "title": "A: pending", "state": "pending"}
    return Decision(**{**said, "number": number, "before": "open", "by": "person", **more})


def write(folder: Path, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        write_new(folder, decision(number, before="pending" if number > 1 else "open"), "# x")


def test_notes_stay_when_the_figures_are_written_again(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (one,) = read_all(tmp_path)
    with one.path.open("a", encoding="utf-8") as file:
        file.write("Mine, with <!-- a comment --> and\n+++\n")
    (one,) = read_all(tmp_path)
    rewrite(one, decision(pairs=4), "# y")
    (again,) = read_all(tmp_path)
    assert again.notes == "\nMine, with <!-- a comment --> and\n+++\n"
    assert (again.body, again.decision.pairs, again.edited) == ("# y", 4, False)


def test_text_typed_among_the_figures_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (one,) = read_all(tmp_path)
    one.path.write_text(one.path.read_text(encoding="utf-8").replace("# x", "# x\n\nmine"), encoding="utf-8")
    (one,) = read_all(tmp_path)
    assert one.edited
    with pytest.raises(UsageError, match="edited above the notes' marker"):
        rewrite(one, decision(), "# y")
    assert "mine" in one.path.read_text(encoding="utf-8")
    assert history_remarks(Tree(options=(Option(name="A", title="a"),)), [one]) == [
        f"{one.path.name}: what was made from figures was edited by hand"
    ]


def test_a_record_of_a_checkout_with_crlf_is_not_taken_for_edited(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (one,) = read_all(tmp_path)
    one.path.write_bytes(one.path.read_bytes().replace(b"\n", b"\r\n"))
    (again,) = read_all(tmp_path)
    assert not again.edited
    assert again.decision == one.decision


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("+++\nschema", "schema", r"0001-a-pending\.md:1: no decision record: its first line must be \+\+\+"),
        ("+++\n\n#", "\n#", r"the front matter has no second \+\+\+ line"),
        ('state = "pending"', 'state = "done"', r"\.md:7: state: input should be 'open', 'pending'.*not 'done'"),
        ('option = "A"', 'optoin = "A"', r"\.md:5: optoin: unknown field; did you mean 'option'\? \(and 1 more\)"),
        ('option = "A"', "option = A", r"\.md:5: not valid TOML: Invalid value"),
        ('date = "2026-11-30"', "date = 2026-11-30", r"\.md:4: date: must be a text in quotes"),
        ("number = 1", "number = 2", r"its front matter says number = 2"),
        ("number = 1\n", "", r"number: missing"),
    ],
)
def test_a_damaged_record_says_file_line_and_what(tmp_path: Path, old: str, new: str, told: str) -> None:
    write(tmp_path, 1)
    path = next(tmp_path.glob("0001*"))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=told):
        read_all(tmp_path)


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    (tmp_path / "0001-x.md").write_bytes(b"+++\n\xff")
    with pytest.raises(UsageError, match=r"0001-x\.md: damaged: not UTF-8 text \(byte 4\)"):
        read_all(tmp_path)


def test_two_records_of_one_number_are_both_named(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write_new(tmp_path, decision(1, title="B: pending"), "# y")
    with pytest.raises(UsageError, match=r"0001-a-pending\.md and 0001-b-pending\.md have the same number"):
        read_all(tmp_path)


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "README.md").write_text("hello")
    assert len(read_all(tmp_path)) == 1


def test_a_number_is_not_given_again_after_its_record_is_gone(tmp_path: Path) -> None:
    with writing(tmp_path):
        assert next_number(tmp_path) == 1
        write_new(tmp_path, decision(1), "# x")
        assert next_number(tmp_path) == 2
    next(tmp_path.glob("0001*")).unlink()
    with writing(tmp_path):
        assert next_number(tmp_path) == 3


def test_without_the_counter_numbers_go_on_after_the_files(tmp_path: Path) -> None:
    write(tmp_path, 7)
    with writing(tmp_path):
        assert next_number(tmp_path) == 8


def _writer(folder: str, count: int) -> None:
    for _ in range(count):
        with writing(Path(folder)):
            number = next_number(Path(folder))
            write_new(Path(folder), decision(number), "# x")


def test_processes_that_write_at_once_never_share_a_number(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    some = [context.Process(target=_writer, args=(str(tmp_path), 5)) for _ in range(4)]
    for one in some:
        one.start()
    for one in some:
        one.join()
        assert one.exitcode == 0
    assert [one.decision.number for one in read_all(tmp_path)] == list(range(1, 21))


def test_a_history_with_a_hole_is_told(tmp_path: Path) -> None:
    write_new(tmp_path, decision(1, state="ruled out", title="A: ruled out"), "# x")
    write_new(tmp_path, decision(2, before="pending", option="B", title="B: adopted", state="adopted"), "# x")
    write_new(tmp_path, decision(3, before="open"), "# x")
    remarks = history_remarks(Tree(options=(Option(name="A", title="a"),)), read_all(tmp_path))
    assert remarks == [
        "0002-b-adopted.md: option 'B' is not in tree.toml",
        "0003-a-pending.md: says option A was open; 0001-a-ruled-out.md says it was ruled out",
    ]


def test_names_of_files_are_plain() -> None:
    assert slug("n-gram, k = 5: ruled out") == "n-gram-k-5-ruled-out"
    assert slug("Ü/../x") == "x"
    assert slug("…") == "decision"
    assert len(slug("word " * 40)) <= 60
