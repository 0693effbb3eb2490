"""What a driven trial shows: written as lines of JSON beside its journal, read by whoever follows it.

The driver has no terminal. What it would show goes into a file; `trial run`, `trial attach` and the SSH client read it
from the beginning, or from where they were, and show it as if the trial ran here.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from draftworth.trials.progress import Progress

NAME = "progress.jsonl"
_COUNT_EVERY_S = 0.5
_NOW_EVERY_S = 1.0


class EventLog:
    """Takes what `Progress` takes, and writes it down; a full disk is no reason to stop."""

    def __init__(self, path: Path, *, kinds: Sequence[str], known: Mapping[str, float]) -> None:
        """Begin a log.

        Args:
            path: the file.
            kinds: the kind of every step, for the remaining time.
            known: seconds a kind took before.
        """
        self._path = path
        self._file: IO[str] | None = None
        self._kinds, self._known = list(kinds), dict(known)
        self._counted_at = self._said_at = 0.0
        self._now = self._head = ""

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._file = self._path.open("a", encoding="utf-8")
        self._write("plan", kinds=self._kinds, known=self._known)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def step(self, title: str) -> None:
        """A step begins."""
        self._now = self._head = ""
        self._write("step", text=title)

    def skip(self) -> None:
        """The next step is left out."""
        self._write("skip")

    def now(self, text: str) -> None:
        """What is happening within the step; changes that follow each other quickly are thinned out."""
        head = text.partition(";")[0]
        if text == self._now or (head == self._head and time.monotonic() - self._said_at < _NOW_EVERY_S):
            return
        self._now, self._head, self._said_at = text, head, time.monotonic()
        self._write("now", text=text)

    def count(self, done: int, total: int, note: str = "") -> None:
        """How far the step is."""
        if done != total and time.monotonic() - self._counted_at < _COUNT_EVERY_S:
            return
        self._counted_at = time.monotonic()
        self._write("count", done=done, total=total, note=note)

    def line(self, text: str) -> None:
        """A line that stays."""
        self._write("line", text=text)

    def ending(self, title: str) -> None:
        """No further step begins; what happens from now on is this."""
        self._now = self._head = ""
        self._write("ending", text=title)

    def _write(self, kind: str, **data: Any) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            self._file.write(json.dumps({"kind": kind, "unix": time.time(), **data}) + "\n")
            self._file.flush()


class EventReader:
    """Reads a log as it grows."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset

    def lines(self) -> Iterator[str]:
        """Yield the whole lines that were written since the last call; `offset` is then behind the line."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return
        *whole, _ = data.split(b"\n")
        for line in whole:
            self.offset += len(line) + 1
            yield line.decode(errors="replace")


def events_in(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield what lines say; a line that cannot be read says nothing."""
    for line in lines:
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


class Shown:
    """Shows events as a trial of this process would show them."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._progress: Progress | None = None

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event; what a later version adds is passed over."""
        kind = event.get("kind")
        if kind == "plan":
            self.close()
            kinds = [str(one) for one in event.get("kinds", ())]
            since = time.time() - float(event.get("unix", time.time()))
            self._progress = Progress(self._stream, kinds=kinds, known=dict(event.get("known", {})), began_ago=since)
            self._progress.__enter__()
        progress = self._progress
        text = str(event.get("text", ""))
        if progress is None:
            if kind == "line":
                self.line(text)
            return
        progress.ago = max(0.0, time.time() - float(event.get("unix", time.time())))
        match kind:
            case "step":
                progress.step(text)
            case "skip":
                progress.skip()
            case "now":
                progress.now(text)
            case "count":
                progress.count(int(event["done"]), int(event["total"]), str(event.get("note", "")))
            case "ending":
                progress.ending(text)
            case "line":
                progress.line(text)
        progress.ago = 0.0

    def line(self, text: str) -> None:
        """Show a line of the reader's own."""
        if self._progress is None:
            print(text, file=self._stream, flush=True)
        else:
            self._progress.line(text)

    def close(self) -> None:
        """Show no more."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.__exit__(None, None, None)
