"""The machine the tool runs on."""

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from draftworth.hosts.base import MOST_OUTPUT, STABLE_TEXTS, CommandResult, HostError
from draftworth.hosts.children import finish, start
from draftworth.hosts.files import absolute, temporary

_PIECE = 65536


class LocalHost:
    """This machine: commands as child processes in sessions of their own, files through the operating system.

    See `Host` for what its methods promise.
    """

    name = "this machine"

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        """Run a command; a timeout kills its whole process group."""
        process = start(argv, {**os.environ, **STABLE_TEXTS}, stdin=stdin is not None)
        return finish(process, argv, stdin=stdin, timeout_s=timeout_s)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes. Only regular files are read: a FIFO or a device may never end."""
        try:
            with open(absolute(path), "rb", opener=_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise HostError(f"{path}: cannot be read: not a regular file")
                data = _read(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(f"{path}: cannot be read: {error.strerror}") from None
        if len(data) > MOST_OUTPUT:
            raise HostError(f"{path}: cannot be read: more than {MOST_OUTPUT} bytes")
        return data

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place whole."""
        folder = Path(absolute(path)).parent
        temp = temporary(path)
        try:
            _make_folder(folder)
            descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fchmod(file.fileno(), mode)
                    os.fsync(file.fileno())
                os.replace(temp, path)  # noqa: PTH105 - paths are text here
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temp)  # noqa: PTH108 - same
                raise
            _sync(folder)
        except OSError as error:
            raise HostError(f"{path}: cannot be written: {error.strerror}") from None

    def remove(self, path: str) -> bool:
        """Remove a file."""
        try:
            os.unlink(absolute(path))  # noqa: PTH108 - paths are text here
            _sync(Path(path).parent)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise HostError(f"{path}: cannot be removed: {error.strerror}") from None
        return True


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(file: BinaryIO) -> bytes:
    """Return a file's bytes, at most one more than are kept; in pieces, since /proc/sys allocates what is asked for."""
    pieces = []
    left = MOST_OUTPUT + 1
    while left and (piece := file.read(min(left, _PIECE))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
