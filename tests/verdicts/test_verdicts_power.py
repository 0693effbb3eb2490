import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftworth.bench.base import RequestRow
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.compare import compare
from draftworth.verdicts.intervals import Table, log_limits, restarts
from draftworth.verdicts.power import Design, Spread, chance, detectable, needed, spread_from
from draftworth.verdicts.restarts import Floats
from draftworth.verdicts.rules import Rules


def block(tpots: Sequence[float], *, start: int = 1, arm: str = "baseline") -> list[RequestRow]:
    return [
        RequestRow(
            arm=arm,
            block=start,
            start=start,
            prompt_id=f"p{i:04}",
            category="chat",
            repeat=0,
            started_unix=0.0,
            ok=True,
            tokens=101,
            first_chunk_tokens=1,
            token_source="usage",
            decode_ms=100 * tpot,
            tpot_ms=tpot,
        )
        for i, tpot in enumerate(tpots)
    ]


def drawn(rng: np.random.Generator, shape: tuple[int, int, int], difference: float, spread: Spread) -> Table:
    """Trials, starts and prompts, the variant slower by the difference."""
    trials, starts, n = shape
    own = rng.normal(math.log1p(difference) - spread.pair_sd**2 / 2, spread.pair_sd, (trials, 1, n))

    def arm(mean: Floats, sd: float) -> Floats:
        moved = mean + rng.normal(0, sd, (trials, starts, 1))
        noisy: Floats = np.exp(2 + moved + rng.normal(0, spread.request_noise_sd, (trials, starts, n)))[..., None]
        return noisy

    return Table(arm(np.zeros((trials, 1, n)), spread.restart_sd_baseline), arm(own, spread.restart_sd_variant))


def test_many_prompts_without_restarts_is_the_textbook_number() -> None:
    # n = (z(0.975) + z(0.8))^2 sd^2 / log(1.05)^2 = 2.801585^2 0.0625 / 0.0023805 = 206.07, and about 2 for t.
    found = needed(0.05, pair_sd=0.25, request_noise_sd=0.0, restart_sd_baseline=0.0, restart_sd_variant=0.0)
    assert found.prompts is not None
    assert 207 <= found.prompts <= 209
    assert found.starts_needed is None


def test_one_start_at_the_prior_hides_small_differences_and_says_how_many_starts_show_them() -> None:
    # 2.801585 standard errors of 0.08 and 0.006 together: 25 %.
    found = needed(0.05)
    assert found.prompts is None
    assert found.floor == pytest.approx(math.exp(2.801585 * math.hypot(0.08, 0.006)) - 1, rel=1e-3)
    assert found.starts_needed is not None
    assert f"it takes {found.starts_needed} starts of each" in found.reason
    assert needed(0.05, starts=found.starts_needed).prompts is not None
    assert needed(0.05, starts=found.starts_needed - 1).prompts is None


def test_no_number_of_starts_is_said_to_be_enough_where_none_is() -> None:
    hopeless = needed(0.0001, restart_sd_variant=0.5)
    assert (hopeless.prompts, hopeless.starts_needed) == (None, None)
    assert "not even 1000 starts" in hopeless.reason


@settings(deadline=None, max_examples=25)
@given(st.floats(0.12, 0.6), st.sampled_from([1, 2, 5, (2, 1)]), st.integers(1, 5))
def test_what_is_needed_is_what_is_detectable(difference: float, starts: int | tuple[int, int], looks: int) -> None:
    found = needed(difference, starts=starts, looks=looks)
    if found.prompts is None:
        assert found.floor > difference
        return
    assert detectable(max(found.prompts, 2), starts, looks=looks) <= difference + 1e-5
    if found.prompts > 8:
        assert detectable(found.prompts - 1, starts, looks=looks) >= difference - 1e-5


def test_looks_cost_prompts_and_power_grows_with_everything() -> None:
    one = needed(0.1, restart_sd_baseline=0.0, restart_sd_variant=0.0).prompts
    five = needed(0.1, restart_sd_baseline=0.0, restart_sd_variant=0.0, looks=5).prompts
    assert one is not None
    assert five is not None
    assert one < five < 1.4 * one
    powers = [chance(0.1, n, Spread(), Design(3)) for n in (1, 10, 100, 1000)]
    assert powers == sorted(powers)


