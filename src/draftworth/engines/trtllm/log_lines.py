"""Takes a log's lines apart: what collectors put around them, and TensorRT-LLM's own prefixes.

Python's lines are `[08/19/2026-14:11:49] [TRT-LLM] [I] [_torch][RANK 0] message` (`logger.py`; time, rank and module
as the release has them, and an `srun` rank in front), C++'s `[TensorRT-LLM][INFO] message`. `print` and Uvicorn write
lines without either.
"""

import re
from typing import NamedTuple

from draftworth.engines.lines import unwrap

_PYTHON = re.compile(
    r"(?:^|[\s:])(?:\[(?P<at>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT-LLM\] \[(?P<level>[A-Z])\] ?"
    r"(?:\[(?:[a-z_]\w{0,23}|RANK \d+)\] ?)*(?P<message>.*)$",
    re.DOTALL,
)
_CPP = re.compile(r"(?:^|\s)\[TensorRT-LLM\]\[(?P<level>[A-Z]+)\] (?P<message>.*)$", re.DOTALL)
_BANNER = re.compile(r"(?:^|.*\s)\[TensorRT-LLM\] TensorRT[ -]LLM version: (?P<version>\d[\w.+!-]*)")


class Line(NamedTuple):
    """One line of a log.

    Attributes:
        message: what was said, without what stands in front.
        level: `I`, `W`, `INFO`, …; None where TensorRT-LLM's loggers did not write the line.
        at: the time, from the collector or the line; None where neither tells it.
        version: the release, where the line is the one that tells it.
    """

    message: str
    level: str | None = None
    at: str | None = None
    version: str | None = None


def parse(line: str) -> Line:
    """Take one line apart. Never raises."""
    text, at = unwrap(line)
    if banner := _BANNER.match(text):
        return Line(text, None, at, banner["version"])
    if found := _PYTHON.search(text):
        return Line(found["message"], found["level"], at or found["at"])
    if found := _CPP.search(text):
        return Line(found["message"], found["level"], at)
    return Line(text, None, at)
