"""Child processes of this one: run with bounded output and a deadline, and ended as a whole."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftworth.hosts.base import MOST_OUTPUT, CommandResult, HostError, HostTimeoutError

_PIECE = 65536
_TICK_S = 0.02
_AFTERGLOW_S = 0.3  # for what is still in a pipe when its command has ended but a child of it keeps the pipe open
_SHOWN = 120


def shown(argv: Sequence[str]) -> str:
    """Return a command for a person: one line, shortened, secrets hidden."""
    from draftworth import redact  # noqa: PLC0415 - lazy: only where something is told

    text = " ".join(" ".join(redact.command(argv)).encode(errors="replace").decode().split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def start(argv: Sequence[str], env: Mapping[str, str], *, stdin: bool) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, its standard output and error in pipes.

    Args:
        argv: the command.
        env: its whole environment.
        stdin: whether it gets a pipe to read from; else /dev/null.

    Raises:
        HostError: it cannot be executed.
    """
    if not argv:
        raise HostError("no command was given")
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
        )
    except FileNotFoundError:
        raise HostError(f"{shown(argv[:1])}: no such command; install it, or add its folder to PATH") from None
    except OSError as error:
        raise HostError(f"{shown(argv)}: cannot be executed: {error.strerror}") from None
    except ValueError as error:  # a NUL byte, or text that is no Unicode
        raise HostError(f"{shown(argv)}: cannot be executed: {error}") from None


@dataclass(slots=True)
class _Kept:
    """The first bytes of a stream."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    cut: bool = False

    def add(self, piece: bytes) -> None:
        room = self.most - len(self.data)
        self.data += piece[:room]
        self.cut = self.cut or len(piece) > room


def finish(
    process: subprocess.Popen[bytes],
    argv: Sequence[str],
    *,
    stdin: bytes | None,
    timeout_s: float,
    most: int = MOST_OUTPUT,
) -> CommandResult:
    """Feed a started command, wait for it, and return how it ended; whatever happens, its session is not left running.

    A child that the command left behind does not hold this up, also where it keeps the pipes open.

    Args:
        process: what `start` returned.
        argv: the command as the caller knows it.
        stdin: what it reads.
        timeout_s: seconds until every process of its session's group is killed.
        most: bytes kept of each stream.

    Raises:
        HostTimeoutError: it was not done in time.
    """
    out, err = _Kept(most), _Kept(most)
    try:
        code = _talk(process, out, err, stdin or b"", time.monotonic() + timeout_s)
    finally:
        close(process)
    if code is None:
        raise HostTimeoutError(f"{shown(argv)}: not done after {timeout_s:g} s, killed")
    names = [name for name, kept in (("output", out), ("error", err)) if kept.cut]
    note = b"".join(b"(standard %s cut after %d bytes)\n" % (name.encode(), most) for name in names)
    return CommandResult(tuple(argv), code, bytes(out.data), note + bytes(err.data), cut=bool(names))


def _talk(process: subprocess.Popen[bytes], out: _Kept, err: _Kept, stdin: bytes, deadline: float) -> int | None:
    """Move bytes both ways until the command has ended. Returns its code, or None where the deadline passed."""
    left = memoryview(stdin)
    code: int | None = None
    pause = 0.001
    with selectors.DefaultSelector() as waiting:
        for pipe, kept in ((process.stdout, out), (process.stderr, err), (process.stdin, None)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                waiting.register(pipe, selectors.EVENT_READ if kept else selectors.EVENT_WRITE, kept)
        while time.monotonic() < deadline:
            if code is None and (code := ended(process)) is not None:
                deadline = min(deadline, time.monotonic() + _AFTERGLOW_S)
            if not any(key.data for key in waiting.get_map().values()):  # nothing more to read
                if code is not None:
                    return code
                time.sleep(pause)
                pause = min(_TICK_S, pause * 2)
                continue
            for key, _ in waiting.select(_TICK_S):
                if key.data is None:
                    left = _feed(process, waiting, left)
                elif not _take(key):
                    waiting.unregister(key.fileobj)
    return code


def _take(key: selectors.SelectorKey) -> bool:
    """Read what is there. Returns whether there can be more."""
    piece = os.read(key.fd, _PIECE)
    key.data.add(piece)
    return bool(piece)


def _feed(process: subprocess.Popen[bytes], waiting: selectors.BaseSelector, left: memoryview) -> memoryview:
    """Write what the pipe takes; close it at the end. Returns what is left."""
    assert process.stdin is not None
    try:
        left = left[os.write(process.stdin.fileno(), left[:_PIECE]) :] if left else left
    except BrokenPipeError:  # it has read enough
        left = left[:0]
    if not left:
        waiting.unregister(process.stdin)
        process.stdin.close()
    return left


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """Return a child's exit code (negative: by that signal), or None while it runs.

    Unlike `Popen.poll`, which takes 0 for the code of a child that somebody else has reaped, asks the one who reaps
    orphans for the real one.

    Raises:
        HostError: it was reaped and nobody knows how it ended.
    """
    if process.returncode is not None:
        return process.returncode
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        from draftworth.services.processes import exit_code  # noqa: PLC0415 - lazy: psutil, and seldom

        process.returncode = exit_code(process.pid)
        if process.returncode is None:
            process.returncode = -signal.SIGKILL  # so that nothing waits for it again
            raise HostError(f"{shown(process.args)}: how it ended is not known") from None  # type: ignore[arg-type]
        return process.returncode
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command that has not ended, its whole group, and reap it."""
    with contextlib.suppress(HostError):
        while ended(process) is None:
            # The group's id is the unreaped leader's pid, so it cannot be a stranger's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.002)


def close(process: subprocess.Popen[bytes]) -> None:
    """Kill a command that has not ended, its whole group, reap it and close its pipes."""
    kill(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
