"""Reading `recipe.toml`: every mistake is one line that names file, line, field and the nearest known one.

And the file explained from the models themselves, for a person to start from.
"""

import difflib
import textwrap
import tomllib
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from draftworth.errors import UsageError
from draftworth.training.recipe import (
    DataConfig,
    EvalConfig,
    FitConfig,
    PlanConfig,
    Recipe,
    RegenerateConfig,
    SourceConfig,
    StatesConfig,
    VocabConfig,
)
from draftworth.trials.load import find_line

Location = tuple[str | int, ...]
_WIDTH = 112
# What pydantic says in the words of Python, said in those of TOML.
_PLAIN = {
    "tuple_type": "must be a list (a list of tables is written [[name]])",
    "dict_type": "must be a table, like { name = value }",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "string_type": "must be a text in quotes",
    "path_type": "must be a path in quotes",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}
_EXAMPLES = {
    "target": '"/models/my-model"',
    "revision": '"2026-11-01"',
    "out": '"my-head"',
    "path": '"traffic.parquet"',
    "format": '"chat"',
    "split": '"train"',
    "name": '"support"',
    "category": '"coding"',
    "limit": "20000",
    "exclude": '["humaneval.jsonl"]',
    "template_args": "{ enable_thinking = false }",
    "url": '"http://127.0.0.1:8000"',
    "model": '"my-model"',
    "api_key_env": '"MY_SERVER_KEY"',
    "layers": "[2, 16, 29]",
    "disk_gib": "500.0",
    "size": "32000",
    "acceptance": "1.8",
    "predict": '"predict.json"',
    "price": "3.5",
    "tokens_per_second": "5000.0",
}
_WRITTEN = {("", "target"), ("data.sources", "path")}
_TABLES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("data", DataConfig),
    ("data.sources", SourceConfig),
    ("data.regenerate", RegenerateConfig),
    ("states", StatesConfig),
    ("vocab", VocabConfig),
    ("fit", FitConfig),
    ("eval", EvalConfig),
    ("plan", PlanConfig),
)
_LISTS = {"data.sources"}
_OPTIONAL = {"data.regenerate"}


def load_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Returns:
        The recipe, every path absolute and `out` set.

    Raises:
        UsageError: no such file, not TOML, a field that is unknown, missing or of the wrong kind, or a target or source
            that is not there.
    """
    text = _read(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    try:
        read = Recipe.model_validate(data)
    except ValidationError as error:
        raise UsageError(_explain(path, text, error)) from None
    return _absolute(read, path, text)


def _absolute(recipe: Recipe, path: Path, text: str) -> Recipe:
    """Return the recipe with absolute paths, each of which is there."""
    folder = path.absolute().parent

    def found(name: Path, location: Location, kind: str = "file or folder") -> Path:
        whole = (folder / name.expanduser()).resolve()
        if not (whole.is_dir() if kind == "folder" else whole.exists()):
            line = find_line(text, location)
            raise UsageError(f"{path}:{line}: {_dotted(location)}: {whole}: no such {kind}")
        return whole

    target = found(recipe.target, ("target",), "folder")
    sources = tuple(
        one.model_copy(update={"path": found(one.path, ("data", "sources", at, "path"))})
        for at, one in enumerate(recipe.data.sources)
    )
    exclude = tuple(found(one, ("data", "exclude")) for one in recipe.data.exclude)
    names = [source_name(one) for one in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        line = find_line(text, ("data", "sources", len(names) - 1 - names[::-1].index(twice)))
        raise UsageError(f"{path}:{line}: data.sources: two are called {twice!r}; give each a name of its own")
    predict = recipe.plan.predict
    plan = recipe.plan if predict is None else recipe.plan.model_copy(update={"predict": (folder / predict).resolve()})
    out = folder / (f"{path.stem}-run" if recipe.out is None else recipe.out.expanduser())
    return recipe.model_copy(
        update={
            "target": target,
            "out": out.resolve(),
            "data": recipe.data.model_copy(update={"sources": sources, "exclude": exclude}),
            "plan": plan,
        }
    )


def source_name(source: SourceConfig) -> str:
    """Return what a source is called: its name, else its file's without endings."""
    return source.name or source.path.name.split(".")[0] or source.path.name


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; `draftworth train schema` prints one to start from") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; name the recipe's TOML file in it") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start}); a recipe is a TOML file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _explain(path: Path, text: str, error: ValidationError) -> str:
    """Return one line for the first mistake, and how many more there are."""
    # A misspelt field is also a missing one: name the misspelling, it is the cause.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    first: Any = details[0]
    location = tuple(first["loc"])
    line = find_line(text, location)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"{path}{f':{line}' if line else ''}: {_what(location, first)}{more}"


def _what(location: Location, detail: Any) -> str:
    field, kind = _dotted(location), detail["type"]
    if kind == "extra_forbidden":
        known = _fields_at(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return f"{field}: unknown field; {hint}"
    if kind == "missing":
        return f"{field}: missing; `draftworth train schema` says what it is"
    message = _PLAIN.get(kind) or str(detail["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = detail.get("input")
    shown = "" if isinstance(value, dict | list | BaseModel) or not field else f", not {value!r}"
    return f"{field}: {message}{shown}" if field else message


def _dotted(location: Location) -> str:
    parts = ""
    for part in location:
        parts += f"[{part}]" if isinstance(part, int) else f".{part}" if parts else str(part)
    return parts


def _fields_at(location: Iterable[str | int]) -> list[str]:
    """Return the field names that a recipe knows at a location."""
    current: type[BaseModel] | None = Recipe
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        info = current.model_fields.get(part)
        current = _model_in(info.annotation) if info else None
    return sorted(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Annotated, tuple, list, Union, types.UnionType}:
        for inner in get_args(annotation):
            found = _model_in(inner)
            if found:
                return found
    return None


def toml_schema() -> str:
    """Return a recipe with every field explained; it is itself a valid recipe."""
    lines = ["# A recipe of Draftworth. Fields behind `#` are optional and show their default or an example.", ""]
    lines += [line for field in _fields("", Recipe) for line in field]
    for name, model in _TABLES:
        lines.append("")
        lines += [f"# {line}" for line in textwrap.wrap(_flat(model.__doc__ or ""), _WIDTH)]
        header = f"[[{name}]]" if name in _LISTS else f"[{name}]"
        lines.append(f"# {header}" if name in _OPTIONAL else header)
        lines += [line for field in _fields(name, model) for line in field]
    return "\n".join(lines) + "\n"


def _fields(table: str, model: type[BaseModel]) -> Iterator[list[str]]:
    for name, info in model.model_fields.items():
        if _model_in(info.annotation):
            continue  # a table of its own
        about = [f"# {line}" for line in textwrap.wrap(_flat(info.description or ""), _WIDTH)]
        shown = info.default is PydanticUndefined or info.default in (None, (), {})
        value = _EXAMPLES.get(name, '""') if shown else _toml(info.default)
        yield [*about, f"{'' if (table, name) in _WRITTEN else '# '}{name} = {value}"]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return f"{value}"


def _flat(text: str) -> str:
    return " ".join(text.split())
