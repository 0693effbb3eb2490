"""Trials with a known truth: do the intervals cover it, and how often does a verdict call a difference that is none?"""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from draftworth.bench.base import RequestRow
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.compare import compare
from draftworth.verdicts.statistics import ratio_of_means, restart_log_sd

Floats = NDArray[np.float64]
PROMPT_SD = 0.5
PAIR_SD = 0.12
TRUE_RATIO = 0.8


def heavy_noise(rng: np.random.Generator, shape: tuple[int, ...], sd: float) -> Floats:
    """Log noise of which one value in ten has three times the sd, shifted so that the mean of its exponential is 1."""
    mean = 0.9 * math.exp(sd**2 / 2) + 0.1 * math.exp((3 * sd) ** 2 / 2)
    noise: Floats = rng.normal(0, 1, shape) * np.where(rng.random(shape) < 0.1, 3 * sd, sd) - math.log(mean)
    return noise


def coverage(n: int, restart_sd: float, trials: int, confidence: float = 0.95) -> float:
    """Share of simulated trials whose interval holds the true ratio; prompts differ more than arms do."""
    rng = np.random.default_rng([n, int(1000 * restart_sd)])
    hits = 0
    for _ in range(trials):
        baseline = np.exp(rng.normal(2.5, PROMPT_SD, n))
        variant = TRUE_RATIO * baseline * np.exp(heavy_noise(rng, (n,), PAIR_SD) + rng.normal(0, 1) * restart_sd)
        interval = ratio_of_means(
            baseline.tolist(), variant.tolist(), confidence=confidence, log_sd_extra=restart_sd, seed=1
        )
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= TRUE_RATIO <= interval.high
    return hits / trials


@pytest.mark.parametrize("restart_sd", [0.0, 0.05])
@pytest.mark.parametrize("n", [4, 8, 16, 64])
def test_a_95_percent_interval_covers_the_truth(n: int, restart_sd: float) -> None:
    covered = coverage(n, restart_sd, trials=1500)
    assert 0.92 <= covered <= 0.985


def test_a_corrected_level_covers_more() -> None:
    # Eight categories: 1 - 0.05 / 8.
    assert coverage(12, 0.0, trials=800, confidence=0.99375) >= 0.98


@pytest.mark.parametrize("starts", [3, 5])
def test_restarts_estimated_from_few_starts_still_cover(starts: int) -> None:
    rng = np.random.default_rng(starts)
    trials, hits = 2000, 0
    for _ in range(trials):
        baseline = rng.normal(0, 0.005, starts)
        variant = rng.normal(0, 0.05, starts)
        sd = restart_log_sd(starts, starts, baseline.tolist(), observed_variant_log_means=variant.tolist())
        hits += abs(variant.mean() - baseline.mean()) <= 1.959964 * sd
    assert 0.94 <= hits / trials <= 0.98


def block(arm: str, tpots: Sequence[float]) -> list[RequestRow]:
    return [
        RequestRow(
            arm=arm,
            block=0,
            prompt_id=f"p{i:02}",
            category=("chat", "code", "json")[i % 3],
            repeat=0,
            started_unix=0.0,
            ok=True,
            tokens=101,
            first_chunk_tokens=1,
            token_source="usage",
            ttft_ms=tpot * 8,
            decode_ms=tpot * 100,
            tpot_ms=tpot,
        )
        for i, tpot in enumerate(tpots)
    ]


def verdicts(n: int, variant_starts: int, trials: int, log_ratio: float = 0.0) -> list[Verdict]:
    """Verdicts of A-B-A trials whose restarts spread as the priors say."""
    rng = np.random.default_rng([n, variant_starts, trials])
    found = []
    for _ in range(trials):
        prompts = rng.normal(2.5, PROMPT_SD, n)
        base = [
            block("baseline", np.exp(prompts + rng.normal(0, 0.005) + rng.normal(0, 0.01, n)).tolist())
            for _ in range(2)
        ]
        other = [
            block("variant", np.exp(prompts + log_ratio + rng.normal(0, 0.05) + heavy_noise(rng, (n,), 0.04)).tolist())
            for _ in range(variant_starts)
        ]
        found.append(compare(base, other).comparison.verdict)
    return found


@pytest.mark.parametrize(("n", "variant_starts"), [(5, 1), (24, 1), (24, 3)])
def test_equal_arms_are_rarely_called_different(n: int, variant_starts: int) -> None:
    trials = 400
    found = verdicts(n, variant_starts, trials)
    wrong = sum(verdict in {Verdict.FASTER, Verdict.SLOWER} for verdict in found)
    # 5 % and two Monte-Carlo standard errors of 400 trials.
    assert wrong / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


def test_a_gain_of_a_quarter_is_found_with_one_start() -> None:
    found = verdicts(24, 1, 100, log_ratio=math.log(0.75))
    assert found.count(Verdict.FASTER) >= 99
