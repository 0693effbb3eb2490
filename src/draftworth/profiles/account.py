"""The decode time of one device, or of the host where nothing ran elsewhere, shared out over classes.

All intervals are first mapped into the time of the decode steps, laid end to end: what lies outside has no length
there, and the classes, idle and host add up to the length of the whole.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.profiles.base import CLASSES, Class, ClassTime, Kernel, StepTime
from draftworth.profiles.events import Floats, Ints, Recorded, Spans
from draftworth.profiles.intervals import Set, before, both, cut, empty, length, lengths, shared, union, without
from draftworth.profiles.kernels import Kind, Table
from draftworth.profiles.marks import tells
from draftworth.profiles.spread import step_times
from draftworth.profiles.steps import Decode

_WAITING = re.compile(r"synchronize|eventquery|streamquery|wait|^cu(da)?memcpy(_v\d+)?$", re.IGNORECASE)
_TOP = 5
_SCOPES = 20
_US = 1e3


@dataclass(frozen=True)
class Accounted:
    """A span's milliseconds: classes, idle and host add up to it."""

    span_ms: float
    classes: tuple[ClassTime, ...]
    idle_ms: float
    host_ms: float | None
    unknown: tuple[Kernel, ...]
    scopes: tuple[Kernel, ...] = ()
    overlap_ms: float = 0.0
    """How much longer the kernels' durations are than the time at least one of them ran."""
    steps: tuple[StepTime, ...] = ()
    """Milliseconds a step."""


def on_device(found: Recorded, device: int, decode: Decode, table: Table) -> Accounted:
    """Return the account of a GPU over its decode steps."""
    spans, windows = found.devices[device], decode.windows
    start, end = before(windows, spans.start), before(windows, spans.end)
    edges = _edges(windows)
    of, step, piece_start, piece_end = cut(start, end, edges)
    parts = shared(piece_start, piece_end)
    span = length(windows)
    busy = union(start, end)
    idle = without((np.zeros(1), np.full(1, span)), busy) if span else empty()
    host = _host(found, spans, decode)
    waited = empty() if host is None else both(idle, union(before(windows, host[0]), before(windows, host[1])))
    host_us = length(waited)
    whole = _together(of, parts, len(start))
    named = _by_name(spans.name, whole, end - start, _within(windows, spans.start))
    classes, unknown = _by_class(found, named, span, table, "kernel")
    return Accounted(
        span_ms=span / _US,
        classes=classes,
        idle_ms=max(length(idle) - host_us, 0.0) / _US,
        host_ms=None if host is None else host_us / _US,
        unknown=unknown,
        scopes=_scopes(found, decode),
        overlap_ms=max(float(np.sum(end - start)) - length(busy), 0.0) / _US,
        steps=step_times(
            {
                **_in_steps(_classes_of(found, spans.name[of], table, "kernel"), step, parts, len(edges) - 1),
                **_waits_in_steps(lengths(idle, edges), None if host is None else lengths(waited, edges)),
                "total": np.diff(edges) / _US,
            }
            if decode.steps
            else {}
        ),
    )


