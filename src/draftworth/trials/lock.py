"""One trial per service: a lock the kernel drops when its holder dies, with a note of who holds it.

The lock is machine-wide (by port, not by $DRAFTWORTH_HOME), so that two people with two folders cannot both
stop the same server.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError
from draftworth.services.base import ProcessId
from draftworth.services.processes import boot_id, describe, identify, is_alive


def lock_folder() -> Path:
    """Return the folder of locks: $DRAFTWORTH_LOCKS, else /run/lock, else the temporary folder."""
    named = os.environ.get("DRAFTWORTH_LOCKS")
    if named:
        return Path(named)
    shared = Path("/run/lock")
    base = shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return base / "draftworth"


@contextmanager
def locked(port: int, trial: str, *, wait_s: float = 0.0) -> Iterator[str | None]:
    """Hold the lock of the service on a port. Yields the trial that died holding it, or None.

    Args:
        port: the service's port.
        trial: who asks.
        wait_s: seconds to wait for another holder.

    Raises:
        RefusedError: a living trial holds it; says which, and since when.
    """
    folder = lock_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            folder.chmod(0o1777)
        descriptor = os.open(folder / f"port-{port}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise RefusedError(f"{folder}: the trial's lock cannot be written: {error.strerror}") from None
    try:
        _take(descriptor, port, wait_s)
        died = _died(_read(descriptor))
        myself = identify(os.getpid())
        note = {
            "trial": trial,
            "pid": os.getpid(),
            "started": myself.started if myself else 0,
            "boot": boot_id(),
            "unix": time.time(),
        }
        _write(descriptor, json.dumps(note))
        try:
            yield died
        finally:
            # A holder that is killed never gets here and leaves its name: that is how a stale lock is recognised.
            _write(descriptor, "")
    finally:
        os.close(descriptor)


def _take(descriptor: int, port: int, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                raise RefusedError(_busy(_read(descriptor), port)) from None
            time.sleep(0.1)
        else:
            return


def _busy(note: dict[str, Any], port: int) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(note.get("unix", time.time()))))
    holder = describe(_holder(note)) if note else "another process"
    return (
        f"trial {note.get('trial', '?')} is at work on the service on port {port} since {since} ({holder}); "
        "wait for it, or end it with Ctrl-C"
    )


def _holder(note: dict[str, Any]) -> ProcessId:
    return ProcessId(pid=int(note.get("pid", 0)), started=int(note.get("started", 0)), boot=str(note.get("boot", "")))


def _died(note: dict[str, Any]) -> str | None:
    """Return the trial whose holder is gone (by pid, start time and boot) without having left in good order."""
    if not note or is_alive(_holder(note)):
        return None
    return str(note.get("trial", "")) or None


def _read(descriptor: int) -> dict[str, Any]:
    text = os.pread(descriptor, 65536, 0).decode(errors="replace")
    try:
        note = json.loads(text) if text.strip() else {}
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
    os.fsync(descriptor)
