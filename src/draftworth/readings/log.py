"""Reads a log of any size: one pass, constant memory, the engine recognised by its own lines."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from draftworth import redact
from draftworth.engines import CHOICES, engine
from draftworth.engines.base import Engine, LogReader, Window, WindowReader
from draftworth.engines.counts import Sum
from draftworth.engines.scan import Hit, opened, scan
from draftworth.errors import UsageError
from draftworth.findings import Code, Finding, find
from draftworth.readings.base import Reading, contradictions

WINDOWS = 1000
"""How many of the newest windows are kept."""
_UNDECIDED = 1000
"""Lines that are kept while nothing has told yet which engine wrote them."""
_END = 1 << 16  # bytes in which a failed start's reason is looked for


def read_log(
    path: Path | None,
    *,
    name: str | None = None,
    windows: int = WINDOWS,
    all_starts: bool = False,
    only: str | None = None,
    on_block: Callable[[int], None] | None = None,
) -> Reading:
    """Read a log.

    Args:
        path: the file, gzipped or not; None for standard input.
        name: the engine that wrote it; None to recognise it.
        windows: keep so many of the newest windows.
        all_starts: add the windows of every start of a server, not only of the last.
        only: read only lines that hold this text.
        on_block: takes the bytes read so far, now and then; may raise to end it.

    Raises:
        UsageError: it cannot be read, or no engine is recognised.
    """
    with opened(path) as file:
        return read_open(
            file, str(path or "standard input"), name, windows, all_starts=all_starts, only=only, on_block=on_block
        )


def read_open(
    file: IO[bytes],
    source: str,
    name: str | None,
    windows: int = WINDOWS,
    *,
    all_starts: bool = False,
    only: str | None = None,
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

    tail = _Tail(file)
    hits = scan(cast("IO[bytes]", tail), needles, on_block=count)
    if only is not None:
        hits = (hit for hit in hits if only in hit.text)
    chosen, waiting, others = _choose(hits, candidates) if name is None else (candidates[0], [], ())
    if chosen is None:
        chosen = next((one for one in candidates if one.failure_hint(tail.text()) and tail.names(one)), None)
    if chosen is None:
        raise UsageError(_nobodys(source, candidates, empty=not done))
    needles[:] = chosen.log_needles
    kept: deque[Window] = deque(maxlen=windows)
    log = _Log(chosen, chosen.log_reader(), chosen.window_reader(), kept, deque(maxlen=windows), all_starts=all_starts)
    for hit in waiting:
        log.take(hit)
    for hit in hits:
        log.take(hit)
    failed = None if log.serves() or tail.served() else chosen.failure_hint(tail.text())
    if not log.lines and not failed:
        raise UsageError(_nobodys(source, candidates, empty=not done))
    return log.reading(source, done, others, failed)


def _nobodys(source: str, engines: Sequence[Engine], *, empty: bool) -> str:
    return (
        f"{source}: no line of {', '.join(one.title for one in engines)} is in it{' (it is empty)' if empty else ''}; "
        "is it the log of the serving engine? --engine says whose it is"
    )


_WRITER = re.compile(
    r'"_PID"\s*:\s*"?(?P<json>\d+)|\((?:[A-Za-z_]\w* )?pid=(?P<own>\d+)\)|^\S.{0,80}? \S+?\[(?P<syslog>\d+)\]: '
)


def _writer_of(line: str) -> str | None:
    """Return the process that wrote a line, as far as the line or its collector tells."""
    match = _WRITER.search(line)
    return f"pid={match['json'] or match['own'] or match['syslog']}" if match else None


class _Tail:
    """Reads a file and keeps its end, where a start that failed says why."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._end = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if data:
            self._end = (self._end + data)[-_END:] if len(data) < _END else data[-_END:]
        return data

    def text(self) -> str:
        return self._end.decode("utf-8", "replace")

    def served(self) -> bool:
        """Whether the end shows requests, or figures of serving."""
        return any(sign in self._end for sign in (b" HTTP/1.1", b"print_timing", b" throughput", b"startup complete"))

    def names(self, engine: Engine) -> bool:
        """Whether the end names an engine: what failed may not have come to a line of its own."""
        return engine.name.encode() in self._end.lower() or engine.title.lower().encode() in self._end.lower()


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
    writer: str | None = None
    writers: set[str] = field(default_factory=set)
    together: set[str] = field(default_factory=set)
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
            self._new_start(self.reader.starts)
        self._window(hit)

    def _writer(self, hit: Hit) -> None:
        """Tell apart who writes lines of counts: another process is another start, two in turns are two servers."""
        writer = _writer_of(hit.text)
        if writer is None or writer == self.writer:
            return
        if writer in self.writers:
            self.together.update((writer, self.writer or writer))
        elif self.writer is not None and not self.together:
            self._new_start(self.starts)
        self.writers.add(writer)
        self.writer = writer

    def _window(self, hit: Hit) -> None:
        found = self.reads.take(hit.text)
        if isinstance(found, Window) and found.counts is not None:
            before = self.writer
            self._writer(hit)
            if before is not None and self.writer != before and not self.together:
                found = self.reads.take(hit.text)  # by a reader of the new start
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

    def _new_start(self, starts: int) -> None:
        self.starts = starts
        if self.reads.told_only is None:
            self.reads = self.engine.window_reader()  # sums since the start begin anew
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

    def serves(self) -> bool:
        """Whether the last start came as far as to serve, or to tell figures."""
        return bool(self.seen or self.waiting) or self.reader.facts().phase == "serving"

    def reading(self, source: str, size: int, others: Sequence[str], failed: str | None) -> Reading:
        self._read_waiting()
        facts = self.reader.facts()
        said = tuple(one.model_copy(update={"line": redact.text(one.line)}) for one in facts.warnings)
        facts = facts.model_copy(update={"warnings": said})
        counts = None if self.together else self.total.total()
        findings = [
            find(code, f"{self.many[code]:,} line{'s' * (self.many[code] > 1)}: {'; '.join(examples)}")
            for code, examples in self.problems.items()
        ]
        if self.together:
            names = ", ".join(sorted(self.together))
            findings.append(
                find(Code.SEVERAL_SERVERS, f"{len(self.together)} servers write this log in turns: {names}")
            )
        elif self.starts > 1 or self.earlier:
            what = f"{max(self.starts, 1):,} starts of a server"
            if self.earlier:
                what += f"; {self.earlier:,} windows before the last one are not counted (--all-starts adds them)"
            findings.append(find(Code.SEVERAL_STARTS, what))
        if self.seen > len(self.kept):
            findings.append(find(Code.WINDOWS_NOT_LISTED, f"the newest {len(self.kept):,} of {self.seen:,} are listed"))
        if failed:
            findings.append(find(Code.START_FAILED, redact.text(failed)))
        elif not self.seen:
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
