"""Where the tensors of a file of `torch.save` lie, without running anything that the file says.

Such a file is a zip archive whose `data.pkl` is a pickle, and a pickle can name any function to call. Here a name
outside a short list ends the reading, and the names on the list lead to functions of this module, which note where a
tensor lies and do nothing else. Format: `torch/serialization.py` (`_save`) and `torch/_utils.py`
(`_rebuild_tensor_v2`) of PyTorch 2. vLLM itself loads such files with `weights_only`.
"""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from draftworth.heads.files.tensors import Tensor, UnreadableError, UnsupportedError

_LARGEST_PICKLE = 16 * 2**20
"""Bytes of data.pkl; a checkpoint of 100,000 tensors has less."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
"""What is needed of a zip entry's local header: signature, lengths of name and extra field (APPNOTE 4.3.7)."""

_LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""How files from before 1.6 begin: a pickled magic number (`MAGIC_NUMBER` in `torch/serialization.py`)."""

_STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "Float8_e4m3fnStorage": "F8_E4M3",
    "Float8_e5m2Storage": "F8_E5M2",
}


class _Storage(NamedTuple):
    dtype: str
    key: str


class _Placed(NamedTuple):
    storage: _Storage
    first: int
    shape: tuple[int, ...]


def read_archive(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of `torch.save` by name. Reads the pickle alone, and runs nothing of it.

    Raises:
        UnreadableError: it is no such archive, or its pickle names something else than tensors.
        OSError: the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = next((one for one in archive.infolist() if one.filename.endswith("/data.pkl")), None)
            if pickled is None or pickled.file_size > _LARGEST_PICKLE:
                raise UnreadableError("it is a zip archive, but none of torch.save")
            root = pickled.filename.removesuffix("data.pkl")
            if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
                raise UnreadableError("it was written on a big-endian machine")
            state = _loaded(archive.read(pickled))
            return _tensors(state, path, archive, root)
    except zipfile.BadZipFile:
        with path.open("rb") as file:
            if file.read(len(_LEGACY)) == _LEGACY:
                raise UnsupportedError("it is from before PyTorch 1.6; save it again, or as safetensors") from None
        raise UnreadableError("it is no file of torch.save, or was cut short") from None


def _loaded(raw: bytes) -> dict[Any, Any]:
    try:
        state = _Reader(io.BytesIO(raw)).load()
    except UnreadableError:
        raise
    except Exception as error:  # noqa: BLE001 - a broken pickle fails in any way
        raise UnreadableError(f"its pickle cannot be read: {type(error).__name__}") from None
    if not isinstance(state, dict):
        raise UnreadableError("it holds no dictionary of tensors")
    return state


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the C reader's memo can be made to take all memory
    """Resolves the names of tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Callable[..., Any] | str:
        if module == "collections" and name == "OrderedDict":
            return OrderedDict
        if module == "torch._utils" and name == "_rebuild_tensor_v2":
            return lambda storage, first, shape, stride, *_: _placed(storage, first, shape, stride)
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *_: tensor
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module.split(".", maxsplit=1)[0] == "torch":
            raise UnsupportedError(f"its pickle names {module}.{name}, which is not known here; save it as safetensors")
        raise UnreadableError(f"its pickle names {module}.{name}, which no file of weights needs; it was not run")

    def persistent_load(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", str(dtype), str(key), _, int()):
                return _Storage(dtype, key)
        raise UnsupportedError("its pickle names a storage of a form that is not known here")


def _placed(storage: Any, first: Any, shape: Any, stride: Any) -> _Placed:
    if not isinstance(storage, _Storage) or not all(type(one) is int and one >= 0 for one in (first, *shape, *stride)):
        raise UnsupportedError("its pickle describes a tensor in a form that is not known here")
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size > 1 and step != expected:
            raise UnsupportedError("a tensor of it is a strided view; save it as safetensors")
        expected *= size
    return _Placed(storage, first, tuple(shape))


def _tensors(state: dict[Any, Any], path: Path, archive: zipfile.ZipFile, root: str) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, _Placed):
            continue
        try:
            entry = archive.getinfo(f"{root}data/{value.storage.key}")
        except KeyError:
            raise UnreadableError(f"the values of {name} are missing") from None
        if entry.compress_type != zipfile.ZIP_STORED:
            raise UnsupportedError("its entries are compressed, which torch.save never does")
        flat = Tensor(name, value.storage.dtype, (value.first,), path, 0)
        tensor = Tensor(name, value.storage.dtype, value.shape, path, _data_start(path, entry) + flat.bytes)
        if flat.bytes + tensor.bytes > entry.file_size:
            raise UnreadableError(f"{name} is larger than its storage")
        found[name] = tensor
    return found


def _data_start(path: Path, entry: zipfile.ZipInfo) -> int:
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        raw = file.read(_LOCAL_HEADER.size)
    if len(raw) < _LOCAL_HEADER.size or not raw.startswith(b"PK\x03\x04"):
        raise UnreadableError("its archive is damaged")
    _, name, extra = _LOCAL_HEADER.unpack(raw)
    return entry.header_offset + _LOCAL_HEADER.size + int(name) + int(extra)
