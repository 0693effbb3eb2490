"""What a draft that does not exist yet must reach to pay: an EAGLE head, an MTP layer, a small model."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.costs.mixture import StepMixture
from draftworth.errors import UsageError
from draftworth.predict.base import Needed, Range


def needed(
    model: StepMixture,
    *,
    ks: Sequence[int],
    concurrencies: Sequence[int],
    context: int,
    method: tuple[str, str | None],
    other: tuple[str, str | None],
    draft_share: float,
) -> list[Needed]:
    """Return the acceptance length per step that breaks even, by k and load.

    A head drafts k tokens in every step, one after the other, each for `draft_share` of the baseline's step; the step
    then verifies k + 1 tokens: length needed = (T(B, k + 1) + M1 + k · draft) / T(B, 1). Where the head's engine mode
    was never measured it is taken for none, and the interval reaches to the mode of another method.

    Args:
        model: the cost of steps.
        ks: numbers of drafted tokens.
        concurrencies: how many requests run at a time.
        context: tokens of a request in the KV cache.
        method: the head's speculative method and runner.
        other: a method whose engine mode bounds the head's where that is not known.
        draft_share: time of drafting one token over T(B, 1): about 1 / layers for a head of one layer, and more where
            its vocabulary projection weighs.
    """
    found = []
    for batch in concurrencies:
        base = model.expected(np.ones(1), batch, context)
        for k in ks:
            lengths = np.zeros(k + 1)
            lengths[k] = 1.0
            step = _step(model, lengths, (batch, context), method, other)
            drafting = k * draft_share * base.ms
            length = max(1.0, (step.ms + drafting) / base.ms)
            interval = Range(
                value=length,
                low=max(1.0, (step.low + drafting) / base.high),
                high=max(1.0, (step.high + drafting) / base.low),
            )
            found.append(
                Needed(
                    k=k,
                    concurrency=batch,
                    draft_ms=drafting,
                    step_ms=step.ms,
                    length=interval,
                    possible=interval.low <= k + 1,
                )
            )
    return found


def _step(
    model: StepMixture,
    lengths: NDArray[np.float64],
    place: tuple[int, int],
    method: tuple[str, str | None],
    other: tuple[str, str | None],
) -> Estimate:
    batch, context = place
    try:
        return model.expected(lengths, batch, context, method=method)
    except UsageError:
        plain = model.expected(lengths, batch, context)
    try:
        bound = model.expected(lengths, batch, context, method=other)
    except UsageError:
        return plain
    why = (*plain.why, f"engine mode of {method[0]} not measured: none, at most that of {other[0]}")
    return Estimate(plain.ms, plain.low, max(plain.high, bound.high), why, measured=False)
