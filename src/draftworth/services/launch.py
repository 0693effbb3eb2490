"""How a process is launched, and how the original is kept on disk and started again from there."""

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from draftworth.errors import ServerStartError, TrialError
from draftworth.services.base import Observed, ProcessId, Running
from draftworth.services.processes import identify

SAVED = "original.json"
"""In the trial's folder until the restore is verified: how the original is started, its environment included."""
SCRIPT = "restore.sh"
"""Beside it: the same for a person's shell."""


def save(observed: Observed, env: Mapping[str, str], folder: Path) -> None:
    """Write SAVED and SCRIPT, readable by their owner only: the environment may hold keys.

    Args:
        observed: the running original.
        env: its environment.
        folder: the trial's folder.
    """
    assert observed.process is not None
    process = psutil.Process(observed.process.pid)
    saved = {
        "command": list(observed.command),
        "cwd": observed.cwd,
        "log": observed.log,
        "env": dict(env),
        "uid": process.uids().effective,
        "gid": process.gids().effective,
        "nice": process.nice(),
        "affinity": process.cpu_affinity(),
    }
    _write_private(folder / SAVED, json.dumps(saved, indent=1), 0o600)
    assignments = " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(env.items()))
    log = shlex.quote(observed.log or str(folder / "logs" / "original.log"))
    script = (
        "#!/bin/sh\n# Starts the original service again, as it was before the trial.\n"
        f"cd {shlex.quote(observed.cwd or '/')} || exit 1\n"
        f"exec env -i {assignments} setsid {shlex.join(observed.command)} </dev/null >>{log} 2>&1 &\n"
    )
    _write_private(folder / SCRIPT, script, 0o700)


def forget(folder: Path) -> None:
    """Remove what `save` wrote."""
    (folder / SAVED).unlink(missing_ok=True)
    (folder / SCRIPT).unlink(missing_ok=True)


def start_saved(observed: Observed, folder: Path) -> Running:
    """Start the original from what `save` wrote.

    Raises:
        TrialError: it cannot be read.
        ServerStartError: the command cannot be executed.
    """
    try:
        saved = json.loads((folder / SAVED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrialError(f"{folder / SAVED} cannot be read ({error}); start the service by hand") from None
    log = Path(saved["log"]) if saved["log"] else folder / "logs" / "original.log"
    account = {"user": saved["uid"], "group": saved["gid"]} if saved["uid"] != os.geteuid() else {}
    with _inherited(saved.get("nice"), saved.get("affinity")):
        return launch(observed.command, saved["env"], saved["cwd"] or "/", log, "", account=account)


def launch(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    log: Path,
    mark: str,
    *,
    account: Mapping[str, int] | None = None,
) -> Running:
    """Start a process in a session of its own with its output appended to a log."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # Not a context manager: the server outlives this function, and may outlive the tool.
            child = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=account["user"] if account else None,
                group=account["group"] if account else None,
            )
    except FileNotFoundError as error:
        missing = cwd if error.filename == cwd else command[0]
        raise ServerStartError(f"{missing}: no such file; is the engine installed, and the path right?") from None
    except OSError as error:
        raise ServerStartError(f"{command[0]}: cannot be started: {error.strerror or error}") from None
    leader = identify(child.pid)
    if leader is None:
        # It ended at once; what the pid was is still true.
        leader = ProcessId(pid=child.pid, started=0, boot="")
    # The subprocess module would warn that the child is still running when the object goes away.
    child.returncode = 0
    return Running(leader=leader, session=child.pid, mark=mark, log=log)


@contextmanager
def _inherited(nice: int | None, affinity: Sequence[int] | None) -> Iterator[None]:
    """Give children the original's processors and nice value for the time of the block."""
    before = os.sched_getaffinity(0)
    usable = set(affinity or ()) & set(range(os.cpu_count() or 1))
    if usable:
        os.sched_setaffinity(0, usable)
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    lifted = nice is not None and nice > mine and os.geteuid() == 0
    if lifted and nice is not None:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        if lifted:
            os.setpriority(os.PRIO_PROCESS, 0, mine)


def _write_private(path: Path, text: str, mode: int) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IMODE(mode))
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
