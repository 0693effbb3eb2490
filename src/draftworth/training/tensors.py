"""Writing safetensors, and the narrow floating-point types that numpy does not have.

Format: `huggingface/safetensors`, README. bfloat16 is the upper half of a float32, rounded to even. E4M3 is OCP's FP8
without infinities (largest 448), with one scale a token as hs-connectors 0.9 (`fp8_utils.py`) has it.
"""

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftworth.engines.install.base import sync_folder

E4M3_MOST = 448.0
_ALIGN = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor to write.

    Attributes:
        dtype: in the words of safetensors: BF16, F32, I64, BOOL, F8_E4M3.
        shape: its sizes.
        data: its bytes, in pieces, little-endian.
        size: how many bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Iterable[bytes]
    size: int


def write_safetensors(path: Path, tensors: Mapping[str, Stored], metadata: Mapping[str, str] | None = None) -> None:
    """Write a file by a temporary one beside it, fsync and rename."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, one in tensors.items():
        header[name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, at + one.size]}
        at += one.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, one in tensors.items():
                written = sum(file.write(piece) for piece in one.data)
                assert written == one.size, name
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return values as bfloat16's bits, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = values.astype("<f4", copy=False).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    found = rounded.astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), found).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return bfloat16's bits as values."""
    found: NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found


def to_e4m3(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return values as E4M3's codes, rounded to the nearest, ties to even; beyond ±448 they become ±448."""
    sizes = np.minimum(np.abs(values.astype(np.float64)), E4M3_MOST)
    exponents = np.floor(np.log2(np.maximum(sizes, 2.0**-6)))
    steps = 2.0 ** (np.maximum(exponents, -6) - 3)
    rounded = np.minimum(np.rint(sizes / steps) * steps, E4M3_MOST)
    codes = np.searchsorted(_E4M3, rounded).astype(np.uint8)
    return codes | np.where(np.signbit(values), np.uint8(0x80), np.uint8(0))


def from_e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return E4M3's codes as values; its two NaN codes as NaN."""
    sizes = np.append(_E4M3, np.nan)[codes & 0x7F]
    found: NDArray[np.float32] = np.where(codes >> 7, -sizes, sizes).astype(np.float32)
    return found


def scaled_e4m3(states: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return states [T, slots, hidden] as codes and one scale a token, [T, 1, 1]."""
    scales = np.maximum(np.abs(states).max((1, 2), keepdims=True) / np.float32(E4M3_MOST), np.float32(1e-12))
    return to_e4m3(states / scales), scales.astype(np.float32)


def _positive() -> NDArray[np.float64]:
    codes = np.arange(0x7F)
    exponents, fractions = codes >> 3, (codes & 7) / 8
    return np.where(exponents == 0, fractions * 2.0**-6, (1 + fractions) * 2.0 ** (exponents - 7.0))


_E4M3 = _positive()
