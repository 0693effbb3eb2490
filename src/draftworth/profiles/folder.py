"""The traces of one run in a folder, by how engines name them.

vLLM (torch's tensorboard_trace_handler): `[<prefix>_][dp0_pp0_tp0_dcp0_ep0_]rank0.<time in ns>.pt.trace.json.gz`.
SGLang (profiler_manager.py): `<id>-TP-0[-DP-0][-DECODE].trace.json.gz`, where the id is a time with a point in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftworth.errors import UsageError

_KINDS = (".json", ".json.gz", ".sqlite")
_GROUP = re.compile(r"(?:^|_)dp(\d+)_|-DP-(\d+)")
_NAMED = 3
_STEM = re.compile(r"(\.\d{15,})?(\.pt)?(\.trace)?\.(json|json\.gz|sqlite)$")
_RANK = re.compile(r"(?:(?:^|_)(?:(?:dp|pp|tp|dcp|pcp|ep)\d+_)*rank|-TP-)(\d+)(.*)$")


@dataclass(frozen=True)
class Chosen:
    """What is read of a path, and what of a folder is not."""

    files: tuple[Path, ...]
    warning: str = ""


def chosen(path: Path) -> Chosen:
    """Return a file, or the newest run's traces of a folder: one a rank, those of decode where stages lie apart.

    Raises:
        UsageError: nothing there.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{path}: no such file")
        return Chosen((path,))
    newest: dict[str, Path] = {}
    there = [one for one in path.iterdir() if one.is_file() and one.name.endswith(_KINDS)]
    for one in sorted(there, key=lambda file: (file.stat().st_mtime, file.name)):
        newest[_STEM.sub("", one.name)] = one
    if not newest:
        raise UsageError(f"{path}: no traces in this folder ({', '.join(_KINDS)})")
    last = max(newest, key=lambda stem: newest[stem].stat().st_mtime)
    run = sorted(file for stem, file in newest.items() if _RANK.sub("", stem) == _RANK.sub("", last))
    files = [one for one in run if "-DECODE" in one.name] or run
    return Chosen(tuple(files), _left(path, files, sorted(one for one in there if one not in run)))


def files_of(path: Path) -> list[Path]:
    """Return the files of `chosen`.

    Raises:
        UsageError: nothing there.
    """
    return list(chosen(path).files)


def _left(folder: Path, files: Sequence[Path], others: Sequence[Path]) -> str:
    """Return which files of a folder are not read; nothing where all are."""
    if not others:
        return ""
    names = ", ".join(one.name for one in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return (
        f"{folder}: the newest run is read ({', '.join(one.name for one in files)}), {len(others)} other "
        f"{'trace' if len(others) == 1 else 'traces'} not: {names}{more}; name the files to read others"
    )


def group_of(source: str) -> int | None:
    """Return the data parallel group that a trace's name tells."""
    match = _GROUP.search(Path(source).name)
    return int(match[1] or match[2]) if match else None


def rank_of(source: str) -> int | None:
    """Return the rank that a trace's name tells."""
    match = _RANK.search(_STEM.sub("", Path(source).name))
    return int(match[1]) if match else None
