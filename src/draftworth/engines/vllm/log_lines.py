"""Takes a log's lines apart: colours, what journald, Docker or Ray put in front, vLLM's own prefix.

vLLM's formats (`logger.py` of 0.32.0): `(APIServer pid=1) INFO 11-30 00:21:09 [x.py:1] message`, before 0.10.2 without
the process, before 0.8 without the opening bracket, or one JSON object a line.
"""

import json
import re
from typing import NamedTuple

_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_VLLM = re.compile(
    r"(?:^|[\s)\]|:])(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? "
    r"\[?(?P<file>[^\s\]\[]+?):\d+\] ?(?P<message>.*)$",
    re.DOTALL,
)
_IN_FRONT = re.compile(
    r"^(?:\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:]+: "  # journald, syslog
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] |\S+ [^\s:\[]+\[\d+\]: )?"  # ISO times
    r"|[\w.-]+ +\| )"  # docker compose
)
_PROCESS = re.compile(r"^(?:\([A-Za-z_][\w:.-]*(?: [^()]*)?pid=\d+[^()]*\) )+")


class Line(NamedTuple):
    """One line of a log.

    Attributes:
        message: what was said, without what stands in front.
        level: `INFO`, `WARNING`, …; None where vLLM's logger did not write the line.
        file: the source file's name, such as `vllm.py`; None where not told.
    """

    message: str
    level: str | None = None
    file: str | None = None


def parse(line: str) -> Line:
    """Take one line apart. Never raises."""
    line = _COLOUR.sub("", line).rstrip()
    match = _VLLM.search(line)
    if match:
        return Line(match["message"], match["level"], match["file"])
    line = _IN_FRONT.sub("", line, count=1)
    if line.startswith("{"):
        found = _from_json(line)
        if found:
            return found
    return Line(_PROCESS.sub("", line))


def _from_json(line: str) -> Line | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict) and isinstance(record.get("message"), str):
        return Line(record["message"], str(record.get("levelname", "")) or None)
    return None
