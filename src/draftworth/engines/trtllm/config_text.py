"""Reads the configuration that TensorRT-LLM logs at a start: pydantic's `key=value key=value`, models nested in calls.

Source: `LLM Args:` and a line with `str(llm_args)` (`_torch/pyexecutor/py_executor_creator.py`, 1.2 and main).
"""

import re

_KEY = re.compile(r"(?:^|(?<=[\s,(]))([A-Za-z_]\w*)=")
_CALL = re.compile(r"[A-Za-z_]\w*\((.*)\)", re.DOTALL)
_ENUM = re.compile(r"<(?:\w+\.)+(\w+): .*>", re.DOTALL)
_SECRET = re.compile(r"(?:^|[._])(?:api_?keys?|\w*auth_key|hf_token|password|secret)$", re.IGNORECASE)
_OPENS, _CLOSES = "([{", ")]}"
_DEEPEST = 6


def flat(text: str) -> dict[str, str]:
    """Return every setting as text, nested ones joined with dots, values of keys and passwords hidden. Never raises."""
    found: dict[str, str] = {}
    _add(text, "", found, 0)
    return {
        key: "(hidden)" if _SECRET.search(key) and value not in ("None", "") else value for key, value in found.items()
    }


def _add(text: str, prefix: str, found: dict[str, str], depth: int) -> None:
    keys = _keys(text)
    stops = [*(key[1] for key in keys[1:]), len(text)]
    for (name, _, start), stop in zip(keys, stops, strict=False):
        value = text[start:stop].strip().rstrip(",").strip()
        call = _CALL.fullmatch(value)
        if call and depth < _DEEPEST and _keys(call[1]):
            found[f"{prefix}{name}"] = value.partition("(")[0]
            _add(call[1], f"{prefix}{name}.", found, depth + 1)
        else:
            enum = _ENUM.fullmatch(value)
            found[f"{prefix}{name}"] = _unquoted(enum[1] if enum else value)


def _keys(text: str) -> list[tuple[str, int, int]]:
    """Return (name, where it begins, where its value begins) of every key outside quotes and brackets."""
    inside = [False] * (len(text) + 1)
    depth, quote, at = 0, "", 0
    while at < len(text):
        char = text[at]
        inside[at] = depth > 0 or bool(quote)
        if quote:
            if char == "\\":
                at += 1
                inside[min(at, len(text))] = True
            elif char == quote:
                quote = ""
        elif char in "'\"" and (at == 0 or text[at - 1] in "=([{, :"):
            quote = char
        elif char in _OPENS:
            depth += 1
        elif char in _CLOSES:
            depth = max(0, depth - 1)
        at += 1
    return [(match[1], match.start(), match.end()) for match in _KEY.finditer(text) if not inside[match.start()]]


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
