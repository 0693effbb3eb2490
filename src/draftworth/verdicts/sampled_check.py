"""The sampled output check: at a temperature above 0, do both arms write from one distribution?

Greedy scoring (`output_check`) says nothing of sampling, where a faulty rejection step shows as a shifted distribution
and in no single token. Here both arms answer the same prompts several times, and answers are compared as samples.

Statistic: the kernel two-sample statistic (Gretton et al., "A Kernel Two-Sample Test", 2012, the unbiased MMD squared)
with k(a, b) = the number of leading tokens that two answers have in common, at most `LENGTH`: the sum, over l = 1 to
LENGTH, of "the first l tokens are the same", so that it compares the distributions of the first token, of the first
two, … together. Requests of both arms share their sampling seed in pairs; under the null hypothesis a pair may be
swapped, which turns the sign of its difference, so signs are drawn at random for the p-value: exact whatever the
distributions are, with seeds in common or without.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.bench.base import RequestRow
from draftworth.models import Frozen

LENGTH = 8
"""Leading tokens that are compared: a shifted distribution shows in the first already, later ones differ anyway."""
SIGNIFICANCE = 0.01
POWER = 0.8
_RESAMPLES = 9_999
_FEWEST_PAIRS = 3
"""Of a prompt, for its answers to tell one distribution from another at all."""
_ENDED = -1
_Z_POWER = 0.8416
"""Standard normal quantile of `POWER`."""


class SampledCheck(Frozen):
    """Sampled answers of a variant beside the baseline's, as samples of one distribution or of two."""

    status: str
    """`same` (nothing was seen; `detectable` says what would have been), `diverged`, or `unchecked`."""
    reason: str
    p_value: float | None = None
    """Chance of so large a difference between arms that sample alike."""
    prompts: int = 0
    pairs: int = 0
    """Answers of each arm, over all prompts."""
    distance: float | None = None
    """Mean over prompts of the squared distance (0 is the same; unbiased, so it may lie below 0)."""
    detectable: float | None = None
    """A variant that takes at least this share of its answers from elsewhere is seen with a chance of 80 %; None where
    these samples could not see even one that takes all of them from elsewhere."""


def judge_sampled(
    baseline: Sequence[RequestRow], variant: Sequence[RequestRow], *, arms: float = 1, seed: int = 0
) -> SampledCheck:
    """Compare answers that were sampled to the same prompts, pair by pair of prompt and repeat.

    Args:
        baseline: its requests at one temperature above 0.
        variant: the variant's, at the same.
        arms: variants that are compared with this baseline: they share the significance level of 1 %.
        seed: of the signs that are drawn.

    Returns:
        The check; `unchecked` where too few answers have token ids, or where every answer to a prompt is the same in
        both arms, as greedy decoding gives them.
    """
    groups = _groups(baseline, variant)
    pairs = sum(len(one) for one, _ in groups)
    if not groups:
        return SampledCheck(
            status="unchecked",
            reason=f"no prompt has {_FEWEST_PAIRS} sampled answers with token ids in both arms: raise workload.repeats",
        )
    if all((one == one[:1]).all() and (other == one[:1]).all() for one, other in groups):
        return SampledCheck(
            status="unchecked",
            reason="all answers to a prompt are the same in both arms: nothing was sampled",
            prompts=len(groups),
            pairs=pairs,
        )
    differences = [_differences(one, other) for one, other in groups]
    distance = sum(float(one.sum()) for one in differences)
    random = np.random.default_rng(seed)
    null = np.zeros(_RESAMPLES)
    for one in differences:
        signs = random.choice(np.array([-1.0, 1.0]), (_RESAMPLES, len(one)))
        null += np.einsum("ri,ij,rj->r", signs, one, signs, optimize=True)
    p_value = float((1 + np.count_nonzero(null >= distance - 1e-12)) / (1 + _RESAMPLES))
    level = SIGNIFICANCE / max(1, arms)
    # A prompt's signs tell 2 ** (pairs - 1) cases apart: with fewer cases in all than that no p-value is small enough.
    attainable = 2.0 ** -min(1000, pairs - len(groups))
    least = _detectable(null, groups, level) if attainable <= level else None
    found = SampledCheck(
        status="same", reason="", p_value=p_value, prompts=len(groups), pairs=pairs, distance=distance / len(groups)
    )
    of_what = f"{pairs} sampled answers of each arm to {len(groups)} prompts"
    if p_value < level:
        reason = f"{of_what} do not come from one distribution (p = {p_value:.2g})"
        return found.model_copy(update={"status": "diverged", "reason": reason, "detectable": least})
    if least is None:
        reason = (
            f"{of_what} are too few to see even a variant that writes something else altogether: raise "
            "workload.repeats or the number of prompts"
        )
        return found.model_copy(update={"status": "unchecked", "reason": reason})
    reason = (
        f"{of_what} may come from one distribution (p = {p_value:.2g}); a variant that takes {least:.0%} of its "
        f"answers from elsewhere would have been seen with a chance of {POWER:.0%}"
    )
    return found.model_copy(update={"reason": reason, "detectable": least})


def _groups(
    baseline: Sequence[RequestRow], variant: Sequence[RequestRow]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return, for each prompt, the leading tokens of its paired answers in both arms: (pairs, LENGTH) each."""
    one, other = _answers(baseline), _answers(variant)
    paired: dict[str, list[tuple[list[int], list[int]]]] = {}
    for key in sorted(one.keys() & other.keys()):  # a record gives the same p-value again, in any process
        paired.setdefault(key[0], []).extend(zip(one[key], other[key], strict=False))
    return [
        (np.array([mine for mine, _ in pairs]), np.array([theirs for _, theirs in pairs]))
        for _, pairs in sorted(paired.items())
        if len(pairs) >= _FEWEST_PAIRS
    ]


def _answers(rows: Sequence[RequestRow]) -> Mapping[tuple[str, int], list[list[int]]]:
    found: dict[tuple[str, int], list[list[int]]] = {}
    for row in rows:
        if row.ok and row.token_ids:
            lead = [*row.token_ids[:LENGTH]]
            found.setdefault((row.prompt_id, row.repeat), []).append([*lead, *[_ENDED] * (LENGTH - len(lead))])
    return found


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number of leading tokens in common, each of one with each of other."""
    same = one[:, None, :] == other[None, :, :]
    common: NDArray[np.float64] = np.cumprod(same, axis=2).sum(axis=2).astype(np.float64)
    return common


def _differences(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each two pairs' share of the squared distance, which they add up to; a pair has none with itself."""
    count = len(one)
    across = _common(one, other)
    each = _common(one, one) + _common(other, other) - across - across.T
    np.fill_diagonal(each, 0.0)
    return each / (count * (count - 1))


def _detectable(
    null: NDArray[np.float64], groups: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], level: float
) -> float | None:
    """Return the share of answers from elsewhere that is seen with a chance of `POWER`.

    A variant that takes a share s of its answers from a distribution with no beginning in common has an expected
    squared distance of at least s² times the chance-weighted beginnings that two of the baseline's answers have in
    common; it is seen where that exceeds the null's critical value by its spread (normal approximation).
    """
    critical, spread = float(np.quantile(null, 1 - level)), float(null.std())
    alike = 0.0
    for one, _ in groups:
        common = _common(one, one)
        np.fill_diagonal(common, 0.0)
        alike += float(common.sum()) / (len(one) * (len(one) - 1))
    if alike <= 0:
        return None
    share = float(np.sqrt((critical + _Z_POWER * spread) / alike))
    return share if share <= 1 else None
