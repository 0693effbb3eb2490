"""The checks every layout makes of a field, so that each mistake is told in the same words."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from draftworth.bench.base import Turn
from draftworth.errors import UsageError
from draftworth.workloads.base import Row

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles a message may have, as OpenAI's API names them."""

# Where a misspelt key begins: `categroy` and `max_token` are nearer to what was meant, `categories` and
# `sub_category` further away.
_NEAR = 0.85
_LONGEST_SHOWN = 60


def text(value: object, what: str, *, expected: str = "text", may_be_empty: bool = False) -> str:
    """Return a text that can be sent.

    Raises:
        UsageError: no text, an empty one, or one with half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} must be {expected}, not {kind(value)}")
    if not may_be_empty and not value.strip():
        raise UsageError(f"{what} is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} has half of a surrogate pair at character {error.start + 1}") from error
    return value


def whole(value: object, what: str, *, least: int) -> int:
    """Return a whole number of at least `least`.

    Raises:
        UsageError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{what} must be a whole number, not {kind(value)}")
    if value < least:
        raise UsageError(f"{what} must be at least {least}, not {short(value)}")
    return value


def number(value: object, what: str) -> float:
    """Return a finite number.

    Raises:
        UsageError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be a number, not {kind(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = float("inf")
    if not isfinite(result):
        raise UsageError(f"{what} must be a finite number, not {short(value)}")
    return result


def identity(row: Row, keys: Sequence[str], default: str) -> str:
    """Return the row's id: the first of the keys it has, text or a whole number, else the default."""
    for key in keys:
        if key in row.data:
            value = row.data[key]
            if isinstance(value, int) and not isinstance(value, bool):
                return short(value)
            return text(value, f'{row.where}: "{key}"', expected="text or a whole number")
    return default


def category(row: Row, default: str) -> str:
    """Return the row's category, or the default."""
    return text(row.data.get("category", default), f'{row.where}: "category"')


def max_tokens(row: Row) -> int | None:
    """Return the row's own bound of the answer in tokens, or None."""
    if "max_tokens" not in row.data:
        return None
    return whole(row.data["max_tokens"], f'{row.where}: "max_tokens"', least=1)


def check_spelling(row: Row, optional: Collection[str]) -> None:
    """Refuse a key that is nearly an optional one: its value would be ignored without a word.

    Raises:
        UsageError: names the key and the nearest one.
    """
    for key in row.data:
        if key in optional:
            continue
        near = get_close_matches(key.lower(), optional, n=1, cutoff=_NEAR)
        if near and near[0] not in row.data:
            raise UsageError(f'{row.where}: unknown key {short(key)}: did you mean "{near[0]}"?')


def messages(row: Row, key: str = "messages") -> tuple[Mapping[str, Any], ...]:
    """Return OpenAI chat messages as they are to be sent.

    Raises:
        UsageError: no list of objects, an unknown role, or a content that is no text.
    """
    value = row.data[key]
    if not isinstance(value, list) or not value:
        raise UsageError(f'{row.where}: "{key}" must be a list with at least one entry')
    return tuple(
        _message(message, f"{row.where}: message {i}", last=i == len(value)) for i, message in enumerate(value, start=1)
    )


def _message(message: object, what: str, *, last: bool) -> Mapping[str, Any]:
    if not isinstance(message, dict):
        raise UsageError(f'{what} must be an object with "role" and "content"')
    role = text(message.get("role"), f'{what}: "role"')
    if role not in ROLES:
        near = get_close_matches(role.lower(), ROLES, n=1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise UsageError(f"{what}: unknown role {short(role)}: {hint}There are {', '.join(ROLES)}")
    result: dict[str, Any] = {"role": role}
    calls = message.get("tool_calls")
    if calls is not None:
        if role != "assistant" or not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise UsageError(f'{what}: "tool_calls" must be a list of objects in a message of the assistant')
        result["tool_calls"] = calls
    if not (calls and message.get("content") is None):
        # A system message may well be empty; the last one is what is answered.
        result["content"] = text(message.get("content"), f'{what}: "content"', may_be_empty=not last)
    for name in ("name", "tool_call_id"):
        if message.get(name) is not None:
            result[name] = text(message[name], f'{what}: "{name}"')
    return result


def texts(row: Row, key: str) -> tuple[str, ...]:
    """Return a list of at least one text.

    Raises:
        UsageError: anything else.
    """
    value = row.data[key]
    if not isinstance(value, list) or not value:
        raise UsageError(f'{row.where}: "{key}" must be a list with at least one entry')
    return tuple(text(entry, f'{row.where}: entry {i} of "{key}"') for i, entry in enumerate(value, start=1))


def user(content: str) -> Mapping[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": content}


def turns(contents: Sequence[str]) -> tuple[tuple[Mapping[str, Any], ...], tuple[Turn, ...]]:
    """Return the messages of the first request and the later turns, whose answers are the server's own."""
    return (user(contents[0]),), tuple(Turn(content) for content in contents[1:])


def short(value: object) -> str:
    """Return a value for an error: one line, quoted where it is text, cut where it is long."""
    try:
        shown = repr(value) if isinstance(value, str) else str(value)
    except (ValueError, RecursionError):  # a whole number of more than 4300 digits, or lists in lists in lists
        shown = "a value too long to show"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 1]}…"


def kind(value: object) -> str:
    """Return what a decoded value is, in words."""
    names = {type(None): "missing or null", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "text" if isinstance(value, str) else "an object")


def conversation(
    history: Sequence[Mapping[str, Any]], where: str
) -> tuple[tuple[Mapping[str, Any], ...], tuple[Turn, ...]]:
    """Return recorded messages as the first request and later turns, with the answers that were recorded.

    Raises:
        UsageError: it does not begin with the user (behind system messages), or tools take part.
    """
    first: list[Mapping[str, Any]] = []
    later: list[Turn] = []
    answer: str | None = None
    asked = False
    for i, message in enumerate(history, start=1):
        role, content = message["role"], message.get("content", "")
        if role in {"system", "developer"} and not asked:
            first.append(message)
        elif role == "user":
            if asked:
                later.append(Turn(content, answer))
            else:
                first.append(message)
            asked, answer = True, None
        elif role == "assistant" and asked and answer is None:
            answer = content
        else:
            raise UsageError(f"{where}: message {i} is of the {role}, which cannot be at this place of a conversation")
    if not asked:
        raise UsageError(f"{where}: no message is of the user")
    return tuple(first), tuple(later)
