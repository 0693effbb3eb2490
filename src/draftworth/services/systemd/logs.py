"""A unit's output as a file of the trial's: followed from the journal by InvocationID, or from the file it goes to."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import UsageError
from draftworth.hosts.base import Host, HostError
from draftworth.services.systemd.journal import Follower, dropped, end_of, follow, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftworth.services.systemd.found import UnitFound

_FILES = ("file:", "append:", "truncate:")
_START_BYTES = 32 * 2**20
"""Bytes of a running original's log that are kept, from its beginning: what it said while it started."""
_TAIL = 15
_EXPORT_S = 60.0
_SETTLE_S = 2.0
_END_S = 10.0
_LAST_BYTES = 4096
_QUIET_S = 0.2


class Logs:
    """Writes the logs of units into files; one is followed at a time.

    Attributes:
        folder: where they are written.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.folder = Path()
        self._follower: Follower | None = None
        self._over: tuple[str, int | None] | None = None

    def of_original(self, found: "UnitFound", invocation: str) -> Path:
        """Return the log of the original since it started, as it is now; its first 32 MiB where that is more."""
        own = output_file(found)
        if own is not None:
            return own
        path = self.folder / f"original-{invocation[:8]}.log"
        if not path.exists():
            with suppress(OSError, subprocess.SubprocessError), path.open("wb") as out:
                head = ["head", "-c", str(_START_BYTES)]
                with subprocess.Popen(
                    in_namespace(_journal(invocation), found), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                ) as read:
                    subprocess.run(head, stdin=read.stdout, stdout=out, check=False, timeout=_EXPORT_S)
                    read.kill()
        return path

    def begin(self, found: "UnitFound", unit: str, invocation: str, name: str) -> Path:
        """Follow a new start of the original; returns its log."""
        path = self.folder / f"{name}-{invocation[:8]}.log"
        if not path.exists():
            self.follow(found, unit, invocation, path)
        return path

    def follow(self, found: "UnitFound", unit: str, invocation: str, path: Path) -> None:
        """Write what a start says into a file, from its beginning on, until `stop`. Raises HostError."""
        self.stop()
        own = output_file(found)
        argv: Sequence[str] = in_namespace(follow(unit, invocation), found)
        if own is not None:
            size = own.stat().st_size if own.is_file() else 0
            argv = ["tail", "--follow=name", "--retry", "--quiet", f"--bytes=+{size + 1}", str(own)]
        self._follower = Follower(path).start(argv)

    def settle(self) -> None:
        """Wait a moment until what a start says is in the file: the journal is a little behind."""
        deadline = time.monotonic() + _SETTLE_S
        size = -1
        while self._follower is not None and time.monotonic() < deadline:
            before, size = size, _size(self._follower.path)
            if size and size == before:
                return
            time.sleep(_QUIET_S)

    def ended(self, found: "UnitFound", unit: str, invocation: str) -> int | None:
        """Wait until the last words of a start that is over are in its file; they say why.

        A quiet file is not enough on a busy machine: journald may not have been given time at all. So systemd's own
        word on the end is waited for, then journald is made to write what it holds, and the copy to catch up.

        Returns:
            The exit code of its main process, negative for a signal; None where the journal does not tell.
        """
        if self._over and self._over[0] == invocation:
            return self._over[1]
        deadline = time.monotonic() + _END_S
        told, code = False, None
        while not told and time.monotonic() < deadline:
            try:
                told, code = end_of(self._host, invocation)
            except (HostError, UsageError):
                break
            time.sleep(0.0 if told else _QUIET_S)
        with suppress(HostError):
            self._host.run(in_namespace(["journalctl", "--sync"], found), timeout_s=_END_S)
        self.settle()
        self._catch_up(found, unit, invocation, deadline)
        self._over = (invocation, code)
        return code

    def _catch_up(self, found: "UnitFound", unit: str, invocation: str, deadline: float) -> None:
        """Wait until the copy ends as its source does."""
        own = output_file(found)
        while (follower := self._follower) is not None and time.monotonic() < deadline:
            if own is not None:
                last = _ending(own)
            else:
                try:
                    argv = in_namespace([*said(unit, invocation), "--lines=1"], found)
                    last = self._host.run(argv, timeout_s=_END_S).out[-_LAST_BYTES:]
                except (HostError, UsageError):
                    return
            if _ending(follower.path).endswith(last):
                return
            time.sleep(_QUIET_S)

    def stop(self) -> None:
        """End following, once everything that was said is written."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.stop()

    def close(self) -> None:
        """End everything."""
        self.stop()

    def dropped(self, unit: str, invocation: str) -> int:
        """Return the lines of a start that the journal's rate limit has kept out."""
        try:
            return dropped(self._host, unit, invocation)
        except HostError:
            return 0

    def tail(self, unit: str, path: Path) -> tuple[str, ...]:
        """Return the last lines of a start, from its file, else from the journal of its unit."""
        from draftworth.services.processes import tail  # noqa: PLC0415 - lazy: psutil

        lines = tuple(tail(path))
        if lines:
            return lines
        # What systemd itself says of a unit (no such program, a failed ExecStartPre=) carries no invocation of its own.
        argv = ["journalctl", "-u", unit, "-o", "cat", "--no-pager", "-q", "-n", str(_TAIL)]
        done = self._host.run(argv, timeout_s=_EXPORT_S)
        return tuple(line.rstrip() for line in done.text.splitlines() if line.strip())


def output_file(found: "UnitFound") -> Path | None:
    """Return the file a unit's output goes to, or None where it goes to the journal."""
    where = found.snapshot.standard_output
    kind = next((kind for kind in _FILES if where.startswith(kind)), None)
    return None if kind is None else Path(where.removeprefix(kind))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ending(path: Path) -> bytes:
    """Return the last bytes of a file; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size(path) - _LAST_BYTES))
            return file.read()
    except OSError:
        return b""


def _journal(invocation: str) -> list[str]:
    # -a: lines with unprintable bytes as they are.
    return ["journalctl", f"_SYSTEMD_INVOCATION_ID={invocation}", "-o", "cat", "-a", "-q", "--no-pager"]


def in_namespace(argv: list[str], found: "UnitFound") -> list[str]:
    """Return a journalctl command that reads the journal a unit writes to (LogNamespace=)."""
    name = str(found.snapshot.properties.get("LogNamespace") or "")
    return [argv[0], f"--namespace={name}", *argv[1:]] if name else argv
