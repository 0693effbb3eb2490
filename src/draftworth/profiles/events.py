"""What is kept of a trace: intervals in columns, 32 bytes each, whatever the file held beside them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
NO_LINK = -1
_LAST_US = 1e17
"""Three thousand years: no clock of a profiler tells a later time, or one that long before its begin."""
_LINKS = 1 << 63
_Number = TypeVar("_Number", bound=np.generic)


def interval_of(start: Any, duration: Any) -> tuple[float, float] | None:
    """Return when something began and how long it took, both in µs; None where its time cannot be one."""
    if not isinstance(start, int | float) or not isinstance(duration, int | float | None):
        return None
    length = max(duration or 0.0, 0.0)
    return (float(start), float(length)) if abs(start) <= _LAST_US and length <= _LAST_US else None


def link_of(number: Any) -> int:
    """Return what joins a launch to its kernels as a column takes it; NO_LINK where it cannot be one."""
    return number if isinstance(number, int) and 0 <= number < _LINKS else NO_LINK


class Names:
    """Texts as numbers."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self.texts: list[str] = []

    def __call__(self, text: str) -> int:
        """Return the number of a text."""
        number = self._of.get(text)
        if number is None:
            number = self._of[text] = len(self.texts)
            self.texts.append(text)
        return number


class Spans:
    """Intervals: start and end in µs, a name, a lane (stream or thread), and a link from a launch to its kernels."""

    def __init__(self) -> None:
        self._start, self._end = array("d"), array("d")
        self._name, self._lane, self._link = array("i"), array("i"), array("q")

    def add(self, start: float, duration: float, name: int, lane: int, link: int = NO_LINK) -> None:
        """Append an interval; `name` and `lane` are numbers out of `Names`."""
        self._start.append(start)
        self._end.append(start + duration)
        self._name.append(name)
        self._lane.append(lane)
        self._link.append(link)

    def __len__(self) -> int:
        return len(self._start)

    @property
    def start(self) -> Floats:
        """When each began, in µs. Nothing can be added once a column was asked for."""
        return _column(self._start, np.float64)

    @property
    def end(self) -> Floats:
        """When each ended, in µs."""
        return _column(self._end, np.float64)

    @property
    def name(self) -> Ints:
        """The number of each name."""
        return _column(self._name, np.int32)

    @property
    def lane(self) -> Ints:
        """The number of each stream or thread."""
        return _column(self._lane, np.int32)

    @property
    def link(self) -> Ints:
        """What joins a launch to its kernels; NO_LINK where there is none."""
        return _column(self._link, np.int64)


def _column(values: "array[Any]", kind: type[_Number]) -> "NDArray[_Number]":
    return np.frombuffer(values, dtype=kind) if len(values) else np.empty(0, dtype=kind)


@dataclass
class Recorded:
    """A trace of one process, or of several where one file holds all ranks."""

    source: str
    names: Names = field(default_factory=Names)
    lanes: Names = field(default_factory=Names)
    devices: dict[int, Spans] = field(default_factory=dict)
    """Kernels, copies and sets of each GPU."""
    device_marks: dict[int, Spans] = field(default_factory=dict)
    """A program's own ranges as the profiler carried them over to a GPU."""
    marks: Spans = field(default_factory=Spans)
    """A program's own ranges on the host."""
    calls: Spans = field(default_factory=Spans)
    """CUDA runtime and driver calls."""
    ops: Spans = field(default_factory=Spans)
    """Operations of the framework on the host."""
    graphs_whole: int = 0
    """CUDA graph launches that were recorded as one piece each."""
    meta: dict[str, Any] = field(default_factory=dict)
    """The file's own remarks on itself."""
    complete: bool = True
    notes: list[str] = field(default_factory=list)
    first: float = float("inf")
    last: float = float("-inf")

    def seen(self, start: float, duration: float) -> None:
        """Stretch what the file covers, in µs."""
        self.first = min(self.first, start)
        self.last = max(self.last, start + duration)

    def device(self, number: int) -> Spans:
        """Return the intervals of a GPU."""
        return self.devices.setdefault(number, Spans())

    def texts(self, numbers: Sequence[int] | Ints) -> list[str]:
        """Return names by their numbers."""
        return [self.names.texts[int(number)] for number in numbers]
