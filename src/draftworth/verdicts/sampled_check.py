"""The sampled output check: at a temperature above 0, do both arms write from one distribution?

Greedy scoring (`output_check`) says nothing of sampling, where a faulty rejection step shows as a shifted distribution
and in no single token. Here both arms answer the same prompts several times, and answers are compared as samples.

Statistic: the kernel two-sample statistic (Gretton et al., "A Kernel Two-Sample Test", 2012, the unbiased MMD squared)
with k(a, b) = the number of leading tokens that two answers have in common, at most `LENGTH`: the sum, over l = 1 to
LENGTH, of "the first l tokens are the same", so that it compares the distributions of the first token, of the first
two, … together.

What is drawn: a request's seed is made of the workload's, the prompt's id (with its turn) and the repeat
(`bench.run.seed_of`), so the same seed is sent at every point of a sweep and at every start. Answers of one seed are no
independent samples: they are one cluster, and one sign is drawn for each cluster, so that all its answers count and a
fault at one load is seen. Within a cluster both arms' answers at the same point are paired, in the order of their
starts. A cluster is never compared with itself, and a prompt needs three.

Under the null hypothesis a cluster's arms may be swapped, which turns the sign of its difference, so signs are drawn at
random for the p-value. It is exact, whatever the distributions are, where the arms have no seed in common and where
both draw alike from it. Where one draws otherwise from a seed in common (a rejection step does), the signs keep the
mean and the variance of the distance, and the p-value is close: the tests simulate the least symmetric way to draw.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftworth.bench.base import RequestRow
from draftworth.models import Frozen

LENGTH = 8
"""Leading tokens that are compared: a shifted distribution shows in the first already, later ones differ anyway."""
SIGNIFICANCE = 0.01
POWER = 0.8
_RESAMPLES = 9_999
_FEWEST_SEEDS = 3
"""Of a prompt, for its answers to tell one distribution from another at all."""
_ENDED = -1
_Z_POWER = 0.8416
"""Standard normal quantile of `POWER`."""

Key = tuple[str, int, str]
"""Prompt, repeat, point: the first two make the seed."""


class _Group(NamedTuple):
    """A prompt's paired answers: leading tokens (pairs, LENGTH) of both arms, and the number of each pair's seed."""

    one: NDArray[np.int64]
    other: NDArray[np.int64]
    seed: NDArray[np.int64]

    @property
    def seeds(self) -> int:
        """How many seeds there are: the independent pieces of evidence."""
        return int(self.seed[-1]) + 1

    @property
    def apart(self) -> NDArray[np.float64]:
        """1 for two pairs of different seeds, 0 for those of one: (pairs, pairs)."""
        apart: NDArray[np.float64] = (self.seed[:, None] != self.seed[None, :]).astype(np.float64)
        return apart


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
    """Compare answers that were sampled to the same prompts, seed by seed.

    Args:
        baseline: its requests at one temperature above 0, of all points and starts.
        variant: the variant's, at the same.
        arms: variants that are compared with this baseline: they share the significance level of 1 %.
        seed: of the signs that are drawn.

    Returns:
        The check; `unchecked` where too few seeds have answers with token ids, or where every answer to a prompt is
        the same in both arms, as greedy decoding gives them.
    """
    groups = _groups(baseline, variant)
    pairs, seeds = sum(len(group.one) for group in groups), sum(group.seeds for group in groups)
    if not groups:
        reason = (
            f"no prompt has sampled answers of {_FEWEST_SEEDS} seeds with token ids in both arms at one load: raise "
            "workload.repeats"
        )
        return SampledCheck(status="unchecked", reason=reason)
    if all((one == one[:1]).all() and (other == one[:1]).all() for one, other, _ in groups):
        return SampledCheck(
            status="unchecked",
            reason="all answers to a prompt are the same in both arms: nothing was sampled",
            prompts=len(groups),
            pairs=pairs,
        )
    differences = [_differences(group) for group in groups]
    distance = sum(float(one.sum()) for one in differences)
    random = np.random.default_rng(seed)
    null = np.zeros(_RESAMPLES)
    for one in differences:
        signs = random.choice(np.array([-1.0, 1.0]), (_RESAMPLES, len(one)))
        null += np.einsum("ri,ij,rj->r", signs, one, signs, optimize=True)
    p_value = float((1 + np.count_nonzero(null >= distance - 1e-12)) / (1 + _RESAMPLES))
    level = SIGNIFICANCE / max(1, arms)
    # A prompt's signs tell 2 ** (seeds - 1) cases apart: with fewer cases in all than that no p-value is small enough.
    attainable = 2.0 ** -min(1000, seeds - len(groups))
    least = _detectable(null, groups, level) if attainable <= level else None
    found = SampledCheck(
        status="same", reason="", p_value=p_value, prompts=len(groups), pairs=pairs, distance=distance / len(groups)
    )
    of_what = f"{pairs} sampled answers of each arm to {len(groups)} prompts"
    if seeds < pairs:
        of_what += f", of {seeds} seeds,"
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


def _groups(baseline: Sequence[RequestRow], variant: Sequence[RequestRow]) -> list[_Group]:
    """Return each prompt's pairs, of those with enough seeds."""
    one, other = _answers(baseline), _answers(variant)
    paired: dict[str, dict[int, list[tuple[list[int], list[int]]]]] = {}
    for key in sorted(one.keys() & other.keys()):  # a record gives the same p-value again, in any process
        prompt, repeat, _ = key
        # As many of one arm as of the other: only then may they be swapped.
        pairs = zip(one[key], other[key], strict=False)
        paired.setdefault(prompt, {}).setdefault(repeat, []).extend(pairs)
    return [
        _Group(
            one=np.array([mine for pairs in seeds.values() for mine, _ in pairs]),
            other=np.array([theirs for pairs in seeds.values() for _, theirs in pairs]),
            seed=np.repeat(np.arange(len(seeds)), [len(pairs) for pairs in seeds.values()]),
        )
        for _, seeds in sorted(paired.items())
        if len(seeds) >= _FEWEST_SEEDS
    ]


