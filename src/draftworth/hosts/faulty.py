"""A host that fails where a test wants it to: every call of a run failed, killed or delayed in turn.

Fail call 1, then call 2, until a whole run succeeds: what holds at each of them holds wherever the machine, the
connection or the tool gives way.
"""

import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from draftworth.hosts.base import CommandResult, Host, HostError
from draftworth.hosts.files import temporary

When = Literal["before", "after"]
"""Whether a fault strikes before a call has its effect, or after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a host."""

    number: int
    """Counted from 1 over all kinds."""
    kind: Literal["run", "read", "write", "remove"]
    what: tuple[str, ...]
    """The argv, or the path alone."""


class FaultyHost:
    """Another host with faults at chosen calls; everything else is passed on.

    Attributes:
        calls: every call so far, those that failed too.
    """

    def __init__(
        self,
        host: Host,
        *,
        fail: Mapping[int, HostError] | None = None,
        kill: Mapping[int, signal.Signals] | None = None,
        delay: Mapping[int, float] | None = None,
        full: Collection[int] = (),
        when: When = "before",
        lasting: bool = False,
    ) -> None:
        """Make a host.

        Args:
            host: the real one.
            fail: number of a call to the error it raises.
            kill: number of a call to the signal this process gets then.
            delay: number of a call to the seconds it takes longer.
            full: numbers of calls at which the disk is full: a write leaves half a temporary file behind and fails;
                other calls go on as ever.
            when: whether faults strike before the call's effect or after it; a full disk is always before.
            lasting: whether a failure or a full disk stays for every later call.
        """
        self.name = host.name
        self.calls: list[Call] = []
        self._host = host
        self._fail = fail or {}
        self._kill = kill or {}
        self._delay = delay or {}
        self._full = full
        self._when = when
        self._lasting = lasting

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        """Run a command; see `Host.run`."""
        call = self._count("run", tuple(argv))
        self._strike(call, "before")
        result = self._host.run(argv, stdin=stdin, timeout_s=timeout_s)
        self._strike(call, "after")
        return result

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; see `Host.read`."""
        call = self._count("read", (path,))
        self._strike(call, "before")
        data = self._host.read(path)
        self._strike(call, "after")
        return data

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place; see `Host.write`."""
        call = self._count("write", (path,))
        self._strike(call, "before")
        if self._due(call.number, self._full):
            self._host.write(temporary(path), data[: len(data) // 2], 0o600)
            raise HostError(f"{path}: cannot be written: No space left on device")
        self._host.write(path, data, mode)
        self._strike(call, "after")

    def remove(self, path: str) -> bool:
        """Remove a file; see `Host.remove`."""
        call = self._count("remove", (path,))
        self._strike(call, "before")
        there = self._host.remove(path)
        self._strike(call, "after")
        return there

    def _count(self, kind: Literal["run", "read", "write", "remove"], what: tuple[str, ...]) -> Call:
        call = Call(len(self.calls) + 1, kind, what)
        self.calls.append(call)
        return call

    def _due(self, number: int, chosen: Collection[int]) -> bool:
        return number in chosen or (self._lasting and any(number > one for one in chosen))

    def _strike(self, call: Call, moment: When) -> None:
        if moment != self._when:
            return
        if call.number in self._delay:
            time.sleep(self._delay[call.number])
        if call.number in self._kill:
            os.kill(os.getpid(), self._kill[call.number])
        if self._due(call.number, self._fail):
            raise self._fail[max(number for number in self._fail if number <= call.number)]
