"""Which time of a trace is decode, told by the marks of the engine (marks.py), else by launches of CUDA graphs.

A step lasts from its own begin to the next one's: sampling, drafting and what the host does lie behind the range the
engine named. Only a decode step that another step with running requests follows is taken: behind others the engine may
have waited for requests, which no trace shows.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from draftworth.profiles.events import NO_LINK, Floats, Ints, Recorded, Spans
from draftworth.profiles.intervals import Set, empty
from draftworth.profiles.marks import Step, begins, parse, tells

_GRAPH = re.compile(r"GraphLaunch", re.IGNORECASE)
_FULL_GRAPH = 50
"""Kernels a CUDA graph holds at least when it is a whole step: several a layer."""
_ALIKE = 3.0
"""How much longer than the median a step may be, where only graph launches tell it: else a prefill lies in it."""


@dataclass(frozen=True)
class Decode:
    """The decode steps of one device or host thread.

    Attributes:
        windows: their time, in µs.
        steps: how many; None where they could not be told.
        told_by: how, in words.
        request_steps: sum of the requests in them.
        carried: sum of the tokens they carried.
        all_request_steps: the sum of requests over every step in which requests decoded.
        all_carried: the sum of their tokens over these; None where not known.
        lane: the host's thread that ran them, where it is known.
        found: steps of each kind in the file, for a message where none is decode.
    """

    windows: Set
    steps: int | None
    told_by: str
    request_steps: int | None = None
    carried: int | None = None
    all_request_steps: int | None = None
    all_carried: int | None = None
    lane: int | None = None
    found: str = ""


def decode_on_device(found: Recorded, device: int) -> Decode:
    """Return the decode steps of a GPU, in its own time.

    A mark is the host's; its step begins on the GPU with the first kernel that was launched after it. Where launches
    are missing, the profiler's own projection of marks is used.
    """
    spans = found.devices[device]
    if not len(spans):
        return _whole(found, "the device ran nothing")
    names, starts, lane = _launched(found, spans)
    if names is None:
        projected = found.device_marks.get(device)
        names, starts = (None, np.empty(0)) if projected is None else _first_of_each(found, projected)
    how = "steps begin with the first kernel launched in them"
    last = float(spans.end.max())
    if names is not None:
        return _told(names, starts, last, lane, how)
    graphs = _graphs(found, spans)
    return graphs or _whole(found, "")


def decode_on_host(found: Recorded) -> Decode:
    """Return the decode steps of a trace without kernels, in the host's time."""
    names, starts, lane = _marks(found)
    if names is None:
        return _whole(found, "")
    return _told(names, starts, found.last, lane, "steps begin with their mark")


def _whole(found: Recorded, why: str) -> Decode:
    span = (np.array([found.first]), np.array([found.last])) if found.last > found.first else empty()
    told = f"the whole file{', ' + why if why else ''}: it has no marks of steps, so prefill and pauses are in it"
    return Decode(span, None, told)


def _marks(found: Recorded, launching: Ints | None = None) -> tuple[list[str] | None, Floats, int | None]:
    """Return the marks of steps of one thread of the host, in order, and the thread.

    Args:
        found: the trace.
        launching: the thread of each launch of a GPU's kernels: one file may hold several ranks. The thread with most
            of them is taken; without, the one with most marks.
    """
    spans = found.marks
    for wanted in (tells, begins):
        chosen = _where(found, spans, wanted)
        if launching is not None:
            chosen = chosen[np.isin(spans.lane[chosen], launching)]
        if len(chosen):
            lanes, counts = np.unique(spans.lane[chosen], return_counts=True)
            if launching is not None:
                counts = np.array([np.sum(launching == one) for one in lanes])
            lane = int(lanes[counts.argmax()])
            chosen = chosen[spans.lane[chosen] == lane]
            chosen = chosen[np.argsort(spans.start[chosen], kind="stable")]
            return found.texts(spans.name[chosen]), spans.start[chosen], lane
    return None, np.empty(0), None


def _where(found: Recorded, spans: Spans, wanted: Callable[[str], bool]) -> Ints:
    good = [number for number in np.unique(spans.name) if wanted(found.names.texts[int(number)])]
    return np.flatnonzero(np.isin(spans.name, good))


