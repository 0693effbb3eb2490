"""Reading `draftworth.toml`: every mistake is one line that names file, line, field and the nearest known one."""

import difflib
import re
import tomllib
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from draftworth.errors import UsageError
from draftworth.trials.config import TrialConfig

Location = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_WORD = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def load(path: Path) -> TrialConfig:
    """Read a trial's file.

    Raises:
        UsageError: no such file, not TOML, or a field that is unknown, missing or of the wrong kind.
    """
    text = _read(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    try:
        return _absolute(TrialConfig.model_validate(data), path.absolute().parent)
    except ValidationError as error:
        raise UsageError(_explain(path, text, error)) from None


def _absolute(config: TrialConfig, folder: Path) -> TrialConfig:
    """Return the trial with its paths made absolute; they are relative to the file that names them."""
    cwd = (folder / (config.service.cwd or ".")).resolve()
    if not cwd.is_dir():
        raise UsageError(f"service.cwd: {cwd}: no such folder")
    source = config.workload.source
    workload = config.workload
    if source != "builtin":
        workload = workload.model_copy(update={"source": str((folder / source).resolve())})
    return config.model_copy(update={"service": config.service.model_copy(update={"cwd": cwd}), "workload": workload})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; `draftworth trial schema` prints one to start from") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; name the trial's TOML file in it") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start}); a trial is a TOML file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _explain(path: Path, text: str, error: ValidationError) -> str:
    """One line for the first mistake, and how many more there are."""
    # A misspelt field is also a missing one: name the misspelling, it is the cause.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    first = details[0]
    location = tuple(first["loc"])
    line = find_line(text, location)
    where = f"{path}:{line}" if line else f"{path}"
    field = _dotted(location)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"{where}: {_what(field, location, first)}{more}"


# What pydantic says in the words of Python, said in those of TOML.
_PLAIN = {
    "tuple_type": 'must be a list, like ["a", "b"] (a list of tables is written [[name]])',
    "dict_type": "must be a table, like { name = value }",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "string_type": "must be a text in quotes",
}


def _what(field: str, location: Location, detail: Any) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _fields_at(TrialConfig, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return f"{field}: unknown field; {hint}"
    if kind == "missing":
        return f"{field}: missing; `draftworth trial schema` says what it is"
    message = _PLAIN.get(kind) or str(detail["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = detail.get("input")
    shown = "" if isinstance(value, dict | list) or not field else f", not {value!r}"
    return f"{field}: {message}{shown}" if field else message


def _dotted(location: Location) -> str:
    parts = ""
    for part in location:
        parts += f"[{part}]" if isinstance(part, int) else f".{part}" if parts else str(part)
    return parts


def _fields_at(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """Return the field names a model knows at a location inside it."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        info = current.model_fields.get(part)
        current = _model_in(info.annotation) if info else None
    return sorted(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {tuple, list, Union, types.UnionType}:
        for inner in get_args(annotation):
            found = _model_in(inner)
            if found:
                return found
    return None


def find_line(text: str, location: Location) -> int | None:
    """Return the line (from 1) where a location of a TOML document is written, or its nearest written parent.

    `tomllib` keeps no positions, so headers and keys are matched by name. Multi-line strings that look like keys
    can mislead it by design: the field's name in the message is what counts, the line is a help.
    """
    seen: dict[Location, int] = {}
    prefix: list[str | int] = []
    counts: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            names: list[str | int] = [word.strip("\"'") for word in _WORD.findall(header[2])]
            if header[1] == "[[":
                index = counts.get(tuple(names), -1) + 1
                counts[tuple(names)] = index
                prefix = [*names, index]
            else:
                prefix = names
            _remember(seen, tuple(prefix), number)
            continue
        key = _KEY.match(line)
        if key:
            dotted = [word.strip("\"'") for word in _WORD.findall(key[1])]
            _remember(seen, (*prefix, *dotted), number)
    for length in range(len(location), 0, -1):
        if location[:length] in seen:
            return seen[location[:length]]
    return None


def _remember(seen: dict[Location, int], location: Location, number: int) -> None:
    for length in range(1, len(location) + 1):
        seen.setdefault(location[:length], number)
