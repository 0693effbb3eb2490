"""SGLang's version numbers, and what its own figures of speculation are made of in each release.

Read in the releases 0.4.6, 0.4.6.post5, 0.5.3 to 0.5.6, 0.5.9 to 0.5.14, 0.5.16 to 0.5.19 and 0.5.23
(`log_decode_stats` of `managers/scheduler.py`, `managers/scheduler_metrics_mixin.py`,
`observability/scheduler_metrics_mixin.py` and `managers/scheduler_components/metrics_reporter.py`). N is
`speculative_num_draft_tokens`: it counts the root, so a step drafts N - 1 tokens (vLLM's num_speculative_tokens).
"""

import math

from draftworth.engines import versions

Release = versions.Release
number = versions.number
"""Returns a version's first three numbers, `0.5.12.post1` as (0, 5, 12); None where it is not one."""

RATE_TOLD: Release = (0, 5, 4)
"""The first release read that tells an acceptance rate."""
RATE_OF_DRAFTS: Release = (0, 5, 11)
"""The first release read whose log and page count accepted drafts alone in the rate (PR #23530)."""
VERIFY_CALLS: Release = (0, 5, 13)
"""The first release read with `sglang:spec_verify_calls_total`."""
SGLEXT: Release = (0, 5, 19)
"""The first release read that answers `return_spec_tokens_details` (PR #33518)."""

STEPS_MEAN = "verify calls: plain decode steps are counted nowhere, so draft coverage is 1 by construction"
LENGTH = "tokens of verify steps / steps, one bonus token a step counted; over request-steps"
RATE_OLD = "(accepted + steps) / (steps x N), 0.5.4 to 0.5.10: the bonus token counts, so nothing accepted gives 1 / N"
RATE_NEW = "accepted / (steps x (N - 1)), 0.5.11 and later; N is configured, drafts may be shorter"
RATE_UNKNOWN = (
    "depends on the release: (accepted + steps) / (steps x N) in 0.5.4 to 0.5.10, accepted / (steps x (N - 1)) in "
    "0.5.11 and later"
)
_BY_ARITHMETIC = "; told by its length and N, the release is not known"
_HALF = 0.005  # the log prints two decimals
_EPSILON = 1e-9


def name(version: str | None) -> str:
    """Return SGLang's name with its version where that is known."""
    return f"SGLang {version}" if version else "SGLang"


def text(release: Release) -> str:
    """Return a release as it is written: `0.5.13`."""
    return ".".join(map(str, release))


def rate_formula(
    version: str | None, length: float | None = None, rate: float | None = None, width: int | None = None
) -> str:
    """Return what the log's and the page's acceptance rate is made of.

    Without a version it is decided by arithmetic where that is possible: the old rate is length / N, the new one is
    (length - 1) / (N - 1), and a length of 1 without any accepted draft gives 1 / N and 0.

    Args:
        version: SGLang's version, or None.
        length: the acceptance length that was told with it, rounded to two decimals.
        rate: the rate, rounded to two decimals.
        width: N, where it is known.
    """
    release = number(version)
    if release is not None:
        return RATE_NEW if release >= RATE_OF_DRAFTS else RATE_OLD
    if length is None or rate is None or not (math.isfinite(length) and math.isfinite(rate)):
        return RATE_UNKNOWN
    if width is None or width <= 1:
        if length > 1 + _EPSILON:
            return RATE_UNKNOWN
        return (RATE_OLD if rate > _HALF else RATE_UNKNOWN) + (_BY_ARITHMETIC if rate > _HALF else "")
    old, new = _fits(length, rate, 0, width), _fits(length, rate, 1, width)
    if old == new:
        return RATE_UNKNOWN
    return (RATE_OLD if old else RATE_NEW) + _BY_ARITHMETIC


def _fits(length: float, rate: float, less: int, width: int) -> bool:
    """Tell whether a rounded rate can be (length - less) / (width - less) of a rounded length."""
    slots = width - less
    low, high = (length - _HALF - less) / slots, (length + _HALF - less) / slots
    return low - _HALF - _EPSILON <= rate <= high + _HALF + _EPSILON