def _launched(found: Recorded, spans: Spans) -> tuple[list[str] | None, Floats, int | None]:
    """Return the marks of the thread that launched a GPU's kernels, when each one's first kernel began, the thread."""
    calls = found.calls
    mine = np.flatnonzero((calls.link != NO_LINK) & np.isin(calls.link, spans.link))
    names, marks, lane = _marks(found, calls.lane[mine])
    if names is None:
        return None, np.empty(0), None
    mine = mine[calls.lane[mine] == lane]
    mine = mine[np.argsort(calls.link[mine], kind="stable")]
    links, steps = calls.link[mine], np.searchsorted(marks, calls.start[mine], side="right") - 1
    place = np.minimum(np.searchsorted(links, spans.link), len(links) - 1)
    known = (links[place] == spans.link) & (steps[place] >= 0)
    first = np.full(len(marks), np.inf)
    np.minimum.at(first, steps[place][known], spans.start[known])
    if not np.isfinite(first).any():
        return None, np.empty(0), None
    # A step that launched nothing keeps its place in the order, at no length.
    first = np.minimum.accumulate(first[::-1])[::-1]
    return names, np.maximum.accumulate(np.where(np.isfinite(first), first, float(spans.end.max()))), lane


def _first_of_each(found: Recorded, spans: Spans) -> tuple[list[str] | None, Floats]:
    """Return the projected marks in order; one step is projected once on each stream it used."""
    chosen = _where(found, spans, tells)
    if not len(chosen):
        return None, np.empty(0)
    chosen = chosen[np.argsort(spans.start[chosen], kind="stable")]
    start, end, name = spans.start[chosen], spans.end[chosen], spans.name[chosen]
    kept = [0]
    for one in range(1, len(chosen)):
        if name[one] != name[kept[-1]] or start[one] >= end[kept[-1]]:
            kept.append(one)
    return found.texts(name[kept]), start[kept]


def _told(names: list[str], starts: Floats, last: float, lane: int | None, how: str) -> Decode:
    steps = [parse(one) for one in names]
    if all(one is None for one in steps):
        windows = (starts[:-1], starts[1:])
        windows = (windows[0][windows[1] > windows[0]], windows[1][windows[1] > windows[0]])
        told = f"marks `{names[0].split('#')[0]}`, which do not tell prefill from decode; {how}"
        return Decode(windows, len(windows[0]), told, lane=lane)
    known = [one or Step(prefill=True, decoding=0, carried=None) for one in steps]
    ends = np.append(starts[1:], last)
    used = [
        number
        for number, one in enumerate(known[:-1])
        if one.decoding and not one.prefill and known[number + 1].decoding and ends[number] > starts[number]
    ]
    decode = sum(1 for one in known if one.decoding and not one.prefill)
    mixed = sum(1 for one in known if one.decoding and one.prefill)
    prefill = sum(1 for one in known if one.prefill and not one.decoding)
    counts = f"{decode} decode, {mixed} mixed, {prefill} prefill steps"
    carried = _sum([known[number].carried for number in used])
    return Decode(
        windows=(starts[used], ends[used]),
        steps=len(used),
        told_by=f"{'vLLM' if 'execute_' in names[0] else 'SGLang'}'s marks: {len(used)} of {counts}; {how}",
        request_steps=sum(known[number].decoding for number in used),
        carried=carried,
        all_request_steps=sum(one.decoding for one in known),
        all_carried=_sum([one.carried for one in known if one.decoding]),
        lane=lane,
        found=counts,
    )


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(one for one in values if one is not None)


def _graphs(found: Recorded, spans: Spans) -> Decode | None:
    """Return steps told by launches of whole CUDA graphs, which engines use for decode only."""
    calls = found.calls
    launches = _where(found, calls, lambda text: _GRAPH.search(text) is not None)
    links = np.unique(calls.link[launches])
    inside = np.isin(spans.link, links[links != NO_LINK])
    if not inside.any():
        return None
    own, kernels = np.unique(spans.link[inside], return_counts=True)
    if np.median(kernels) < _FULL_GRAPH or len(own) < 3:  # noqa: PLR2004 - fewer tell no median
        return None
    first = np.full(len(own), np.inf)
    np.minimum.at(first, np.searchsorted(own, spans.link[inside]), spans.start[inside])
    starts = np.sort(first[kernels >= _FULL_GRAPH])
    lengths = np.diff(starts)
    good = lengths <= _ALIKE * np.median(lengths)
    left = int(np.sum(~good))
    told = f"launches of whole CUDA graphs: {int(np.sum(good))} steps"
    told += f", {left} left out as more than {_ALIKE:g} times the median" if left else ""
    return Decode((starts[:-1][good], starts[1:][good]), int(np.sum(good)), told)
