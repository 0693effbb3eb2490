"""Files of a machine on which only commands can be run: read, written and removed through POSIX sh and coreutils."""

import posixpath
import secrets
from collections.abc import Sequence
from typing import Protocol

from draftworth.hosts.base import CommandResult, HostError

# $1 file, $2 its folder, $3 temporary file, $4 mode, $5 bytes, the rest: the folders above.
# A lost connection ends standard input early, so what arrived is counted before it gets the file's name.
_WRITE = """set -u
file=$1 folder=$2 temp=$3 mode=$4 size=$5
shift 5
if [ ! -d "$folder" ]; then mkdir -p -- "$folder" || exit 1; [ $# -eq 0 ] || sync -- "$@" || exit 1; fi
umask 077
trap 'rm -f -- "$temp"' EXIT
trap 'exit 1' HUP INT TERM
cat > "$temp" || exit 1
[ "$(wc -c < "$temp")" -eq "$size" ] || { echo "only a part of it arrived" >&2; exit 1; }
chmod -- "$mode" "$temp" && sync -- "$temp" && mv -fT -- "$temp" "$file" && sync -- "$folder"
"""
_REMOVE = 'rm -- "$1" && sync -- "$2"'
_MISSING = (b"No such file or directory", b"Not a directory")


class Runs(Protocol):
    """Whatever can run a command as a host does."""

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        """As `Host.run`."""


def temporary(path: str) -> str:
    """Return the name of a file beside another, in which its new content is written."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f".{name[:200]}.{secrets.token_hex(4)}.tmp")


def absolute(path: str) -> str:
    """Return the path.

    Raises:
        HostError: it is not absolute, or ends in no name.
    """
    if not path.startswith("/") or posixpath.basename(path) in {"", ".", ".."}:
        raise HostError(f"{path!r}: not an absolute path of a file")
    return path


def _missing(result: CommandResult) -> bool:
    # 127 is a missing program, which has the same words.
    return result.code == 1 and result.err.rstrip().endswith(_MISSING)


class CommandFiles:
    """The part of a host that deals with files, for hosts that can only run commands; needs GNU coreutils there."""

    def read(self: Runs, path: str) -> bytes | None:
        """Return a file's bytes; see `Host.read`."""
        result = self.run(["cat", "--", absolute(path)])
        if result.ok and not result.cut:
            return result.out
        if _missing(result):
            return None
        raise HostError(f"{path}: cannot be read: {result.why}")

    def write(self: Runs, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place whole; see `Host.write`."""
        folder = posixpath.dirname(absolute(path))
        above = []
        parent = posixpath.dirname(folder)
        while parent not in {"/", "//"}:
            above.append(parent)
            parent = posixpath.dirname(parent)
        result = self.run(
            ["sh", "-c", _WRITE, "write", path, folder, temporary(path), f"{mode:04o}", str(len(data)), *above],
            stdin=data,
        )
        if not result.ok:
            raise HostError(f"{path}: cannot be written: {result.why}")

    def remove(self: Runs, path: str) -> bool:
        """Remove a file; see `Host.remove`."""
        result = self.run(["sh", "-c", _REMOVE, "remove", absolute(path), posixpath.dirname(path)])
        if _missing(result):
            return False
        if not result.ok:
            raise HostError(f"{path}: cannot be removed: {result.why}")
        return True
