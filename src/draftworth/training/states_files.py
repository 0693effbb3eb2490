"""The files of states: `hs_<row>.safetensors`, in the layout that speculators 0.9 reads, and what makes one trusted.

`hidden_states` [T, slots, hidden] and `token_ids` int64 [T]; fp8 adds `hidden_states_scales` float32 [T, 1, 1].
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import RefusedError
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import UnreadableError, read
from draftworth.training.shape import TargetShape
from draftworth.training.tensors import Stored, scaled_e4m3, to_bf16, write_safetensors

Dtype = Literal["bf16", "fp8", "fp32"]
SPLITS = ("train", "held_out")
MADE_FROM = "made_from.json"
STATES, TOKENS, SCALES = "hidden_states", "token_ids", "hidden_states_scales"
_NAMES = {"bf16": "BF16", "fp8": "F8_E4M3", "fp32": "F32"}
_BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
_HEADER = 4096
"""More than a file's header, and what a file takes beside it on a disk."""
_GIB = 2**30


def path_of(folder: Path, row: int) -> Path:
    """Return where a sample's states are."""
    return folder / f"hs_{row}.safetensors"


def bytes_of(lengths: Iterable[int], shape: TargetShape, dtype: Dtype) -> int:
    """Return what the states of samples take on the disk."""
    each = shape.slots * shape.hidden * _BYTES[dtype] + 8 + (4 if dtype == "fp8" else 0)
    return sum(length * each + _HEADER for length in lengths)


def check_disk(folder: Path, missing: int, whole: int, budget_gib: float | None) -> None:
    """Raise RefusedError where states would take more than there is room for.

    Args:
        folder: where they go.
        missing: bytes that are still to be written.
        whole: bytes of all of them.
        budget_gib: what all of them may take; None: nine tenths of what is free, for those that are missing.
    """
    free = shutil.disk_usage(next(one for one in (folder, *folder.parents) if one.exists())).free
    if missing > free:
        raise RefusedError(f"{folder}: the states take {missing / _GIB:.1f} GiB, and {free / _GIB:.1f} GiB are free")
    most, need, why = free * 0.9, missing, "nine tenths of what is free"
    if budget_gib is not None:
        most, need, why = budget_gib * _GIB, whole, "disk_gib"
    if need > most:
        raise RefusedError(
            f"{folder}: the states take {need / _GIB:.1f} GiB, more than {most / _GIB:.1f} GiB ({why}); raise "
            'states.disk_gib, set states.dtype = "fp8", or take fewer samples'
        )


def why_not(path: Path, ids: NDArray[np.int32], shape: TargetShape, dtype: Dtype) -> str:  # noqa: PLR0911 - one reason each
    """Return what is wrong with a stored file; empty where it can be used as it is.

    It is not read whole: it was checked when it was written, and is renamed into place after that.

    Args:
        path: the file.
        ids: the sample's tokens.
        shape: the target's.
        dtype: what it should be kept as.
    """
    try:
        header = read_header(path)
        tokens = header.get(TOKENS)
        states = header.get(STATES)
        if tokens is None or states is None or (dtype == "fp8" and SCALES not in header):
            return "tensors are missing"
        if states.shape != (len(ids), shape.slots, shape.hidden):
            return f"states {list(states.shape)}, expected {[len(ids), shape.slots, shape.hidden]}"
        if states.dtype != _NAMES[dtype]:
            return f"states of type {states.dtype}, expected {_NAMES[dtype]}"
        if tokens.size != len(ids) or not np.array_equal(read(tokens), ids):
            return "other tokens than the sample's"
    except FileNotFoundError:
        return "not there"
    except (UnreadableError, OSError) as error:
        return str(error)
    return ""


def write_states(path: Path, ids: NDArray[np.int32], states: NDArray[np.float32], dtype: Dtype) -> None:
    """Write one sample's states, whole or not at all.

    Args:
        path: the file.
        ids: the sample's tokens, [T].
        states: [T, slots, hidden], finite.
        dtype: what they are kept as.
    """
    tensors: dict[str, Stored] = {}
    if dtype == "fp8":
        codes, scales = scaled_e4m3(states)
        tensors[SCALES] = _stored("F32", scales.astype("<f4"))
        tensors[STATES] = _stored("F8_E4M3", codes)
    elif dtype == "bf16":
        tensors[STATES] = _stored("BF16", to_bf16(states).astype("<u2"))
    else:
        tensors[STATES] = _stored("F32", states.astype("<f4"))
    tensors[TOKENS] = _stored("I64", ids.astype("<i8"))
    write_safetensors(path, tensors)


def _stored(dtype: str, values: NDArray[np.generic]) -> Stored:
    raw = np.ascontiguousarray(values).tobytes()
    return Stored(dtype, values.shape, (raw,), len(raw))
