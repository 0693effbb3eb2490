"""T by the tokens of a step, with the arms' own steps on it, for a plot."""

from collections.abc import Sequence

from draftworth.costs.base import Costs
from draftworth.costs.model import FittedModel
from draftworth.explain.base import Account, CurvePoint
from draftworth.predict.base import Range
from draftworth.predict.trialrows import Measured


def curve_points(costs: Costs, model: FittedModel, accounts: Sequence[Account], trial: Measured) -> list[CurvePoint]:
    """Return measured and modelled steps of the baseline, and each account's own step.

    Args:
        costs: with the points.
        model: fitted to them.
        accounts: of the trial's arms.
        trial: for the arms' loads.
    """
    contexts = [load_.place.context for load_ in trial.loads.values()]
    context = round(sum(contexts) / len(contexts))
    found = [
        CurvePoint(
            tokens=one.batch * one.tokens,
            ms=Range(value=one.ms, low=one.low, high=one.high),
            what="baseline" if one.how == "arm" else "measured",
        )
        for one in costs.points
        if one.tokens == 1
    ]
    most = max((point.tokens for point in found), default=1)
    for size in range(1, min(most, 128) + 1):
        step = model.base([1] * size, context)
        found.append(CurvePoint(tokens=size, ms=Range(value=step.ms, low=step.low, high=step.high), what="model"))
    for one in accounts:
        place = trial.loads[one.arm, one.point].place
        counts = place.counts
        drafted = (counts.drafted or 0) / counts.steps if counts is not None and counts.steps else 0.0
        tokens = max(1, round(place.batch * (1 + drafted)))
        step_ms = one.arm_step_ms
        found.append(
            CurvePoint(tokens=tokens, ms=Range(value=step_ms, low=step_ms, high=step_ms), what="arm", name=one.arm)
        )
    return found
