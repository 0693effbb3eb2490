"""Reads a file of any kind: recognises a page of metrics, JSON of a server, and a log, and reads it as that."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from draftworth.engines.scan import opened
from draftworth.errors import MeasureError, UsageError
from draftworth.readings.base import Reading
from draftworth.readings.log import WINDOWS, read_open
from draftworth.readings.page import read_difference, read_json, read_metrics

HEAD = 1 << 16  # bytes by which a file's kind is told
LARGEST_PAGE = 1 << 28  # bytes: no page of metrics and no list of answers is larger
_PROMETHEUS = re.compile(
    rb"^(?:# (?:HELP|TYPE) [a-zA-Z_:]|[a-zA-Z_:][\w:]*(?:\{[^\n]*\})? [-+.\deEinfaNIF]+\s*$)", re.MULTILINE
)
_OF_A_COLLECTOR = ("MESSAGE", "log", "message", "msg", "levelname")


def kind_of(head: bytes) -> str:
    """Return what a file is by its first bytes: `metrics`, `page` (JSON) or `log`."""
    start = head.lstrip()[:1]
    if start in (b"{", b"["):
        return "log" if _is_collected(head) else "page"
    lines = [line for line in head.splitlines()[:20] if line.strip()]
    like_metrics = sum(bool(_PROMETHEUS.match(line)) for line in lines)
    return "metrics" if lines and like_metrics > len(lines) / 2 else "log"


def _is_collected(head: bytes) -> bool:
    """Whether lines are a collector's JSON (journald, Docker, a JSON logger), or text that begins with a bracket."""
    first = head.lstrip().split(b"\n", 1)[0]
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        # An object over several lines, or one longer than the head; else a log line such as `[INFO] …`.
        return not re.match(rb"\s*(?:\{\s*(?:\"|$)|\[\s*(?:[\[{\"]|-?\d[\d.]*\s*(?:[,\]]|$)|\]|$))", first)
    return isinstance(record, dict) and any(name in record for name in _OF_A_COLLECTOR) and "choices" not in record


def read_file(
    path: Path | None,
    *,
    name: str | None = None,
    model: str | None = None,
    windows: int = WINDOWS,
    all_starts: bool = False,
    only: str | None = None,
    on_block: Callable[[int], None] | None = None,
) -> Reading:
    """Read a file, or standard input, as what it is.

    Args:
        path: the file; None for standard input.
        name: the engine that wrote it; None to recognise it.
        model: of a page of metrics, only this model's series.
        windows: of a log, keep so many of the newest windows.
        all_starts: of a log, add the windows of every start.
        only: of a log, read only lines that hold this text.
        on_block: takes the bytes of a log read so far.

    Raises:
        UsageError: it cannot be read, is of no known engine or of several, or all of it contradicts itself.
    """
    source = str(path or "standard input")
    with opened(path) as file:
        head = file.read(HEAD)
        kind = kind_of(head)
        if kind == "log":
            whole = cast("IO[bytes]", _Joined(head, file))
            return read_open(whole, source, name, windows, all_starts=all_starts, only=only, on_block=on_block)
        text = (head + file.read(LARGEST_PAGE)).decode("utf-8", "replace")
    if kind == "metrics":
        try:
            return read_metrics(text, source, name=name, model=model)
        except MeasureError as error:
            raise UsageError(f"{source}: {error}") from None
    return read_json(text, source, name=name)


def read_two(before: Path, after: Path, *, name: str | None = None, model: str | None = None) -> Reading:
    """Read two saved pages of metrics of one server as the counts between them.

    Raises:
        UsageError: one cannot be read, or is no page of a known engine's metrics.
    """
    texts = []
    for path in (before, after):
        with opened(path) as file:
            texts.append(file.read(LARGEST_PAGE).decode("utf-8", "replace"))
        if kind_of(texts[-1][:HEAD].encode("utf-8", "replace")) != "metrics":
            raise UsageError(f"{path}: not a page of metrics; --since compares two saved pages")
    try:
        return read_difference(texts[0], texts[1], f"{after} since {before}", name=name, model=model)
    except MeasureError as error:
        raise UsageError(f"{before} and {after}: {error}") from None


class _Joined:
    """A file whose first bytes were read already."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head, self._file = head, file

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer than asked for only at the end of the head or of the file."""
        if self._head:
            head, self._head = self._head[:size], self._head[size:]
            return head
        return self._file.read(size)
