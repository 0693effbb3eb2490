"""TOML 1.0 (https://toml.io/en/v1.0.0) out of plain values: what `tomllib` reads back as the same."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(data: Mapping[str, Any]) -> str:
    """Return a document: scalars and lists, then tables, then lists of tables. None and empty tables are left out.

    Raises:
        TypeError: a value that TOML has no form for.
    """
    lines = [f"{key(name)} = {value(one)}" for name, one in data.items() if _plain(one)]
    for name, one in data.items():
        if isinstance(one, Mapping) and one:
            lines += ["", f"[{key(name)}]", *_fields(one)]
    for name, one in data.items():
        if _tables(one):
            for each in one:
                lines += ["", f"[[{key(name)}]]", *_fields(each)]
    return "\n".join(lines) + "\n"


def key(name: str) -> str:
    """Return a key, quoted where it has to be."""
    return name if _BARE.fullmatch(name) else text(name)


def text(string: str) -> str:
    """Return a basic string. JSON's escapes are TOML's, except for DEL; half a surrogate pair TOML cannot have.

    Raises:
        TypeError: half of a surrogate pair.
    """
    if any("\ud800" <= one <= "\udfff" for one in string):
        raise TypeError(f"no TOML for half a surrogate pair: {string!r}")
    return json.dumps(string, ensure_ascii=False).replace("\x7f", "\\u007F")


def value(one: Any) -> str:
    """Return a value on one line."""
    if isinstance(one, bool):
        return "true" if one else "false"
    if isinstance(one, str):
        return text(one)
    if isinstance(one, int):
        return str(one)
    if isinstance(one, float):
        if not math.isfinite(one):
            raise TypeError(f"no TOML for {one}: not a number that can be compared")
        return repr(one)
    if isinstance(one, Mapping):
        inner = ", ".join(f"{key(name)} = {value(each)}" for name, each in one.items() if each is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(one, Sequence):
        return f"[{', '.join(map(value, one))}]"
    raise TypeError(f"no TOML for {type(one).__name__}")


def _fields(table: Mapping[str, Any]) -> list[str]:
    return [f"{key(name)} = {value(one)}" for name, one in table.items() if one is not None]


def _tables(one: Any) -> bool:
    return isinstance(one, Sequence) and not isinstance(one, str) and bool(one) and isinstance(one[0], Mapping)


def _plain(one: Any) -> bool:
    return one is not None and not isinstance(one, Mapping) and not _tables(one)
