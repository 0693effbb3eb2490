"""How the client watches itself: ticks of its own clock, kept so that windows add up."""

import asyncio
import time

from draftworth.bench.base import ClientHealth
from draftworth.bench.monitor import Monitor, together


def watched(*, blocked_s: float, idle_s: float) -> ClientHealth:
    async def go() -> ClientHealth:
        async with Monitor() as monitor:
            time.sleep(blocked_s)  # noqa: ASYNC251 - what is to be seen
            await asyncio.sleep(idle_s)
            return monitor.health(None)

    return asyncio.run(go())


def test_a_blocked_loop_is_a_late_tick() -> None:
    health = watched(blocked_s=0.2, idle_s=0.4)
    assert health.lag_ms[2] >= 100
    assert health.lag_ms[0] < 50
    assert 2 <= health.ticks <= 9
    assert health.late_ms is None


def test_windows_add_up_tick_by_tick() -> None:
    late, fine = watched(blocked_s=0.2, idle_s=0.1), [watched(blocked_s=0, idle_s=0.2) for _ in range(3)]
    whole = together([late, *fine])
    assert whole is not None
    assert whole.ticks == late.ticks + sum(one.ticks for one in fine)
    assert whole.lag_ms[2] == late.lag_ms[2]
    assert whole.lag_ms[0] < 50


def test_values_are_kept_to_a_hundredth_of_a_millisecond() -> None:
    async def go() -> ClientHealth:
        async with Monitor() as monitor:
            return monitor.health([1.2341, 1.2349, 7.0])

    health = asyncio.run(go())
    assert health.late == {1.23: 2, 7.0: 1}
    assert health.late_ms == 7.0
