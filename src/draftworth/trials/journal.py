"""The journal of a trial: every intent is on disk before its effect, every effect after it.

SQLite in WAL mode with synchronous=FULL, so that a row that was written is there after a power cut
(sqlite.org/pragma.html#pragma_synchronous). One table, only ever appended to.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from draftworth.errors import TrialError, UsageError

NAME = "journal.db"
VERSION = 1

Kind = Literal["begin", "intent", "effect", "failure", "note", "end"]

_CREATE = """
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY,
  unix REAL NOT NULL,
  monotonic REAL NOT NULL,
  boot TEXT NOT NULL,
  pid INTEGER NOT NULL,
  kind TEXT NOT NULL,
  step TEXT NOT NULL,
  data TEXT NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One row.

    Attributes:
        seq: from 1, without gaps.
        unix: wall clock, seconds.
        kind: what kind of event.
        step: the step it belongs to; empty for the trial as a whole.
        data: what was intended, or what came of it.
    """

    seq: int
    unix: float
    kind: Kind
    step: str
    data: dict[str, Any]


class Journal:
    """Append-only; several processes may append (a trial, its guard, a restore), one at a time."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open a journal.

        Raises:
            UsageError: there is none, it is damaged, or a later version wrote it.
        """
        self.path = path
        if not create and not path.is_file():
            raise UsageError(f"{path}: no such journal")
        try:
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None)
            self._db.execute("PRAGMA synchronous=FULL")
            found = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if create:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute(_CREATE)
                self._db.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.Error as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        if found > VERSION:
            self._db.close()
            raise UsageError(f"{path}: written by a later Draftworth (format {found}, this one knows {VERSION})")

    def append(self, kind: Kind, step: str = "", **data: Any) -> None:
        """Write one event; on disk when this returns.

        Raises:
            TrialError: it cannot be written: the disk is full, or fails.
        """
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        row = (time.time(), time.monotonic(), boot, os.getpid(), kind, step, json.dumps(data, default=str))
        try:
            self._insert(row)
        except sqlite3.Error as error:
            raise TrialError(f"{self.path}: the trial's journal cannot be written: {error}") from None

    def _insert(self, row: tuple[Any, ...]) -> None:
        self._db.execute(
            "INSERT INTO events (unix, monotonic, boot, pid, kind, step, data) VALUES (?, ?, ?, ?, ?, ?, ?)", row
        )

    def note(self, kind: Kind, step: str = "", **data: Any) -> None:
        """Append where that is possible: what a restore does must not depend on a full disk."""
        with suppress(TrialError, sqlite3.Error, OSError):
            self.append(kind, step, **data)

    @contextmanager
    def step(self, step: str, **intent: Any) -> Iterator[dict[str, Any]]:
        """Journal an intent, run the block, then its effect (what the block put into the yielded dict) or failure."""
        self.append("intent", step, **intent)
        effect: dict[str, Any] = {}
        try:
            yield effect
        except BaseException as error:
            self.note("failure", step, error=f"{type(error).__name__}: {error}", **effect)
            raise
        self.append("effect", step, **effect)

    def events(self) -> list[Event]:
        """Return every event, oldest first. Raises UsageError where the file is damaged."""
        try:
            rows = self._db.execute("SELECT seq, unix, kind, step, data FROM events ORDER BY seq").fetchall()
        except sqlite3.Error as error:
            raise UsageError(f"{self.path}: cannot be read: {error}") from None
        return [Event(seq, unix, kind, step, _data(text)) for seq, unix, kind, step, text in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _data(text: str) -> dict[str, Any]:
    data = json.loads(text)
    return data if isinstance(data, Mapping) else {}  # type: ignore[return-value]  # json gives dicts
