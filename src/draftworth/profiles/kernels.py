"""Names of kernels and operations to classes, through tables of patterns; see kernels.toml."""

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from draftworth.errors import UsageError
from draftworth.profiles.base import CLASSES, Class

Kind = Literal["kernel", "op"]
_FIELDS = {"class", "pattern", "example", "source"}


class Table:
    """Patterns in order; the first that matches a name decides."""

    def __init__(self, entries: Sequence[tuple[Kind, Class, re.Pattern[str]]]) -> None:
        self._entries = entries
        self._known: dict[tuple[Kind, str], Class] = {}

    def classify(self, name: str, kind: Kind = "kernel") -> Class:
        """Return the class of a name; `not recognised` where no pattern matches."""
        key = (kind, name)
        if key not in self._known:
            self._known[key] = next(
                (its for of, its, pattern in self._entries if of == kind and pattern.search(name)), "not recognised"
            )
        return self._known[key]


def load_table(extra: Path | None = None) -> Table:
    """Return the patterns that come with Draftworth, behind those of a file of the user's.

    Args:
        extra: a TOML file of the same layout: `[[kernel]]` or `[[op]]` with `class` and `pattern`.

    Raises:
        UsageError: the file cannot be read, or an entry of it is wrong.
    """
    own = shipped()
    return Table([*(() if extra is None else _user(extra)), *_entries(own, "kernels.toml")])


def shipped() -> dict[str, Any]:
    """Return the table that comes with Draftworth, as written."""
    return tomllib.loads(files("draftworth.profiles").joinpath("kernels.toml").read_text(encoding="utf-8"))


def _user(path: Path) -> list[tuple[Kind, Class, re.Pattern[str]]]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    if unknown := sorted(set(data) - {"kernel", "op"}):
        raise UsageError(f"{path}: `{unknown[0]}` is unknown; it takes [[kernel]] and [[op]]")
    return _entries(data, str(path))


def _entries(data: dict[str, Any], where: str) -> list[tuple[Kind, Class, re.Pattern[str]]]:
    found: list[tuple[Kind, Class, re.Pattern[str]]] = []
    kinds: tuple[Kind, ...] = ("kernel", "op")
    for kind in kinds:
        entries = data.get(kind, [])
        if not isinstance(entries, list):
            raise UsageError(f"{where}: `{kind}` must be written [[{kind}]]")
        for number, entry in enumerate(entries, 1):
            found.append((kind, *_entry(entry, f"{where}: [[{kind}]] number {number}", kind)))
    return found


def _entry(entry: Any, where: str, kind: Kind) -> tuple[Class, re.Pattern[str]]:
    if not isinstance(entry, dict) or not {"class", "pattern"} <= set(entry):
        raise UsageError(f"{where}: needs `class` and `pattern`")
    if unknown := sorted(set(entry) - _FIELDS):
        raise UsageError(f"{where}: `{unknown[0]}` is unknown")
    allowed: list[Class] = [one for one in CLASSES if one != "not recognised"]
    allowed += ["host"] if kind == "op" else []
    its = next((one for one in allowed if one == entry["class"]), None)
    if its is None:
        raise UsageError(f"{where}: no class {entry['class']!r}; one of {', '.join(allowed)}")
    try:
        return its, re.compile(str(entry["pattern"]), re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{where}: {entry['pattern']!r} is no regular expression: {error}") from error
