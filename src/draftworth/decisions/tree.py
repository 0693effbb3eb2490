"""`decisions/tree.toml`: read strictly, and begun or added to by `decide` without touching what people wrote."""

import tomllib
from pathlib import Path

from draftworth.decisions.base import Option, Tree
from draftworth.decisions.tomltext import dumps
from draftworth.errors import UsageError
from draftworth.home import home
from draftworth.toml_file import find_line, read_toml
from draftworth.trials.record import write_text

NAME = "tree.toml"


def decisions_folder() -> Path:
    """Return the folder of the tree and its records."""
    return home() / "decisions"


def load_tree(folder: Path) -> Tree:
    """Read a folder's tree.

    Raises:
        UsageError: there is none, or it has a mistake; names file and line.
    """
    path = folder / NAME
    try:
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no options tree yet; `draftworth decide TRIAL` begins one, docs/decisions.md has one"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return read_toml(text, Tree, path)


def begun(folder: Path) -> Tree:
    """Return a folder's tree, an empty one where there is none yet.

    Raises:
        UsageError: it has a mistake.
    """
    return load_tree(folder) if (folder / NAME).exists() else Tree()


def add_option(folder: Path, option: Option) -> Tree:
    """Add an option at the end of the tree's file; what is in it stays as it is. Returns the tree.

    Raises:
        UsageError: the name is taken, or the file cannot be written.
    """
    tree = begun(folder)
    if tree.find(option.name):
        raise UsageError(f"{folder / NAME}: option {option.name!r} is there already")
    path = folder / NAME
    block = dumps({"options": [option.model_dump(mode="json", exclude_defaults=True)]})
    before = path.read_bytes().decode("utf-8") if path.exists() else "schema_version = 1\n"
    gap = "" if before.endswith("\n") else "\n"
    _check_open(before, path, option.name)
    text = f"{before}{gap}{block}"
    read_toml(text.replace("\r\n", "\n"), Tree, path)  # a tree that would not read back is not written
    try:
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    return load_tree(folder)


def _check_open(text: str, path: Path, name: str) -> None:
    """Refuse a tree whose options are one closed list, to which TOML lets nothing be added.

    Raises:
        UsageError: they are; names the line of the list.
    """
    if "options" not in tomllib.loads(text):
        return
    try:
        tomllib.loads(f"{text}\n[[options]]\n")
    except tomllib.TOMLDecodeError:
        line = find_line(text.replace("\r\n", "\n"), ("options",))
        raise UsageError(
            f"{path}:{line or 1}: options = [...] is a closed list, to which {name} cannot be added: write each option "
            f"below a [[options]] line of its own, or add {name} to the list by hand"
        ) from None
