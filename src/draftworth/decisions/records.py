"""Decision records on disk: `decisions/NNNN-title.md`, TOML between `+++` lines, then Markdown, then a person's notes.

The form is that of MADR (https://adr.github.io/madr/). Everything above the marker line is made from figures and sealed
by the marker's digest; everything below it belongs to people and is kept whenever the record is written again. Numbers
are given once: the highest one ever given is kept in `.last`, so that a record that was removed leaves a gap.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from draftworth.decisions.base import Decision, Tree
from draftworth.decisions.states import LEGAL, State
from draftworth.decisions.tomltext import dumps
from draftworth.errors import UsageError
from draftworth.toml_file import read_toml
from draftworth.trials.record import write_text

FENCE = "+++"
_NAME = re.compile(r"^(\d{4,})-.*\.md$")
_MARKER = re.compile(
    r"^<!-- draftworth: made from figures above \(([0-9a-f]{16})\); notes below are kept -->$", re.MULTILINE
)
_LAST = ".last"
_LONGEST_SLUG = 60


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        path: its file.
        decision: its front matter.
        body: the Markdown made from figures.
        notes: what people wrote below the marker.
        edited: whether somebody changed what is above the marker, or took the marker out.
    """

    path: Path
    decision: Decision
    body: str
    notes: str = ""
    edited: bool = False

    @property
    def name(self) -> str:
        """The number as it is written: `0003`."""
        return f"{self.decision.number:04}"


def render(decision: Decision, body: str, notes: str = "") -> str:
    """Return a record's text."""
    said = decision.model_dump(mode="json", exclude_defaults=True)
    front = dumps({"schema_version": decision.schema_version} | said)
    above = f"{FENCE}\n{front}{FENCE}\n\n{body.strip()}\n\n"
    marker = f"<!-- draftworth: made from figures above ({_digest(above)}); notes below are kept -->"
    return f"{above}{marker}\n{notes}"


def parse(text: str, path: Path) -> Record:
    """Read a record's text back.

    Raises:
        UsageError: no front matter, or one with a mistake; names file and line.
    """
    plain = text.replace("\r\n", "\n").removeprefix("\ufeff")
    lines = plain.split("\n")
    if lines[0] != FENCE:
        raise UsageError(f"{path}:1: no decision record: its first line must be {FENCE}")
    try:
        end = lines.index(FENCE, 1)
    except ValueError:
        raise UsageError(f"{path}: damaged: the front matter has no second {FENCE} line") from None
    decision = read_toml("\n".join(lines[1:end]) + "\n", Decision, path, first_line=2)
    marks = list(_MARKER.finditer(plain))
    if not marks:
        return Record(path, decision, "\n".join(lines[end + 1 :]).strip(), edited=True)
    above = plain[: marks[0].start()]
    body = above.split("\n", end + 1)[-1].strip()
    notes = plain[marks[0].end() :].removeprefix("\n")
    return Record(path, decision, body, notes, edited=_digest(above) != marks[0][1])


def _digest(above: str) -> str:
    return hashlib.sha256(above.encode()).hexdigest()[:16]


def read_all(folder: Path) -> list[Record]:
    """Return every record of a folder, by number.

    Raises:
        UsageError: one is damaged, has another number than its file, or two have the same number.
    """
    if not folder.is_dir():
        return []
    found: dict[int, Record] = {}
    for path in sorted(folder.iterdir()):
        name = _NAME.match(path.name)
        if not name:
            continue
        one = _read(path)
        number = one.decision.number
        if number != int(name[1]):
            raise UsageError(f"{path}: its front matter says number = {number}; rename the file or mend the number")
        if number in found:
            raise UsageError(
                f"{folder}: {found[number].path.name} and {path.name} have the same number; give the later one the "
                f"next free number, in its name and in its front matter"
            )
        found[number] = one
    return [found[number] for number in sorted(found)]


def _read(path: Path) -> Record:
    try:
        return parse(path.read_bytes().decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: damaged: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def newest(records: Sequence[Record], option: str) -> Record | None:
    """Return the newest record of an option; None where there is none."""
    return next((one for one in reversed(records) if one.decision.option == option), None)


def state_of(tree: Tree, records: Sequence[Record], option: str) -> State:
    """Return an option's state: that of its newest record, else the one it began in."""
    last = newest(records, option)
    if last is not None:
        return last.decision.state
    known = tree.find(option)
    return known.state if known else "open"


def history_remarks(tree: Tree, records: Sequence[Record]) -> list[str]:
    """Return what is wrong with the history: gaps between records, changes that are not legal, edited figures."""
    remarks = []
    before: dict[str, tuple[str, State]] = {one.name: ("tree.toml", one.state) for one in tree.options}
    for one in records:
        found = one.decision
        if found.option not in before:
            remarks.append(f"{one.path.name}: option {found.option!r} is not in tree.toml")
        else:
            where, state = before[found.option]
            if state != found.before:
                remarks.append(
                    f"{one.path.name}: says option {found.option} was {found.before}; {where} says it was {state}"
                )
        if found.state not in LEGAL[found.before]:
            remarks.append(f"{one.path.name}: {found.before} cannot become {found.state}")
        if one.edited:
            remarks.append(f"{one.path.name}: what was made from figures was edited by hand")
        before[found.option] = (one.path.name, found.state)
    return remarks


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder of records: one process writes at a time, the others wait.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LAST, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}; set DRAFTWORTH_HOME") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def next_number(folder: Path) -> int:
    """Return the next free number and take it; only within `writing`."""
    last = folder / _LAST
    words = last.read_text(encoding="utf-8").split()
    given = int(words[0]) if words and words[0].isdecimal() else 0
    names = (_NAME.match(path.name) for path in folder.iterdir())
    number = max([given, *(int(name[1]) for name in names if name)]) + 1
    # In place: the lock is on this very file.
    with last.open("r+", encoding="utf-8") as file:
        file.write(f"{number}\n")
        file.flush()
        os.fsync(file.fileno())
    return number


def write_new(folder: Path, decision: Decision, body: str, notes: str = "\n") -> Record:
    """Write a new record under its number, whole or not at all; only within `writing`.

    Raises:
        UsageError: it cannot be written.
    """
    path = folder / f"{decision.number:04}-{slug(decision.title)}.md"
    if path.exists():
        raise UsageError(f"{path}: is there already; a record is never overwritten by another")
    return _write(Record(path, decision, body.strip(), notes))


def rewrite(record: Record, decision: Decision, body: str) -> Record:
    """Write a record's figures again, keeping its notes, number and date.

    Raises:
        UsageError: somebody changed what is above the marker; that would be lost.
    """
    if record.edited:
        raise UsageError(
            f"{record.path}: was edited above the notes' marker, and writing it again would lose that: move your text "
            "below the marker and take back the rest, or remove the record's file to have a new one written"
        )
    return _write(Record(record.path, decision, body.strip(), record.notes))


def _write(record: Record) -> Record:
    try:
        write_text(record.path, render(record.decision, record.body, record.notes))
    except OSError as error:
        raise UsageError(f"{record.path}: cannot be written: {error.strerror}") from None
    return record


def slug(title: str) -> str:
    """Return a title as part of a file's name."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words)[:_LONGEST_SLUG].strip("-") or "decision"
