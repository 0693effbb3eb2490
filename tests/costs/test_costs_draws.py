"""The sum of many requests' drafts: exact where it counts, and quick at any number of requests."""

import time

import numpy as np
import pytest

from draftworth.costs.draws import total_drafted


@pytest.mark.parametrize(("batch", "lengths"), [(3, [0.2, 0.3, 0.5]), (300, [0.7, 0.0, 0.1, 0.2]), (900, [0.1] * 10)])
def test_it_is_the_distribution_of_the_sum(batch: int, lengths: list[float]) -> None:
    plain = np.ones(1)
    for _ in range(batch):
        plain = np.convolve(plain, lengths)
    found = total_drafted(np.array(lengths), batch)
    assert found.shape == plain.shape
    assert np.abs(found - plain).max() < 1e-14
    assert found[0] == pytest.approx(lengths[0] ** batch, rel=1e-12)


def test_long_drafts_of_many_requests_are_quick() -> None:
    lengths = np.full(1025, 1 / 1025)
    began = time.process_time()
    found = total_drafted(lengths, 4096)
    assert time.process_time() - began < 5
    assert found.sum() == pytest.approx(1, abs=1e-9)
    at = np.arange(found.size)
    assert float(found @ at) == pytest.approx(4096 * 512, rel=1e-9)
