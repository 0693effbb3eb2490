"""The result types of a comparison. Verdicts are deterministic: the same record gives the same verdict."""

from enum import StrEnum

from draftworth.models import Frozen


class Verdict(StrEnum):
    """What a trial can end in."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


class Interval(Frozen):
    """An estimate with its confidence interval. `low` and `high` are None where there is too little data."""

    estimate: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    method: str = ""
    """How the interval was made, for a person."""


class Comparison(Frozen):
    """Variant against baseline over the same prompts."""

    metric: str = "tpot"
    """What the verdict is about: `tpot`, `ttft`, `throughput` or `goodput`."""
    tpot_ratio: Interval | None = None
    """TPOT of the variant over TPOT of the baseline; below 1 is faster. None where nothing could be paired."""
    shift_ms: Interval | None = None
    """Hodges-Lehmann estimate of the paired difference of TPOT, variant minus baseline, in milliseconds."""
    ttft_ratio: Interval | None = None
    """TTFT of the variant over TTFT of the baseline; below 1 is faster."""
    throughput_ratio: Interval | None = None
    """Output tokens per request time, variant over baseline; above 1 is faster. None in an open loop and a replay,
    where arrivals set the throughput."""
    goodput_ratio: Interval | None = None
    """Goodput of the variant over goodput of the baseline; above 1 is better. None without limits, and where no
    request of an arm met them."""
    baseline_tpot_ms: float | None = None
    variant_tpot_ms: float | None = None
    baseline_ttft_ms: float | None = None
    variant_ttft_ms: float | None = None
    baseline_throughput: float | None = None
    """Output tokens / sum of the end-to-end times of the paired prompts, tokens a second of one request. In a closed
    loop the server's own throughput is this times the concurrency; None in an open loop and a replay."""
    variant_throughput: float | None = None
    baseline_goodput: float | None = None
    """Closed loop: share of requests within the limits x requests answered a second of request time. Open loop: the
    share alone."""
    variant_goodput: float | None = None
    pairs: int = 0
    """Prompts measured in both arms."""
    verdict: Verdict = Verdict.INCONCLUSIVE
    reason: str = ""
    """Why this verdict, in one sentence with figures."""

    @property
    def ratio(self) -> Interval | None:
        """The ratio that the verdict is about."""
        found: Interval | None = getattr(self, f"{self.metric}_ratio")
        return found


class CategoryComparison(Comparison):
    """A comparison within one group of requests: a category of prompts, or a point of a sweep."""

    category: str
    """The name of the category or point."""
    kind: str = "category"
    """`category` or `point`."""


class OutputCheck(Frozen):
    """The variant's greedy tokens scored on the baseline server, beside the baseline's own scored the same way."""

    status: str
    """`same`, `suspect`, `diverged` or `unchecked`."""
    reason: str
    threshold_nats: float | None = None
    """Gaps up to this are near ties: twice the baseline's own largest gap, at least 0.5 nats."""
    baseline_positions: int = 0
    baseline_not_top: int = 0
    """Positions whose token is not the most likely one."""
    baseline_largest_gap: float | None = None
    variant_positions: int = 0
    variant_not_top: int = 0
    variant_beyond: int = 0
    """Positions beyond the threshold."""
    variant_largest_gap: float | None = None
    identical_outputs: int = 0
    """Prompts whose output is token for token the same in both arms: reported, not judged."""
    compared_outputs: int = 0
