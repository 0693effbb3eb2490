"""The output check: is what the variant wrote what the baseline model would write?

Text equality cannot tell: near ties flip under any change of batch shape. Both arms' greedy outputs are scored on the
baseline server instead, position by position, and judged by the gap to its most likely token.
"""

import math
from collections.abc import Iterable, Sequence

from draftworth.bench.base import RequestRow, ScoredOutput
from draftworth.verdicts.base import OutputCheck

LEAST_THRESHOLD = 0.5
"""Nats. Half-precision logits differ by a few tenths between batch shapes; nothing below this is evidence."""
THRESHOLD_FACTOR = 2.0
UNUSABLE_BASELINE = 4.0
"""Nats. A baseline that itself writes tokens this unlikely was not greedy, or was scored by another model."""
LEAST_BREACH = 4.0
"""Nats. The written token has less than 1/50 of the top token's probability: no rounding explains it."""
BREACH_FACTOR = 8.0
SIGNIFICANCE = 0.01
ROUNDING = 1e-3
"""Nats a gap may lie below zero: log probabilities arrive rounded."""


def judge(
    baseline: Sequence[ScoredOutput],
    variant: Sequence[ScoredOutput],
    baseline_rows: Sequence[RequestRow] = (),
    variant_rows: Sequence[RequestRow] = (),
) -> OutputCheck:
    """Judge the variant's outputs by the gaps of its tokens, with the baseline's own gaps as the yardstick.

    Gaps up to tau = max(0.5 nats, 2 x the baseline's largest gap) are near ties. Of the variant's positions beyond tau:

    - none: `same`;
    - significantly more than the baseline has (one-sided Fisher exact test, p < 0.01; seven of equally many
      positions), or any single gap above max(4 nats, 8 x the baseline's largest): `diverged`;
    - otherwise `suspect`.

    False alarms: let a sound variant's gaps come from the baseline's own distribution, with an exponential tail, N
    positions each. The chance that any of N gaps exceeds twice the largest of N others is about 2/N: 0.03 % at 6,500
    positions, 2 % at 100, and the floor of 0.5 nats lowers it further. That is a `suspect`. `diverged` needs p < 0.01
    on top, or a gap eight times the largest: far below one in a thousand. Each position is scored in its own written
    context, so one flipped tie does not raise the gaps behind it.

    Power: a token that the model did not choose typically has a gap of several nats, so one wrong token is
    enough (the single-gap rule) and the Fisher test catches many small ones. What is not seen: a variant that only
    ever writes second-best tokens within tau.

    Args:
        baseline: outputs of the baseline, scored on the baseline server.
        variant: outputs of the variant, scored on the baseline server.
        baseline_rows: the baseline's requests; their token ids are compared with the variant's and reported.
        variant_rows: the variant's requests.

    Returns:
        The check. `unchecked`, with its reason, where an arm has no scored position, a gap is not a number, or the
        baseline's own gaps are too large to be a yardstick. An infinite gap of the variant is beyond every threshold;
        `variant_largest_gap` is then None (records are JSON, which has no infinity) and the reason says so.
    """
    base, other = _gaps(baseline), _gaps(variant)
    identical, compared = _identical(baseline_rows, variant_rows)
    largest = max(base, default=None)
    check = OutputCheck(
        status="unchecked",
        reason="",
        baseline_positions=len(base),
        baseline_not_top=sum(gap > 0 for gap in base),
        baseline_largest_gap=_finite(largest),
        variant_positions=len(other),
        variant_not_top=sum(gap > 0 for gap in other),
        variant_largest_gap=_finite(max(other, default=None)),
        identical_outputs=identical,
        compared_outputs=compared,
    )
    problem = _unusable("baseline", baseline) or _unusable("variant", variant)
    if problem is not None or largest is None:
        return check.model_copy(update={"reason": problem})
    if largest > UNUSABLE_BASELINE:
        reason = (
            f"the baseline's own output has a gap of {largest:.3g} nats to its most likely token, so it is no "
            f"yardstick (above {UNUSABLE_BASELINE:g}): was it sampled at temperature 0?"
        )
        return check.model_copy(update={"reason": reason})

    threshold = max(LEAST_THRESHOLD, THRESHOLD_FACTOR * largest)
    beyond = sum(gap > threshold for gap in other)
    status, reason = _status(
        beyond=beyond,
        worst=max(other),
        positions=len(other),
        baseline_positions=len(base),
        largest=largest,
        threshold=threshold,
    )
    return check.model_copy(
        update={"status": status, "reason": reason, "threshold_nats": threshold, "variant_beyond": beyond}
    )


