"""Candidates with what `draftworth predict` says of them."""

import math
from collections.abc import Iterable, Mapping, Sequence

from draftworth.predict.base import Predicted
from draftworth.predict.speedup import Z
from draftworth.search.base import Candidate, LogSpeed


def with_predictions(
    candidates: Iterable[Candidate], predicted: Mapping[str, Sequence[Predicted]]
) -> tuple[Candidate, ...]:
    """Return candidates with their predictions, in their order.

    Args:
        candidates: those that nothing is predicted of are returned as they are.
        predicted: candidate's name to its predictions, one a load.
    """
    return tuple(
        one.model_copy(update={"predicted": {each.concurrency: log_speed(each) for each in told}})
        if (told := predicted.get(one.name))
        else one
        for one in candidates
    )


def log_speed(one: Predicted) -> LogSpeed:
    """Return a predicted speed-up as its logarithm, the standard error taken from the whole 95 % interval."""
    speed = one.speed_up
    return LogSpeed(value=math.log(speed.value), sd=math.log(speed.high / speed.low) / (2 * Z))
