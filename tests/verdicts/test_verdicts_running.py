import math
import time

import numpy as np
import pytest
from scipy import stats

from draftworth.bench.base import RequestRow
from draftworth.verdicts.running import mean_interval, running


def rows(tpots: dict[str, float]) -> list[RequestRow]:
    return [
        RequestRow(
            arm="a",
            block=0,
            prompt_id=prompt,
            category="chat",
            repeat=0,
            started_unix=0.0,
            ok=True,
            tokens=101,
            first_chunk_tokens=1,
            decode_ms=100 * tpot,
            tpot_ms=tpot,
        )
        for prompt, tpot in tpots.items()
    ]


def test_the_running_ratio_by_hand() -> None:
    # 30 -> 30 ms over two prompts: R = 1, residuals -1 and 1, se = sqrt(2) / sqrt(2) / 15, t(1) = 12.7062.
    found = running(rows({"a": 10.0, "b": 20.0, "x": 1.0}), rows({"a": 9.0, "b": 21.0}))
    assert found is not None
    assert found.estimate == pytest.approx(1.0)
    assert found.high == pytest.approx(math.exp(12.7062 / 15), rel=1e-5)
    assert found.low == pytest.approx(math.exp(-12.7062 / 15), rel=1e-5)


def test_nothing_yet_is_none_and_one_prompt_has_no_interval() -> None:
    assert running([], []) is None
    assert running(rows({"a": 1.0}), rows({"b": 1.0})) is None
    one = running(rows({"a": 2.0}), rows({"a": 1.0}))
    assert one is not None
    assert (one.estimate, one.low) == (0.5, None)


def test_500_prompts_take_less_than_a_millisecond() -> None:
    base = rows({f"p{i}": 10.0 + i % 7 for i in range(500)})
    other = rows({f"p{i}": 9.0 + i % 5 for i in range(500)})
    running(base, other)
    best = math.inf
    for _ in range(50):
        began = time.perf_counter()
        running(base, other)
        best = min(best, time.perf_counter() - began)
    assert best < 0.001


def test_a_mean_has_students_interval() -> None:
    values = np.random.default_rng(1).normal(10, 2, 12).tolist()
    found = mean_interval(values, confidence=0.9)
    low, high = stats.t.interval(0.9, 11, loc=np.mean(values), scale=stats.sem(values))
    assert found is not None
    assert (found.estimate, found.low, found.high) == pytest.approx((np.mean(values), low, high))


def test_a_mean_of_nothing_is_none_and_of_one_value_has_no_interval() -> None:
    assert mean_interval([]) is None
    one = mean_interval([3.0])
    assert one is not None
    assert (one.estimate, one.low, one.high) == (3.0, None, None)


@pytest.mark.parametrize(("values", "level"), [([1.0, math.nan], 0.95), ([1.0], 1.0)])
def test_impossible_means_are_refused(values: list[float], level: float) -> None:
    with pytest.raises(ValueError, match=r"finite|confidence"):
        mean_interval(values, confidence=level)
