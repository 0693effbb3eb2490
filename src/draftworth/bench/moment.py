"""Moments as seconds since 1970 that a step of the wall clock does not move."""

import time
from time import perf_counter

_OFFSET = time.time() - perf_counter()


def unix(at: float) -> float:
    """Return a moment of `perf_counter` as seconds since 1970.

    The two clocks are compared once, when the process begins, so what lies between two moments of one process is what
    `perf_counter` says, even where the wall clock was set in between.
    """
    return _OFFSET + at
