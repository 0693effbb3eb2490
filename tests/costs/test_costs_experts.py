"""How many experts are touched, against counting them, and against public counts."""

import numpy as np
import pytest

from draftworth.costs.experts import RHO_RANGE, effective_padded, effective_tokens, union


def test_the_union_is_what_counting_random_choices_gives() -> None:
    experts, active, tokens = 32, 4, 5
    rng = np.random.default_rng(1)
    counted = [
        len(set(np.concatenate([rng.choice(experts, active, replace=False) for _ in range(tokens)])))
        for _ in range(4000)
    ]
    assert float(union(tokens, experts, active)) == pytest.approx(float(np.mean(counted)), rel=0.01)


def test_one_token_touches_its_own_experts_and_many_touch_all() -> None:
    assert float(union(1, 384, 8)) == pytest.approx(8)
    assert float(union(1e6, 384, 8)) == pytest.approx(384)
    assert float(union(3, 8, 8)) == 8


def test_published_counts_of_independent_tokens() -> None:
    # Luce-Org/lucebox issue 501: 256 experts, top 8: 57.4 and 97.0 for 8 and 15 independent tokens.
    assert float(union(8, 256, 8)) == pytest.approx(57.4, abs=0.1)
    assert float(union(15, 256, 8)) == pytest.approx(97.0, abs=0.1)
    # Kimi-K2.5, bytes against one token, by hand: 384 (1 - (376/384)^n) / 8.
    for tokens, times in ((2, 1.98), (4, 3.88), (6, 5.70)):
        assert float(union(tokens, 384, 8)) / 8 == pytest.approx(times, abs=0.01)


@pytest.mark.parametrize(("tokens", "counted"), [(8, 39.4), (15, 58.9)])
def test_counts_of_consecutive_tokens_lie_within_the_range_of_overlap(tokens: int, counted: float) -> None:
    most, least = (float(union(effective_tokens(1, tokens, rho), 256, 8)) for rho in RHO_RANGE)
    assert least * 0.99 <= counted <= most * 1.01


def test_tokens_of_different_requests_are_independent() -> None:
    assert float(effective_tokens(6, 6)) == 6
    assert float(effective_tokens(1, 6, 0.5)) == 3.5
    assert float(effective_tokens(3, 8, 0.4)) == pytest.approx(3 + 5 * 0.6)


def test_padding_counts_like_the_rest_of_the_step() -> None:
    assert float(effective_padded(6, 6, 8)) == pytest.approx(8)  # six streams run as eight
    assert float(effective_padded(1, 6, 8)) == pytest.approx(float(effective_tokens(1, 8)))
    assert float(effective_padded(2, 6, 6)) == pytest.approx(float(effective_tokens(2, 6)))
    assert float(effective_padded(1, 1, 2)) == pytest.approx(2)
