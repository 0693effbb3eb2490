"""A trial's folder on its way from the machine that serves: a compressed archive in pieces, each a JSON object."""

import base64
import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from draftworth.errors import TrialError

LARGEST = 64 * 2**20
"""Bytes of the largest file that is sent; a larger one stays where it is, and is named."""
_PIECE = 48 * 1024
_AHEAD = 2**20


class _Pieces(io.RawIOBase):
    """A file whose content is taken away while it is written."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        self.digest.update(data)
        return len(data)

    def taken(self, least: int) -> Iterator[bytes]:
        while len(self.data) >= max(least, 1):
            piece = bytes(self.data[:_PIECE])
            del self.data[:_PIECE]
            yield piece


def pieces(folder: Path, largest: int = LARGEST) -> Iterator[dict[str, Any]]:
    """Yield a folder as documents: which trial, `data` in base64, at last its SHA-256 and what was left out.

    Only regular files are sent. At most about the size of one file is held in memory.

    Args:
        folder: the trial's.
        largest: bytes of the largest file that is sent.
    """
    tag = folder / "tag"
    yield {"id": folder.name, "tag": tag.read_text(encoding="ascii").strip() if tag.is_file() else ""}
    out = _Pieces()
    left_out = []
    with tarfile.open(fileobj=out, mode="w|gz", bufsize=_AHEAD) as archive:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_symlink() or not path.is_file() or path.suffix == ".tmp":
                continue
            try:
                if path.stat().st_size > largest:
                    left_out.append(name)
                    continue
                archive.add(path, arcname=name, recursive=False)
            except FileNotFoundError:  # gone meanwhile
                continue
            yield from ({"data": base64.b64encode(piece).decode()} for piece in out.taken(_PIECE))
    yield from ({"data": base64.b64encode(piece).decode()} for piece in out.taken(0))
    yield {"done": out.digest.hexdigest(), "left_out": left_out}


class Received:
    """Takes those documents, keeps the archive in a temporary file, and unpacks it once it is whole.

    Attributes:
        id: the trial's.
        tag: what tells it from another trial of the same id; empty where it has none.
        left_out: files that stay there.
    """

    def __init__(self) -> None:
        self.id = self.tag = ""
        self.left_out: tuple[str, ...] = ()
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._digest = hashlib.sha256()
        self._whole = False

    def take(self, document: Mapping[str, Any]) -> None:
        """Take one document; what a later version adds is passed over."""
        if "data" in document:
            data = base64.b64decode(document["data"])
            self._digest.update(data)
            self._file.write(data)
        elif "done" in document:
            self._whole = document["done"] == self._digest.hexdigest()
            self.left_out = tuple(map(str, document.get("left_out", ())))
        elif "id" in document:
            self.id, self.tag = str(document["id"]), str(document.get("tag", ""))

    @property
    def whole(self) -> bool:
        """Whether all of it has arrived as it was sent."""
        return self._whole and bool(self.id)

    def unpack(self, folder: Path) -> None:
        """Put the files into an empty folder. Raises TrialError where they cannot be written."""
        self._file.seek(0)
        try:
            with tarfile.open(fileobj=self._file, mode="r:gz") as archive:
                archive.extractall(folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise TrialError(f"{folder}: what was fetched cannot be written: {error}") from None

    def close(self) -> None:
        """Give up the temporary file."""
        self._file.close()
