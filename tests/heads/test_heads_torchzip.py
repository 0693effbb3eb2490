"""Files of torch.save are read without running what they say."""

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.heads import heads_making as making

from draftworth.heads.base import Status
from draftworth.heads.check import check_head
from draftworth.heads.files.tensors import UnreadableError, read
from draftworth.heads.files.torchzip import read_archive

STORAGES = {"<f4": "FloatStorage", "<i8": "LongStorage", "<u2": "BFloat16Storage", "|b1": "BoolStorage"}


class Saved:
    """A tensor as torch.save pickles it."""

    def __init__(self, key: str, values: np.ndarray[Any, Any], *, stride: tuple[int, ...] | None = None) -> None:
        self.key, self.values = key, values
        self.stride = stride or tuple(one // values.itemsize for one in values.strides)

    def __reduce__(self) -> tuple[Any, ...]:
        storage = Storage(STORAGES[self.values.dtype.str], self.key, self.values.size)
        arguments: tuple[Any, ...] = (storage, 0, self.values.shape, self.stride, False, OrderedDict())
        return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments


class Storage:
    def __init__(self, kind: str, key: str, count: int) -> None:
        self.kind, self.key, self.count = kind, key, count


class Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Storage):
            return "storage", getattr(sys.modules["torch"], obj.kind), obj.key, "cpu", obj.count
        return None


@pytest.fixture(autouse=True)
def torch_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a pickler can look up, as torch has them."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch", "__qualname__": name}))

    def _rebuild_tensor_v2() -> None: ...

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


def save(path: Path, state: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    raw = io.BytesIO()
    Pickler(raw, protocol=2).dump(state)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", raw.getvalue())
        archive.writestr("archive/byteorder", "little")
        for key, values in arrays.items():
            archive.writestr(f"archive/data/{key}", values.tobytes())


def save_all(path: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    arrays = {str(at): values for at, values in enumerate(tensors.values())}
    save(path, OrderedDict((name, Saved(str(at), one)) for at, (name, one) in enumerate(tensors.items())), arrays)


def test_tensors_are_found_where_they_lie(tmp_path: Path) -> None:
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.arange(5),
        "c": np.array([True, False]),
    }
    save_all(tmp_path / "a.bin", tensors)
    found = read_archive(tmp_path / "a.bin")
    assert {name: (one.dtype, one.shape) for name, one in found.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("I64", (5,)),
        "c": ("BOOL", (2,)),
    }
    for name, values in tensors.items():
        assert read(found[name]).tolist() == values.reshape(-1).tolist()


def test_a_head_in_this_format_is_checked_like_any(tmp_path: Path) -> None:
    made = making.eagle3()
    tensors = dict(made.tensors)
    made.tensors.clear()
    folder = made.write(tmp_path / "head")
    save_all(folder / "pytorch_model.bin", tensors)
    (folder / "training_args.bin").write_bytes(b"no weights")
    found = check_head(folder, making.target().write(tmp_path / "tiny-target"), method=None)
    assert {one.status for one in found.checks} == {Status.PASSED}
    assert "torch.save" in next(one.found for one in found.checks if one.name == "files")


def test_nothing_a_pickle_names_is_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "was_run",)

    for state in ({"a": Harmful()}, Harmful()):
        save(tmp_path / "a.bin", state, {})
        with pytest.raises(UnreadableError, match="was not run"):
            read_archive(tmp_path / "a.bin")
    assert not (tmp_path / "was_run").exists()


def test_views_and_short_storages_are_refused(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    save(tmp_path / "a.bin", {"a": Saved("0", values, stride=(1, 2))}, {"0": values})
    with pytest.raises(UnreadableError, match="strided view"):
        read_archive(tmp_path / "a.bin")
    save(tmp_path / "a.bin", {"a": Saved("0", values)}, {"0": values[:1]})
    with pytest.raises(UnreadableError, match="larger than its storage"):
        read_archive(tmp_path / "a.bin")
    save(tmp_path / "a.bin", {"a": Saved("0", values)}, {})
    with pytest.raises(UnreadableError, match="missing"):
        read_archive(tmp_path / "a.bin")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60), data=st.data())
def test_any_pickle_ends_in_one_error(raw: bytes, data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    save_all(path, {"a": np.arange(4)})
    with zipfile.ZipFile(path) as archive:
        whole = archive.read("archive/data.pkl")
    at = data.draw(st.integers(0, len(whole)))
    for content in (raw, whole[:at] + raw, whole[:at] + raw + whole[at:]):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", content)
            archive.writestr("archive/data/0", np.arange(4).tobytes())
        try:
            read_archive(path)
        except UnreadableError:
            continue


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_anywhere_is_told(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    save_all(path, {"a": np.arange(40), "b": np.arange(7)})
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(UnreadableError):
        read_archive(path)


def test_what_may_be_sound_is_not_checked_rather_than_failed(tmp_path: Path) -> None:
    folder = making.eagle3().write(tmp_path / "head")
    target = making.target().write(tmp_path / "tiny-target")
    (folder / "model.safetensors").unlink()
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    save(folder / "pytorch_model.bin", {"a": Saved("0", values, stride=(1, 2))}, {"0": values})
    statuses = {one.name: one.status for one in check_head(folder, target, method="eagle3").checks}
    assert statuses["files"] is statuses["fc-shape"] is statuses["finite"] is Status.NOT_CHECKED
    # The magic number that torch.save wrote before zip archives.
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"rest")
    found = {one.name: one for one in check_head(folder, target, method="eagle3").checks}
    assert found["files"].status is Status.NOT_CHECKED
    assert "before PyTorch 1.6" in found["files"].found
