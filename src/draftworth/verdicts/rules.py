"""What a verdict is judged by: stated before a trial, kept in its record."""

import math
from dataclasses import dataclass
from typing import Literal

Metric = Literal["tpot", "ttft", "throughput", "goodput"]
"""What a verdict may be about."""
HIGHER_IS_BETTER: frozenset[str] = frozenset({"throughput", "goodput"})
"""The metrics whose ratio above 1 is a gain."""

MARGIN = 0.02
"""Default half-width of the band around a ratio of 1 that counts as no difference."""
PRIOR_LOG_SD_BASELINE = 0.006
"""Prior spread (sd of log TPOT) between restarts of a server that does not speculate."""
PRIOR_LOG_SD_VARIANT = 0.08
"""Prior spread (sd of log TPOT) between restarts of a server that speculates.

Both are the largest of four loads measured with three starts each on an H200 (benchmarks/results/restart_spread.json):
0.57 % without speculation and 8.2 % with n-gram drafts, rounded. The largest, since a prior that is too small gives
false verdicts and one that is too large only asks for more starts. One published pair of figures (kekzl/imp pull
request 1011), 0.5 % and 11 %, is of that order: read as ranges over a handful of restarts, an sd of 0.25 and 5 %.
"""
PRIOR_LOG_SD_CPU = 0.07
"""Prior spread (sd of log TPOT) between restarts of a server on a CPU without speculation; with it, at least this.

The largest of four: two loads, six starts each, on two cores of a virtual machine, quiet and with other work on it
(restart_spread_cpu_restarts.json, …_busy.json): there the machine itself changes its speed between starts.
"""
PRIOR_LOG_SD_TTFT = 0.10
"""Prior spread (sd of log TTFT) between restarts of any server.

The same measurement: the median TTFT of the baseline spread by 1.3 to 9.5 % between starts, though its TPOT did not.
"""
SEED = 20_260_101
"""Seed of every resampling, so that a record gives the same verdict again."""


def restart_priors(device: str | None) -> tuple[float, float]:
    """Return the default restart priors of TPOT, without and with speculation, on a kind of device.

    Args:
        device: `cpu`, or anything else for a GPU; None where it is not known, which is taken as a GPU.
    """
    if device == "cpu":
        return PRIOR_LOG_SD_CPU, max(PRIOR_LOG_SD_CPU, PRIOR_LOG_SD_VARIANT)
    return PRIOR_LOG_SD_BASELINE, PRIOR_LOG_SD_VARIANT


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must meet to count as good; a limit that is None is not asked for.

    Attributes:
        ttft_ms: most milliseconds to the first token.
        tpot_ms: most milliseconds a token after it.
        e2e_ms: most milliseconds of the whole request.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ValueError: a limit that is not above zero.
        """
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            limit = getattr(self, name)
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise ValueError(f"the limit {name} must be a number above 0, not {limit}")

    @property
    def stated(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.ttft_ms, self.tpot_ms, self.e2e_ms))

    @property
    def label(self) -> str:
        """The limits in words, e.g. `TTFT at most 500 ms and TPOT at most 30 ms`."""
        names = (("TTFT", self.ttft_ms), ("TPOT", self.tpot_ms), ("end to end", self.e2e_ms))
        return " and ".join(f"{name} at most {limit:g} ms" for name, limit in names if limit is not None)


@dataclass(frozen=True, slots=True)
class Rules:
    """How one variant is judged against the baseline.

    Attributes:
        margin: half-width of the band around a ratio of 1 that counts as no difference.
        confidence: level of a family of verdicts, all looks together. There are two families: those over all prompts,
            one a variant, each at 1 - (1 - confidence) / variants; and those of the groups of every variant, each at
            1 - (1 - confidence) / (variants x groups). That any verdict of a family is false has at most the
            probability 1 - confidence; that any of both is, twice that.
        variants: how many variants the trial compares with this baseline; of a search, by what share of the error its
            setting has (`search.spending`).
        correction: what that is, for a person, where it is no number of variants.
        metric: what the verdict is about.
        limits: what goodput asks for; without any there is no goodput.
        prior_baseline: sd of log TPOT between restarts of the baseline, used while it has fewer than three starts, for
            TPOT and throughput.
        prior_variant: the same of the variant.
        prior_ttft: sd of log TTFT between restarts of either arm, used likewise for TTFT and goodput.
        look: which look at the data this is, from 1.
        looks: how many looks are planned, the last included; 1 is a trial without sequential stopping.
        open_loop: whether requests came at times of their own; goodput is then a share of requests instead of a rate,
            and there is no throughput, since the arrivals set it.
        seed: of the resampling.
    """

    margin: float = MARGIN
    confidence: float = 0.95
    variants: float = 1
    correction: str = ""
    metric: Metric = "tpot"
    limits: Limits = Limits()
    prior_baseline: float = PRIOR_LOG_SD_BASELINE
    prior_variant: float = PRIOR_LOG_SD_VARIANT
    prior_ttft: float = PRIOR_LOG_SD_TTFT
    look: int = 1
    looks: int = 1
    open_loop: bool = False
    seed: int = SEED

    def __post_init__(self) -> None:
        """Check the rules.

        Raises:
            ValueError: a margin or level outside (0, 1), fewer than one variant, a look that is not one of the looks,
                a prior below 0, an unknown metric, goodput without a limit, or throughput in an open loop.
        """
        if not (0 < self.margin < 1 and 0 < self.confidence < 1):
            raise ValueError(f"margin and confidence lie between 0 and 1, not at {self.margin} and {self.confidence}")
        if self.variants < 1:
            raise ValueError(f"at least one variant is compared, not {self.variants}")
        if not 1 <= self.look <= self.looks:
            raise ValueError(f"look {self.look} is not one of {self.looks}")
        priors = (("the baseline", self.prior_baseline), ("the variant", self.prior_variant), ("TTFT", self.prior_ttft))
        for what, prior in priors:
            if not (math.isfinite(prior) and prior >= 0):
                raise ValueError(f"the restart prior of {what} must be a number of at least 0, not {prior}")
        if self.metric not in {"tpot", "ttft", *HIGHER_IS_BETTER}:
            raise ValueError(f"a verdict is about tpot, ttft, throughput or goodput, not {self.metric}")
        if self.metric == "goodput" and not self.limits.stated:
            raise ValueError("a verdict about goodput needs at least one limit")
        if self.metric == "throughput" and self.open_loop:
            raise ValueError("a verdict about throughput needs a closed loop: in an open one the arrivals set it")

    def priors(self, metric: Metric) -> tuple[float, float]:
        """Return the restart priors of a metric, of the baseline and of the variant."""
        if metric in {"ttft", "goodput"}:
            return self.prior_ttft, self.prior_ttft
        return self.prior_baseline, self.prior_variant
