"""Sets of instants as sorted intervals that do not touch, and time shared between what runs at once."""

import numpy as np
from numpy.typing import NDArray

from draftworth.profiles.events import Floats, Ints

Set = tuple[Floats, Floats]
"""Starts and ends of intervals, sorted, none touching another."""


def empty() -> Set:
    """Return no instant."""
    return np.empty(0), np.empty(0)


def union(start: Floats, end: Floats) -> Set:
    """Return the instants that are in any of the intervals, which may overlap and come in any order."""
    kept = end > start
    start, end = start[kept], end[kept]
    if not len(start):
        return empty()
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(first)[1:] - 1, [len(start) - 1]))
    return start[first], reach[last]


def length(some: Set) -> float:
    """Return how long the instants are altogether."""
    return float(np.sum(some[1] - some[0]))


def before(some: Set, at: Floats) -> Floats:
    """Return how much of a set lies before each instant: time measured in the set's own time."""
    if not len(some[0]):
        return np.zeros_like(at)
    edges = np.stack(some, axis=1).ravel()
    lengths = some[1] - some[0]
    passed = np.zeros(len(edges))
    passed[1::2] = np.cumsum(lengths)
    passed[2::2] = passed[1:-1:2]
    return np.interp(at, edges, passed)


def both(one: Set, other: Set) -> Set:
    """Return the instants of both sets."""
    if not len(one[0]) or not len(other[0]):
        return empty()
    edges = np.unique(np.concatenate((*one, *other)))
    start, end = edges[:-1], edges[1:]
    inside = _holds(one, start) & _holds(other, start)
    return union(start[inside], end[inside])


def without(one: Set, other: Set) -> Set:
    """Return the instants of the first set that are not in the second."""
    if not len(one[0]) or not len(other[0]):
        return one
    edges = np.unique(np.concatenate((*one, *other)))
    start, end = edges[:-1], edges[1:]
    inside = _holds(one, start) & ~_holds(other, start)
    return union(start[inside], end[inside])


def shared(start: Floats, end: Floats) -> Floats:
    """Return each interval's part of the time, an instant being split evenly between the intervals that hold it.

    The parts add up to the length of the union.
    """
    if not len(start):
        return np.empty(0)
    edges = np.concatenate((start, end))
    change = np.concatenate((np.ones(len(start)), -np.ones(len(end))))
    order = np.argsort(edges, kind="stable")
    edges, running = edges[order], np.cumsum(change[order])
    parts = np.zeros(len(edges))
    busy = running[:-1] > 0
    parts[1:][busy] = (np.diff(edges)[busy]) / running[:-1][busy]
    passed = np.cumsum(parts)
    return np.interp(end, edges, passed) - np.interp(start, edges, passed)


def cut(start: Floats, end: Floats, edges: Floats) -> tuple[Ints, Ints, Floats, Floats]:
    """Cut intervals at edges, which are sorted and hold them all.

    Returns:
        Of each piece: the number of its interval, of the stretch between edges that it lies in, its start and end.
    """
    last = len(edges) - 2
    first = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, last)
    until = np.clip(np.searchsorted(edges, end, side="left") - 1, first, last)
    many = until - first + 1
    of = np.repeat(np.arange(len(start)), many)
    place = np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many) + first[of]
    return of, place, np.maximum(start[of], edges[place]), np.minimum(end[of], edges[place + 1])


def lengths(some: Set, edges: Floats) -> Floats:
    """Return how much of a set lies in each stretch between edges."""
    return np.diff(before(some, edges))


def _holds(some: Set, at: Floats) -> NDArray[np.bool_]:
    place = np.searchsorted(some[0], at, side="right") - 1
    return (place >= 0) & (at < some[1][np.maximum(place, 0)])