def on_host(found: Recorded, decode: Decode, table: Table) -> Accounted:
    """Return the account of the host's thread that runs the model: each operation's own time, without those within it.

    Marks of the engine and operations of class `host` are the host's time; what is in neither is idle.
    """
    ops, marks, windows = found.ops, found.marks, decode.windows
    lane = _busiest(ops) if decode.lane is None else decode.lane
    mine, marked = np.flatnonzero(ops.lane == lane), np.flatnonzero(marks.lane == lane)
    begun = np.concatenate((ops.start[mine], marks.start[marked]))
    start = before(windows, begun)
    end = before(windows, np.concatenate((ops.end[mine], marks.end[marked])))
    names = np.concatenate((ops.name[mine], np.full(len(marked), -1, dtype=np.int64)))
    edges = _edges(windows)
    of, step, piece_start, piece_end = cut(start, end, edges)
    parts = _own(piece_start, piece_end)
    own = _together(of, parts, len(start))
    span = length(windows)
    is_op = names >= 0
    named = _by_name(names[is_op], own[is_op], own[is_op], _within(windows, begun)[is_op])
    classes, unknown = _by_class(found, named, span, table, "op")
    dispatch = sum(one.ms for one in classes if one.name == "host")
    ran = union(start, end)
    idle = span - length(ran)
    ops_only = is_op[of]
    each = _in_steps(
        _classes_of(found, names[of][ops_only], table, "op"), step[ops_only], parts[ops_only], len(edges) - 1
    )
    marked_us = np.bincount(step[~ops_only], weights=parts[~ops_only], minlength=len(edges) - 1)
    host_us = each.pop("host", np.zeros(len(edges) - 1)) * _US + marked_us
    each |= _waits_in_steps(np.diff(edges) - lengths(ran, edges) + host_us, host_us)
    each["total"] = np.diff(edges) / _US
    return Accounted(
        span_ms=span / _US,
        classes=tuple(one for one in classes if one.name != "host"),
        idle_ms=max(idle, 0.0) / _US,
        host_ms=dispatch + float(np.sum(own[~is_op])) / _US,
        unknown=unknown,
        scopes=_scopes(found, decode),
        steps=step_times(each if decode.steps else {}),
    )


def _together(of: Ints, parts: Floats, many: int) -> Floats:
    """Return the sum of the pieces of each interval."""
    return np.asarray(np.bincount(of, weights=parts, minlength=many), dtype=np.float64)


def _edges(windows: Set) -> Floats:
    """Return where steps begin and end in their own time, laid end to end."""
    return np.concatenate((np.zeros(1), np.cumsum(windows[1] - windows[0])))


def _classes_of(found: Recorded, names: Ints, table: Table, kind: Kind) -> tuple[Ints, list[Class]]:
    """Return the class of each name as a number, and the classes."""
    order: list[Class] = [*CLASSES, "host"]
    of_name = np.zeros(len(found.names.texts), dtype=np.int64)
    for number in np.unique(names):
        of_name[number] = order.index(table.classify(found.names.texts[int(number)], kind))
    return of_name[names], order


def _in_steps(classes: tuple[Ints, list[Class]], step: Ints, parts: Floats, steps: int) -> dict[str, Floats]:
    """Return the milliseconds of each class that occurs, step by step."""
    numbers, order = classes
    return {
        order[int(one)]: np.bincount(step[numbers == one], weights=parts[numbers == one], minlength=steps) / _US
        for one in np.unique(numbers[parts > 0])
    }


def _waits_in_steps(idle: Floats, host: Floats | None) -> dict[str, Floats]:
    """Return idle and host milliseconds step by step, of what idled with the host's part in it."""
    if host is None:
        return {"idle": np.maximum(idle, 0.0) / _US, "idle and host": np.maximum(idle, 0.0) / _US}
    return {
        "idle": np.maximum(idle - host, 0.0) / _US,
        "host": host / _US,
        "idle and host": np.maximum(idle, host) / _US,
    }


def _host(found: Recorded, spans: Spans, decode: Decode) -> Set | None:
    """Return when the threads that launch this GPU's work ran Python or launched, waiting left out."""
    if not len(found.ops) and not len(found.calls):
        return None
    calls = found.calls
    if decode.lane is not None:
        lanes: Ints = np.array([decode.lane])
    else:
        mine = np.isin(calls.link, spans.link) & (calls.link >= 0)
        lanes = np.unique(calls.lane[mine] if mine.any() else found.ops.lane)
    waits = np.isin(calls.name, [number for number in np.unique(calls.name) if _waits(found, int(number))])
    busy = empty()
    for lane in lanes:
        kinds = (found.ops, found.marks, calls)
        own = union(
            np.concatenate([one.start[one.lane == lane] for one in kinds]),
            np.concatenate([one.end[one.lane == lane] for one in kinds]),
        )
        waiting = waits & (calls.lane == lane)
        own = without(own, union(calls.start[waiting], calls.end[waiting]))
        busy = union(np.concatenate((busy[0], own[0])), np.concatenate((busy[1], own[1])))
    return busy


