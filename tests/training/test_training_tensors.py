"""Narrow types against the readers of the head checks, which were written from the formats, and files read back."""

import numpy as np
import pytest

from draftworth.heads.files.tensors import _decode
from draftworth.training.tensors import from_bf16, from_e4m3, scaled_e4m3, to_bf16, to_e4m3


def test_every_e4m3_code_comes_back_as_itself_and_means_what_the_format_says() -> None:
    codes = np.array([one for one in range(256) if one & 0x7F != 0x7F], np.uint8)
    values = from_e4m3(codes)
    assert np.array_equal(values, _decode("F8_E4M3", codes.tobytes()))
    assert np.array_equal(to_e4m3(values), codes)


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        (1.0, 1.0),
        (1.0625, 1.0),
        (1.1875, 1.25),
        (17.0, 16.0),
        (500.0, 448.0),
        (-0.0, -0.0),
        (2.0**-10, 0.0),
        (-3.3, -3.25),
    ],
)
def test_e4m3_rounds_to_the_nearest_and_ties_to_even(value: float, nearest: float) -> None:
    assert from_e4m3(to_e4m3(np.array([value], np.float32)))[0] == nearest


def test_bf16_rounds_to_even_and_keeps_nan() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, np.nan], np.float32)
    back = from_bf16(to_bf16(values))
    assert back[:4].tolist() == [1.0, 1.0, 1.015625, -2.5]
    assert np.isnan(back[4])


def test_scaled_states_are_within_a_sixteenth() -> None:
    states = np.random.default_rng(0).normal(size=(5, 4, 32)).astype(np.float32) * 100
    codes, scales = scaled_e4m3(states)
    assert scales.shape == (5, 1, 1)
    back = from_e4m3(codes) * scales
    assert np.abs(back - states).max() <= np.abs(states).max() / 16
