"""Reading `recipe.toml`: every mistake is one line that names file, line, field and the nearest known one.

And the file explained from the models themselves, for a person to start from.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from draftworth.errors import UsageError
from draftworth.toml_file import Location, dotted, find_line, models_in, read_toml
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

_WIDTH = 112
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
    read = read_toml(text, Recipe, path, schema="draftworth train schema")
    return _absolute(read, path, text)


def _absolute(recipe: Recipe, path: Path, text: str) -> Recipe:
    """Return the recipe with absolute paths, each of which is there."""
    folder = path.absolute().parent

    def found(name: Path, location: Location, kind: str = "file or folder") -> Path:
        whole = (folder / name.expanduser()).resolve()
        if not (whole.is_dir() if kind == "folder" else whole.exists()):
            line = find_line(text, location)
            raise UsageError(f"{path}:{line}: {dotted(location)}: {whole}: no such {kind}")
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

    def beside(name: Path | None) -> Path | None:
        return None if name is None else (folder / name.expanduser()).resolve()

    out = folder / (f"{path.stem}-run" if recipe.out is None else recipe.out.expanduser())
    return recipe.model_copy(
        update={
            "target": target,
            "out": out.resolve(),
            "data": recipe.data.model_copy(update={"sources": sources, "exclude": exclude}),
            "plan": recipe.plan.model_copy(update={"predict": beside(recipe.plan.predict)}),
            "eval": recipe.eval.model_copy(update={"costs": beside(recipe.eval.costs)}),
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
        if any(models_in(info.annotation)):
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