def _scopes(found: Recorded, decode: Decode) -> tuple[Kernel, ...]:
    """Return the engine's ranges within the decode steps, those left out that mark the steps themselves."""
    marks = found.marks
    if decode.lane is None or not len(marks):
        return ()
    mine = np.flatnonzero(marks.lane == decode.lane)
    names, start = marks.name[mine], marks.start[mine]
    ms = np.bincount(names, weights=before(decode.windows, marks.end[mine]) - before(decode.windows, start)) / _US
    count = np.bincount(names, weights=_within(decode.windows, start))
    kept = [int(one) for one in np.flatnonzero(ms > 0) if not tells(found.names.texts[int(one)])]
    return _longest(found, kept, ms, count)[:_SCOPES]


def _waits(found: Recorded, name: int) -> bool:
    return _WAITING.search(found.names.texts[name]) is not None


@dataclass(frozen=True)
class _ByName:
    """Sums over the kernels of each name, at its number."""

    ms: Floats
    busy: Floats
    count: NDArray[Any]


def _by_name(names: Ints, parts: Floats, durations: Floats, counted: Ints) -> _ByName:
    return _ByName(
        ms=np.bincount(names, weights=parts) / _US,
        busy=np.bincount(names, weights=durations) / _US,
        count=np.bincount(names, weights=counted),
    )


def _by_class(
    found: Recorded, of_name: _ByName, span: float, table: Table, kind: Kind
) -> tuple[tuple[ClassTime, ...], tuple[Kernel, ...]]:
    ms, busy, count = of_name.ms, of_name.busy, of_name.count
    of: dict[Class, list[int]] = {}
    for number in np.flatnonzero((count > 0) | (ms > 0)):
        of.setdefault(table.classify(found.names.texts[int(number)], kind), []).append(int(number))
    order: list[Class] = [*CLASSES, "host"]
    classes = tuple(
        ClassTime(
            name=one,
            ms=float(ms[of[one]].sum()),
            share=float(ms[of[one]].sum()) * _US / span if span else 0.0,
            count=int(count[of[one]].sum()),
            busy_ms=float(busy[of[one]].sum()),
            top=_longest(found, of[one], ms, count)[:_TOP],
        )
        for one in order
        if one in of
    )
    return classes, _longest(found, of.get("not recognised", []), ms, count)


def _longest(found: Recorded, numbers: Sequence[int], ms: Floats, count: NDArray[Any]) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(name=found.names.texts[one], ms=float(ms[one]), count=int(count[one]))
        for one in sorted(numbers, key=lambda one: -ms[one])
    )


def _within(windows: Set, at: Floats) -> Ints:
    """Return 1 for each instant within a window, else 0."""
    place = np.searchsorted(windows[0], at, side="right") - 1
    if not len(windows[0]):
        return np.zeros(len(at), dtype=np.int64)
    return ((place >= 0) & (at < windows[1][np.maximum(place, 0)])).astype(np.int64)


def _busiest(ops: Spans) -> int:
    """Return the thread with most time in operations."""
    lanes, place = np.unique(ops.lane, return_inverse=True)
    return int(lanes[np.bincount(place, weights=ops.end - ops.start).argmax()])


def _own(start: Floats, end: Floats) -> Floats:
    """Return each interval's length without the intervals within it; they are one thread's, so they nest."""
    own = end - start
    order = np.lexsort((-end, start))
    stack: list[int] = []
    ends = end.tolist()
    starts = start.tolist()
    taken = np.zeros(len(start))
    for one in order.tolist():
        while stack and ends[stack[-1]] <= starts[one]:
            stack.pop()
        if stack:
            ends[one] = min(ends[one], ends[stack[-1]])  # rounding of a nested end
            taken[stack[-1]] += ends[one] - starts[one]
        stack.append(one)
    return np.maximum(own - taken, 0.0)
