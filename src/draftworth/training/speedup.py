"""The predicted speed-up of a trained head: acceptance length per step over the length that is needed to pay.

    speed-up(k, B) = L(k) / needed(k, B)        needed = [T(B, k + 1) + M + drafting] / T(B, 1)

L is 1 over the mean over conversations of drafting steps / tokens, on held-out text: each conversation counts alike, as
a trial's TPOT does, and steps that an answer's end cuts off count with what they gave, as a server takes them. `needed`
is `predict.heads`; drafting one token takes the share of the weights that a pass of the head reads of those that a step
of the target reads (`search.bounds`), which decoding is bound by: where it is not, as on a small target, drafting takes
longer than that. A measured engine mode has its own drafter's time in it, so that only what a k drafts beyond the
lengths that were measured is added to it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from draftworth.errors import UsageError
from draftworth.models import Frozen
from draftworth.predict.base import Range

if TYPE_CHECKING:
    from draftworth.costs.base import Costs
    from draftworth.costs.model import FittedModel

METHOD: tuple[str, str | None] = ("eagle3", None)
HOW_TO = '`draftworth probe URL --out costs.json` on the running baseline, and costs = "costs.json" in [eval]'
MARGIN = 0.02
"""Beyond this a speed-up is one, as in `draftworth predict`."""

Mode = Literal["measured", "bounded", "unknown"]
"""What is known of the engine's mode with such a head.

- `measured`: an arm of the costs file told it;
- `bounded`: none is taken, and intervals reach to that of n-gram drafting;
- `unknown`: nothing bounds it, so every speed-up is at best.
"""


class SpeedUpAt(Frozen):
    """One k at one load."""

    k: int
    """Tokens drafted a step."""
    concurrency: int
    """Requests at a time."""
    length: Range
    """Acceptance length per step, conversations alike; the interval is over conversations."""
    needed: Range
    """The length that costs nothing and gains nothing, with the interval of its costs."""
    speed_up: Range
    """The one over the other; the intervals are taken as independent."""
    possible: bool
    """Whether any acceptance of this k can pay, by the interval of the needed length."""
    measured: bool
    """Whether the baseline's own step was probed at this load and context."""

    @property
    def pays(self) -> bool | None:
        """Whether it is faster; None where its interval does not tell."""
        if self.speed_up.low > 1 + MARGIN:
            return True
        return False if self.speed_up.high <= 1 + MARGIN else None


class SpeedUps(Frozen):
    """What a head is predicted to bring, by k and load."""

    costs: dict[str, str | None]
    """Of which server the costs are: `file`, `created`, `engine`, `version`, `model`, `machine`."""
    context: int
    """Tokens of a request in the KV cache."""
    draft_share: float
    """Time of drafting one token over T(B, 1), by the weights read."""
    mode: Mode
    """What is known of the engine's mode."""
    rows: tuple[SpeedUpAt, ...]
    """By load, then k."""
    best: int
    """The k with the highest mean log speed-up over the loads."""
    categories: dict[str, tuple[SpeedUpAt, ...]] = {}
    """The same for each kind of work, at its own context."""
    notes: tuple[str, ...] = ()
    """What to be careful with."""

    @property
    def loads(self) -> tuple[int, ...]:
        """Requests at a time, in their order."""
        return tuple(dict.fromkeys(one.concurrency for one in self.rows))

    def at(self, k: int, concurrency: int) -> SpeedUpAt | None:
        """Return one k at one load."""
        return next((one for one in self.rows if (one.k, one.concurrency) == (k, concurrency)), None)

    def best_at(self, concurrency: int) -> SpeedUpAt:
        """Return the best k at one of the loads."""
        return max((one for one in self.rows if one.concurrency == concurrency), key=lambda one: one.speed_up.value)


def head_share(checkpoint: Path, target: Path, dtype: str) -> float | None:
    """Return the time of drafting one token over a step of the target, of a head as it will be exported.

    Args:
        checkpoint: the folder with the trained head.
        target: the target's folder.
        dtype: the type that the head is exported in.

    Returns:
        None where config.json of the target does not tell what a step reads.
    """
    from draftworth.heads.files.safetensors import read_header  # noqa: PLC0415 - lazy
    from draftworth.search.bounds import draft_share  # noqa: PLC0415 - lazy: numpy
    from draftworth.search.grid import candidate_of  # noqa: PLC0415 - lazy
    from draftworth.training.export import WEIGHTS, exported  # noqa: PLC0415 - it imports the evaluation

    tensors = exported(read_header(checkpoint / WEIGHTS), checkpoint, dtype, pruned=False)
    config = {"method": METHOD[0], "num_speculative_tokens": 1}
    return draft_share(candidate_of("head", config), target, {name: one.size for name, one in tensors.items()})


def fitted(costs: "Costs", target: Path) -> "FittedModel":
    """Return the cost of steps, led by the target's shape where its config.json tells one.

    Raises:
        UsageError: the costs have no points.
    """
    from draftworth.costs.model import FittedModel  # noqa: PLC0415 - lazy: numpy
    from draftworth.costs.paper.config import read_shape  # noqa: PLC0415 - lazy

    try:
        shape = read_shape(target)
    except UsageError:
        shape = None
    return FittedModel(costs, shape)


