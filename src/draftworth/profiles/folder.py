"""The traces of one run in a folder, by how engines name them.

vLLM (torch's tensorboard_trace_handler): `[<prefix>_][dp0_pp0_tp0_dcp0_ep0_]rank0.<time in ns>.pt.trace.json.gz`.
SGLang (profiler_manager.py): `<id>-TP-0[-DP-0][-DECODE].trace.json.gz`, where the id is a time with a point in it.
"""

import re
from pathlib import Path

from draftworth.errors import UsageError

_KINDS = (".json", ".json.gz", ".sqlite")
_STEM = re.compile(r"(\.\d{15,})?(\.pt)?(\.trace)?\.(json|json\.gz|sqlite)$")
_RANK = re.compile(r"(?:(?:^|_)(?:(?:dp|pp|tp|dcp|pcp|ep)\d+_)*rank|-TP-)(\d+)(.*)$")


def files_of(path: Path) -> list[Path]:
    """Return a file, or the newest run's traces of a folder: one a rank, those of decode where stages lie apart.

    Raises:
        UsageError: nothing there.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{path}: no such file")
        return [path]
    newest: dict[str, Path] = {}
    for one in sorted(path.iterdir(), key=lambda file: (file.stat().st_mtime, file.name)):
        if one.is_file() and one.name.endswith(_KINDS):
            newest[_STEM.sub("", one.name)] = one
    if not newest:
        raise UsageError(f"{path}: no traces in this folder ({', '.join(_KINDS)})")
    last = max(newest, key=lambda stem: newest[stem].stat().st_mtime)
    run = sorted(file for stem, file in newest.items() if _RANK.sub("", stem) == _RANK.sub("", last))
    return [one for one in run if "-DECODE" in one.name] or run


def rank_of(source: str) -> int | None:
    """Return the rank that a trace's name tells."""
    match = _RANK.search(_STEM.sub("", Path(source).name))
    return int(match[1]) if match else None
