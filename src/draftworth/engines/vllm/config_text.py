"""Reads the configuration vLLM prints at a start: `key=value, …` with Python reprs of nested objects inside.

Sources: `VllmConfig.__str__` and `CompilationConfig.__repr__` of vLLM 0.32.0; `Namespace(…)` is what releases before
0.9 printed for their arguments.
"""

import re

_KEY = re.compile(r"([A-Za-z_][\w.]*)=")
_CALL = re.compile(r"[A-Za-z_][\w.]*\((.*)\)", re.DOTALL)
_ENUM = re.compile(r"<(?:\w+\.)+(\w+): .*>", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OPENS, _CLOSES = "([{", ")]}"
_BEFORE_QUOTE = "=([{,: "
_DEEPEST = 8  # levels of nesting that are taken apart; deeper ones stay text


def flat(text: str, prefix: str = "") -> dict[str, str]:
    """Return `a=1, b=X(c=2), d={'e': 3}` as `{"a": "1", "b.c": "2", "d.e": "3"}`.

    An enumeration's repr `<Mode.FAST: 2>` becomes `FAST`, quotes of strings go, addresses of objects go; what cannot
    be taken apart stays as it was printed.

    Args:
        text: pairs at the top level, or one object (`{…}`, `Name(…)`).
        prefix: put in front of every key, with a dot.
    """
    found: dict[str, str] = {}
    if _KEY.match(text):
        for piece in _pieces(text, keyed=True):
            _add_pair(found, prefix, piece, 0)
    else:
        _add(found, prefix, text, 0)
    return found


def _add_pair(found: dict[str, str], prefix: str, pair: str, depth: int) -> None:
    match = _KEY.match(pair)
    if match:
        _add(found, _joined(prefix, match[1]), pair[match.end() :], depth)


def _joined(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key


def _add(found: dict[str, str], key: str, printed: str, depth: int) -> None:
    value = printed.strip()
    pairs = _items(value) if depth < _DEEPEST else None
    if pairs:
        for name, inner in pairs:
            _add(found, _joined(key, name), inner, depth + 1)
    else:
        found[key] = _plain(value)


def _items(value: str) -> list[tuple[str, str]] | None:
    """Return the entries of a dictionary's or a keyword object's repr, None where it is neither or is empty."""
    if value.startswith("{") and value.endswith("}"):
        return _all_pairs([_entry(piece) for piece in _pieces(value[1:-1])])
    call = _CALL.fullmatch(value)
    if call:
        keyed = [(piece, _KEY.match(piece)) for piece in _pieces(call[1])]
        return _all_pairs([(match[1], piece[match.end() :]) if match else None for piece, match in keyed])
    return None


def _all_pairs(pairs: list[tuple[str, str] | None]) -> list[tuple[str, str]] | None:
    whole = [pair for pair in pairs if pair]
    return whole if len(whole) == len(pairs) else None


def _entry(piece: str) -> tuple[str, str] | None:
    parts = _pieces(piece, separator=": ")
    return (_plain(parts[0]), piece[len(parts[0]) + 2 :]) if len(parts) > 1 else None


def _plain(value: str) -> str:
    value = _ADDRESS.sub("", value.strip())
    enum = _ENUM.fullmatch(value)
    if enum:
        return enum[1]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" and value[0] not in value[1:-1]:
        return value[1:-1]
    return value


def _pieces(text: str, *, separator: str = ", ", keyed: bool = False) -> list[str]:
    """Split at separators that are outside brackets and quotes; with `keyed`, only where `name=` follows."""
    pieces: list[str] = []
    start = depth = at = 0
    while at < len(text):
        char = text[at]
        if char in "'\"" and (at == 0 or text[at - 1] in _BEFORE_QUOTE):
            at = _behind_quote(text, at)
            continue
        depth = max(0, depth + (char in _OPENS) - (char in _CLOSES))
        splits = depth == 0 and text.startswith(separator, at)
        if splits and (not keyed or _KEY.match(text, at + len(separator))):
            pieces.append(text[start:at])
            at = start = at + len(separator)
        else:
            at += 1
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def _behind_quote(text: str, at: int) -> int:
    """Return the index behind a quoted string, or behind its opening quote alone where it is not closed."""
    quote, opening = text[at], at
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == quote:
            return at + 1
        else:
            at += 1
    return opening + 1
