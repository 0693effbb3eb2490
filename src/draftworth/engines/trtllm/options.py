"""Reads the YAML file that configures `trtllm-serve` (`--extra_llm_api_options FILE`, `--config FILE` since 1.2).

Only what such files hold is read: nested mappings by indentation, flow mappings and lists, scalars and comments.
Anything else (anchors, tags, block text, several documents) makes the file unreadable here, which is no error: the
server reads it with a whole YAML parser.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftworth.engines.trtllm import yaml_faults

FLAGS: tuple[str, ...] = ("--extra_llm_api_options", "--config")
"""The options that name the file; the last one in a command counts."""

_LARGEST = 1 << 20  # bytes
_KEY = re.compile(r"""(?P<indent> *)(?P<key>"[^"]*"|'[^']*'|[\w./+-]+)\s*:(?:\s+(?P<value>.*))?$""")
_ITEM = re.compile(r" *- ")
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_PLAIN = re.compile(r"[\w./+-]+(?: [\w./+-]+)*")
_FLOW = re.compile(r"""("[^"]*"|'[^']*'|[{}\[\]:,]|[^{}\[\]:,"'\s][^{}\[\]:,"']*)""")


def file_in(words: Sequence[str]) -> str | None:
    """Return the file that a command's words name, or None."""
    found = None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in FLAGS:
            found = value if equals else "".join(words[index + 1 : index + 2]) or None
    return found


def read_file(file: str) -> dict[str, Any] | None:
    """Return what a file holds, or None where it cannot be read from here or is not of the form read here."""
    try:
        path = Path(file)
        if path.stat().st_size > _LARGEST:
            return None
        return read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def fault_in(file: str) -> str | None:
    """Return where and why a file that can be read from here is no YAML (`spec.yaml, line 3: …`), or None."""
    try:
        path = Path(file)
        found = yaml_faults.fault(path.read_bytes()) if path.stat().st_size <= _LARGEST else None
    except (OSError, ValueError):
        return None
    return None if found is None else f"{file}, line {found.line:,}: {found.why}"


def is_here(file: str) -> bool:
    """Whether a file can be read from here, whatever it holds."""
    try:
        return Path(file).is_file() and os.access(file, os.R_OK)
    except (OSError, ValueError):
        return False


def read(text: str) -> dict[str, Any] | None:
    """Return the mapping a text holds, or None where it is not of the form read here. Never raises."""
    lines = [_without_comment(line) for line in text.replace("\r\n", "\n").split("\n")]
    lines = [line for line in lines if line.strip() and line.strip() != "---"]
    result: dict[str, Any] = {}
    open_maps: list[tuple[int, dict[str, Any]]] = [(-1, result)]
    last: tuple[dict[str, Any], str, int] | None = None  # the key whose value may follow below
    for line in lines:
        if _ITEM.match(line + " ") and last is not None:
            target, key, _ = last
            kept = target[key] if isinstance(target[key], list) else []
            target[key] = [*kept, line.strip().removeprefix("-").strip()]
            continue
        match = _KEY.match(line)
        if not match or "\t" in line:
            return None
        indent, key, value = len(match["indent"]), _unquoted(match["key"]), (match["value"] or "").strip()
        if last is not None and indent > last[2]:
            inner: dict[str, Any] = {}
            last[0][last[1]] = inner
            open_maps.append((last[2], inner))
        while indent <= open_maps[-1][0]:
            open_maps.pop()
        target = open_maps[-1][1]
        try:
            target[key] = _value(value)
        except (ValueError, RecursionError):
            return None
        last = None if value else (target, key, indent)
    return result


def written(config: dict[str, Any]) -> str:
    """Return a speculative configuration as the YAML block that goes into the file."""
    lines = ["speculative_config:"]
    lines += [f"  {key}: {_scalar(value)}" for key, value in config.items()]
    return "\n".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not isinstance(_plain(value), bool | int | float | None):
        return value
    return json.dumps(value, default=str)


def _without_comment(line: str) -> str:
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (index == 0 or line[index - 1] in " \t"):
            return line[:index].rstrip()
    return line.rstrip()


def _value(text: str) -> Any:
    if text[:1] in ("&", "*", "!", "|", ">", "%", "@", "`"):
        raise ValueError("a part of YAML that is not read here")
    if text[:1] in ("{", "["):
        tokens = [token.strip() for token in _FLOW.findall(text)]
        value, rest = _flow(tokens)
        if rest:
            raise ValueError("something stands behind a flow value")
        return value
    return _plain(text)


def _flow(tokens: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Take one value off a flow's tokens. Raises ValueError where they are none."""
    if not tokens:
        raise ValueError("a flow value ends early")
    first, rest = tokens[0], tokens[1:]
    if first == "[":
        items: list[Any] = []
        while rest and rest[0] != "]":
            item, rest = _flow(rest)
            items.append(item)
            rest = _behind_comma(rest, "]")
        return items, _closed(rest)
    if first == "{":
        mapping: dict[str, Any] = {}
        while rest and rest[0] != "}":
            key, rest = _flow(rest)
            if not rest or rest[0] != ":":
                raise ValueError("a key without a value")
            value, rest = (None, rest[1:]) if rest[1:2] in (["}"], [","]) else _flow(rest[1:])
            mapping[str(key)] = value
            rest = _behind_comma(rest, "}")
        return mapping, _closed(rest)
    if first in ("]", "}", ":", ","):
        raise ValueError("a flow value is missing")
    return _plain(first), rest


def _behind_comma(tokens: Sequence[str], closing: str) -> Sequence[str]:
    if tokens and tokens[0] == ",":
        return tokens[1:]
    if tokens and tokens[0] == closing:
        return tokens
    raise ValueError("a flow value is not closed")


def _closed(tokens: Sequence[str]) -> Sequence[str]:
    if not tokens:
        raise ValueError("a flow value is not closed")
    return tokens[1:]


def _plain(text: str) -> Any:
    if text[:1] in ("'", '"'):
        return _unquoted(text)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":  # noqa: PLR2004 - two quotes
        return text
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]
