"""Replay joined with costs: the speed-up of a setting at a load.

`S = T(B, 1) / [steps per token · E[T(composition) + M(kind) + D]]` (docs/predict.md). What is predicted is the ratio of
a trial's verdict, mean TPOT over mean TPOT, in which each request counts alike whatever its length. So the steps of a
request are weighted by one over its tokens, and everything that is told, coverage and lengths too, carries that weight:

    w[d] = mean over requests of (steps that drafted d tokens / tokens)
    TPOT = p + sum over d of w[d] · E[step | this request drafts d, the others draw from the mixture]

p is what the prefills of other requests add to each token. It is the same on both sides, since an answer meets one
prefill of every other request however few steps it takes, and so it pulls every speed-up towards 1 and never across it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Estimate
from draftworth.costs.mixture import StepMixture
from draftworth.drafters.base import Setting
from draftworth.predict.base import Limit, Parts, Predicted, Range
from draftworth.predict.requests import Requests
from draftworth.predict.uncertain import Uncertain

Z = 1.96


@dataclass(frozen=True, slots=True)
class Weighted:
    """Steps in which each request counts alike.

    Attributes:
        per_token: steps per token, the mean over requests.
        shares: [K + 1], share of the steps by drafted tokens.
        pooled: [K + 1], the same over all steps: what the other requests of a batch draw from.
    """

    per_token: float
    shares: NDArray[np.float64]
    pooled: NDArray[np.float64]

    @property
    def coverage(self) -> float:
        """Share of steps that draft."""
        return float(self.shares[1:].sum())

    @property
    def drafted(self) -> float:
        """Mean drafted tokens of a drafting step, 0 where none drafts."""
        return float(self.shares @ np.arange(len(self.shares))) / self.coverage if self.coverage else 0.0

    @property
    def length_per_step(self) -> float:
        """Tokens per step."""
        return 1 / self.per_token

    @property
    def length_per_drafting_step(self) -> float | None:
        """Tokens per drafting step; those that a recording's end cut are not in it."""
        return 1 + (self.length_per_step - 1) / self.coverage if self.coverage else None


def weighted(requests: Requests) -> Weighted:
    """Return the steps of requests, each request counting alike."""
    each = requests.hist / requests.tokens[:, None]
    mean = each.mean(axis=0)
    total = requests.hist.sum(axis=0)
    return Weighted(float(mean.sum()), mean / mean.sum(), total / total.sum())


def predict_one(
    setting: Setting,
    requests: Requests,
    model: StepMixture,
    *,
    batch: int,
    context: int,
    method: tuple[str, str | None] | None,
    prefill: tuple[float, float, float] | None = None,
) -> Predicted:
    """Return the prediction of one setting at one load.

    Args:
        setting: which.
        requests: its steps, request by request.
        model: the cost of steps.
        batch: how many requests run at a time.
        context: tokens of a request in the KV cache, in the middle of its answer.
        method: the speculative method as the engine calls it, `ngram`, and vLLM's model runner where it is known; None
            leaves the engine's mode out: the figures are at best then.
        prefill: what the prefills of other requests add to each token, in milliseconds: value, lower and upper end;
            None where it is not known, which counts it as none.

    Raises:
        UsageError: nothing is known of the method's engine mode.
    """
    steps = weighted(requests)
    base = model.expected(np.ones(1), batch, context)
    own = model.by_own(steps.pooled, batch, context, method=method)
    whole = over(own, steps.shares)
    verify = over(model.by_own(steps.pooled, batch, context), steps.shares)
    shared = prefill or (0.0, 0.0, 0.0)
    cost = requests.hist @ np.array([one.ms for one in own]) / requests.tokens + shared[0]
    request_sd = float(cost.std(ddof=1)) / math.sqrt(len(cost)) / float(cost.mean()) if len(cost) > 1 else 0.0
    idle = float(steps.shares[0] * steps.pooled[0] ** (batch - 1))
    costs = Uncertain(steps.per_token, idle, base, verify, whole, shared)
    ratio = costs.ratio()
    each = requests.hist.sum(axis=1) / requests.tokens
    steps_sd = float(each.std(ddof=1)) / math.sqrt(len(each)) / float(each.mean()) if len(each) > 1 else 0.0
    steps_per_token = _range(steps.per_token, steps_sd)
    below, above = (math.exp(sign * math.hypot(Z * request_sd, costs.reach(sign))) for sign in (-1, 1))
    tpot = _possible(
        Range(value=ratio, low=ratio * below, high=ratio * above), steps_per_token, (base, verify, whole), setting.k
    )
    parts = Parts(
        base_ms=base.ms, verify_ms=verify.ms - base.ms, mode_ms=None if method is None else whole.ms - verify.ms
    )
    drafting = steps.shares[1:]
    all_draft = model.expected(
        np.concatenate([[0.0], drafting / drafting.sum()]) if drafting.any() else np.ones(1),
        batch,
        context,
        method=method,
    )
    return Predicted(
        k=setting.k,
        min=setting.min,
        max=setting.max,
        more=dict(setting.more),
        concurrency=batch,
        steps_per_token=steps_per_token,
        length_per_step=steps.length_per_step,
        coverage=steps.coverage,
        length_per_drafting_step=steps.length_per_drafting_step,
        speed_up=Range(value=1 / tpot.value, low=1 / tpot.high, high=1 / tpot.low),
        tpot_ratio=tpot,
        step_ms=Range(value=whole.ms, low=whole.low, high=whole.high),
        parts=parts,
        idle_speed_up=(base.ms + shared[0])
        / (model.expected(np.ones(1), batch, context, method=method).ms + shared[0]),
        break_even_length=break_even(whole.ms / base.ms, steps.coverage),
        limit=limit_of(steps, ratio, parts, all_draft.ms),
        why=tuple(dict.fromkeys((*base.why, *whole.why))),
        measured=base.measured and whole.measured,
        base_measured=base.measured,
        prefill_ms=None if prefill is None else Range(value=prefill[0], low=prefill[1], high=prefill[2]),
    )


