"""What a finished trial of one k says about its steps, and so about other k: for cases where nothing else was kept.

All that is needed are both TPOTs, the survival by draft position, and a curve of T(n) / T(1). The coverage is rarely
reported, so it is an assumption: everything is told for several. What T does not explain is either the engine's mode,
the same in every step, or a steeper T; the truth lies between, and both ends are told.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Implied:
    """What one arm implies, at one assumed coverage.

    Attributes:
        coverage: drafting steps / steps, assumed.
        tokens_per_step: 1 + coverage · sum of survival.
        step_ms: a step of the variant: its TPOT times its tokens per step.
        step_cost: the same over the baseline's step.
        verify_cost: what T alone explains of `step_cost`.
        mode_ms: what is left of a step: engine mode and drafter.
        break_even_length: acceptance length per drafting step at which this k would have cost nothing.
        if_mode: speed-up for k = 1, 2, … up to the measured k (whose value is the measured one), where what T leaves
            unexplained is the engine's mode and the same in every step.
        if_verify: the same where it is verification: T(n) / T(1) - 1 grown by one factor until it explains all.
    """

    coverage: float
    tokens_per_step: float
    step_ms: float
    step_cost: float
    verify_cost: float
    mode_ms: float
    break_even_length: float
    if_mode: tuple[float, ...]
    if_verify: tuple[float, ...]


def implied(
    base_ms: float, variant_ms: float, survival: Sequence[float], coverage: float, curve: Sequence[float]
) -> Implied:
    """Return what an arm's TPOT implies.

    Args:
        base_ms: TPOT of the baseline.
        variant_ms: TPOT of the variant.
        survival: share of drafting steps whose position i was accepted, k values.
        coverage: share of steps that draft, above 0, at most 1.
        curve: T(n) / T(1) for n = 1 to k + 1.
    """
    k = len(survival)
    emitted = [1 + coverage * sum(survival[:i]) for i in range(k + 1)]
    verify = [(1 - coverage) + coverage * curve[i] for i in range(k + 1)]
    step = variant_ms * emitted[k]
    mode = step - base_ms * verify[k]
    growth = (step / base_ms - 1) / (verify[k] - 1) if verify[k] > 1 else 1.0
    return Implied(
        coverage=coverage,
        tokens_per_step=emitted[k],
        step_ms=step,
        step_cost=step / base_ms,
        verify_cost=verify[k],
        mode_ms=mode,
        break_even_length=1 + (step / base_ms - 1) / coverage,
        if_mode=tuple(base_ms * emitted[i] / (base_ms * verify[i] + mode) for i in range(1, k + 1)),
        if_verify=tuple(emitted[i] / (1 + growth * (verify[i] - 1)) for i in range(1, k + 1)),
    )


def geometric(first: float, last: float, k: int) -> tuple[float, ...]:
    """Return survival at k positions of which only the first and the last were reported, by geometric interpolation."""
    if k == 1:
        return (first,)
    ratio = (last / first) ** (1 / (k - 1))
    return tuple(first * ratio**i for i in range(k))


def length_of(survival: Sequence[float]) -> float:
    """Return the acceptance length per drafting step."""
    return 1 + sum(survival)
