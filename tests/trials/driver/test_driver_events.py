import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.trials.driver.events import EventReader, Shown, events_in

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=8)


@settings(max_examples=50, deadline=None)
@given(LINES, st.data())
def test_a_growing_log_is_read_once_in_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], data: st.DataObject
) -> None:
    """Wherever a writer pauses, also in the middle of a character, and wherever a reader begins again."""
    path = tmp_path_factory.mktemp("log") / "log"
    text = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    reader, read, at = EventReader(path), [], 0
    assert list(reader.lines()) == []
    for cut in [*cuts, len(text)]:
        with path.open("ab") as file:
            file.write(text[at:cut])
        at = cut
        for line in reader.lines():
            read.append(line)
            if data.draw(st.booleans()):
                reader = EventReader(path, reader.offset)
                break
    read += reader.lines()
    assert read == lines
    assert reader.offset == len(text)


def test_what_cannot_be_read_says_nothing() -> None:
    lines = ['{"kind": "line", "text": "a"}', "{", "[1]", "3", "", '{"kind": "line", "text": "b"}']
    assert [event["text"] for event in events_in(iter(lines))] == ["a", "b"]


def test_a_line_is_shown_before_there_is_a_plan_and_unknown_kinds_never() -> None:
    out = io.StringIO()
    shown = Shown(out)
    shown.show({"kind": "trial", "id": "20260101-000000", "own": True})
    shown.show({"kind": "line", "text": "ssh gpu1: connection refused; again in 1 s"})
    shown.show({"kind": "alive", "own": True})
    shown.show(json.loads('{"kind": "of a later version", "text": "x"}'))
    shown.close()
    assert out.getvalue() == "ssh gpu1: connection refused; again in 1 s\n"


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert list(EventReader(tmp_path / "none").lines()) == []
