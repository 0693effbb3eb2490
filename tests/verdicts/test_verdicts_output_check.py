import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from draftworth.bench.base import RequestRow, ScoredOutput
from draftworth.verdicts.base import OutputCheck
from draftworth.verdicts.output_check import fisher_greater, judge

POSITIONS = 6_500
CAP = 0.25
"""Largest near tie ever seen among 6,567 positions of a real baseline, in nats."""


def outputs(gaps: Sequence[float], arm: str = "baseline", length: int = 160) -> list[ScoredOutput]:
    return [
        ScoredOutput(prompt_id=f"p{at // length:03}", arm=arm, gaps=tuple(gaps[at : at + length]), tokens=length)
        for at in range(0, len(gaps), length)
    ]


def check(baseline: Sequence[float], variant: Sequence[float]) -> OutputCheck:
    return judge(outputs(baseline), outputs(variant, "ngram"))


def near_ties(rng: np.random.Generator, count: int, *, cap: float = math.inf) -> list[float]:
    """Gaps of a sound greedy server: 0.6 % of positions lose a near tie by an exponential of mean 0.02 nats."""
    lost = rng.random(count) < 0.006
    return [float(gap) for gap in np.where(lost, np.minimum(rng.exponential(0.02, count), cap), 0.0)]


# --- the rule, by hand ----------------------------------------------------------------------------------------------


def test_the_figures_measured_on_a_real_server_are_the_same_output() -> None:
    # Baseline 40 of 6,567 not top, n-gram 29 of 6,559, both with a largest gap of 0.25.
    result = check([0.25] + [0.1] * 39 + [0.0] * 6_527, [0.25] + [0.1] * 28 + [0.0] * 6_530)
    assert result.status == "same"
    assert (result.baseline_positions, result.baseline_not_top, result.baseline_largest_gap) == (6_567, 40, 0.25)
    assert (result.variant_positions, result.variant_not_top, result.variant_largest_gap) == (6_559, 29, 0.25)
    assert (result.threshold_nats, result.variant_beyond) == (0.5, 0)
    assert "none of 6,559 tokens lies beyond near ties" in result.reason


def test_one_token_in_forty_replaced_on_a_real_server_has_diverged() -> None:
    # 678 positions above 0.25, the largest 27.8.
    result = check([0.25] + [0.0] * 6_566, [27.8] + [3.0] * 677 + [0.0] * 5_881)
    assert result.status == "diverged"
    assert result.variant_beyond == 678
    assert "678 of 6,559 tokens lie beyond near ties" in result.reason


def test_the_threshold_is_twice_the_baselines_largest_gap() -> None:
    result = check([0.6] + [0.0] * 99, [1.2] + [0.0] * 99)
    assert (result.threshold_nats, result.variant_beyond, result.status) == (1.2, 0, "same")
    assert check([0.6] + [0.0] * 99, [1.21] + [0.0] * 99).status == "suspect"


@pytest.mark.parametrize(("beyond", "status"), [(0, "same"), (1, "suspect"), (6, "suspect"), (7, "diverged")])
def test_seven_small_breaches_of_equally_many_positions_are_significant(beyond: int, status: str) -> None:
    # Each is as likely in either arm: about 2^-6 = 0.016 and 2^-7 = 0.008.
    result = check([0.0] * 1000, [0.9] * beyond + [0.0] * (1000 - beyond))
    assert result.status == status
    assert result.variant_beyond == beyond


@pytest.mark.parametrize(
    ("largest", "gap", "status"),
    [(0.1, 4.0, "suspect"), (0.1, 4.01, "diverged"), (1.0, 8.0, "suspect"), (1.0, 8.01, "diverged")],
)
def test_a_single_gap_is_enough_when_it_is_no_near_tie(largest: float, gap: float, status: str) -> None:
    assert check([largest] + [0.0] * 999, [gap] + [0.0] * 999).status == status


def test_an_infinite_gap_has_diverged_and_can_be_stored() -> None:
    result = check([0.0] * 100, [math.inf] + [0.0] * 99)
    assert (result.status, result.variant_beyond, result.variant_largest_gap) == ("diverged", 1, None)
    assert OutputCheck.model_validate_json(result.model_dump_json()) == result


@pytest.mark.parametrize(
    ("baseline", "variant", "words"),
    [
        ([], [0.0], "no position of the baseline's outputs"),
        ([0.0], [], "no position of the variant's outputs"),
        ([4.5, 0.0], [0.0], "no yardstick"),
        ([math.inf, 0.0], [0.0], "no yardstick"),
        ([0.0, math.nan], [0.0], "position 1 of prompt p000 (baseline)"),
        ([0.0], [0.0, 0.0, math.nan], "position 2 of prompt p000 (variant)"),
        ([0.0], [-0.5, 9.0], "gap of -0.5"),
    ],
)
def test_what_cannot_be_judged_is_unchecked_with_a_reason(
    baseline: list[float], variant: list[float], words: str
) -> None:
    result = check(baseline, variant)
    assert result.status == "unchecked"
    assert words in result.reason
    assert (result.threshold_nats, result.variant_beyond) == (None, 0)


