"""A tensor in a file, and its values a slice at a time, whatever the file's format."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64 | np.int64]
"""One-dimensional: floating types as float64, whole numbers and truth values as int64."""

_BLOCKS = 16
"""A sample of a large tensor is this many runs, spread evenly from its first to its last value."""


class UnreadableError(ValueError):
    """A file of weights cannot be understood; the text says why, without the file's name."""


class UnsupportedError(UnreadableError):
    """A file of weights may well be sound, but is of a form that is not read here."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies.

    Attributes:
        name: its name in the checkpoint.
        dtype: its type in the words of safetensors: BF16, F16, F32, I64, BOOL, F8_E4M3, …
        shape: its sizes.
        path: its file.
        start: the offset of its first byte in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int

    @property
    def size(self) -> int:
        """Number of values."""
        count = 1
        for one in self.shape:
            count *= one
        return count

    @property
    def bytes(self) -> int:
        """Bytes in the file."""
        return (self.size * BITS.get(self.dtype, 0) + 7) // 8

    @property
    def is_floating(self) -> bool:
        """Whether it holds floating-point values."""
        return self.dtype.startswith(("F", "BF"))

    @property
    def can_be_read(self) -> bool:
        """Whether its values can be decoded here."""
        return self.dtype in _PLAIN or self.dtype in _DECODED


BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits a value takes, for the types that safetensors 0.6 lists (`safetensors/src/tensor.rs`, `Dtype`)."""

_PLAIN: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}
"""Types numpy has."""
_DECODED = ("BF16", "F8_E4M3", "F8_E5M2")
"""Types decoded from their bits."""


def read(tensor: Tensor, first: int = 0, count: int | None = None) -> Values:
    """Return values of a tensor, in the file's order.

    Args:
        tensor: which.
        first: the first value.
        count: how many; default: all that follow.

    Raises:
        UnreadableError: the type is not known here, or the file ends before.
    """
    if not tensor.can_be_read:
        raise UnreadableError(f"values of type {tensor.dtype} are not decoded here")
    count = tensor.size - first if count is None else min(count, tensor.size - first)
    width = BITS[tensor.dtype] // 8
    with tensor.path.open("rb") as file:
        file.seek(tensor.start + first * width)
        raw = file.read(count * width)
    if len(raw) < count * width:
        raise UnreadableError(f"the file ends inside {tensor.name}")
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value here, not an event
        return _decode(tensor.dtype, raw)


def sample(tensor: Tensor, most: int) -> Values:
    """Return all values of a tensor, or of a larger one some, in runs spread from its first to its last."""
    if tensor.size <= most:
        return read(tensor)
    run = max(1, most // _BLOCKS)
    starts = np.linspace(0, tensor.size - run, _BLOCKS).astype(np.int64)
    return np.concatenate([read(tensor, int(start), run) for start in starts])


def rows(tensor: Tensor, which: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return some rows of a matrix, each [columns]. Only these are read."""
    columns = tensor.shape[1]
    return np.stack([read(tensor, int(row) * columns, columns).astype(np.float64) for row in which])


def _decode(dtype: str, raw: bytes) -> Values:
    if dtype in _PLAIN:
        values = np.frombuffer(raw, dtype=_PLAIN[dtype])
        return values.astype(np.float64) if dtype.startswith("F") else values.astype(np.int64)
    if dtype == "BF16":
        # The upper half of a float32.
        return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    table = _float8(exponent_bits=4, bias=7) if dtype == "F8_E4M3" else _float8(exponent_bits=5, bias=15)
    found: NDArray[np.float64] = table[np.frombuffer(raw, dtype="u1")]
    return found


def _float8(*, exponent_bits: int, bias: int) -> NDArray[np.float64]:
    """Return the value of each of the 256 codes of OCP's FP8 types, E4M3 (no infinities) or E5M2."""
    codes = np.arange(256)
    mantissa_bits = 7 - exponent_bits
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    sizes = np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
    if exponent_bits == 4:  # noqa: PLR2004 - E4M3
        sizes[(codes & 0x7F) == 0x7F] = np.nan  # noqa: PLR2004 - all ones
    else:
        last = exponent == (1 << exponent_bits) - 1
        sizes[last] = np.where(mantissa[last] == 0, np.inf, np.nan)
    return np.where(codes >> 7, -sizes, sizes)
