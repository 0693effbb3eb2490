"""What would change a verdict: other settings, an acceptance, another engine, or a measurement.

Settings are predicted from the baseline's own answers, with the modes that the trial measured.
"""

import math
from collections.abc import Sequence

from draftworth.costs.base import Costs
from draftworth.costs.model import FittedModel
from draftworth.drafters import drafter as by_name
from draftworth.drafters.base import Limits, Setting
from draftworth.errors import UsageError
from draftworth.explain.base import Account, BreakEven, Change, Part
from draftworth.explain.words import less_time
from draftworth.predict.advice import MARGIN, describe, verdict
from draftworth.predict.base import Predicted, Range
from draftworth.predict.requests import Requests, replay_requests
from draftworth.predict.speculation import default_drafter, method_of
from draftworth.predict.speedup import predict_one
from draftworth.traces.base import Trace

_MOST = 3
_LIBRARY = "library"
"""In the evidence of a mode that no arm of this server told."""
_STATED = (
    "The drafter's time was stated by hand: where it drafts on the host, a profile measures it "
    '(`diagnostics = ["profile"]` under [verdict]).'
)


def settings_predicted(
    trace: Trace,
    costs: Costs,
    model: FittedModel,
    *,
    loads: Sequence[tuple[int, int, tuple[float, float, float]]],
    drafter: str | None,
) -> tuple[str, list[Predicted]]:
    """Return the drafter that was replayed, and its usual settings as predicted from the baseline's answers.

    Args:
        trace: the baseline's answers.
        costs: of the server.
        model: fitted to them.
        loads: concurrency, tokens of a request in the KV cache, and what the prefills of others add to a token
            (`costs.prefill.prefill_share`).
        drafter: which; None takes the engine's own n-gram drafting.

    Raises:
        UsageError: the answers have no token ids, or nothing is known of the drafter's engine mode.
    """
    name = drafter or default_drafter(costs.engine, costs.version, costs.runner)
    chosen = by_name(name)
    method = method_of(chosen)
    if not model.knows(method):
        raise UsageError(f"nothing is known of what {method[0]} adds to a step of this engine")
    settings = chosen.grid()
    found: list[Predicted] = []
    requests: list[Requests] | None = None
    for batch, context, prefill in loads:
        if requests is None or chosen.shared:
            _, requests = replay_requests(trace, chosen, settings, Limits(concurrency=batch if chosen.shared else 1))
        found += [
            predict_one(setting, one, model, batch=batch, context=context, method=method, prefill=prefill)
            for setting, one in zip(settings, requests, strict=True)
        ]
    return name, found


def changes(account: Account, drafter: str | None, predicted: Sequence[Predicted]) -> tuple[Change, ...]:
    """Return what would change the verdict on an arm, the best first.

    Args:
        account: of the arm.
        drafter: whose settings were predicted; None where none could be.
        predicted: settings at the account's load.
    """
    measured = account.baseline_ms / account.arm_ms
    found = list(_settings(drafter, predicted, measured)) if drafter and predicted else []
    even = account.break_even
    if account.difference.value > 0 and even.length is not None and even.measured_length is not None:
        sure = even.ends is None or even.ends[0] > even.longest
        reach = (
            f"a drafting step can yield {even.longest:g} at most, so "
            + ("no acceptance pays" if sure else "it may be that no acceptance pays")
            if even.length > even.longest
            else f"it had {even.measured_length:.2f} of at most {even.longest:g}"
        )
        found.append(
            Change(
                kind="acceptance",
                text=f"At its coverage a drafting step has to yield {even.length:.2f} tokens to pay{_ends(even)}: "
                f"{reach}.",
            )
        )
    mode = next(one for one in account.parts if one.cause == "engine mode")
    without = _without_mode(account)
    if account.difference.value > 0 and mode.ms.low > 0 and without is not None:
        pays = "it would pay" if without.low > 1 else "it may pay" if without.high > 1 else "it would not pay even so"
        found.append(
            Change(
                kind="engine",
                text="With an engine whose speculation adds nothing to a step, the same drafts would take "
                f"{less_time(without)}: {pays}.",
                speed_up=without,
            )
        )
    stated = any(one.stated for one in account.parts)
    if stated:
        found.append(Change(kind="measure", text=_STATED))
    if not mode.measured and (not stated or any(_LIBRARY in one for one in mode.evidence)):
        found.append(Change(kind="measure", text=_unmeasured(mode)))
    return tuple(found)


def _ends(even: BreakEven) -> str:
    return "" if even.ends is None else f" ({even.ends[0]:.2f} to {even.ends[1]:.2f})"


def _without_mode(account: Account) -> Range | None:
    """Return the speed-up of an arm's drafts on an engine whose speculation adds nothing to a step.

    Of the parts alone: the baseline with its steps saved, what verifying adds and, where it is known apart, the
    drafter. The rest is left out, since it may be more of the mode. None for an arm that drafted nothing.
    """
    if not account.break_even.measured_length:
        return None
    parts = [one.ms for one in account.parts if one.cause in {"verification", "drafter", "tokens gained"}]
    ms = account.baseline_ms + sum(one.value for one in parts)
    # Fewer steps than it took there cannot be, and none is shorter than the baseline's.
    least = account.prefill_ms + account.steps_per_token * account.baseline_step_ms
    low = max(least, ms - math.hypot(*(one.value - one.low for one in parts)))
    high = ms + math.hypot(*(one.high - one.value for one in parts))
    return Range(
        value=account.baseline_ms / max(ms, least), low=account.baseline_ms / high, high=account.baseline_ms / low
    )


def _unmeasured(mode: Part) -> str:
    if any(_LIBRARY in one for one in mode.evidence):
        return (
            "The engine's mode was not measured on this server: a null-draft arm and one of synthetic acceptance tell "
            'it (`diagnostics = ["null-draft", "synthetic:2.0"]` under [verdict]).'
        )
    return (
        "Part of the engine's mode was carried over from another k, load or kind of step: a null-draft and a synthetic "
        "arm with this k at this load measure it."
    )


def _settings(drafter: str, predicted: Sequence[Predicted], measured: float) -> list[Change]:
    """Return settings that are predicted to pay, and more than the arm was measured to.

    Args:
        drafter: whose they are.
        predicted: settings at the arm's load.
        measured: speed-up of the arm.
    """
    chosen = by_name(drafter)
    best = sorted(predicted, key=lambda one: -one.speed_up.value)
    paying = [one for one in best if one.speed_up.value > 1 + MARGIN]
    if not paying:
        return [Change(text=f"Of {len(predicted)} settings of {drafter}: {verdict(predicted)}")]
    better = [one for one in paying if one.speed_up.value > measured]
    if not better:
        top = paying[0]
        text = (
            f"None of {len(predicted)} settings of {drafter} is predicted to beat the {measured:.2f} times as fast "
            "that was measured"
        )
        return [Change(text=f"{text}: the best, {describe(top)}, takes {less_time(top.speed_up)}.")]
    kept: list[Predicted] = []
    for one in better:
        if len(kept) < _MOST and all(one.k != other.k for other in kept):
            kept.append(one)
    return [
        Change(
            text=f"{describe(one)} is predicted to take {less_time(one.speed_up)}.",
            arguments=chosen.arguments(Setting(one.k, one.min, one.max, one.more)),
            speed_up=one.speed_up,
        )
        for one in kept
    ]