def test_outputs_without_a_scored_position_are_unchecked() -> None:
    empty = [ScoredOutput(prompt_id="p", arm="baseline", gaps=(), tokens=40)]
    assert judge(empty, outputs([0.0])).status == "unchecked"
    assert judge([], []).status == "unchecked"


def test_rounding_below_zero_is_a_top_token() -> None:
    result = check([0.0, -0.0002], [0.0, -0.0002])
    assert (result.status, result.variant_not_top, result.variant_largest_gap) == ("same", 0, 0.0)


def answer(prompt: str, ids: list[int], *, block: int = 0, ok: bool = True) -> RequestRow:
    return RequestRow(
        arm="a", block=block, prompt_id=prompt, category="chat", repeat=0, started_unix=0.0, ok=ok, token_ids=ids
    )


def test_identical_outputs_are_counted_by_token_ids_of_the_first_good_answer() -> None:
    base = [answer("a", [9], block=1), answer("a", [1, 2]), answer("b", [3]), answer("c", [4]), answer("d", [])]
    other = [answer("a", [1, 2]), answer("b", [3, 5]), answer("c", [4], ok=False), answer("d", []), answer("e", [6])]
    result = judge(outputs([0.0]), outputs([0.0]), base, other)
    assert (result.identical_outputs, result.compared_outputs) == (1, 2)
    # Reported whatever the status, and no part of the judgement.
    assert result.status == "same"
    assert judge([], [], base, other).compared_outputs == 2


@given(st.integers(0, 60), st.integers(60, 2000), st.integers(1, 2000))
def test_p_is_fishers(beyond: int, positions: int, baseline_positions: int) -> None:
    table = [[beyond, positions - beyond], [0, baseline_positions]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert fisher_greater(beyond, positions, baseline_positions) == pytest.approx(expected, rel=1e-6)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=50), st.lists(st.floats(0, 30), min_size=1, max_size=50))
def test_a_worse_token_never_improves_the_status(baseline: list[float], variant: list[float]) -> None:
    order = ["same", "suspect", "diverged"]
    first = check(baseline, variant)
    if first.status == "unchecked":
        assert max(baseline) > 4
        return
    worse = check(baseline, [*variant[:-1], variant[-1] + 3])
    assert order.index(worse.status) >= order.index(first.status)


# --- simulated servers with a known truth ---------------------------------------------------------------------------


def test_near_ties_raise_no_alarm() -> None:
    # Capped, as measured, and not: the threshold's floor of 0.5 nats is 25 means of the noise.
    rng = np.random.default_rng(1)
    found = [
        check(near_ties(rng, 2000, cap=cap), near_ties(rng, 2000, cap=cap)).status
        for cap in (CAP, math.inf)
        for _ in range(500)
    ]
    assert set(found) == {"same"}


def test_noise_far_above_the_floor_is_rarely_suspect_and_never_diverged() -> None:
    # Twenty times the noise, every position, only 100 of them: the documented chance of a suspect is 2/N = 2 %.
    rng = np.random.default_rng(2)
    trials = 1000
    found = [
        check(rng.exponential(0.4, 100).tolist(), rng.exponential(0.4, 100).tolist()).status for _ in range(trials)
    ]
    usable = [status for status in found if status != "unchecked"]
    assert len(usable) > 0.98 * trials
    assert usable.count("diverged") == 0
    assert usable.count("suspect") / len(usable) <= 0.02 + 2 * math.sqrt(0.02 * 0.98 / trials)


@pytest.mark.parametrize("every", [40, 200, 1000])
def test_replaced_tokens_are_found(every: int) -> None:
    # A random token of a language model lies about ten nats below the top one, some only a nat or two.
    rng = np.random.default_rng(every)
    for _ in range(50):
        variant = near_ties(rng, POSITIONS)
        for at in range(every // 2, POSITIONS, every):
            variant[at] = abs(rng.normal(10, 4))
        assert check(near_ties(rng, POSITIONS), variant).status == "diverged"


def test_many_small_errors_are_found_without_a_single_large_gap() -> None:
    rng = np.random.default_rng(3)
    variant = near_ties(rng, POSITIONS)
    variant[::200] = [1.0] * len(variant[::200])
    result = check(near_ties(rng, POSITIONS), variant)
    assert (result.status, result.variant_beyond) == ("diverged", 33)


def test_a_sampled_variant_on_a_greedy_baseline_is_found() -> None:
    # A sampled token falls a nat or more below the top one in a few positions of a hundred.
    rng = np.random.default_rng(4)
    sampled = np.where(rng.random(800) < 0.05, rng.exponential(1.5, 800), 0.0).tolist()
    assert check(near_ties(rng, 800), sampled).status == "diverged"


def test_a_bounded_length_is_judged_on_what_was_scored() -> None:
    short = [dataclasses.replace(output, tokens=4000) for output in outputs([0.0] * 64)]
    assert judge(short, short).variant_positions == 64
