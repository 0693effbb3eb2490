"""What a unit prints, out of systemd's journal: followed into a file, and counted where journald has dropped some."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from draftworth.errors import UsageError
from draftworth.hosts.base import Host, HostError

_DROPPED = "a596d6fe7bfa4994828e72309e95d61e"  # SD_MESSAGE_JOURNAL_DROPPED, sd-messages(3)
_EXITED = "98e322203f7a4ed290d09fe03c09fe15"  # SD_MESSAGE_UNIT_PROCESS_EXIT: not told of a clean exit
_ENDS = (
    _EXITED,
    "d9b373ed55a64feb8242e02dbe79a49c",
    "7ad2d189f7e94e70a38c781354912448",
)
"""What tells an end: it, SD_MESSAGE_UNIT_FAILURE_RESULT, SD_MESSAGE_UNIT_SUCCESS (sd-messages(3))."""
_INVOCATION = re.compile(r"[0-9a-f]{32}")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ENDING_S = 5.0
_QUIET_S = 0.3


def follow(unit: str, invocation: str) -> list[str]:
    """Return the command that prints everything a start of a unit prints, from its first line on, as raw bytes.

    journald itself keeps no empty lines, and cuts lines of more than 48 KiB in pieces.

    Args:
        unit: its name.
        invocation: InvocationID of the start, 32 hex digits: no other start's lines are among them.

    Raises:
        UsageError: that is no InvocationID.
    """
    return [*said(unit, invocation), "--follow", "--no-tail"]


def said(unit: str, invocation: str) -> list[str]:
    """Return the command that prints what a start has printed until now, as `follow` does. Raises UsageError."""
    _check(invocation)
    matches = [f"_SYSTEMD_INVOCATION_ID={invocation}", f"_SYSTEMD_UNIT={unit}"]
    return ["journalctl", "--no-pager", "--quiet", "--output=cat", "--all", *matches]


def dropped(host: Host, unit: str, invocation: str) -> int:
    """Return how many lines of a start journald has told it suppressed by its rate limit.

    It tells with the unit's first line after the interval (30 s by default), so the last burst may be missing.

    Raises:
        UsageError: that is no InvocationID.
        HostError: the journal cannot be read.
    """
    _check(invocation)
    matches = [f"MESSAGE_ID={_DROPPED}", f"OBJECT_SYSTEMD_INVOCATION_ID={invocation}", f"OBJECT_SYSTEMD_UNIT={unit}"]
    done = host.run(["journalctl", "--no-pager", "--quiet", "--output=json", "--output-fields=N_DROPPED", *matches])
    if not done.ok:
        raise HostError(f"the journal of {unit} on {host.name} cannot be read: {done.why}")
    count = 0
    for line in done.out.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            count += int(json.loads(line)["N_DROPPED"])
    return count


class End(NamedTuple):
    """What systemd has written into the journal of a start's end.

    Attributes:
        told: whether it has written that the start is over.
        exit_code: of the main process, negative for a signal; None for a clean exit, or where it is not told.
    """

    told: bool
    exit_code: int | None


def end_of(host: Host, invocation: str) -> End:
    """Return how a start ended, as the journal has it: systemd itself forgets it when the unit is started again.

    Raises:
        UsageError: that is no InvocationID.
        HostError: the journal cannot be read.
    """
    _check(invocation)
    fields = "--output-fields=MESSAGE_ID,EXIT_CODE,EXIT_STATUS,COMMAND"
    either = [f"MESSAGE_ID={one}" for one in _ENDS]
    matches = [*either, f"INVOCATION_ID={invocation}"]
    done = host.run(["journalctl", "--no-pager", "--quiet", "--output=json", fields, *matches])
    if not done.ok:
        raise HostError(f"the journal on {host.name} cannot be read: {done.why}")
    told, code = False, None
    for line in done.out.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            told = True
            if entry["MESSAGE_ID"] == _EXITED and entry.get("COMMAND", "ExecStart") == "ExecStart":
                status = int(entry["EXIT_STATUS"])
                code = status if entry["EXIT_CODE"] == "exited" else -status
    return End(told, code)


def _check(invocation: str) -> None:
    if not _INVOCATION.fullmatch(invocation):
        raise UsageError(f"{invocation!r} is no InvocationID (32 hex digits)")


class Follower:
    """Copies what a start prints into a file while it is printed; a journal that is rotated meanwhile is read on.

    It ends with the thread that started it: `start` is called by one that lives as long as the copy is wanted.
    """

    def __init__(self, path: Path) -> None:
        """Make one that writes to `path`; nothing runs yet."""
        self.path = path
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str]) -> Self:
        """Begin with an empty file.

        Args:
            argv: from `follow`, with a prefix where it runs elsewhere.

        Raises:
            HostError: the command cannot be run, or the file not be written.
        """
        try:
            with self.path.open("wb") as file:
                # journalctl has no reason to outlive its owner, and would wait for ever.
                self._process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509 - nothing but two system calls
                )
        except OSError as error:
            raise HostError(f"{argv[0]} cannot copy the journal to {self.path}: {error.strerror}") from error
        return self

    def alive(self) -> bool:
        """Whether it still copies."""
        return self._process is not None and self._process.poll() is None

    def stop(self, *, quiet_s: float = _QUIET_S) -> None:
        """End it, once nothing has come for `quiet_s` seconds (waits 5 s at most). May be called again."""
        process, self._process = self._process, None
        if process is None:
            return
        size, deadline = -1, time.monotonic() + _ENDING_S
        while process.poll() is None and self._size() != size and time.monotonic() < deadline:
            size = self._size()
            time.sleep(quiet_s)
        process.terminate()
        try:
            process.wait(timeout=_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


def _dies_with(owner: int) -> Callable[[], None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != owner:  # it died in between
            os.kill(os.getpid(), signal.SIGKILL)

    return ask
