"""The reader believes a header only as far as the file bears it out."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.heads.heads_making import bf16, write_safetensors

from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import Tensor, UnreadableError, read, rows, sample

ANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ARRAYS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(["<f4", "<f8", "<f2", "<i8", "<i4", "|b1"]), st.lists(st.integers(0, 4), max_size=3)).map(
        lambda one: (np.arange(np.prod(one[1], dtype=int)) % 2).reshape(one[1]).astype(one[0])
    ),
    max_size=5,
)


def written(path: Path, header: Any, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


@ANY
@given(arrays=ARRAYS)
def test_what_was_written_is_read(arrays: dict[str, np.ndarray[Any, Any]], tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", arrays)
    found = read_header(tmp_path / "a.safetensors")
    assert {name: one.shape for name, one in found.items()} == {name: one.shape for name, one in arrays.items()}
    for name, values in arrays.items():
        assert np.array_equal(read(found[name]), values.reshape(-1).astype(np.float64))


@ANY
@given(arrays=ARRAYS, data=st.data())
def test_a_file_cut_anywhere_is_told(
    arrays: dict[str, np.ndarray[Any, Any]], data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, arrays)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(UnreadableError):
        read_header(path)


@ANY
@given(raw=st.binary(max_size=200))
def test_any_bytes_end_in_one_error(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(raw)
    try:
        found = read_header(tmp_path / "a.safetensors")
    except UnreadableError:
        return
    assert all(isinstance(one, Tensor) for one in found.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": JSON | st.sampled_from(["F32", "I64", "F4", "NEW"]),
        "shape": JSON | st.lists(st.integers(-1, 3), max_size=2),
    },
    optional={"data_offsets": JSON | st.lists(st.integers(-1, 20), min_size=2, max_size=2)},
)


@ANY
@given(header=st.dictionaries(st.text(max_size=3), ENTRY | JSON, max_size=3), size=st.integers(0, 24))
def test_a_header_that_lies_is_never_followed_out_of_the_file(header: Any, size: int, tmp_path: Path) -> None:
    path = written(tmp_path / "a.safetensors", header, b"\1" * size)
    try:
        found = read_header(path)
    except UnreadableError:
        return
    for one in found.values():
        assert 0 <= one.start <= path.stat().st_size
        assert one.start + one.bytes <= path.stat().st_size


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 4, "cannot lie in 4 bytes"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 4, "the file was cut short"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, 9, "5 bytes follow the last tensor"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, 8, "does not begin where"),
        ({"a": {"dtype": "F32", "shape": [2**62, 16], "data_offsets": [0, 4]}}, 4, "cannot lie"),
        ({"a": {"dtype": "F32", "shape": [1]}}, 4, "no dtype, shape and data_offsets"),
        (b'{"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},"a":{}}', 0, "names a tensor twice"),
        (b"[" * 100_000, 0, "no JSON"),
        (b"[]", 0, "no JSON object"),
    ],
)
def test_what_cannot_be_is_said(header: Any, size: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=said):
        read_header(written(tmp_path / "a.safetensors", header, b"\0" * size))


def test_a_pointer_of_git_lfs_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(UnreadableError, match="git lfs pull"):
        read_header(path)


def test_bfloat16_and_fp8_by_hand(tmp_path: Path) -> None:
    # 0x3F80 is 1, 0xC040 is -3, 0x7F80 infinity (IEEE 754 single precision, upper half).
    (tmp_path / "x").write_bytes(struct.pack("<3H", 0x3F80, 0xC040, 0x7F80))
    assert read(Tensor("x", "BF16", (3,), tmp_path / "x", 0)).tolist() == [1, -3, np.inf]
    # OCP FP8: E4M3 0x38 is 1, 0x7E is 448, 0x01 is 2^-9; E5M2 0x3C is 1, 0x7B is 57344, 0x7C infinity.
    (tmp_path / "x").write_bytes(bytes([0x38, 0xFE, 0x01, 0x7F]))
    found = read(Tensor("x", "F8_E4M3", (4,), tmp_path / "x", 0))
    assert found[:3].tolist() == [1, -448, 2**-9]
    assert np.isnan(found[3])
    (tmp_path / "x").write_bytes(bytes([0x3C, 0x7B, 0x7C, 0xFD]))
    found = read(Tensor("x", "F8_E5M2", (4,), tmp_path / "x", 0))
    assert found[:3].tolist() == [1, 57344, np.inf]
    assert np.isnan(found[3])


def test_rows_and_samples_are_slices(tmp_path: Path) -> None:
    values = np.arange(4000, dtype=np.float32).reshape(400, 10)
    write_safetensors(tmp_path / "a.safetensors", {"pad": bf16(np.ones(3)), "m": values})
    tensor = read_header(tmp_path / "a.safetensors")["m"]
    assert np.array_equal(rows(tensor, np.array([0, 7, 399])), values[[0, 7, 399]])
    found = sample(tensor, 160)
    assert len(found) == 160
    assert found[:10].tolist() == list(range(10))
    assert found[-10:].tolist() == list(range(3990, 4000))
    assert np.array_equal(sample(tensor, 4000), values.reshape(-1))
