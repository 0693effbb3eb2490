"""How a family of processes is ended, and how its port becomes free."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

from draftworth.services.base import ProcessId
from draftworth.services.processes import describe, is_alive, port_taken, reap


def end(members: Callable[[], set[ProcessId]], leader: ProcessId | None, patience_s: float) -> tuple[str, ...]:
    """End a family: SIGTERM to its leader first, then to the rest, then SIGKILL until nobody is left.

    Args:
        members: returns who is alive now; asked again and again, since a family can grow while it ends.
        leader: gets SIGTERM alone first, so that a server can end its own workers in order; None: all at once.
        patience_s: seconds before SIGKILL.

    Returns:
        Remarks for a person: who had to be killed, and who is left (that one starts with `LEFT`).
    """
    deadline = time.monotonic() + patience_s
    if leader is not None:
        _signal(leader, signal.SIGTERM)
        if _wait(lambda: not members() or leader not in members(), deadline) and not members():
            return ()
        # The leader is gone and left these behind (vllm#55510): they get a chance to end in order too.
        deadline = min(deadline, time.monotonic() + 5.0)
    if time.monotonic() < deadline:
        for process in members():
            _signal(process, signal.SIGTERM)
        if _wait(lambda: not members(), deadline):
            return ()
    stubborn = members()
    remarks = (
        ["did not end on SIGTERM and was killed: " + "; ".join(sorted(map(describe, stubborn)))] if stubborn else []
    )
    last = time.monotonic() + 10.0
    while (stubborn := members()) and time.monotonic() < last:
        for process in stubborn:
            _signal(process, signal.SIGKILL)
        time.sleep(0.05)
        reap()
    if stubborn:
        remarks.append("LEFT running after SIGKILL: " + "; ".join(sorted(map(describe, stubborn))))
    return tuple(remarks)


def _wait(done: Callable[[], bool], deadline: float) -> bool:
    """Poll until done or the deadline of the monotonic clock. Returns whether it was done."""
    while True:
        reap()
        if done():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _signal(process: ProcessId, number: signal.Signals) -> None:
    # Checked again right before, so that a recycled pid is not hit.
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def wait_for_free_port(port: int, host: str, patience_s: float) -> bool:
    """Wait until nobody listens on the port. Returns whether that was so in time."""
    deadline = time.monotonic() + patience_s
    while port_taken(port, host):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
