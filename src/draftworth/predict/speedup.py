"""Replay joined with costs: the speed-up of every setting at every load.

`S = T(B, 1) · E[tokens per step] / E[T(composition) + M(kind) + D]`, with the expectation over the mixture of requests
that draft and those that do not, and over draft lengths (docs/predict.md). A request's TPOT is its steps over its
tokens times the step, so the mean over requests of steps / tokens is what enters, and not the ratio of the sums.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.costs.mixture import StepMixture
from draftworth.drafters.counts import SettingCounts
from draftworth.drafters.replay import Replayed
from draftworth.errors import UsageError
from draftworth.predict.base import Limit, Parts, Predicted, Range

_RESAMPLES = 2000
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Steps:
    """How many steps a token takes: the replay's side of a prediction.

    Attributes:
        per_token: mean over requests of steps / tokens, the first token of each left out.
        log_sd: standard error of its logarithm over requests; 0 of one request.
    """

    per_token: float
    log_sd: float


def steps_per_token(steps: NDArray[np.int32], emitted: NDArray[np.int32], seed: int = 0) -> Steps:
    """Return the mean over requests of steps / tokens with its standard error.

    Args:
        steps: [R], steps of each request.
        emitted: [R], tokens of these steps, at least 1 each.
        seed: unused while the delta method serves; kept so that a caller's seed is one place.
    """
    del seed
    ratio = steps / emitted
    mean = float(ratio.mean())
    if len(ratio) < 2:  # noqa: PLR2004 - no spread of one
        return Steps(mean, 0.0)
    return Steps(mean, float(ratio.std(ddof=1)) / math.sqrt(len(ratio)) / mean)


def predict_settings(
    replayed: Replayed,
    model: StepMixture,
    *,
    concurrencies: Sequence[int],
    context: int,
    method: str,
    runner: str | None,
) -> list[Predicted]:
    """Return the prediction of every setting at every load, in the order of settings, then of loads.

    Args:
        replayed: a replay with `keep_requests`.
        model: the cost of steps.
        concurrencies: how many requests run at a time.
        context: tokens of a request in the KV cache, in the middle of its answer.
        method: the speculative method as the engine calls it, `ngram`.
        runner: vLLM's model runner, where it is known.

    Raises:
        UsageError: the replay kept no requests, or nothing is known of the method's engine mode.
    """
    if replayed.steps is None or replayed.emitted is None:
        raise UsageError("a prediction needs the steps of each request: replay with keep_requests")
    found = []
    for at, counts in enumerate(replayed.settings):
        steps = steps_per_token(replayed.steps[at], replayed.emitted)
        for batch in concurrencies:
            base = model.expected(_only_one(), batch, context)
            found.append(predict_one(counts, steps, base, model, batch=batch, context=context, method=(method, runner)))
    return found


def predict_one(
    counts: SettingCounts,
    steps: Steps,
    base: Estimate,
    model: StepMixture,
    *,
    batch: int,
    context: int,
    method: tuple[str, str | None],
) -> Predicted:
    """Return the prediction of one setting at one load; see `predict_settings`."""
    lengths = mixture(counts)
    verify = model.expected(lengths, batch, context)
    whole = model.expected(lengths, batch, context, method=method)
    relative = log_sd(whole, base)
    ratio = steps.per_token * whole.ms / base.ms
    spread = math.hypot(steps.log_sd, relative) * _Z
    tpot = Range(value=ratio, low=ratio * math.exp(-spread), high=ratio * math.exp(spread))
    total = counts.total
    parts = Parts(base_ms=base.ms, verify_ms=verify.ms - base.ms, mode_ms=whole.ms - verify.ms)
    needed = break_even(whole.ms / base.ms, total.coverage)
    idle = model.expected(_only_one(), batch, context, method=method)
    setting = counts.setting
    return Predicted(
        k=setting.k,
        min=setting.min,
        max=setting.max,
        more=dict(setting.more),
        concurrency=batch,
        length_per_step=total.length_per_step or 1.0,
        coverage=total.coverage,
        length_per_drafting_step=total.length_per_drafting_step,
        acceptance_rate=total.acceptance_rate,
        speed_up=Range(value=1 / tpot.value, low=1 / tpot.high, high=1 / tpot.low),
        tpot_ratio=tpot,
        parts=parts,
        break_even_length=needed,
        limit=limit_of(counts, ratio, parts, idle.ms),
        why=tuple(dict.fromkeys((base.why, verify.why, whole.why))),
        measured=base.measured and whole.measured,
    )


def mixture(counts: SettingCounts) -> NDArray[np.float64]:
    """Return the share of steps by how many tokens they drafted, k + 1 values from 0."""
    lengths = np.asarray(counts.total.draft_lengths, dtype=np.float64)
    result: NDArray[np.float64] = lengths / lengths.sum()
    return result


def _only_one() -> NDArray[np.float64]:
    return np.ones(1)


def log_sd(whole: Estimate, base: Estimate) -> float:
    """Return the standard error of log(whole / base), the two intervals taken as independent."""
    return math.hypot(*(math.log(one.high / one.low) / (2 * _Z) for one in (whole, base)))


def break_even(cost: float, coverage: float | None) -> float | None:
    """Return the acceptance length per drafting step at which a step that costs `cost` baseline steps pays for itself.

    Of the steps a share `coverage` drafts, so a step emits 1 + coverage (length - 1) tokens; that must be `cost`.
    """
    return None if not coverage else 1 + (cost - 1) / coverage


def limit_of(counts: SettingCounts, ratio: float, parts: Parts, idle_ms: float) -> Limit:
    """Return what stands first in the way; see `predict.base.Limit`.

    Args:
        counts: the replay of the setting.
        ratio: predicted TPOT ratio.
        parts: of the step.
        idle_ms: a step with speculation on in which nobody drafts.
    """
    total = counts.total
    coverage = total.coverage
    if ratio < 1:
        return "nothing"
    if not coverage:
        return "coverage"
    drafting_ms = (parts.step_ms - (1 - coverage) * idle_ms) / coverage
    if (total.length_per_drafting_step or 1.0) * parts.base_ms > drafting_ms:
        return "coverage"
    most = 1 + total.drafted / total.drafting_steps
    if (break_even(parts.step_ms / parts.base_ms, coverage) or 0.0) <= most:
        return "acceptance"
    return "verification" if parts.verify_ms > parts.mode_ms else "engine mode"
