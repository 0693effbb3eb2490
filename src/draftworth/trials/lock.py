"""One trial per service: a lock the kernel drops when its holder dies, with a note of who holds it.

The lock is machine-wide (by port, not by $DRAFTWORTH_HOME), so that two people with two folders cannot both
stop the same server.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError
from draftworth.services.base import ProcessId
from draftworth.services.processes import boot_id, describe, identify, is_alive

_SHARED = "/tmp/draftworth-locks"  # noqa: S108 - one fixed place that every user can write; files are opened O_NOFOLLOW


def lock_folder() -> Path:
    """Return the folder of locks: $DRAFTWORTH_LOCKS, else one place for every user of the machine."""
    return Path(os.environ.get("DRAFTWORTH_LOCKS") or _SHARED)


def _open(port: int) -> int:
    """Open a service's lock file, making it and its folder where they are missing."""
    folder = lock_folder()
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            folder.chmod(0o1777)
    path = folder / f"port-{port}.lock"
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        # Without O_CREAT first: the kernel refuses it on another user's file in a shared folder (protected_regular).
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
        return descriptor


@contextmanager
def locked(port: int, folder: Path, *, wait_s: float = 0.0, role: str = "trial") -> Iterator[Path | None]:
    """Hold the lock of the service on a port. Yields the folder of the trial that died holding it, or None.

    A refusal within the block leaves the dead trial's name where it was; only a block that ends otherwise clears it.

    Args:
        port: the service's port.
        folder: the folder of the trial that asks.
        role: what it does: `trial`, `guard` or `restore`.
        wait_s: seconds to wait for another holder.

    Raises:
        RefusedError: a living trial holds it; says which, and since when.
    """
    try:
        descriptor = _open(port)
    except OSError as error:
        raise RefusedError(f"{lock_folder()}: the trial's lock cannot be written: {error.strerror}") from None
    try:
        _take(descriptor, port, wait_s)
        before = _read(descriptor) if _trusted(descriptor) else {}
        died = _died(before)
        myself = identify(os.getpid())
        note = {
            "trial": folder.name,
            "folder": str(folder),
            "role": role,
            "pid": os.getpid(),
            "started": myself.started if myself else 0,
            "boot": boot_id(),
            "unix": time.time(),
        }
        _write(descriptor, json.dumps(note))
        try:
            yield died
        except RefusedError:
            _write(descriptor, json.dumps(before) if died else "")
            raise
        except BaseException:
            _write(descriptor, "")
            raise
        # A holder that is killed never gets here and leaves its name: that is how a stale lock is recognised.
        _write(descriptor, "")
    finally:
        os.close(descriptor)


def _trusted(descriptor: int) -> bool:
    """Whether a note may be believed: root acts on none that another user can have written."""
    return os.geteuid() != 0 or os.fstat(descriptor).st_uid == 0


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
    trial = note.get("trial", "?")
    if note.get("role") in {"guard", "restore"}:
        return f"the service on port {port} is being put back after trial {trial} ({holder}); wait for it"
    return (
        f"trial {trial} is at work on the service on port {port} since {since} ({holder}); "
        "wait for it, or end it with Ctrl-C"
    )


def dead() -> list[tuple[int, Path]]:
    """Return the port and folder of every trial of this machine that was killed while it held a service."""
    found = []
    for path in sorted(lock_folder().glob("port-*.lock")):
        try:
            if os.geteuid() == 0 and path.stat().st_uid != 0:
                continue
            note = json.loads(path.read_text(encoding="utf-8") or "{}")
        except (OSError, ValueError):
            continue
        folder = _died(note) if isinstance(note, dict) else None
        if folder is not None:
            found.append((int(path.stem.removeprefix("port-")), folder))
    return found


def _holder(note: dict[str, Any]) -> ProcessId:
    return ProcessId(pid=int(note.get("pid", 0)), started=int(note.get("started", 0)), boot=str(note.get("boot", "")))


def _died(note: dict[str, Any]) -> Path | None:
    """Return the trial whose holder is gone (by pid, start time and boot) without having left in good order."""
    if not note.get("trial") or is_alive(_holder(note)):
        return None
    return Path(str(note.get("folder") or note["trial"]))


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
