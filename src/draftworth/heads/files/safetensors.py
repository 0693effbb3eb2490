"""The header of a safetensors file, believed only as far as the file bears it out.

Format: `huggingface/safetensors`, README: eight bytes of header length (little-endian), the header as JSON (a name to
dtype, shape and data_offsets, relative to the end of the header), then the data, without holes or overlaps.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

from draftworth.heads.files.tensors import BITS, Tensor, UnreadableError

_LONGEST = 100_000_000
"""Bytes of a header that the format's own readers take."""
_PREFIX = 8
_TOO_LARGE = 1 << 63


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name. Reads the header alone.

    Raises:
        UnreadableError: it is cut short, or what its header says cannot be.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_PREFIX)
        if len(prefix) < _PREFIX:
            raise UnreadableError(f"{size} bytes are too few for a safetensors file; it was cut short")
        (length,) = struct.unpack("<Q", prefix)
        if prefix.startswith(b"version "):
            raise UnreadableError("this is a pointer of Git LFS, not the file itself: fetch it with `git lfs pull`")
        if length > _LONGEST or length > size - _PREFIX:
            raise UnreadableError(
                f"its header claims {length:,} bytes, and {size - _PREFIX:,} follow: cut short, or no safetensors file"
            )
        raw = file.read(length)
    entries = _parsed(raw)
    data = size - _PREFIX - length
    found = {
        name: _tensor(name, entry, path, base=_PREFIX + length, data=data)
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    _check_covers(found, base=_PREFIX + length, data=data)
    return found


def _parsed(raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise UnreadableError("its header names a tensor twice")
        return found

    try:
        entries = json.loads(raw, object_pairs_hook=unique)
    except UnreadableError:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"its header is no JSON: {type(error).__name__}") from None
    if not isinstance(entries, dict):
        raise UnreadableError("its header is no JSON object")
    return entries


def _tensor(name: str, entry: Any, path: Path, *, base: int, data: int) -> Tensor:
    if not isinstance(entry, dict):
        raise UnreadableError(f"its header says of {name!r} no dtype, shape and data_offsets")
    dtype, shape, offsets = entry.get("dtype"), _counts(entry.get("shape")), _counts(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:  # noqa: PLR2004 - a pair
        raise UnreadableError(f"its header says of {name!r} no dtype, shape and data_offsets")
    begin, end = offsets
    if begin > end or end > data:
        raise UnreadableError(
            f"{name!r} should end at byte {end:,} of the data, and there are {data:,}: the file was cut short"
        )
    bits = BITS.get(dtype)
    if bits is not None and end - begin != (math.prod(shape) * bits + 7) // 8:
        raise UnreadableError(f"{name!r}, {dtype} {list(shape)}, cannot lie in {end - begin:,} bytes")
    return Tensor(name, dtype, shape, path, base + begin)


def _counts(value: Any) -> tuple[int, ...] | None:
    """Return a list of whole numbers, none below 0; nothing where it is something else."""
    if isinstance(value, list) and all(type(one) is int and 0 <= one < _TOO_LARGE for one in value):
        return tuple(value)
    return None


def _check_covers(found: dict[str, Tensor], *, base: int, data: int) -> None:
    """Raise unless the tensors lie one after another from the first byte of the data to its last."""
    if any(one.dtype not in BITS for one in found.values()):
        return  # of a type of a later release: its length is not known here
    at = base
    for one in sorted(found.values(), key=lambda one: (one.start, one.bytes)):
        if one.start != at:
            raise UnreadableError(f"{one.name!r} does not begin where the tensor before it ends")
        at += one.bytes
    if at != base + data:
        raise UnreadableError(f"{base + data - at:,} bytes follow the last tensor")
