"""Whether a file can be written where it is to go: found out by writing one there, before work that takes minutes."""

import os
from contextlib import suppress
from pathlib import Path

_BLOCK = bytes(4096)


def try_folder(path: Path) -> None:
    """Write a file beside the one that is to be written, under a name as long as any it will have, and remove it.

    Permissions do not tell: a file system may be read-only, full, or none that files can be made in (`/sys`).

    Args:
        path: the file that is to be written.

    Raises:
        OSError: nothing can be written there.
    """
    tried = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with tried.open("xb") as file:
            file.write(_BLOCK)
    finally:
        with suppress(OSError):
            tried.unlink()
