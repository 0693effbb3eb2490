"""Takes what journald, Docker, Kubernetes or a terminal put around a log's lines away, for every engine alike."""

import json
import re
from datetime import UTC, datetime
from typing import NamedTuple

_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_IN_FRONT = re.compile(
    r"^(?:(?P<syslog>\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ [^\s:]+: "  # journald, syslog
    r"|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) "  # Kubernetes, journalctl -o short-iso
    r"(?:std(?:out|err) [FP] |\S+ [^\s:\[]+\[\d+\]: )?"
    r"|[\w.-]+ +\| )"  # docker compose
)
# Where a JSON line holds the message, and where the time: journald's export, Docker's json-file, common loggers.
_MESSAGES = ("MESSAGE", "log", "message", "msg")
_TIMES = ("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "time", "timestamp", "asctime", "ts")
_BYTE = 256
_MICROSECONDS = 16  # digits of a time since 1970


class Unwrapped(NamedTuple):
    """One line of a log.

    Attributes:
        text: what the program wrote.
        at: the time, as whoever collected the line wrote it; None where nobody did.
    """

    text: str
    at: str | None = None


def unwrap(line: str) -> Unwrapped:
    """Take away what was put around a line. Never raises.

    Understood are journald's short, short-iso and JSON forms (a MESSAGE with colours is an array of bytes there),
    Docker's json-file, docker compose, Kubernetes' CRI, JSON loggers, and colours of a terminal.
    """
    line = line.strip("\r\n")
    if line.startswith("{"):
        found = _from_json(line)
        if found is not None:
            return found
    line = (_COLOUR.sub("", line) if "\x1b" in line else line).rstrip()
    match = _IN_FRONT.match(line)
    if match is None:
        return Unwrapped(line)
    rest = line[match.end() :]
    at = match["syslog"] or match["iso"]
    inner = _from_json(rest) if rest.startswith("{") else None
    return Unwrapped(inner.text, inner.at or at) if inner else Unwrapped(rest, at)


def _from_json(line: str) -> Unwrapped | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    for name in _MESSAGES:
        text = _text(record.get(name))
        if text is not None:
            at = next((_time(key, str(record[key])) for key in _TIMES if record.get(key)), None)
            return Unwrapped(_COLOUR.sub("", text).strip("\r\n").rstrip(), at)
    return None


def _time(key: str, value: str) -> str:
    """Return a time as it is written; journald's microseconds as ISO 8601."""
    if not (key.endswith("REALTIME_TIMESTAMP") and value.isdecimal() and len(value) == _MICROSECONDS):
        return value
    try:
        return datetime.fromtimestamp(int(value) / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return value


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, int) and 0 <= one < _BYTE for one in value):
        return bytes(value).decode("utf-8", "replace")
    return None
