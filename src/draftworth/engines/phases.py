"""Tells what a starting server is doing from the lines it logs, for several engines; each has a table of its own."""

import re
from collections.abc import Sequence
from typing import NamedTuple


class Phase(NamedTuple):
    """A phase of a start.

    Attributes:
        stage: phases of a later stage never give way to one of an earlier stage; within a stage the last line counts,
            since workers load, compile and capture in an order that releases have changed.
        words: what to show; a percentage goes behind.
    """

    stage: int
    words: str


Lines = tuple[tuple[Phase, re.Pattern[str]], ...]
"""Phases with what the message of a line matches at its beginning, in the order in which they are tried."""


def table(rows: Sequence[tuple[int, str, str]], flags: re.RegexFlag = re.NOFLAG) -> Lines:
    """Return rows of stage, words and pattern as what `told_by` takes; a group `percent` is how far the phase is."""
    return tuple((Phase(stage, words), re.compile(pattern, flags)) for stage, words, pattern in rows)


def told_by(message: str, lines: Lines) -> tuple[Phase, str] | None:
    """Return the phase a line tells of and the words to show, or None where it tells of none."""
    for phase, pattern in lines:
        match = pattern.match(message)
        if match:
            percent = match.groupdict().get("percent")
            return phase, f"{phase.words}, {percent} %" if percent else phase.words
    return None
