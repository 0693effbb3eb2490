"""Which captured size a step runs as, and how that is known."""

import numpy as np
import pytest

from draftworth.costs.base import StepCost
from draftworth.costs.staircase import VLLM_SIZES, staircase


def points(**ms: float) -> list[StepCost]:
    return [
        StepCost(
            batch=int(name[1:]),
            tokens=1,
            context=512,
            ms=value,
            low=value * 0.995,
            high=value * 1.005,
            repeats=5,
            how="concurrency",
        )
        for name, value in ms.items()
    ]


def test_sizes_that_the_server_told_are_used_in_order() -> None:
    found = staircase((16, 1, 8, 4, 2), [], "vllm")
    assert found.known == "given"
    assert [found.pad(size) for size in (1, 2, 3, 4, 5, 8, 9, 16, 17, 40)] == [1, 2, 4, 4, 8, 8, 16, 16, 17, 40]
    sizes = np.arange(1, 41)
    assert found.pad_all(sizes).tolist() == [found.pad(int(size)) for size in sizes]


def test_vllms_default_sizes() -> None:
    assert VLLM_SIZES[:6] == (1, 2, 4, 8, 16, 24)
    assert {248, 256, 272, 512} <= set(VLLM_SIZES)
    assert 264 not in VLLM_SIZES


def test_the_h200s_points_show_vllms_stairs() -> None:
    # ../data rows, one H200: 6 tokens cost what 8 cost, 12 what 16 cost.
    found = staircase((), points(b1=3.89, b2=4.88, b4=6.32, b6=8.78, b8=8.97, b12=12.2, b16=12.16), None)
    assert (found.known, found.pad(6)) == ("inferred", 8)


def test_points_that_rise_within_a_stair_contradict_it() -> None:
    found = staircase((), points(b4=20.0, b6=30.0, b8=40.0), "vllm")  # a CPU: no graphs
    assert (found.known, found.sizes, found.pad(6)) == ("none", (), 6)


def test_points_on_stairs_of_their_own_tell_nothing() -> None:
    assert staircase((), points(b1=4.0, b2=4.9, b4=6.4, b8=9.1), "vllm").known == "unknown"


@pytest.mark.parametrize("engine", ["llamacpp", "sglang", "trtllm"])
def test_vllms_default_is_not_guessed_for_other_engines(engine: str) -> None:
    assert staircase((), points(b6=8.8, b8=8.9), engine).known == "none"
