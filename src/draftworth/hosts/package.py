"""This very Draftworth as an archive: its package as it runs here, also from a checkout, and what it requires."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import draftworth
from draftworth.errors import UsageError

_NAME = "draftworth"


@dataclass(frozen=True, slots=True)
class Package:
    """What is sent.

    Attributes:
        version: of it.
        requirements: what pip has to install, one requirement each.
        data: a gzipped tar archive for a site-packages folder: the package and its metadata.
        digest: SHA-256 (hex) of the files and requirements; the same files give the same.
    """

    version: str
    requirements: tuple[str, ...]
    data: bytes = field(repr=False)
    digest: str


def package() -> Package:
    """Return this Draftworth.

    Raises:
        UsageError: it runs without being installed, so that what it requires is not known.
    """
    version = draftworth.__version__
    requirements = requirements_here()
    lines = ["Metadata-Version: 2.1", f"Name: {_NAME}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requirements]
    info = f"{_NAME}-{version}.dist-info"
    files = dict(_files())
    files |= {f"{info}/METADATA": ("\n".join(lines) + "\n").encode(), f"{info}/INSTALLER": b"draftworth\n"}
    digest = hashlib.sha256()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in sorted(files.items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return Package(version, requirements, out.getvalue(), digest.hexdigest())


def requirements_here() -> tuple[str, ...]:
    """Return what this Draftworth requires, without extras. Raises UsageError."""
    try:
        found = metadata.requires(_NAME) or []
    except metadata.PackageNotFoundError:
        raise UsageError("this Draftworth is not installed (pip install), so what it requires is not known") from None
    return tuple(sorted(one for one in found if "extra ==" not in one))


def _files() -> Iterator[tuple[str, bytes]]:
    folder = Path(draftworth.__file__).parent
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{_NAME}/{path.relative_to(folder)}", path.read_bytes()
