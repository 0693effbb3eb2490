"""Finds what no YAML parser takes in a text that should be the options file of `trtllm-serve`.

Valid YAML that `options.py` does not read (anchors, tags, block text, several documents) is no fault: what follows such
a part is not looked at.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_KEY = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[\w./+-]+) *:(?: +(?P<value>.*))?$""")
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*")
_ITEM = re.compile(r"- +[\w./+-]+$")
_QUOTED = re.compile(r"""(?:"[^"\\]*"|'[^']*')$""")
_MAPPING_SIGN = re.compile(r":(?:\s|$)")
_SPECIAL = tuple("[]{}\"'&*!|>%@`?,-")
_CLOSES = {"[": "]", "{": "}"}


class Fault(NamedTuple):
    """What is wrong.

    Attributes:
        line: its number, from 1 on.
        why: what it is, as a sentence.
    """

    line: int
    why: str


class _Key(NamedTuple):
    indent: int
    value: str


def fault(data: bytes) -> Fault | None:
    """Return the first fault of a file, or None where none is certain. Never raises."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Fault(data.count(b"\n", 0, error.start) + 1, "it is no UTF-8 text")
    for at, char in enumerate(text):
        if char < " " and char not in "\t\n\r":
            return Fault(text.count("\n", 0, at) + 1, "it holds a control character")
    return _first(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _first(lines: Sequence[str]) -> Fault | None:
    """Return the first fault before a part whose inside is not looked at."""
    above: list[int] = []  # indents of the open mappings
    last: _Key | None = None
    for index, line in enumerate(lines):
        content = line.lstrip(" \t")
        if not content or content.startswith("#") or (last is None and line.rstrip() == "---"):
            continue
        indent = len(line) - len(content)
        if "\t" in line[:indent]:
            return Fault(index + 1, "a tab is in its indentation")
        content = _COMMENT.sub("", content).rstrip()
        if _ITEM.match(content) and last is not None and not last.value.strip("-"):
            last = _Key(last.indent, "-")
            continue
        match = _KEY.match(content)
        if match is None:
            return _no_key(index + 1, content, deeper=last is not None and indent > last.indent)
        why = _misplaced(indent, last, above)
        if why is not None:
            return Fault(index + 1, why) if why else None
        last = _Key(indent, match["value"] or "")
        goes_on, why = _value(last.value, lines[index + 1 :])
        if not goes_on:
            return Fault(index + 1, why) if why else None
    return None


def _no_key(line: int, content: str, *, deeper: bool) -> Fault | None:
    if deeper or content.startswith((*_SPECIAL, "...")) or _MAPPING_SIGN.search(content):
        return None  # more of the value above, or a part of YAML that is not read here
    return Fault(line, "it is neither a key with a value nor an item of a list")


def _misplaced(indent: int, last: _Key | None, above: list[int]) -> str | None:
    """Return why a key cannot stand at an indent, empty where that cannot be told, None where it can; keep `above`."""
    if last is not None and indent > last.indent and last.value:
        return "" if last.value.startswith(_SPECIAL) else "it stands below a key that has a value already"
    while above and above[-1] > indent:
        above.pop()
    if last is None or indent > last.indent:
        above.append(indent)
    elif not above or above[-1] != indent:
        return "its indentation fits no key above it"
    return None


def _value(value: str, following: Sequence[str]) -> tuple[bool, str]:
    """Return whether the lines behind a value can be looked at, and what is wrong with it; empty for nothing."""
    if not value.startswith(_SPECIAL) or _QUOTED.match(value):
        return True, ""
    rest = "\n".join(following)
    if value[0] in "\"'":
        return False, "" if value[0] in value[1:] + rest else "its quote is never closed"
    if value[0] not in _CLOSES or any(char in value for char in "\"'"):
        return False, ""
    closed = _closed(value)
    if closed is None and not any(char in rest for char in "\"'#"):
        closed = _closed(f"{value}\n{rest}") or False
        return False, "" if closed else "its bracket is never closed"
    return bool(closed), "its brackets do not fit each other" if closed is False else ""


def _closed(text: str) -> bool | None:
    """Return whether the first bracket is closed; None where the text ends before, False where another one closes."""
    waiting: list[str] = []
    for char in text:
        if char in _CLOSES:
            waiting.append(_CLOSES[char])
        elif char in "]}":
            if waiting.pop() != char:
                return False
            if not waiting:
                return True
    return None
