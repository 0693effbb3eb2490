"""Whether a server that loads is alive: a big one says nothing for minutes while it works, a hung one says nothing too.

Signs of life are looked at together: its log grows, its processes use processor time or read and write, its GPU memory
changes. Without any of them for `silent_s` it is hung. A load is compared with the last one of the same command.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftworth.errors import ServerStartError
from draftworth.trials.progress import duration

_QUIET_S = 30.0
"""Seconds without a log line from which on other signs are told."""
_LEAST_CPU = 0.01
"""Share of one processor below which a process only waits: its timers, its idle loops."""
_LEAST_BYTES = 65536
"""Bytes read and written between two looks that count as work."""
_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What a server has done so far.

    Attributes:
        log_bytes: size of its log.
        cpu_s: processor seconds of its processes, all together.
        io_bytes: bytes its processes have read and written, caches included; None where that cannot be read.
        gpu_bytes: bytes in use on the GPUs; None where there are none.
    """

    log_bytes: int
    cpu_s: float
    io_bytes: int | None = None
    gpu_bytes: int | None = None


class LoadWatch:
    """Tells a slow load from a hung one. Pure but for what it is given to look with."""

    def __init__(
        self,
        look: Callable[[], Signs],
        *,
        silent_s: float,
        last_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            look: returns the signs now.
            silent_s: seconds without any after which the server is hung.
            last_s: seconds the last load of the same command took; None: there was none.
            clock: monotonic seconds.
        """
        self._look = look
        self._silent_s = silent_s
        self._last_s = last_s
        self._clock = clock
        self._began = self._logged_at = self._alive_at = self._looked_at = clock()
        self._before = look()
        self._cause = ""

    def words(self) -> str:
        """Return how the load goes, for a person: how long, of how long, and whether it is alive.

        Raises:
            ServerStartError: it is hung.
        """
        self._update()
        now = self._clock()
        took = now - self._began
        if self._last_s is None:
            parts = [f"{duration(took)}, no earlier load of this arm to compare with"]
        else:
            parts = [f"{duration(took)} of about {duration(self._last_s)}, as the last time"]
            if took > 1.5 * self._last_s and took - self._last_s > _QUIET_S:
                parts = [f"{duration(took)}, the last time {duration(self._last_s)}"]
        if now - self._logged_at >= _QUIET_S:
            silent = f"no log line for {duration(now - self._logged_at)}"
            if now - self._alive_at < _QUIET_S:
                parts.append(f"{silent}, but alive: {self._cause}")
            else:
                parts.append(f"{silent} and no other sign of life for {duration(now - self._alive_at)}")
        if now - self._alive_at >= self._silent_s:
            raise ServerStartError(
                f"the server hangs: no log line, no processor time, no input or output and no change of GPU memory for "
                f"{duration(now - self._alive_at)} (limits.silent_s)"
            )
        return "; ".join(parts)

    def _update(self) -> None:
        now = self._clock()
        since = now - self._looked_at
        if since < _EVERY_S:
            return
        before, self._before = self._before, self._look()
        self._looked_at = now
        after = self._before
        if after.log_bytes != before.log_bytes:
            self._logged_at = self._alive_at = now
            return
        cause = _cause(before, after, since)
        if cause:
            self._alive_at, self._cause = now, cause


def _cause(before: Signs, after: Signs, since_s: float) -> str:
    """Return which other sign of life there was, or nothing."""
    used = after.cpu_s - before.cpu_s
    # A process that ended takes its seconds with it: a smaller sum is a change too.
    if used < 0 or used / since_s > _LEAST_CPU:
        return f"it uses {max(used, 0.0) / since_s:.1f} processors"
    if before.io_bytes is not None and after.io_bytes is not None:
        moved = after.io_bytes - before.io_bytes
        if abs(moved) > _LEAST_BYTES:
            return f"it reads and writes {abs(moved) / since_s / 2**20:.1f} MiB a second"
    if before.gpu_bytes is not None and after.gpu_bytes is not None and before.gpu_bytes != after.gpu_bytes:
        return "its GPU memory changes"
    return ""


def signs_of(pids: Iterable[int], log: Path, gpu_bytes: int | None = None) -> Signs:
    """Return the signs of life of a server's processes, as /proc tells them (proc(5): stat, io)."""
    ticks = os.sysconf("SC_CLK_TCK")
    cpu, moved, readable = 0.0, 0, False
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / ticks
        with suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
            values = {name: int(value) for name, value in (line.split(": ") for line in lines)}
            # A file that is mapped is read by page faults, which rchar does not count.
            moved += values["rchar"] + values["wchar"] + values["read_bytes"]
            readable = True
    try:
        size = log.stat().st_size
    except OSError:
        size = 0
    return Signs(size, cpu, moved if readable else None, gpu_bytes)