def fisher_greater(beyond: int, positions: int, baseline_positions: int) -> float:
    """Return the one-sided p of Fisher's exact test that the variant has more positions beyond the threshold.

    No position of the baseline is beyond: the threshold is at least twice its largest gap. The hypergeometric
    tail then has a single term: C(positions, beyond) / C(positions + baseline_positions, beyond).
    """
    total = positions + baseline_positions
    return math.prod((positions - i) / (total - i) for i in range(beyond))


def _status(
    *, beyond: int, worst: float, positions: int, baseline_positions: int, largest: float, threshold: float
) -> tuple[str, str]:
    """Return status and reason; `largest` is the baseline's, `worst` the variant's largest gap."""
    yardstick = f"near ties reach {threshold:.2f} nats, the baseline's own largest gap is {largest:.2f}"
    if beyond == 0:
        return "same", f"none of {positions:,} tokens lies beyond near ties (largest gap {worst:.2f}; {yardstick})"
    seen = f"{beyond:,} of {positions:,} tokens lie beyond near ties, the worst by {worst:.3g} nats ({yardstick})"
    breach = max(LEAST_BREACH, BREACH_FACTOR * largest)
    p = fisher_greater(beyond, positions, baseline_positions)
    if p < SIGNIFICANCE:
        return "diverged", f"{seen}; Fisher's exact test p = {p:.2g}"
    if worst > breach:
        return "diverged", f"{seen}; a single gap above {breach:.3g} is not a near tie"
    return "suspect", f"{seen}; too few to be sure: Fisher's exact test p = {p:.2g}, no gap above {breach:.3g}"


def _gaps(outputs: Iterable[ScoredOutput]) -> list[float]:
    """Return every gap; what is not a number is left to `_unusable`."""
    return [max(gap, 0.0) for output in outputs for gap in output.gaps if not math.isnan(gap)]


def _unusable(arm: str, outputs: Sequence[ScoredOutput]) -> str | None:
    """Return why these outputs cannot be judged, or None."""
    if not any(output.gaps for output in outputs):
        return f"no position of the {arm}'s outputs was scored"
    for output in outputs:
        for position, gap in enumerate(output.gaps):
            if math.isnan(gap) or gap < -ROUNDING:
                return (
                    f"the server scored output position {position} of prompt {output.prompt_id} ({arm}) with a gap "
                    f"of {gap:g}, which is not a distance to the most likely token"
                )
    return None


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and math.isfinite(gap) else None


def _identical(baseline_rows: Sequence[RequestRow], variant_rows: Sequence[RequestRow]) -> tuple[int, int]:
    """Return how many prompts have the same token ids in both arms, of how many with ids in both."""
    base, other = _first_ids(baseline_rows), _first_ids(variant_rows)
    both = base.keys() & other.keys()
    return sum(base[prompt] == other[prompt] for prompt in both), len(both)


def _first_ids(rows: Iterable[RequestRow]) -> dict[str, Sequence[int]]:
    """Return the token ids of each prompt's first good answer."""
    ids: dict[str, Sequence[int]] = {}
    for row in sorted(rows, key=lambda row: (row.block, row.repeat)):
        if row.ok and row.token_ids:
            ids.setdefault(row.prompt_id, row.token_ids)
    return ids
