"""Answers that the target wrote anew, on disk: one JSON line each, appended as they come, read again after a kill.

The first line says under which settings they were written. A last line that was torn is cut off and counted; a file of
other settings is put aside, never deleted: answers cost hours.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from draftworth.errors import UsageError

SCHEMA_VERSION = 1
Place = tuple[str, int, int]
"""A conversation's key, the number of the sample, the number of the turn."""


class Answer(msgspec.Struct, omit_defaults=True):
    """One answer, or why there is none."""

    conversation: str
    """`dedupe.conversation_key`."""
    sample: int
    turn: int
    message: dict[str, Any] = {}
    """As `sources.base.message_of` makes it; of a completion its text as `content`."""
    finish: str = ""
    """Why it ended: `stop`, `length`, `tool_calls`."""
    prompt_ids: list[int] | None = None
    """What the server saw; None where it tells none."""
    output_ids: list[int] | None = None
    """What it generated."""
    thinking: int | None = None
    """How many of the ids are reasoning; None where that is not known."""
    error: str = ""
    """Why the server refuses the request for good; such a request is not repeated."""

    @property
    def place(self) -> Place:
        """Where it belongs."""
        return self.conversation, self.sample, self.turn


class _Header(msgspec.Struct):
    schema_version: int
    key: str


class AnswerLog:
    """The file; a context manager that appends to it.

    Args:
        path: the file, made where it is missing.
        key: digest of the settings.

    Attributes:
        known: the answers that were there.
        findings: what was found when it was read, one line each.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.known: dict[Place, Answer] = {}
        self.findings: list[str] = []
        self._key = key
        self._file: IO[bytes] | None = None
        self._unsynced = 0

    def __enter__(self) -> Self:
        end = self._read()
        if end is None:
            self._file = self.path.open("wb")
            self._write(_Header(SCHEMA_VERSION, self._key))
            self.sync()
        else:
            self._file = self.path.open("r+b")
            self._file.truncate(end)
            self._file.seek(end)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def add(self, answer: Answer) -> None:
        """Append an answer; on the disk a few answers later, or at the end."""
        self._write(answer)
        self.known[answer.place] = answer
        self._unsynced += 1
        if self._unsynced >= 64:  # noqa: PLR2004 - what a power failure may cost
            self.sync()

    def sync(self) -> None:
        """Bring what was appended to the disk."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._unsynced = 0

    def _write(self, value: Any) -> None:
        assert self._file is not None
        self._file.write(msgspec.json.encode(value) + b"\n")
        self._file.flush()  # a kill of this process loses nothing

    def _read(self) -> int | None:
        """Take in the file's answers. Returns where its last whole line ends; None where a new file is begun."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read: {error.strerror}") from None
        with file:
            first = file.readline()
            if not first.endswith(b"\n"):
                return None  # killed while it was begun
            if not self._ours(first):
                file.close()
                self._put_aside()
                return None
            return self._lines(file, len(first))

    def _lines(self, file: IO[bytes], end: int) -> int:
        decoder = msgspec.json.Decoder(Answer)
        damaged = 0
        for line in file:
            if not line.endswith(b"\n"):
                self.findings.append(
                    f"{self.path.name}: its last answer was cut off by the kill; it is asked for again"
                )
                break
            end += len(line)
            try:
                answer = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged += 1
                continue
            self.known[answer.place] = answer
        if damaged:
            self.findings.append(f"{self.path.name}: {damaged} damaged lines; those answers are asked for again")
        return end

    def _ours(self, line: bytes) -> bool:
        try:
            header = msgspec.json.decode(line, type=_Header)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        if header.schema_version > SCHEMA_VERSION:
            raise UsageError(f"{self.path}: written by a later Draftworth; update this one")
        return header.key == self._key

    def _put_aside(self) -> None:
        for number in range(1, 1000):
            aside = self.path.with_name(f"{self.path.stem}-{number}.jsonl")
            if not aside.exists():
                self.path.rename(aside)
                self.findings.append(f"answers of other settings were put aside: {aside}")
                return
        raise UsageError(f"{self.path.parent}: too many files of old answers; remove some")


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return the digest of what an answer depends on, beside the conversation."""
    return f"sha256:{hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()}"
