"""Reads a log of any size: one pass, constant memory, the engine recognised by its own lines."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from draftworth.engines import CHOICES, engine
from draftworth.engines.base import Engine, LogReader, Window, WindowReader
from draftworth.engines.counts import Sum
from draftworth.engines.scan import Hit, opened, scan
from draftworth.errors import UsageError
from draftworth.findings import Code, Finding, find
from draftworth.readings.base import Reading, contradictions

WINDOWS = 1000
"""How many of the newest windows are kept."""
_UNDECIDED = 10_000
"""Lines that are kept while nothing has told yet which engine wrote them."""
_SHOWN = 100


def read_log(
    path: Path | None,
    *,
    name: str | None = None,
    windows: int = WINDOWS,
    all_starts: bool = False,
    on_block: Callable[[int], None] | None = None,
) -> Reading:
    """Read a log.

    Args:
        path: the file, gzipped or not; None for standard input.
        name: the engine that wrote it; None to recognise it.
        windows: keep so many of the newest windows.
        all_starts: add the windows of every start of a server, not only of the last.
        on_block: takes the bytes read so far, now and then; may raise to end it.

    Raises:
        UsageError: it cannot be read, or no engine is recognised.
    """
    with opened(path) as file:
        return read_open(file, str(path or "standard input"), name, windows, all_starts=all_starts, on_block=on_block)


def read_open(
    file: IO[bytes],
    source: str,
    name: str | None,
    windows: int = WINDOWS,
    *,
    all_starts: bool = False,
    on_block: Callable[[int], None] | None = None,
) -> Reading:
    """Do what `read_log` does with a file that is open."""
    candidates = [engine(one) for one in ([name] if name else CHOICES)]
    needles = list(dict.fromkeys(n for one in candidates for n in (*one.log_signs, *one.log_needles)))
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done = size
        if on_block is not None:
            on_block(size)

    hits = scan(file, needles, on_block=count)
    chosen, waiting, others = _choose(hits, candidates) if name is None else (candidates[0], [], ())
    if chosen is None:
        raise UsageError(
            f"{source}: no line of {', '.join(one.title for one in candidates)} is in it"
            f"{'' if done else ' (it is empty)'}; is it the log of the serving engine? --engine says whose it is"
        )
    needles[:] = chosen.log_needles
    kept: deque[Window] = deque(maxlen=windows)
    log = _Log(chosen, chosen.log_reader(), chosen.window_reader(), kept, deque(maxlen=windows), all_starts=all_starts)
    for hit in waiting:
        log.take(hit)
    for hit in hits:
        log.take(hit)
    return log.reading(source, done, others)


def _choose(hits: Iterable[Hit], engines: Sequence[Engine]) -> tuple[Engine | None, list[Hit], tuple[str, ...]]:
    """Return the engine that wrote the first line with a sign, and the lines read on the way."""
    waiting: deque[Hit] = deque(maxlen=_UNDECIDED)
    for hit in hits:
        waiting.append(hit)
        line = hit.text.encode("utf-8", "replace")
        signed = [one for one in engines if any(sign in line for sign in one.log_signs)]
        if signed:
            return signed[0], list(waiting), tuple(one.title for one in signed[1:])
    return None, list(waiting), ()


@dataclass(slots=True)
class _Log:
    engine: Engine
    reader: LogReader
    reads: WindowReader
    kept: deque[Window]
    waiting: deque[Hit]
    all_starts: bool
    total: Sum = field(default_factory=Sum)
    seen: int = 0
    earlier: int = 0
    starts: int = 0
    lines: int = 0
    unread: int = 0
    problems: dict[Code, list[str]] = field(default_factory=dict)
    many: dict[Code, int] = field(default_factory=dict)

    def take(self, hit: Hit) -> None:
        self.lines += 1
        sign = self.reads.told_only
        if sign is not None and sign in hit.text:
            self.unread += len(self.waiting) == self.waiting.maxlen
            self.waiting.append(hit)
            return
        self.reader.feed(hit.text + "\n")
        if self.reader.starts != self.starts:
            self._new_start()
        self._window(hit)

    def _window(self, hit: Hit) -> None:
        found = self.reads.take(hit.text)
        if isinstance(found, Finding):
            self._problem(found, hit)
        elif found is not None:
            self.seen += 1
            self.kept.append(found)
            if found.counts is not None:
                self.total.add(found.counts)
                for one in contradictions(found.counts):
                    self._problem(one, hit)

    def _read_waiting(self) -> None:
        """Read the newest lines whose figures are only told, as the settings in front of them say."""
        for hit in self.waiting:
            self._window(hit)
        self.seen += self.unread
        self.unread = 0
        self.waiting.clear()

    def _new_start(self) -> None:
        self.starts = self.reader.starts
        if self.all_starts:
            self._read_waiting()
            return
        self.earlier += self.seen + self.unread + len(self.waiting)
        self.seen = self.unread = 0
        self.total = Sum()
        self.kept.clear()
        self.waiting.clear()

    def _problem(self, found: Finding, hit: Hit) -> None:
        self.many[found.code] = self.many.get(found.code, 0) + 1
        said = self.problems.setdefault(found.code, [])
        if len(said) < 2:  # noqa: PLR2004 - examples
            said.append(f"byte {hit.offset:,}: {found.message}")

    def reading(self, source: str, size: int, others: Sequence[str]) -> Reading:
        self._read_waiting()
        facts = self.reader.facts()
        counts = self.total.total()
        findings = [
            find(code, f"{self.many[code]:,} line{'s' * (self.many[code] > 1)}: {'; '.join(said)}")
            for code, said in self.problems.items()
        ]
        if self.starts > 1 or self.earlier:
            what = f"{max(self.starts, 1):,} starts of a server"
            if self.earlier:
                what += f"; {self.earlier:,} windows before the last one are not counted (--all-starts adds them)"
            findings.append(find(Code.SEVERAL_STARTS, what))
        if self.seen > len(self.kept):
            findings.append(find(Code.WINDOWS_NOT_LISTED, f"the newest {len(self.kept):,} of {self.seen:,} are listed"))
        if not self.seen:
            findings.append(find(Code.NO_SPECULATION_SEEN, f"{self.lines:,} lines of {self.engine.title} were read"))
        if others:
            findings.append(
                find(Code.LINES_UNREADABLE, f"it may be a log of {' or '.join(others)} too; --engine says whose it is")
            )
        return Reading(
            source=source,
            kind="log",
            engine=self.engine.name,
            title=self.engine.title,
            version=facts.version,
            facts=facts,
            counts=counts,
            told=self.kept[-1].told if self.kept else (),
            windows=tuple(self.kept),
            windows_seen=self.seen,
            findings=tuple(findings),
            lines=self.lines,
            size=size,
        )
