"""Files of states: written, believed or not, and what they take."""

from pathlib import Path

import numpy as np
import pytest

from draftworth.errors import RefusedError
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import read
from draftworth.training.shape import TargetShape
from draftworth.training.states_files import Dtype, bytes_of, check_disk, path_of, why_not, write_states

SHAPE = TargetShape(Path("target"), 8, 16, (2, 4, 5))
IDS = np.array([3, 1, 4, 1, 5], np.int32)
STATES = np.random.default_rng(1).normal(size=(5, 4, 16)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp32"])
def test_what_is_written_is_believed_and_takes_what_was_said(tmp_path: Path, dtype: Dtype) -> None:
    path = path_of(tmp_path, 7)
    write_states(path, IDS, STATES, dtype)
    assert why_not(path, IDS, SHAPE, dtype) == ""
    assert [one.name for one in tmp_path.iterdir()] == ["hs_7.safetensors"]
    header = read_header(path)
    assert header["hidden_states"].shape == (5, 4, 16)
    assert read(header["token_ids"]).tolist() == IDS.tolist()
    assert path.stat().st_size <= bytes_of([5], SHAPE, dtype)
    back: np.ndarray = read(header["hidden_states"]).reshape(5, 4, 16)
    if dtype == "fp8":
        back = back * read(header["hidden_states_scales"]).reshape(5, 1, 1)
    assert np.abs(back - STATES).max() < {"fp32": 1e-12, "bf16": 0.02, "fp8": 0.2}[dtype]


def test_what_is_of_something_else_is_named(tmp_path: Path) -> None:
    path = path_of(tmp_path, 0)
    assert why_not(path, IDS, SHAPE, "bf16") == "not there"
    write_states(path, IDS, STATES, "bf16")
    assert why_not(path, IDS + 1, SHAPE, "bf16") == "other tokens than the sample's"
    assert "expected F32" in why_not(path, IDS, SHAPE, "fp32")
    assert "tensors are missing" in why_not(path, IDS, SHAPE, "fp8")
    assert "[5, 4, 16], expected [5, 4, 32]" in why_not(path, IDS, TargetShape(Path(), 8, 32, (2, 4, 5)), "bf16")
    path.write_bytes(path.read_bytes()[:-3])
    assert "cut short" in why_not(path, IDS, SHAPE, "bf16")


def test_a_disk_that_is_too_small_is_refused_with_the_numbers(tmp_path: Path) -> None:
    check_disk(tmp_path / "states", 1000, 2**29, 1.0)
    with pytest.raises(RefusedError, match=r"take 2\.0 GiB, more than 1\.0 GiB \(disk_gib\)"):
        check_disk(tmp_path, 0, 2 * 2**30, 1.0)
    with pytest.raises(RefusedError, match="are free"):
        check_disk(tmp_path, 2**60, 2**60, 1e12)
