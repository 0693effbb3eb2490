"""Digests of large input files, remembered by size and time of change so that asking again is quick."""

import json
from collections.abc import Sequence
from pathlib import Path

from draftworth.training.stages import file_digest, write_atomically

_NAME = "digests.json"
_Known = dict[str, tuple[int, int, str]]


def digests(files: Sequence[Path], folder: Path) -> list[str]:
    """Return the digest of each file's content.

    Args:
        files: what is read.
        folder: the run folder, where they are remembered once it is there.

    Raises:
        UsageError: a file cannot be read.
    """
    known = _read(folder / _NAME)
    made: _Known = {}
    for file in files:
        seen = file.stat()
        size, changed, digest = known.get(str(file), (-1, -1, ""))
        if (size, changed) != (seen.st_size, seen.st_mtime_ns):
            digest = file_digest(file)
        made[str(file)] = (seen.st_size, seen.st_mtime_ns, digest)
    if {**known, **made} != known and folder.is_dir():
        write_atomically(folder / _NAME, json.dumps({**known, **made}, indent=1).encode())
    return [made[str(file)][2] for file in files]


def _read(path: Path) -> _Known:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): (int(one[0]), int(one[1]), str(one[2])) for name, one in found.items()}
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return {}  # only a memory: what is not in it is computed again
