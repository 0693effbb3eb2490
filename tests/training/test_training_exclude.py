"""What must stay unseen is met by 13 words in a row, or as a whole where it is shorter."""

from pathlib import Path

import pytest
from tests.training.training_making import write_rows

from draftworth.errors import UsageError
from draftworth.training.exclude import Unseen, read_unseen

LONG = " ".join(f"w{at}" for at in range(20))


def test_thirteen_words_in_a_row_are_met_and_twelve_are_not() -> None:
    unseen = Unseen([LONG])
    words = LONG.split()
    assert unseen.meets("before " + " ".join(words[3:16]) + " behind")
    assert not unseen.meets("before " + " ".join(words[3:15]) + " behind")
    assert unseen.meets(LONG.upper().replace(" ", ",  "))  # case and signs do not matter


def test_a_short_question_is_met_only_as_a_whole() -> None:
    unseen = Unseen(["What is the capital of Peru?", "Thank you"])
    assert unseen.texts == 1
    assert unseen.meets("what is the capital of Peru")
    assert not unseen.meets("Tell me: what is the capital of Peru?")
    assert not unseen.meets("Thank you")


def test_every_text_of_a_row_and_every_line_of_a_text_counts(tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "a.jsonl", [{"id": 1, "turns": [LONG, "x"], "deep": {"answer": "five words are in here"}}]
    )
    plain = tmp_path / "b.txt"
    plain.write_text("one two three four five\n\nno\n", encoding="utf-8")
    unseen = read_unseen([rows, plain])
    assert unseen.texts == 3
    assert unseen.meets(LONG)
    assert unseen.meets("five words are in here")
    assert unseen.meets("One two three four five!")


def test_a_file_without_text_or_with_a_broken_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no text of four words"):
        read_unseen([write_rows(tmp_path / "a.jsonl", [{"id": 1}])])
    broken = tmp_path / "b.jsonl"
    broken.write_text('{"prompt": "one two three four"}\n{"prompt": \n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"b.jsonl:2: .*cannot be excluded"):
        read_unseen([broken])
