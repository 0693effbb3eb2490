"""Runs asynchronous work for a synchronous caller on uvloop, and lets signals end it at once."""

import asyncio
import contextlib
import resource
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_MOST_FILES = 65_536
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_on_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run asynchronous work to its end.

    A signal handler of the caller's (Ctrl-C's, or one installed with `signal.signal`) runs as it would elsewhere, and
    what it raises ends the work at once and is raised here. Without this, an exception that a handler happens to
    raise while bytes are being received would be lost in uvloop.

    The process may have more files open meanwhile, where the system allows: each stream is one. Servers that are
    started afterwards do not inherit that.
    """
    import uvloop  # noqa: PLC0415 - lazy: `draftworth --help` must not load it

    with _many_files(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        task: asyncio.Task[T] | None = None
        raised: list[BaseException] = []

        async def main() -> T:
            nonlocal task
            task = asyncio.current_task()
            return await work()

        def ended(error: BaseException) -> None:
            raised.append(error)
            if task is not None:
                task.cancel()

        with _signals_in_loop(loop, ended):
            try:
                result = runner.run(main())
            except asyncio.CancelledError:
                if not raised:
                    raise
        if raised:
            raise raised[0]
        return result


@contextlib.contextmanager
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _signals_in_loop(loop: asyncio.AbstractEventLoop, ended: Callable[[BaseException], None]) -> Iterator[None]:
    """Have the signal handlers in force run by the loop, between two callbacks, within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def act() -> None:
        while waiting:
            number, frame = waiting.pop(0)
            handler = before[signal.Signals(number)]
            assert callable(handler)
            try:
                handler(number, frame)
            except BaseException as error:  # noqa: BLE001 - most of all KeyboardInterrupt: it is raised by the caller
                ended(error)

    def received(number: int, frame: FrameType | None) -> None:
        waiting.append((number, frame))
        loop.call_soon_threadsafe(act)

    mine = [number for number, handler in before.items() if callable(handler)]
    for number in mine:
        signal.signal(number, received)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
        act()  # what came when the loop had ended
