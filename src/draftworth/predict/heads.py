"""What a draft that does not exist yet must reach to pay: an EAGLE head, an MTP layer, a small model."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.costs.mixture import StepMixture
from draftworth.errors import UsageError
from draftworth.predict.base import Needed, Range

OTHER: tuple[str, str | None] = ("ngram", None)
"""Whose engine mode bounds a head's where that is not known, on any runner. Not the drafter's that is predicted beside:
what a head must reach does not hang on it."""


def needed(
    model: StepMixture,
    *,
    ks: Sequence[int],
    concurrencies: Sequence[int],
    context: int,
    method: tuple[str, str | None],
    draft_share: float,
) -> list[Needed]:
    """Return the acceptance length per step that breaks even, by k and load.

    A head drafts k tokens in every step, one after the other, each for `draft_share` of the baseline's step; the step
    then verifies k + 1 tokens: length needed = (T(B, k + 1) + M1 + k · draft) / T(B, 1). Where the head's engine mode
    was never measured it is taken for none, and the interval reaches to the mode of drafting on the host (`OTHER`),
    measured or from the library: more than a head's, which gives less up.

    Args:
        model: the cost of steps.
        ks: numbers of drafted tokens.
        concurrencies: how many requests run at a time.
        context: tokens of a request in the KV cache.
        method: the head's speculative method and runner.
        draft_share: time of drafting one token over T(B, 1): about 1 / layers for a head of one layer, and more where
            its vocabulary projection weighs.
    """
    found = []
    for batch in concurrencies:
        base = model.expected(np.ones(1), batch, context)
        for k in ks:
            lengths = np.zeros(k + 1)
            lengths[k] = 1.0
            step = _step(model, lengths, (batch, context), method)
            drafting = k * draft_share * base.ms
            length = max(1.0, (step.ms + drafting) / base.ms)
            low = max(1.0, min(length, (step.low + drafting) / base.high))
            high = max(length, (step.high + drafting) / base.low)
            found.append(
                Needed(
                    k=k,
                    concurrency=batch,
                    draft_ms=drafting,
                    step_ms=step.ms,
                    length=Range(value=length, low=low, high=high),
                    possible=low <= k + 1,
                    sure=high <= k + 1,
                )
            )
    return found


def _step(
    model: StepMixture,
    lengths: NDArray[np.float64],
    place: tuple[int, int],
    method: tuple[str, str | None],
) -> Estimate:
    batch, context = place
    try:
        return model.expected(lengths, batch, context, method=method)
    except UsageError:
        plain = model.expected(lengths, batch, context)
    try:
        bound = model.expected(lengths, batch, context, method=OTHER)
    except UsageError:
        return plain
    why = (*plain.why, f"engine mode of {method[0]} not measured: none, at most that of {OTHER[0]}")
    return Estimate(plain.ms, plain.low, max(plain.high, bound.high), why, measured=False)
