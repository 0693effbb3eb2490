"""Takes a line of SGLang's log apart: what collectors put around it, Ray's process, SGLang's own time and ranks.

SGLang writes `[2026-10-01 12:00:00 DP0 TP1] message` (`configure_logger`; ranks of DP, PP, TP, EP and others only where
there are several, milliseconds with SGLANG_LOG_MS), uvicorn writes `INFO:     message`.
"""

import re
from typing import NamedTuple

from draftworth.engines import lines

_RAY = re.compile(r"^(?:\([\w.:]+ [^()]*pid=\d+[^()]*\) )+")
_SGLANG = re.compile(
    r"(?:^|[\s|])\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<ranks>(?: [A-Z_]+\d+)*)\] (?P<message>.*)$",
    re.DOTALL,
)


class Line(NamedTuple):
    """One line of a log.

    Attributes:
        message: what was said, without what stands in front.
        at: the time as the line has it; None where it has none.
        rank: the ranks of the process, such as `DP0 TP1`; empty where it names none.
    """

    message: str
    at: str | None = None
    rank: str = ""


def parse(line: str) -> Line:
    """Take one line apart. Never raises."""
    unwrapped = lines.unwrap(line)
    text = _RAY.sub("", unwrapped.text)
    match = _SGLANG.search(text)
    if match:
        return Line(match["message"], match["at"], match["ranks"].strip())
    return Line(text, unwrapped.at)