def _answers(rows: Sequence[RequestRow]) -> Mapping[Key, list[list[int]]]:
    """Return the leading tokens of answers, those of one key in the order of their starts and blocks."""
    found: dict[Key, list[list[int]]] = {}
    for row in sorted(rows, key=lambda one: (one.start, one.block)):
        if row.ok and row.token_ids:
            lead = [*row.token_ids[:LENGTH]]
            key = (row.prompt_id, row.repeat, row.point)
            found.setdefault(key, []).append([*lead, *[_ENDED] * (LENGTH - len(lead))])
    return found


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number of leading tokens in common, each of one with each of other."""
    same = one[:, None, :] == other[None, :, :]
    common: NDArray[np.float64] = np.cumprod(same, axis=2).sum(axis=2).astype(np.float64)
    return common


def _differences(group: _Group) -> NDArray[np.float64]:
    """Return each two seeds' share of the squared distance, which they add up to; a seed has none with itself."""
    across = _common(group.one, group.other)
    apart = group.apart
    each = (_common(group.one, group.one) + _common(group.other, group.other) - across - across.T) * apart
    firsts = np.flatnonzero(np.diff(group.seed, prepend=-1))
    of_seeds: NDArray[np.float64] = np.add.reduceat(np.add.reduceat(each, firsts, axis=0), firsts, axis=1)
    return of_seeds / float(apart.sum())


def _detectable(null: NDArray[np.float64], groups: Sequence[_Group], level: float) -> float | None:
    """Return the share of answers from elsewhere that is seen with a chance of `POWER`.

    A variant that takes a share s of its answers from a distribution with no beginning in common has an expected
    squared distance of at least s² times the chance-weighted beginnings that two of the baseline's answers, of two
    seeds, have in common; it is seen where that exceeds the null's critical value by its spread (normal approximation).
    """
    critical, spread = float(np.quantile(null, 1 - level)), float(null.std())
    alike = 0.0
    for group in groups:
        apart = group.apart
        alike += float((_common(group.one, group.one) * apart).sum() / apart.sum())
    if alike <= 0:
        return None
    share = float(np.sqrt((critical + _Z_POWER * spread) / alike))
    return share if share <= 1 else None
