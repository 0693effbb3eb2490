"""The figures of `progress.jsonl`: read as it grows, averaged over steps, and the time that they say is left."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

MOST_BINS = 72
"""Points of a curve: as many as can be told apart in a plot as wide as a phone."""
RECENT = 200
"""Lines of steps that the speed is taken from."""
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a step.

    Attributes:
        step: from 0, over all epochs.
        epoch: from 0.
        loss: may be NaN or infinite.
        accuracy: of the trainer, by step of the training-time test; no acceptance.
        tokens_per_s: of the step, of one process; None where it was not timed.
        fetch_share: share of the step in which it waited for data; None where it was not timed.
        time: seconds since 1970.
    """

    step: int
    epoch: int
    loss: float
    accuracy: tuple[float, ...]
    tokens_per_s: float | None
    fetch_share: float | None
    time: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """A line of an epoch's end.

    Attributes:
        epoch: from 0.
        step: steps that were done then.
        loss: of the held-out samples; None where they were not looked at.
        accuracy: the same, by step of the training-time test.
        length: acceptance length of the walk; None where nothing could be walked.
        k: tokens drafted a step.
        walked: whole drafting steps of the walk.
        walk_s: seconds that the walk took.
    """

    epoch: int
    step: int
    loss: float | None
    accuracy: tuple[float, ...]
    length: float | None
    k: int
    walked: int
    walk_s: float | None


@dataclass(slots=True)
class Tail:
    """Reads a progress file as it grows; a file that was begun anew or made shorter is read anew.

    A last line that has no end yet is left for the next time; one that cannot be understood is counted.

    Attributes:
        path: the file.
        steps: its steps, in order.
        epochs: its epochs, in order.
        unread: lines that could not be understood.
    """

    path: Path
    steps: list[Step] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    unread: int = 0
    _at: int = 0
    _file: int = 0

    def read(self) -> None:
        """Read what is new.

        Raises:
            OSError: the file is there and cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                self._read(file)
        except FileNotFoundError:
            self._begin(0)

    def _read(self, file: Any) -> None:
        found = os.fstat(file.fileno())
        if found.st_ino != self._file or found.st_size < self._at:
            self._begin(found.st_ino)
        file.seek(self._at)
        whole, end, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(end)
        for line in whole.split(b"\n") if end else ():
            self._add(line)

    def _begin(self, file: int) -> None:
        self.steps, self.epochs, self.unread, self._at, self._file = [], [], 0, 0, file

    def _add(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            if told["kind"] == "step":
                self.steps.append(_step(told))
            elif told["kind"] == "epoch":
                self.epochs.append(_epoch(told))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            self.unread += 1


def _step(told: Mapping[str, Any]) -> Step:
    tokens = _known(told.get("tokens_per_s"))
    return Step(
        step=int(told["step"]),
        epoch=int(told["epoch"]),
        loss=float(told["loss"]),
        accuracy=_accuracies(told),
        tokens_per_s=tokens or None,  # 0 stands for a step that was not timed
        fetch_share=_known(told.get("fetch_share")) if tokens else None,
        time=float(told["time"]),
    )


def _epoch(told: Mapping[str, Any]) -> Epoch:
    walk = told["walk"]
    return Epoch(
        epoch=int(told["epoch"]),
        step=int(told["step"]),
        loss=None if told.get("loss") is None else float(told["loss"]),
        accuracy=_accuracies(told),
        length=_known(walk["length"]),
        k=int(walk["k"]),
        walked=int(walk["full_steps"]),
        walk_s=_known(told.get("walk_s")),
    )


def _accuracies(told: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(float(one) for one in told.get("accuracy") or ())


def _known(value: Any) -> float | None:
    """Return a number that is one: no NaN, no infinity."""
    return float(value) if value is not None and math.isfinite(value) else None


def best_of(epochs: Iterable[Epoch]) -> Epoch | None:
    """Return the epoch with the longest walk, the earliest of equals; None where nothing could be walked."""
    walked = [one for one in epochs if one.length is not None]
    return max(walked, key=lambda one: (one.length or 0.0, -one.epoch), default=None)


@dataclass(frozen=True, slots=True)
class Bin:
    """Neighbouring steps as one point.

    Attributes:
        first: the first step's number.
        last: the last step's number.
        mean: of their finite values.
        low: the 10th percentile of them.
        high: the 90th percentile of them.
        count: how many finite values there are.
    """

    first: int
    last: int
    mean: float
    low: float
    high: float
    count: int

    @property
    def middle(self) -> float:
        """Where the point lies."""
        return (self.first + self.last) / 2


def binned(values: Iterable[tuple[int, float | None]], most: int = MOST_BINS) -> list[Bin]:
    """Return values by step as at most so many points, each the mean of equally many lines.

    Args:
        values: step and value, in order; what is not finite is left out.
        most: points.
    """
    known = [(step, value) for step, value in values if value is not None and math.isfinite(value)]
    size = math.ceil(len(known) / most) or 1
    found = []
    for at in range(0, len(known), size):
        part = known[at : at + size]
        ordered = sorted(value for _, value in part)
        found.append(
            Bin(
                first=part[0][0],
                last=part[-1][0],
                mean=sum(ordered) / len(ordered),
                low=_quantile(ordered, _LOW),
                high=_quantile(ordered, _HIGH),
                count=len(ordered),
            )
        )
    return found


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile, between neighbours in a straight line."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, slots=True)
class Left:
    """How long the training still takes, if all epochs are trained.

    Attributes:
        seconds: that.
        steps: how many the pace is taken from.
        each_s: seconds that one of them took.
        end_s: seconds between an epoch's last step and the next one's first, typically; None where none was seen yet:
            then they are not in `seconds`.
    """

    seconds: float
    steps: int
    each_s: float
    end_s: float | None


def time_left(steps: Sequence[Step], since: float, steps_left: int, epochs: int) -> Left | None:
    """Return how long the training still takes; None before two steps were timed.

    Args:
        steps: all lines.
        since: seconds since 1970 when this process began: what an earlier one did may have run on another machine.
        steps_left: steps that are still to come, if all epochs are trained.
        epochs: how many there are at most.
    """
    own = [one for one in steps if one.time >= since]
    within = [
        (later.time - one.time, later.step - one.step)
        for one, later in pairwise(own[-RECENT - 1 :])
        if later.epoch == one.epoch and later.step > one.step
    ]
    if not within:
        return None
    timed = sum(count for _, count in within)
    each = sum(seconds for seconds, _ in within) / timed
    ends = [
        max(0.0, later.time - one.time - each * (later.step - one.step))
        for one, later in pairwise(own)
        if later.epoch == one.epoch + 1
    ]
    end_s = median(ends) if ends else None
    still = epochs - own[-1].epoch  # the end of the one at hand too
    return Left(steps_left * each + (end_s or 0.0) * still, timed, each, end_s)
