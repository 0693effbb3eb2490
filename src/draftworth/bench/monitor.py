"""How the client itself fares while it measures: its clock's lag and the processor time it takes."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from time import perf_counter
from types import TracebackType
from typing import Self

from draftworth.bench.base import ClientHealth

_TICK_S = 0.05
_TICKS_PER_CALL = 4


class Monitor:
    """Ticks every 50 ms in the event loop, for as long as its block runs.

    The loop's timers are a millisecond coarse: a lag below that is theirs.
    """

    def __init__(self, on_tick: Callable[[], None] | None = None) -> None:
        """Make one.

        Args:
            on_tick: called every fourth tick. What it raises ends the block, whatever it is, and comes out of it.
        """
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._ticks = 0
        self.restart()

    def restart(self) -> None:
        """Begin the window here."""
        self._lags: list[float] = []
        self._began = self._last = perf_counter()
        self._cpu = time.process_time()

    def health(self, late_ms: Sequence[float] | None) -> ClientHealth:
        """Return how the client fared since the window began. `late_ms` is None in a closed loop."""
        return ClientHealth(
            wall_s=perf_counter() - self._began,
            cpu_s=time.process_time() - self._cpu,
            lags=_counted(self._lags),
            late=None if late_ms is None else _counted(late_ms),
        )

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._next()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._failure is not None:
            if self._task is not None:
                self._task.uncancel()
            raise self._failure

    def _next(self) -> None:
        self._last = perf_counter()
        self._handle = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._lags.append(max(0.0, perf_counter() - self._last - _TICK_S) * 1000)
        self._ticks += 1
        if self._on_tick is not None and self._ticks % _TICKS_PER_CALL == 0:
            try:
                self._on_tick()
            except BaseException as error:  # noqa: BLE001 - an interrupt, too: it comes out of the block
                self._failure = error
                if self._task is not None:
                    self._task.cancel()
                return
        self._next()


def _counted(milliseconds: Sequence[float]) -> Counter[float]:
    """Return how often each value occurs, to a hundredth of a millisecond: few numbers, and windows add up."""
    return Counter(round(value, 2) for value in milliseconds)


def together(healths: Sequence[ClientHealth | None]) -> ClientHealth | None:
    """Return several windows of the client as one: times added, their ticks in one heap."""
    known = [one for one in healths if one is not None]
    return reduce(_both, known) if known else None


def _both(one: ClientHealth, other: ClientHealth) -> ClientHealth:
    late = [value for value in (one.late, other.late) if value is not None]
    return ClientHealth(
        wall_s=one.wall_s + other.wall_s,
        cpu_s=one.cpu_s + other.cpu_s,
        lags=_added(one.lags, other.lags),
        late=_added(*late) if late else None,
    )


def _added(*counts: Mapping[float, int]) -> Counter[float]:
    whole: Counter[float] = Counter()
    for one in counts:
        whole.update(one)
    return whole
