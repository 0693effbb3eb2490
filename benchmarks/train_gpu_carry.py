"""Folders in pieces that a narrow way takes: a tar archive, cut, each piece named with its digest in an index."""

import hashlib
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

PIECE = 15_500_000
"""Bytes of a piece: under 16 MB."""
INDEX = "index.json"


def cut(folder: Path, names: Sequence[str], out: Path, size: int = PIECE) -> list[Path]:
    """Write an archive of some files and folders in pieces; returns them.

    Args:
        folder: what the names are relative to.
        names: files and folders; links stay links.
        out: takes the pieces and their index; what was in it is removed.
        size: bytes of a piece at most.
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    whole = out / "whole.tar"
    with tarfile.open(whole, "w") as archive:
        for name in names:
            archive.add(folder / name, arcname=name)
    pieces: list[Path] = []
    digests: dict[str, str] = {}
    with whole.open("rb") as file:
        while content := file.read(size):
            path = out / f"piece-{len(pieces):03}"
            path.write_bytes(content)
            digests[path.name] = hashlib.sha256(content).hexdigest()
            pieces.append(path)
    whole.unlink()
    (out / INDEX).write_text(json.dumps(digests, indent=1), encoding="utf-8")
    return pieces


def copy(pieces: Path, out: Path, part: int, each: int) -> int:
    """Copy the index and one part of the pieces; returns how many parts there are.

    Args:
        pieces: what `cut` wrote.
        out: where to.
        part: which part, from 0.
        each: pieces of a part.
    """
    names = sorted(json.loads((pieces / INDEX).read_text("utf-8")))
    out.mkdir(parents=True, exist_ok=True)
    for name in [INDEX, *names[part * each : (part + 1) * each]]:
        (out / name).write_bytes((pieces / name).read_bytes())
    return -(-len(names) // each)


def join(pieces: Path, folder: Path) -> list[str]:
    """Put the pieces together and unpack them; returns the names of what is there now.

    Args:
        pieces: the folder with all pieces and the index, as they came back.
        folder: where the files go.

    Raises:
        SystemExit: a piece is missing or damaged; names it.
    """
    digests: dict[str, str] = json.loads((pieces / INDEX).read_text("utf-8"))
    whole = folder / ".whole.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with whole.open("wb") as file:
        for name, digest in sorted(digests.items()):
            try:
                content = (pieces / name).read_bytes()
            except FileNotFoundError:
                raise SystemExit(f"{pieces / name}: missing; bring that part back again") from None
            if hashlib.sha256(content).hexdigest() != digest:
                raise SystemExit(f"{pieces / name}: of another archive, or damaged; bring it back again")
            file.write(content)
    with tarfile.open(whole) as archive:
        names = archive.getnames()
        archive.extractall(folder, filter="data")
    whole.unlink()
    return names
