"""Which prompts a trial sends: a choice of the built-in ones, or a person's own from a JSONL file."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any

from draftworth.bench import prompts
from draftworth.bench.base import Prompt
from draftworth.errors import UsageError

_CONTENT_KEYS = ("prompt", "messages", "turns")


def builtin(categories: Sequence[str] | None = None, per_category: int | None = None) -> tuple[Prompt, ...]:
    """Return built-in prompts, one of each category in turn, in a fixed order.

    Args:
        categories: which kinds of work; None for all. Their order here does not matter.
        per_category: how many prompts of each, None for every one.

    Raises:
        UsageError: a category that does not exist, none at all, or more prompts than a category has.
    """
    chosen = prompts.CATEGORIES if categories is None else tuple(categories)
    if not chosen:
        raise UsageError(f"no category chosen: name at least one of {', '.join(prompts.CATEGORIES)}")
    for name in chosen:
        if name not in prompts.CATEGORIES:
            near = get_close_matches(name, prompts.CATEGORIES, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"no built-in category {name!r}: {hint}There are {', '.join(prompts.CATEGORIES)}")
    if per_category is not None and per_category < 1:
        raise UsageError(f"{per_category} prompts per category: ask for at least 1")
    columns = []
    for name in (c for c in prompts.CATEGORIES if c in chosen):
        available = prompts.category(name)
        if per_category is not None and per_category > len(available):
            raise UsageError(
                f"{per_category} prompts per category: category {name!r} has {len(available)}; "
                "ask for fewer or bring your own in a JSONL file"
            )
        columns.append(available[:per_category])
    return tuple(p for row in zip_longest(*columns) for p in row if p is not None)


def from_jsonl(path: str | Path) -> tuple[Prompt, ...]:
    """Read prompts from a file with one JSON object a line; empty lines are skipped.

    Each object has exactly one of `prompt` (text), `messages` (OpenAI chat messages with text contents) or `turns`
    (a list of texts, the layout of Spec-Bench; the first is sent), and may have `id` or `question_id` (text or whole
    number; default `prompt-<line>`) and `category` (text; default `custom`). Other keys are ignored.

    Raises:
        UsageError: the file cannot be read or is empty, or a line is wrong; names the file and the line.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the prompts in {path}: {error.strerror or error}") from error
    found: dict[str, Prompt] = {}
    first_line: dict[str, int] = {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        prompt = _prompt(_object(line, where), where, default_id=f"prompt-{number}")
        if prompt.id in found:
            raise UsageError(
                f"{where}: id {prompt.id!r} is already used in line {first_line[prompt.id]}; ids pair runs"
            )
        found[prompt.id] = prompt
        first_line[prompt.id] = number
    if not found:
        raise UsageError(f'{path} has no prompts: write one JSON object a line, e.g. {{"prompt": "Hello"}}')
    return tuple(found.values())


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 (byte {error.start + 1} of the line); save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f'{where}: expected a JSON object with "prompt", "messages" or "turns"')
    return value


def _prompt(entry: Mapping[str, Any], where: str, *, default_id: str) -> Prompt:
    keys = [key for key in _CONTENT_KEYS if key in entry]
    if len(keys) != 1:
        have = "none" if not keys else " and ".join(f'"{key}"' for key in keys)
        raise UsageError(f'{where}: give exactly one of "prompt", "messages" and "turns"; it has {have}')
    category = _text(entry.get("category", "custom"), f'{where}: "category"')
    return Prompt(id=_id(entry, where, default_id), category=category, messages=_messages(keys[0], entry, where))


def _id(entry: Mapping[str, Any], where: str, default: str) -> str:
    for key in ("id", "question_id"):
        if key in entry:
            value = entry[key]
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            return _text(value, f'{where}: "{key}"', expected="text or a whole number")
    return default


def _messages(key: str, entry: Mapping[str, Any], where: str) -> tuple[Mapping[str, str], ...]:
    value = entry[key]
    if key == "prompt":
        return ({"role": "user", "content": _text(value, f'{where}: "prompt"')},)
    if not isinstance(value, list) or not value:
        raise UsageError(f'{where}: "{key}" must be a list with at least one entry')
    if key == "turns":
        return ({"role": "user", "content": _text(value[0], f'{where}: the first of "turns"')},)
    messages = []
    for i, message in enumerate(value, start=1):
        name = f"{where}: message {i}"
        if not isinstance(message, dict):
            raise UsageError(f'{name} must be an object with "role" and "content"')
        role = _text(message.get("role"), f'{name}: "role"')
        # A system message may well be empty; the last one is what is answered.
        content = message.get("content")
        if i < len(value) and content == "":
            messages.append({"role": role, "content": ""})
        else:
            messages.append({"role": role, "content": _text(content, f'{name}: "content"')})
    return tuple(messages)


def _text(value: object, what: str, *, expected: str = "text") -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} must be {expected}, not {_kind(value)}")
    if not value.strip():
        raise UsageError(f"{what} is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} has half of a surrogate pair at character {error.start + 1}") from error
    return value


def _kind(value: object) -> str:
    names = {type(None): "missing or null", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "an object")
