"""What a draft that does not exist yet must reach to pay: an EAGLE head, an MTP layer, a small model."""

import math
from collections.abc import Sequence

import numpy as np

from draftworth.costs.mixture import StepMixture
from draftworth.predict.base import Needed, Range
from draftworth.predict.speedup import log_sd

_Z = 1.96


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
    then verifies k + 1 tokens: length needed = (T(B, k + 1) + M1 + k · draft) / T(B, 1).

    Args:
        model: the cost of steps.
        ks: numbers of drafted tokens.
        concurrencies: how many requests run at a time.
        context: tokens of a request in the KV cache.
        method: speculative method and runner whose engine mode is taken.
        draft_share: time of drafting one token over T(B, 1): about 1 / layers for a head of one layer, and more where
            its vocabulary projection weighs.

    Raises:
        UsageError: nothing is known of the method's engine mode.
    """
    found = []
    for batch in concurrencies:
        base = model.expected(np.ones(1), batch, context)
        for k in ks:
            lengths = np.zeros(k + 1)
            lengths[k] = 1.0
            step = model.expected(lengths, batch, context, method=method)
            drafting = k * draft_share * base.ms
            length = (step.ms + drafting) / base.ms
            spread = math.exp(log_sd(step, base) * _Z)
            interval = Range(value=length, low=length / spread, high=length * spread)
            found.append(
                Needed(
                    k=k,
                    concurrency=batch,
                    draft_ms=drafting,
                    step_ms=step.ms,
                    length=interval,
                    possible=length <= k + 1,
                )
            )
    return found
