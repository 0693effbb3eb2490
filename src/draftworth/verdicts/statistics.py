"""Paired statistics over prompts, with restarts as a level of their own.

Every function is deterministic: the same numbers and the same seed give the same interval, whatever their order.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from draftworth.verdicts.base import Interval

Floats = NDArray[np.float64]

RESAMPLES = 4000
BOOTSTRAP_PAIRS = 8
"""Fewest pairs for a bootstrap: below, resamples repeat each other and the tails are made of a handful of values."""
TAIL_RESAMPLES = 10
"""Fewest resamples that must lie beyond a limit for the limit to be read off them."""
WIDEST_LOG = math.log(1000.0)
"""A limit further than a factor of 1000 from the estimate says nothing and is reported as missing."""
EXACT_PAIRS = 50
"""Most differences for which the signed-rank distribution is counted exactly."""
STARTS_TO_ESTIMATE = 3
"""Fewest starts of an arm whose own spread replaces the prior."""

PRIOR_LOG_SD_BASELINE = 0.005
"""Prior spread (sd of log TPOT) between restarts of a server that does not speculate; see `restart_log_sd`."""
PRIOR_LOG_SD_VARIANT = 0.05
"""Prior spread (sd of log TPOT) between restarts of a server that speculates; see `restart_log_sd`."""


def ratio_of_means(
    baseline: Sequence[float],
    variant: Sequence[float],
    *,
    confidence: float = 0.95,
    log_sd_extra: float = 0.0,
    seed: int = 0,
) -> Interval:
    """Return mean(variant) / mean(baseline) over paired prompts, with its confidence interval.

    The ratio of means, not the geometric mean of ratios: a service pays the sum of its milliseconds, so a slow prompt
    must weigh more than a fast one. A prompt is a cluster: its repeats are one value here.

    From 8 pairs on: a paired bootstrap, whole prompts drawn with replacement, with expanded percentiles (Hesterberg
    2015, "What Teachers Should Know About the Bootstrap", section 5.3: alpha'/2 = Phi(-sqrt(n/(n-1)) t(alpha/2, n-1))).
    Each resample's log ratio gets a normal draw for the restarts. Its sd is known, not estimated from these pairs, so
    it is divided by the expansion: the expanded percentile of that part alone is the plain normal one.

    Below 8 pairs, or where the expanded tail would hold fewer than 10 of the 4,000 resamples: residuals
    e = (variant - R baseline) / mean(baseline), se(R) = sd(e) / sqrt(n), on the log scale, half-width
    sqrt((t se/R)^2 + (z log_sd_extra)^2). Half-widths are combined, not variances: Welch-Satterthwaite degrees of
    freedom let a large restart part vouch for an se estimated from two pairs (coverage down to 85 % in simulation),
    and adding the half-widths covers 99 %.

    Args:
        baseline: one value a prompt, above zero (milliseconds a token, say).
        variant: the same prompts in the same order, in the same unit.
        confidence: two-sided level, between 0 and 1.
        log_sd_extra: sd of the log ratio between restarts, see `restart_log_sd`.
        seed: of the resampling.

    Returns:
        The interval; `low` and `high` are None for one pair, and where the spread gives no limit within a factor
        of 1000.

    Raises:
        ValueError: no pairs, unequal lengths, a value that is not finite and above zero, a level outside (0, 1), or a
            negative spread.
    """
    _check_level(confidence)
    if not (math.isfinite(log_sd_extra) and log_sd_extra >= 0):
        raise ValueError(f"the restart spread must be a number of at least 0, not {log_sd_extra}")
    if len(baseline) != len(variant):
        raise ValueError(f"pairs need both values: {len(baseline)} of the baseline, {len(variant)} of the variant")
    pairs = _sorted_pairs(baseline, variant)
    n = len(pairs)
    base, other = pairs[:, 0], pairs[:, 1]
    estimate = float(other.mean() / base.mean())
    if n == 1:
        return Interval(estimate=estimate, confidence=confidence, method="one prompt: no interval")

    tail = (1 - confidence) / 2
    t_limit = -float(special.stdtrit(n - 1, tail))
    normal_limit = -float(special.ndtri(tail))
    expanded_limit = math.sqrt(n / (n - 1)) * t_limit
    expanded_tail = float(special.ndtr(-expanded_limit))
    restarts = f"restart sd {100 * log_sd_extra:.2g} %" if log_sd_extra else "no restart spread"
    if n >= BOOTSTRAP_PAIRS and expanded_tail * RESAMPLES >= TAIL_RESAMPLES:
        logs = _resampled_log_ratios(base, other, seed)
        logs = logs + log_sd_extra * normal_limit / expanded_limit * _normal_draws(seed)
        lower, upper = np.quantile(logs, [expanded_tail, 1 - expanded_tail]).tolist()
        method = f"paired bootstrap over {n} prompts, {RESAMPLES} resamples, expanded percentiles; {restarts}"
    else:
        residuals = (other - estimate * base) / base.mean()
        log_se = float(residuals.std(ddof=1)) / math.sqrt(n) / estimate
        half = math.hypot(t_limit * log_se, normal_limit * log_sd_extra)
        lower, upper = math.log(estimate) - half, math.log(estimate) + half
        method = f"linearised ratio over {n} prompts, t with {n - 1} degrees of freedom; {restarts}"
    if max(abs(lower - math.log(estimate)), abs(upper - math.log(estimate))) > WIDEST_LOG:
        return Interval(estimate=estimate, confidence=confidence, method=f"{method}; too wide to state")
    return Interval(estimate=estimate, low=math.exp(lower), high=math.exp(upper), confidence=confidence, method=method)


def hodges_lehmann(differences: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Return the Hodges-Lehmann shift: the median of all Walsh averages (d_i + d_j) / 2, i <= j.

    The interval is distribution-free: it runs between the C-th smallest and the C-th largest Walsh average, C the
    largest number with P(W <= C - 1) <= (1 - confidence) / 2 under the signed-rank distribution (Hollander, Wolfe and
    Chicken, "Nonparametric Statistical Methods", section 3.3). The distribution is counted exactly up to 50
    differences and taken as normal, with continuity correction, above. Memory grows with n squared.

    Args:
        differences: one a prompt, variant minus baseline, any unit.
        confidence: two-sided level, between 0 and 1; what is reached is at least this.

    Returns:
        The shift in the unit of the differences; no limits where n is too small for the level (below 6 at 95 %).

    Raises:
        ValueError: nothing given, a value that is not finite, or a level outside (0, 1).
    """
    _check_level(confidence)
    values = np.asarray(differences, dtype=np.float64)
    n = values.size
    if n == 0:
        raise ValueError("a shift needs at least one difference")
    if not np.isfinite(values).all():
        raise ValueError("a shift needs finite differences")
    rows, columns = np.triu_indices(n)
    walsh = np.sort((values[rows] + values[columns]) / 2)
    estimate = float(np.median(walsh))
    rank = _walsh_rank(n, (1 - confidence) / 2)
    if rank < 1:
        return Interval(
            estimate=estimate, confidence=confidence, method=f"Hodges-Lehmann: {n} prompts are too few for an interval"
        )
    kind = "exact" if n <= EXACT_PAIRS else "normal approximation of the"
    return Interval(
        estimate=estimate,
        low=float(walsh[rank - 1]),
        high=float(walsh[-rank]),
        confidence=confidence,
        method=f"Hodges-Lehmann over {n} prompts, {kind} signed-rank distribution; within these starts",
    )


def restart_log_sd(
    starts_baseline: int,
    starts_variant: int,
    observed_baseline_log_means: Sequence[float] = (),
    prior_baseline: float = PRIOR_LOG_SD_BASELINE,
    prior_variant: float = PRIOR_LOG_SD_VARIANT,
    *,
    observed_variant_log_means: Sequence[float] = (),
    confidence: float = 0.95,
) -> float:
    """Return the sd of the log ratio that comes from restarts: sqrt(s_b^2 / n_b + s_v^2 / n_v).

    An arm with fewer than three starts has s from its prior, or from its starts where that is larger. With three or
    more the starts alone tell; an sd of so few is itself uncertain and the intervals take this one as known, so it is
    multiplied by t(n - 1) / z at the level asked for (2.2 for three starts, 1.15 for ten, at 95 %). Without that
    factor an interval over three starts covers about 81 % where 95 % is written.

    The priors are a reading of one published pair of figures (kekzl/imp pull request 1011): between restarts a server
    spread by 0.5 % without speculation and by 11 % with it. Read as ranges over a handful of restarts; the range of
    four normal draws is 2.06 sd on average, so 11 % is an sd of about 0.05. For the other, the 0.5 % itself is taken.

    Args:
        starts_baseline: how often the baseline was started and measured.
        starts_variant: the same for the variant.
        observed_baseline_log_means: log of the mean over prompts, one a start of the baseline.
        prior_baseline: sd of the log between restarts without speculation.
        prior_variant: sd of the log between restarts with speculation.
        observed_variant_log_means: log of the mean over prompts, one a start of the variant.
        confidence: level of the interval this goes into.

    Raises:
        ValueError: an arm that never started, a negative prior, or a log mean that is not finite.
    """
    _check_level(confidence)
    return math.hypot(
        _arm_log_sd("baseline", starts_baseline, observed_baseline_log_means, prior_baseline, confidence),
        _arm_log_sd("variant", starts_variant, observed_variant_log_means, prior_variant, confidence),
    )


def _arm_log_sd(arm: str, starts: int, log_means: Sequence[float], prior: float, confidence: float) -> float:
    """Return the sd of the mean of one arm's log over its starts."""
    if starts < 1:
        raise ValueError(f"the {arm} needs at least one start, not {starts}")
    if not (math.isfinite(prior) and prior >= 0):
        raise ValueError(f"the restart prior of the {arm} must be a number of at least 0, not {prior}")
    if not all(math.isfinite(value) for value in log_means):
        raise ValueError(f"the log means of the {arm} must be finite")
    observed = len(log_means)
    estimate = float(np.std(np.asarray(log_means, dtype=np.float64), ddof=1)) if observed > 1 else 0.0
    if min(starts, observed) < STARTS_TO_ESTIMATE:
        spread = max(prior, estimate)
    else:
        tail = (1 - confidence) / 2
        spread = estimate * float(special.stdtrit(observed - 1, tail) / special.ndtri(tail))
    return spread / math.sqrt(starts)


def _check_level(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, not at {confidence}")


def _sorted_pairs(baseline: Sequence[float], variant: Sequence[float]) -> Floats:
    """Return pairs, shape (n, 2), in an order that depends on their values only."""
    pairs = np.column_stack([np.asarray(baseline, dtype=np.float64), np.asarray(variant, dtype=np.float64)])
    if len(pairs) == 0:
        raise ValueError("a ratio needs at least one pair")
    if not (np.isfinite(pairs).all() and (pairs > 0).all()):
        raise ValueError("a ratio of times needs finite values above zero")
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


@lru_cache(maxsize=2)
def _resample_counts(n: int, seed: int) -> Floats:
    """Return how often each of n prompts is in each resample, shape (RESAMPLES, n); the same for TPOT and TTFT."""
    drawn = np.random.default_rng([seed, n]).integers(0, n, size=(RESAMPLES, n))
    flat = drawn + n * np.arange(RESAMPLES)[:, None]
    return np.bincount(flat.ravel(), minlength=RESAMPLES * n).reshape(RESAMPLES, n).astype(np.float64)


def _resampled_log_ratios(base: Floats, other: Floats, seed: int) -> Floats:
    counts = _resample_counts(len(base), seed)
    logs: Floats = np.log((counts @ other) / (counts @ base))
    return logs


@lru_cache(maxsize=2)
def _normal_draws(seed: int) -> Floats:
    """Return RESAMPLES standard normal values in random order: one from each equal slice, so that no tail is short."""
    slices: Any = special.ndtri((np.arange(RESAMPLES) + 0.5) / RESAMPLES)
    return np.random.default_rng([seed, 0]).permutation(np.asarray(slices, dtype=np.float64))


def _walsh_rank(n: int, tail: float) -> int:
    """Return the largest C with P(W <= C - 1) <= tail for the signed-rank statistic W of n differences; 0: none."""
    total = n * (n + 1) // 2
    if n > EXACT_PAIRS:
        sd = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return math.floor(total / 2 + 0.5 + float(special.ndtri(tail)) * sd)
    # counts[w]: sets of the ranks 1..n whose sum is w.
    counts = [1] + [0] * total
    for rank in range(1, n + 1):
        for weight in range(total, rank - 1, -1):
            counts[weight] += counts[weight - rank]
    # Half the weights at most: beyond the middle low and high would cross.
    below = accumulate(counts[: total // 2 + 1])
    return sum(1 for count in below if count <= tail * 2**n)
