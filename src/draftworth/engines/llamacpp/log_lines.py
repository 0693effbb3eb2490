"""Takes a log's lines apart: what was put around them (`engines/lines.py`), then llama.cpp's own prefix.

Formats (`common/log.cpp` and `tools/server/server-common.h` of 9093, 9246, 9837, 10448 and 11434): a time since the
start (`0.12.345.678`: minutes, seconds, milliseconds, microseconds) and the level's letter, both only where
asked for before 9246 and always since; `slot print_timing: id  3 | task 34 | `, `srv  load_model: ` or `spec
common_specu: ` with the function's name cut to 12 characters; then the message. With `--log-jsonl` the rest is the
`msg` of a JSON object.
"""

import re
from typing import NamedTuple

from draftworth.engines.lines import unwrap

_OWN = re.compile(r"(?:(?P<at>\d+\.\d\d\.\d{3}\.\d{3}) )?(?:(?P<level>[IWED]) )?")
_WHO = re.compile(
    r"(?P<who>slot|srv|spec|cmn|que|res) +(?P<function>[\w()<>~]{1,12}): "
    r"(?:id +(?P<slot>\d+) \| task (?P<task>-?\d+) \|(?: |$))?"
)


# `build: 5600 (abc) with …` until 2026, `build_info: b9093-abc`, `common_params_print_info: build 11434 (abc) with …`.
_BUILD = re.compile(r"(?:.*: )?build(?:_info)?:? b?(?P<build>\d+)[ -]\(?\w+")

_START = re.compile(r"initializing \.\.\.$|.*verbosity = \d+ \(adjust with|.*build_info: b\d|build: \d+ \(")


class Line(NamedTuple):
    """One line of a log.

    Attributes:
        message: what was said, without what stands in front.
        who: `slot`, `srv`, `spec`, …; None for a line of another kind.
        function: the function's name, cut to 12 characters.
        slot: the slot's and the task's numbers; None for a line that is of no slot.
        level: `I`, `W`, `E` or `D`; None where not told.
        at: the time, as whoever collected the line wrote it, else since the start as llama.cpp did.
    """

    message: str
    who: str | None = None
    function: str = ""
    slot: tuple[int, int] | None = None
    level: str | None = None
    at: str | None = None


def parse(line: str) -> Line:
    """Take one line apart. Never raises."""
    text, at = unwrap(line)
    if text.startswith("{"):  # a line of --log-jsonl inside one of journald's or Docker's
        text, inner = unwrap(text)
        at = at or inner
    own = _OWN.match(text)
    rest = text[own.end() :] if own else text
    at = at or (own["at"] if own else None)
    level = own["level"] if own else None
    who = _WHO.match(rest)
    if who is None:
        return Line(rest, level=level, at=at)
    slot = (int(who["slot"]), int(who["task"])) if who["slot"] else None
    return Line(rest[who.end() :], who["who"], who["function"], slot, level, at)


def build_in(message: str) -> int | None:
    """Return the build a line names, or None; a build made without its source's history calls itself 0."""
    match = _BUILD.match(message)
    return (int(match["build"]) or None) if match else None


def begins(message: str) -> bool:
    """Whether a line stands at the beginning of a start; a start may have two such lines."""
    return bool(_START.match(message))
