"""Before a trial: how many prompts and starts it takes to see a stated difference.

The variance of the log ratio after a trial is

    V = (sd_pair^2 + sd_request^2 (1/S_b + 1/S_v)) / n + sd_b^2 / S_b + sd_v^2 / S_v

n prompts, S starts and restart spread sd of each arm. Only the first part falls with the prompts: restarts set a floor.
The power is that of a t-test of the log ratio at the level of the last look, with the degrees of freedom that
`intervals.log_limits` would give these variances; with several looks a trial may see the difference earlier as well, so
its power is a little higher. A difference d is taken as log(1 + d), the smaller of the two directions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from scipy import special

from draftworth.bench.base import RequestRow
from draftworth.verdicts.intervals import BOOTSTRAP_PAIRS, influence
from draftworth.verdicts.pairing import pair, starts_of
from draftworth.verdicts.restarts import CONTRADICTION, PLAUSIBLE, STARTS_TO_ESTIMATE
from draftworth.verdicts.rules import PRIOR_LOG_SD_BASELINE, PRIOR_LOG_SD_VARIANT
from draftworth.verdicts.sequential import nominal_levels

PAIR_SD = 0.25
"""Default sd of the prompts' log ratios, of an n-gram drafter on mixed prompts: 0.28 in benchmarks/data/demo_trial (10
prompts of five categories, where some repeat their input and some do not). A trained drafter is far more even: 0.018 in
benchmarks/data/h200_moe_trial."""
REQUEST_NOISE_SD = 0.01
"""Default sd of the log TPOT of one request sent again: 0.010 in benchmarks/data/demo_trial (a CPU), 0.0008 in
benchmarks/data/h200_moe_trial (a GPU), each the sd between two baselines over sqrt(2)."""
MOST_PROMPTS = 1_000_000
MOST_STARTS = 1000
LARGEST_SHIFT = 35.0
"""Standard errors of a difference that are told apart from more."""
_AS_IT_IS = ((1.0, 1.0),)
_BEYOND = float(special.chdtrc(1, CONTRADICTION))
_TWO_STARTS = (
    (1 - _BEYOND, 1.0),
    (_BEYOND, float(special.chdtrc(3, CONTRADICTION)) / _BEYOND),
)
"""How probable two starts are to keep or to contradict a true prior, and how many times the prior their variance then
is on average: E(X | X > c) = P(chi2(3) > c) / P(chi2(1) > c) for X ~ chi2(1)."""
Starts = int | tuple[int, int]
"""Starts of each arm, or of the baseline and the variant."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How much a trial's figures spread.

    Attributes:
        pair_sd: sd between prompts of the log ratio variant / baseline, weighted by their time, without noise.
        request_noise_sd: sd of the log TPOT of one prompt in one start.
        restart_sd_baseline: sd of the log between restarts of the baseline.
        restart_sd_variant: the same of the variant.
    """

    pair_sd: float = PAIR_SD
    request_noise_sd: float = REQUEST_NOISE_SD
    restart_sd_baseline: float = PRIOR_LOG_SD_BASELINE
    restart_sd_variant: float = PRIOR_LOG_SD_VARIANT

    def __post_init__(self) -> None:
        """Check the spreads.

        Raises:
            ValueError: a spread that is not a number of at least 0.
        """
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a number of at least 0, not {value}")


@dataclass(frozen=True, slots=True)
class Needed:
    """What it takes to see a difference.

    Attributes:
        prompts: in each start; None where no number of prompts is enough with these starts.
        starts: of the baseline and of the variant.
        floor: smallest difference that these starts show with the power asked for, however many prompts there are.
        starts_needed: fewest starts of each arm with which some number of prompts is enough; None where `starts` do,
            or where not even 1,000 would.
        reason: why there is no number of prompts, in one sentence; empty where there is one.
    """

    prompts: int | None
    starts: tuple[int, int]
    floor: float
    starts_needed: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Design:
    """The trial that is planned.

    Attributes:
        starts: of each arm, or of the baseline and the variant.
        confidence: of the verdict, after any correction for several variants.
        power: probability with which the difference is to be seen.
        looks: how often the trial is looked at, the end included.
    """

    starts: Starts = 1
    confidence: float = 0.95
    power: float = 0.8
    looks: int = 1

    def __post_init__(self) -> None:
        """Check the design.

        Raises:
            ValueError: fewer than one start or look, or a level or power outside (0, 1).
        """
        if min(self.by_arm) < 1 or self.looks < 1:
            raise ValueError("a trial has at least one start of each arm and one look")
        if not (0 < self.confidence < 1 and 0 < self.power < 1):
            raise ValueError(f"confidence and power lie between 0 and 1, not at {self.confidence} and {self.power}")

    @property
    def by_arm(self) -> tuple[int, int]:
        """Starts of the baseline and of the variant."""
        return (self.starts, self.starts) if isinstance(self.starts, int) else self.starts


def needed(
    difference: float,
    *,
    pair_sd: float = PAIR_SD,
    request_noise_sd: float = REQUEST_NOISE_SD,
    restart_sd_baseline: float = PRIOR_LOG_SD_BASELINE,
    restart_sd_variant: float = PRIOR_LOG_SD_VARIANT,
    starts: Starts = 1,
    confidence: float = 0.95,
    power: float = 0.8,
    looks: int = 1,
) -> Needed:
    """Return how many prompts a trial needs to see a difference (0.1 is 10 %) with the power asked for.

    Raises:
        ValueError: a difference that is not above 0, a negative spread, or an impossible design (`Design`).
    """
    if not (math.isfinite(difference) and difference > 0):
        raise ValueError(f"the difference must be a number above 0, not {difference}")
    spread = Spread(pair_sd, request_noise_sd, restart_sd_baseline, restart_sd_variant)
    design = Design(starts, confidence, power, looks)
    floor = _smallest(MOST_PROMPTS, spread, design)
    if floor <= difference:
        low, high = 1, MOST_PROMPTS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if chance(difference, middle, spread, design) >= power else (middle, high)
        return Needed(high, design.by_arm, floor)
    more = _starts_needed(difference, spread, design)
    fewer = f"; it takes {more} starts of each" if more else f"; not even {MOST_STARTS} starts of each are enough"
    base, other = design.by_arm
    reason = (
        f"with {_times(base)} of the baseline and {_times(other)} of the variant, restarts alone hide a difference "
        f"below {100 * floor:.2g} %, however many prompts are sent{fewer}"
    )
    return Needed(None, design.by_arm, floor, more, reason)


def detectable(
    prompts: int,
    starts: Starts = 1,
    *,
    pair_sd: float = PAIR_SD,
    request_noise_sd: float = REQUEST_NOISE_SD,
    restart_sd_baseline: float = PRIOR_LOG_SD_BASELINE,
    restart_sd_variant: float = PRIOR_LOG_SD_VARIANT,
    confidence: float = 0.95,
    power: float = 0.8,
    looks: int = 1,
) -> float:
    """Return the smallest difference (0.1 is 10 %) that a trial sees with the power asked for.

    Raises:
        ValueError: fewer than two prompts, a negative spread, or an impossible design (`Design`).
    """
    if prompts < 2:  # noqa: PLR2004 - one prompt has no interval
        raise ValueError(f"a trial needs at least two prompts, not {prompts}")
    spread = Spread(pair_sd, request_noise_sd, restart_sd_baseline, restart_sd_variant)
    return _smallest(prompts, spread, Design(starts, confidence, power, looks))


def spread_from(
    baseline: Sequence[RequestRow], variant: Sequence[RequestRow], again: Sequence[RequestRow] = ()
) -> Spread | None:
    """Return the spread that measured blocks show, the restart priors left as they are.

    Args:
        baseline: rows of one block of the baseline.
        variant: rows of one block of the variant.
        again: rows of another block of the baseline with the same prompts, which tells the noise of requests; without
            it all spread is taken as the pairs', which more starts do not lower.

    Returns:
        None where fewer than two prompts were measured in both arms.
    """
    both = _sd(baseline, variant)
    if both is None:
        return None
    noise = (_sd(baseline, again) or 0.0) / math.sqrt(2)
    return Spread(math.sqrt(max(both**2 - 2 * noise**2, 0.0)), noise)


def chance(difference: float, prompts: int, spread: Spread, design: Design) -> float:
    """Return the power: how probable it is that the interval of the last look leaves 1 out."""
    if prompts < 2:  # noqa: PLR2004 - one prompt has no interval
        return 0.0
    alpha = nominal_levels(design.looks, 1 - design.confidence)[-1]
    within = spread.pair_sd**2 + spread.request_noise_sd**2 * sum(1 / starts for starts in design.by_arm)
    pairs = within / prompts
    parts, plausible, squares = [pairs], pairs, pairs**2 / (prompts - 1)
    taken: list[tuple[tuple[float, float], ...]] = []
    for starts, sd in zip(design.by_arm, (spread.restart_sd_baseline, spread.restart_sd_variant), strict=True):
        part = sd**2 / starts
        parts.append(part)
        taken.append(_TWO_STARTS if starts == STARTS_TO_ESTIMATE - 1 else _AS_IT_IS)
        upper = part
        if starts >= STARTS_TO_ESTIMATE:
            upper *= (starts - 1) / float(special.chdtri(starts - 1, 1 - PLAUSIBLE))
            squares += upper**2 / (starts - 1)
        plausible += upper
    total = sum(parts)
    if total == 0:
        return 1.0
    free = min(plausible**2 / squares, 1e6) if squares else 1e6
    if prompts < BOOTSTRAP_PAIRS:
        free = min(free, prompts - 1)
    limit = -float(special.stdtrit(free, alpha / 2))
    # Beyond, scipy's non-central t gives up; a power that is too low by a hair is all it costs.
    shift = min(math.log1p(difference) / math.sqrt(total), LARGEST_SHIFT)
    power = 0.0
    for (chance_base, base), (chance_other, other) in product(*taken):
        judged = math.sqrt((parts[0] + base * parts[1] + other * parts[2]) / total)
        power += chance_base * chance_other * (1 - float(special.nctdtr(free, shift, limit * judged)))
    return power


def _times(starts: int) -> str:
    return "one start" if starts == 1 else f"{starts} starts"


def _smallest(prompts: int, spread: Spread, design: Design) -> float:
    """Return the smallest difference seen with the power asked for; infinite where not even a factor of 1000 is."""
    low, high = 0.0, 1000.0
    if chance(high, prompts, spread, design) < design.power:
        return math.inf
    while high - low > 1e-6:  # noqa: PLR2004 - a ten-thousandth of a percent
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle, prompts, spread, design) >= design.power else (middle, high)
    return high


def _starts_needed(difference: float, spread: Spread, design: Design) -> int | None:
    first = min(design.by_arm)
    for starts in range(first, MOST_STARTS + 1):
        if chance(difference, MOST_PROMPTS, spread, replace(design, starts=starts)) >= design.power:
            return starts
    return None


def _sd(first: Sequence[RequestRow], second: Sequence[RequestRow]) -> float | None:
    """Return the sd over prompts of the pull on the log ratio of two blocks."""
    table = pair(starts_of([first]), starts_of([second]), "tpot").table
    if table.prompts < 2:  # noqa: PLR2004 - an sd takes two
        return None
    return float(influence(table).std(ddof=1))
