"""Reads the configuration SGLang prints at a start and serves on `/server_info`, with secrets hidden.

The line is `server_args=ServerArgs(model_path='…', …)` (a dataclass's repr; 0.4.6 to 0.5.19) or `server_args={'…': …}`
(a dict's; 0.5.23, `entrypoints/engine.py`). Both are printed after SGLang has filled in and changed what was asked for.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from draftworth import redact

_KEY = re.compile(r"\s*(?:([A-Za-z_]\w*)=|'([^']*)':\s*|\"([^\"]*)\":\s*)")
_SECRET = re.compile(r"(?i)key|token|passw|secret|auth|cred")
# What these names hold is a number, a path, a choice or a yes or no.
_HARMLESS = re.compile(
    r"(?i)tokens|tokenizer|token_map|token_step|token_usage|token_ratio|token_to|token_type|token_pool|token_id"
    r"|threshold|_backend$|per_token|token_capacity|extra_key"
)
_NOTHING = frozenset({"None", "null", "True", "False", "", "[]", "{}", "0"})
_OPENS, _CLOSES = "([{", ")]}"


def parse(printed: str) -> dict[str, str]:
    """Return what a `server_args=` line prints behind the sign, key to printed value, secrets hidden. Never raises.

    Args:
        printed: `ServerArgs(a=1, b='x')` or `{'a': 1, 'b': 'x'}`; the end may be missing.
    """
    start = re.match(r"\s*(?:[\w.]*\(|\{)", printed)
    if start is None:
        return {}
    found: dict[str, str] = {}
    for piece in _pieces(printed[start.end() :]):
        match = _KEY.match(piece)
        if match:
            key = next(name for name in match.groups() if name is not None)
            found[key] = _plain(piece[match.end() :].strip())
    return without_secrets(found)


def of_page(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration of a `/server_info` page, key to value as text, secrets hidden.

    Args:
        document: the page's object; what holds live state is to be left out by the caller.
    """
    return without_secrets({str(key): _shown(value) for key, value in document.items()})


def width(config: Mapping[str, str]) -> int | None:
    """Return N, the tokens of a verify step with the root counted, or None where it is not known or may change."""
    value = config.get("speculative_num_draft_tokens", "")
    if config.get("speculative_adaptive") == "True":
        return None
    return int(value) if value.isdecimal() and len(value) <= 6 and int(value) > 0 else None  # noqa: PLR2004 - digits


def speculates(config: Mapping[str, str]) -> bool | None:
    """Tell whether a configuration names a speculative algorithm; None where it does not say."""
    value = config.get("speculative_algorithm")
    return None if value is None else value not in ("None", "null", "", "NONE")


def without_secrets(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration with the values of keys, tokens and passwords hidden."""
    return {
        key: redact.HIDDEN if _is_secret(key) and value not in _NOTHING else redact.text(value)
        for key, value in config.items()
    }


def _is_secret(key: str) -> bool:
    return bool(_SECRET.search(_HARMLESS.sub("", key)))


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return str(value)
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _plain(printed: str) -> str:
    """Take the quotes of a string away."""
    if len(printed) > 1 and printed[0] == printed[-1] and printed[0] in "'\"":
        return printed[1:-1]
    return printed


def _pieces(text: str) -> Iterator[str]:
    """Yield what stands between the commas of the outermost level, up to its closing bracket or the text's end."""
    depth, start, quote, at = 0, 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPENS:
            depth += 1
        elif char in _CLOSES:
            if depth == 0:
                yield text[start:at]
                return
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        at += 1
    # The line was cut off: its last value may be half a value.