def over(estimates: list[Estimate], shares: NDArray[np.float64]) -> Estimate:
    """Return the mean of estimates; the ends are means of the ends, as if all errors were to the same side."""
    ms, low, high = (
        float(shares @ np.array([getattr(one, name) for one in estimates])) for name in ("ms", "low", "high")
    )
    used = [one for one, share in zip(estimates, shares, strict=True) if share > 0]
    why = tuple(dict.fromkeys(reason for one in used for reason in one.why))
    return Estimate(ms, low, high, why, all(one.measured for one in used))


def _possible(ratio: Range, steps: Range, costs: tuple[Estimate, Estimate, Estimate], k: int) -> Range:
    """Return a TPOT ratio without what no server can give.

    A step costs no less than a plain one, so that the ratio is at least the steps per token. Where the plain step was
    not measured at this load, both ends of its interval are far apart, and those of the ratio with them; but a step of
    k + 1 tokens a request takes at most as long as k + 1 plain ones, which do the same, and the engine's mode.

    Args:
        ratio: as it comes of independent intervals.
        steps: per token.
        costs: a plain step, with verification, and with the engine's mode too.
        k: most drafted tokens of a step.
    """
    base, verify, whole = costs
    low, high = max(ratio.low, min(steps.low, ratio.value)), ratio.high
    if not base.measured:
        most = k + 1 + max(0.0, whole.high - verify.high) / base.low
        high = max(ratio.value, min(high, max(1.0, steps.high * most)))
    return Range(value=ratio.value, low=low, high=high)


def _range(value: float, sd: float) -> Range:
    return Range(value=value, low=value * math.exp(-Z * sd), high=value * math.exp(Z * sd))


def log_sd(whole: Estimate, base: Estimate) -> float:
    """Return the standard error of log(whole / base), the two intervals taken as independent."""
    return math.hypot(*(math.log(one.high / one.low) / (2 * Z) for one in (whole, base)))


def break_even(cost: float, coverage: float | None) -> float | None:
    """Return the acceptance length per drafting step at which a step that costs `cost` baseline steps pays for itself.

    Of the steps a share `coverage` drafts, so a step emits 1 + coverage (length - 1) tokens; that must be `cost`.
    """
    return None if not coverage else 1 + (cost - 1) / coverage


def limit_of(steps: Weighted, ratio: float, parts: Parts, all_draft_ms: float) -> Limit:
    """Return what stands first in the way; see `predict.base.Limit`.

    Args:
        steps: of the setting.
        ratio: predicted TPOT ratio.
        parts: of a step.
        all_draft_ms: a step in which every request drafts as many tokens as its drafting steps do.
    """
    if ratio < 1:
        return "nothing"
    length = steps.length_per_drafting_step
    if length is None or length * parts.base_ms > all_draft_ms:
        return "coverage"
    if (break_even(parts.step_ms / parts.base_ms, steps.coverage) or 0.0) <= 1 + steps.drafted:
        return "acceptance"
    return "verification" if parts.verify_ms > (parts.mode_ms or 0.0) else "engine mode"