def test_known_variances_give_the_normal_power() -> None:
    # sd of the log ratio sqrt(0.3^2 / 900 + 0.02^2): shift / sd - 1.96.
    spread = Spread(0.3, 0.0, 0.0, 0.02)
    sd = math.sqrt(0.3**2 / 900 + 0.02**2)
    expected = stats.norm.sf(1.959964 - math.log(1.06) / sd)
    assert chance(0.06, 900, spread, Design(1)) == pytest.approx(expected, abs=0.005)


CASES = [
    (1, Spread(0.12, 0.02, 0.0, 0.0), 0.05),
    (1, Spread(0.12, 0.02, 0.005, 0.02), 0.08),
    (2, Spread(0.12, 0.02, 0.005, 0.03), 0.10),
    (3, Spread(0.12, 0.02, 0.005, 0.03), 0.15),
    (5, Spread(0.12, 0.05, 0.005, 0.03), 0.07),
]


def required(case: tuple[int, Spread, float]) -> int:
    starts, spread, difference = case
    found = needed(
        difference,
        pair_sd=spread.pair_sd,
        request_noise_sd=spread.request_noise_sd,
        restart_sd_baseline=spread.restart_sd_baseline,
        restart_sd_variant=spread.restart_sd_variant,
        starts=starts,
    )
    assert found.prompts is not None
    return found.prompts


@pytest.mark.parametrize("case", CASES)
def test_the_number_needed_gives_the_power_asked_for(case: tuple[int, Spread, float]) -> None:
    starts, spread, difference = case
    table = drawn(np.random.default_rng(starts), (1000, starts, required(case)), difference, spread)
    between = restarts(table, spread.restart_sd_baseline, spread.restart_sd_variant)
    power = float((log_limits(table, between, confidence=0.95).low > 0).mean())
    # 80 %, and two and a half Monte-Carlo standard errors.
    assert power == pytest.approx(0.8, abs=0.032)


def test_the_number_needed_gives_the_power_asked_for_in_whole_comparisons() -> None:
    case = CASES[0]
    n, trials = required(case), 300
    table = drawn(np.random.default_rng(9), (trials, 1, n), case[2], case[1])
    rules = Rules(margin=1e-9, prior_baseline=0.0, prior_variant=0.0)
    hits = sum(
        compare([block(base.ravel().tolist())], [block(other.ravel().tolist())], rules).comparison.verdict
        is Verdict.SLOWER
        for base, other in zip(table.baseline, table.variant, strict=True)
    )
    assert hits / trials == pytest.approx(0.8, abs=2 * math.sqrt(0.8 * 0.2 / trials))


def test_the_spread_of_measured_blocks_is_found() -> None:
    rng = np.random.default_rng(2)
    n = 4000
    own = rng.normal(0, 0.2, n)

    def once(mean: Floats) -> list[RequestRow]:
        return block(np.exp(2 + mean + rng.normal(0, 0.04, n)).tolist())

    base, other, again = once(np.zeros(n)), once(own), once(np.zeros(n))
    found = spread_from(base, other, again)
    assert found is not None
    # exp(N(0, 0.2)) over its mean has the sd sqrt(exp(0.04) - 1) = 0.202.
    assert found.pair_sd == pytest.approx(0.202, rel=0.05)
    assert found.request_noise_sd == pytest.approx(0.04, rel=0.05)
    alone = spread_from(base, other)
    assert alone is not None
    assert alone.pair_sd == pytest.approx(math.hypot(0.202, 0.04 * math.sqrt(2)), rel=0.05)
    assert alone.request_noise_sd == 0.0
    assert spread_from(base[:1], other[:1]) is None


@pytest.mark.parametrize("difference", [0.0, -0.1, math.nan])
def test_impossible_differences_are_refused(difference: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        needed(difference)


def test_impossible_designs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one start"):
        needed(0.1, starts=0)
    with pytest.raises(ValueError, match="confidence and power"):
        needed(0.1, power=1.0)
    with pytest.raises(ValueError, match="pair_sd"):
        needed(0.1, pair_sd=-1.0)
    with pytest.raises(ValueError, match="at least two prompts"):
        detectable(1)
