"""TOML that a person wrote, read strictly: every mistake is one line with file, line, field and what belongs there."""

import difflib
import re
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from draftworth.errors import UsageError

M = TypeVar("M", bound=BaseModel)
Location = tuple[str | int, ...]

_WORD = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_WORDS = re.compile(_WORD)
_HEADER = re.compile(rf"^\s*(\[\[?)\s*({_WORD}(?:\s*\.\s*{_WORD})*)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(rf"^\s*({_WORD}(?:\s*\.\s*{_WORD})*)\s*=")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be a table, like { name = value }",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "string_type": "must be a text in quotes",
    "path_type": "must be a path in quotes",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}


def read_toml(text: str, model: type[M], where: Path, first_line: int = 1, *, schema: str = "") -> M:
    """Read a document of one kind.

    Args:
        text: the document.
        model: what it must be.
        where: the file, for messages.
        first_line: the line of the file on which the text begins.
        schema: the command that explains every field, for messages.

    Raises:
        UsageError: not TOML, or a field that is unknown, missing or wrong; names the line.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        at = f":{int(found[1]) + first_line - 1}" if found else ""
        raise UsageError(f"{where}{at}: not valid TOML: {_AT_LINE.sub('', str(error)).strip()}") from None
    except RecursionError:
        raise UsageError(f"{where}: not valid TOML: nested too deeply") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        location = _plain_location(data, tuple(details[0]["loc"]))
        line = find_line(text, location)
        at = f":{line + first_line - 1}" if line else f":{first_line}" if first_line > 1 else ""
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        raise UsageError(f"{where}{at}: {_what(location, details[0], model, schema)}{more}") from None


def _plain_location(data: Any, location: Location) -> Location:
    """Return a location as far as the document has it, the last name included: pydantic adds names of its own."""
    kept: list[str | int] = []
    for part in location:
        kept.append(part)
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
    if kept and isinstance(kept[-1], int) and not isinstance(data, dict | list | str | int | float):
        kept.pop()
    return tuple(kept)


def _what(location: Location, detail: Any, model: type[BaseModel], schema: str) -> str:
    field = dotted(location)
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = sorted(_fields_at(model, location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return f"{field}: unknown field; {hint}"
    if kind == "missing":
        return f"{field}: missing" + (f"; `{schema}` says what it is" if schema else "")
    message = _PLAIN.get(kind) or str(detail["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = detail.get("input")
    shown = "" if isinstance(given, dict | list | BaseModel) or kind == "value_error" else f", not {given!r}"
    return f"{field}: {message}{shown}" if field else f"{message}{shown}"


def dotted(location: Location) -> str:
    """Return a location as people write it: `options[1].gate.words`."""
    parts = ""
    for part in location:
        parts += f"[{part}]" if isinstance(part, int) else f".{part}" if parts else str(part)
    return parts


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        info = current.model_fields.get(part)
        current = next(models_in(info.annotation), None) if info else None
    return list(current.model_fields) if current else []


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field of this type holds, in lists, options and unions too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in {tuple, list, Union, types.UnionType, Annotated}:
        for inner in get_args(annotation):
            yield from models_in(inner)


def find_line(text: str, location: Location) -> int | None:
    """Return the line (from 1) where a location is written, or its nearest written parent; None where none is.

    `tomllib` keeps no positions, so headers and keys are matched by name, lists of tables within lists of tables by
    the last of the outer ones. A multi-line string that looks like keys can mislead it: the line is a help.
    """
    seen: dict[Location, int] = {}
    last: dict[Location, int] = {}
    prefix: Location = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            prefix = _place([_bare(one) for one in _WORDS.findall(header[2])], last, begins=header[1] == "[[")
            _remember(seen, prefix, number)
        elif key := _KEY.match(line):
            _remember(seen, (*prefix, *(_bare(one) for one in _WORDS.findall(key[1]))), number)
    return next((seen[location[:end]] for end in range(len(location), 0, -1) if location[:end] in seen), None)


def _place(names: list[str], last: dict[Location, int], *, begins: bool) -> Location:
    """Return where a header is, its lists of tables numbered; `begins` opens a new one of the last name."""
    place: Location = ()
    for at, name in enumerate(names):
        place = (*place, name)
        if begins and at == len(names) - 1:
            last[place] = last.get(place, -1) + 1
        if place in last:
            place = (*place, last[place])
    return place


def _bare(word: str) -> str:
    return word[1:-1] if word[:1] in {'"', "'"} else word


def _remember(seen: dict[Location, int], location: Location, number: int) -> None:
    for length in range(1, len(location) + 1):
        seen.setdefault(location[:length], number)
