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
from draftworth.trials.config import FROM_THE_UNIT, CommonConfig, SystemdTrial, TrialConfig
from draftworth.trials.endpoints.config import EndpointsTrial

AnyTrial = TrialConfig | EndpointsTrial
_MODELS: dict[str, type[AnyTrial]] = {"process": TrialConfig, "systemd": SystemdTrial, "endpoints": EndpointsTrial}
Location = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_WORD = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def load(path: Path) -> AnyTrial:
    """Read a trial's file: `service.type` says which kind of trial it is.

    Raises:
        UsageError: no such file, not TOML, or a field that is unknown, missing or of the wrong kind.
    """
    text = _read(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    service = data.get("service")
    kind = service.get("type", "process") if isinstance(service, dict) else "process"
    if kind not in _MODELS:
        where = f"{path}:{find_line(text, ('service', 'type'))}"
        raise UsageError(f"{where}: service.type: must be one of {', '.join(map(repr, _MODELS))}, not {kind!r}")
    model = _MODELS[kind]
    folder = path.absolute().parent
    _check_unit_fields(path, text, data, kind)
    try:
        read = model.model_validate(data)
    except ValidationError as error:
        raise UsageError(_explain(path, text, error, model)) from None
    config = _absolute(read, folder)
    if not isinstance(config, TrialConfig) or isinstance(config, SystemdTrial):
        return config
    cwd = (folder / (config.service.cwd or ".")).resolve()
    if not cwd.is_dir():
        raise UsageError(f"service.cwd: {cwd}: no such folder")
    return config.model_copy(update={"service": config.service.model_copy(update={"cwd": cwd})})


def load_process(path: Path) -> TrialConfig:
    """Read the file of a trial on a service that Draftworth starts and stops itself.

    Raises:
        UsageError: as `load`, or the file is about endpoints.
    """
    config = load(path)
    if not isinstance(config, TrialConfig):
        raise UsageError(f'{path}: service.type is "endpoints"; this works on a service that is started and stopped')
    return config


def _check_unit_fields(path: Path, text: str, data: dict[str, Any], kind: Any) -> None:
    """Refuse what only a unit says, and a unit where none is meant."""
    service = data.get("service")
    if not isinstance(service, dict):
        return
    if kind == "process" and "unit" in service:
        where = f"{path}:{find_line(text, ('service', 'unit'))}"
        raise UsageError(f'{where}: service.unit: belongs to systemd; write type = "systemd" in [service]')
    name = next((name for name in service if name in FROM_THE_UNIT), None)
    if kind == "systemd" and name is not None:
        where = f"{path}:{find_line(text, ('service', name))}"
        raise UsageError(f"{where}: service.{name}: comes from the unit; take it out")


def _absolute(config: AnyTrial, folder: Path) -> AnyTrial:
    """Return the trial with its files' paths made absolute; they are relative to the file that names them."""
    update: dict[str, Any] = {}
    if config.workload.source != "builtin":
        source = str((folder / config.workload.source).resolve())
        update["workload"] = config.workload.model_copy(update={"source": source})
    if config.service.ca_file is not None:
        ca_file = (folder / config.service.ca_file).resolve()
        if not ca_file.is_file():
            raise UsageError(f"service.ca_file: {ca_file}: no such file")
        update["service"] = config.service.model_copy(update={"ca_file": ca_file})
    return config.model_copy(update=update)


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


def _explain(path: Path, text: str, error: ValidationError, model: type[CommonConfig]) -> str:
    """One line for the first mistake, and how many more there are."""
    # A misspelt field is also a missing one: name the misspelling, it is the cause.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    first = details[0]
    location = tuple(first["loc"])
    if location and isinstance(location[-1], int) and not isinstance(_at(tomllib.loads(text), location[:-1]), list):
        location = location[:-1]  # a single value where a list may stand
    line = find_line(text, location)
    where = f"{path}:{line}" if line else f"{path}"
    field = _dotted(location)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"{where}: {_what(field, location, first, model)}{more}"


def _at(data: Any, location: Location) -> Any:
    """Return the value at a location of a decoded document, None where there is none."""
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


_SWEPT = {f"workload.{name}" for name in ("concurrency", "rate", "max_tokens", "context_tokens")}
# What pydantic says in the words of Python, said in those of TOML.
_PLAIN = {
    "tuple_type": 'must be a list, like ["a", "b"] (a list of tables is written [[name]])',
    "dict_type": "must be a table, like { name = value }",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "string_type": "must be a text in quotes",
}


def _what(field: str, location: Location, detail: Any, model: type[CommonConfig]) -> str:
    kind = detail["type"]
    if field in _SWEPT and kind == "tuple_type":
        return f"{field}: must be a number, or a list of numbers like [1, 8]"
    if field == "service.baseline" and kind == "extra_forbidden":
        return f'{field}: belongs to endpoints; write type = "endpoints" in [service]'
    if kind == "extra_forbidden":
        known = _fields_at(model, location[:-1])
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
