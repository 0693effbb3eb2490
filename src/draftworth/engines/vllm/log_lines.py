"""Takes a log's lines apart: what was put around them (`engines/lines.py`), then vLLM's own prefix.

vLLM's formats (`logger.py` and `logging_utils/formatter.py` of 0.8.5, 0.10.2 and 0.32.0): `(APIServer pid=1) INFO
11-30 00:21:09 [x.py:1] message`, before 0.10.2 without the process, before 0.8 without the opening bracket, or one JSON
object a line.
"""

import re
from typing import NamedTuple

from draftworth.engines.lines import unwrap

_VLLM = re.compile(
    r"(?:^|[\s)\]|:])(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<at>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) "
    r"\[?(?P<file>[^\s\]\[]+?):\d+\] ?(?P<message>.*)$",
    re.DOTALL,
)
# The level of a JSON line, also of one that journald or Docker put into a JSON line of its own.
_JSON_LEVEL = re.compile(r'\\?"levelname\\?" ?: ?\\?"(?P<level>[A-Z]+)\\?"')
_PROCESS = re.compile(r"^(?:\([A-Za-z_][\w:.-]*(?: [^()]*)?pid=\d+[^()]*\) )+")


class Line(NamedTuple):
    """One line of a log.

    Attributes:
        message: what was said, without what stands in front.
        level: `INFO`, `WARNING`, …; None where vLLM's logger did not write the line.
        file: the source file's name, such as `vllm.py`; None where not told.
        at: the time, as whoever collected the line wrote it, else as vLLM did; None where neither did.
    """

    message: str
    level: str | None = None
    file: str | None = None
    at: str | None = None


def parse(line: str) -> Line:
    """Take one line apart. Never raises."""
    text, at = unwrap(line)
    if text.startswith("{"):  # a JSON line of vLLM's inside one of journald's or Docker's
        text, inner = unwrap(text)
        at = at or inner
    match = _VLLM.search(text)
    if match:
        return Line(match["message"], match["level"], match["file"], at or match["at"])
    level = _JSON_LEVEL.search(line) if line.rstrip().endswith("}") else None
    return Line(_PROCESS.sub("", text), level and level["level"], None, at)