def mode_known(model: "FittedModel") -> Mode:
    """Return what is known of the engine's mode with such a head."""
    from draftworth.costs.mode import applies  # noqa: PLC0415 - lazy: numpy
    from draftworth.predict.heads import OTHER  # noqa: PLC0415 - lazy: numpy

    if any(one.kind == "drafting" and applies(one, METHOD) for one in model.costs.modes):
        return "measured"
    return "bounded" if model.knows(OTHER) else "unknown"


def predict_at(
    model: "FittedModel",
    length: Mapping[int, Range],
    *,
    share: float,
    context: int,
    concurrency: int,
    prefill: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> list[SpeedUpAt]:
    """Return the predicted speed-up of each k at one load.

    Args:
        model: the cost of steps.
        length: k to the acceptance length per step.
        share: time of drafting one token over T(B, 1).
        context: tokens of a request in the KV cache.
        concurrency: requests at a time.
        prefill: what the prefills of other requests add to each token, in milliseconds: value, lower and upper end. It
            is the same with and without a head.
    """
    import numpy as np  # noqa: PLC0415 - lazy

    from draftworth.predict.heads import needed  # noqa: PLC0415 - lazy: numpy

    base = model.expected(np.ones(1), concurrency, context)
    found = []
    for k, reached in length.items():
        (one,) = needed(
            model,
            ks=[k],
            concurrencies=[concurrency],
            context=context,
            method=METHOD,
            draft_share=share * _beyond_the_mode(model.costs, k, concurrency) / k,
        )
        found.append(
            SpeedUpAt(
                k=k,
                concurrency=concurrency,
                length=reached,
                needed=one.length,
                speed_up=_speed_up(reached, one.length, base.ms, prefill),
                possible=one.possible,
                measured=base.measured,
            )
        )
    return found


def _beyond_the_mode(costs: "Costs", k: int, concurrency: int) -> int:
    """Return how many drafted tokens a measured mode lacks: all k without one; below 0 where it has too many.

    A mode is interpolated between the lengths that were measured, of this batch where any was, and outside of them it
    is the nearest one's (`costs.mode`).
    """
    from draftworth.costs.mode import applies  # noqa: PLC0415 - lazy: numpy

    drafting = [one for one in costs.modes if one.kind == "drafting" and applies(one, METHOD)]
    if not drafting:
        return k
    here = [one for one in drafting if one.batch == concurrency] or drafting
    known = [one.tokens - 1 for one in here]
    return k - min(max(k, min(known)), max(known))


def _speed_up(length: Range, needed: Range, base_ms: float, prefill: tuple[float, float, float]) -> Range:
    """Return the speed-up; distances of its logarithm that come from different causes are added as independent ones."""

    def speed(ratio: float, shared: float) -> float:
        return (base_ms + shared) / (ratio * base_ms + shared)

    ratio = needed.value / length.value
    value = speed(ratio, prefill[0])
    ways = (
        [speed(needed.value / end, prefill[0]) for end in (length.low, length.high)],
        [speed(end / length.value, prefill[0]) for end in (needed.low, needed.high)],
        [speed(ratio, end) for end in prefill[1:]],
    )
    logs = [[math.log(one / value) for one in way] for way in ways]
    below, above = (math.hypot(*(max(0.0, *(sign * one for one in way)) for way in logs)) for sign in (-1, 1))
    return Range(value=value, low=value * math.exp(-below), high=value * math.exp(above))


def best_of(rows: Sequence[SpeedUpAt]) -> int:
    """Return the k with the highest mean log speed-up over the loads, the smallest of equals."""
    sums: dict[int, float] = {}
    for one in rows:
        sums[one.k] = sums.get(one.k, 0.0) + math.log(one.speed_up.value)
    return max(sorted(sums), key=lambda k: sums[k])


def notes_of(model: "FittedModel", rows: Sequence[SpeedUpAt], share: float, context: int) -> tuple[str, ...]:
    """Return what to be careful with.

    Args:
        model: the cost of steps.
        rows: at least one.
        share: time of drafting one token over T(B, 1).
        context: tokens of a request in the KV cache.
    """
    mode = mode_known(model)
    found = []
    if mode == "measured":
        found.append("the engine's mode with such a head was measured; its drafter's time is in it")
    else:
        reach = (
            "intervals reach to that of n-gram drafting"
            if mode == "bounded"
            else "nothing bounds it: figures are at best"
        )
        how = (
            "a CPU server has no synthetic acceptance that could measure it"
            if model.costs.machine.startswith("cpu")
            else "a synthetic arm with the head measures it in one trial (`draftworth probe --add-trial TRIAL`)"
        )
        found.append(f"the engine's mode with such a head was not measured: none is taken, {reach}; {how}")
        found.append(
            f"drafting one token is taken for {share:.1%} of a step, the weights it reads: at least; a small target's "
            "head takes longer than that"
        )
    if others := sorted({one.concurrency for one in rows if not one.measured}):
        found.append(
            f"the baseline was not probed at {', '.join(map(str, others))} at a time and this context: those figures "
            f"are carried over; `draftworth probe --context {context} --concurrency` measures them"
        )
    if many := sorted({one.concurrency for one in rows if one.concurrency > 1}):
        found.append(
            f"what the prefills of other requests add to each token is not counted: speed-ups at "
            f"{', '.join(map(str, many))} at a time are nearer to 1, on the same side"
        )
    return tuple(found)
