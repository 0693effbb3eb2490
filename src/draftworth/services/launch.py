"""How a process is launched, and how the original is kept on disk and started again from there."""

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from draftworth.errors import ServerStartError, TrialError
from draftworth.services.base import MARK, Observed, ProcessId, Running
from draftworth.services.conditions import Conditions
from draftworth.services.processes import born

SAVED = "original.json"
"""In the trial's folder until the restore is verified: how the original is started, its environment included."""
SCRIPT = "restore.sh"
"""Beside it: the same for a person's shell."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the kernel says of the running original besides its argv.

    Attributes:
        env: its environment; bytes that are not UTF-8 as surrogate escapes.
        cwd: its folder.
        errors: the file its standard error went to, where that was another one than its standard output's.
        conditions: what else it runs under.
    """

    env: Mapping[str, str]
    cwd: str
    errors: str | None
    conditions: Conditions


def save(observed: Observed, found: Found, folder: Path) -> None:
    """Write SAVED and SCRIPT, readable by their owner only: the environment may hold keys.

    Args:
        observed: the running original.
        found: what else is known of it.
        folder: the trial's folder.
    """
    saved = {
        "command": list(observed.command),
        "cwd": found.cwd,
        "log": observed.log,
        "errors": found.errors,
        "env": dict(found.env),
        "conditions": found.conditions.model_dump(mode="json"),
    }
    _write_private(folder / SAVED, json.dumps(saved, indent=1), 0o600)
    _write_private(folder / SCRIPT, script(observed, found, folder / "logs" / "original.log"), 0o700)


def script(observed: Observed, found: Found, fallback: Path) -> str:
    """Return a shell script that starts the original.

    Args:
        observed: the original.
        found: what else is known of it.
        fallback: its log where its own output was no file.
    """
    conditions = found.conditions
    log = observed.log or str(fallback)
    lines = ["#!/bin/sh", "# Starts the original service again, as it was before the trial."]
    # What the shell has, the service inherits. These are tried; the service starts without them too.
    if conditions.nice is not None:
        lines.append(f"renice {conditions.nice} -p $$ >/dev/null 2>&1 || :")
    if conditions.affinity and len(conditions.affinity) < (os.cpu_count() or 1):
        lines.append(f"taskset -pc {','.join(map(str, conditions.affinity))} $$ >/dev/null 2>&1 || :")
    if conditions.oom_score_adj is not None:
        lines.append(f"(echo {conditions.oom_score_adj} >/proc/$$/oom_score_adj) 2>/dev/null || :")
    # A variant that still serves would hold the port, and the original would end there, unseen.
    trial = shlex.quote(f"^{MARK}={fallback.parent.parent.name}/")
    lines += [
        f"left=$(grep -lzs {trial} /proc/[0-9]*/environ | cut -d/ -f3 | tr '\\n' ' ')",
        'if [ -n "$left" ]; then echo "the trial\'s own server still runs; first: kill -9 $left" >&2; exit 1; fi',
    ]
    lines.append(f"mkdir -p {shlex.quote(str(Path(log).parent))}")
    if conditions.umask is not None:
        lines.append(f"umask {conditions.umask:04o}")
    lines.append(f"cd {shlex.quote(found.cwd)} || exit 1")
    words = ["setsid"]
    if account := conditions.account():
        user, group, groups = account
        others = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
        words += ["setpriv", "--reuid", str(user), "--regid", str(group), *others]
    words += ["env", "-i", "--", *(f"{name}={value}" for name, value in sorted(found.env.items())), *observed.command]
    errors = f"2>>{shlex.quote(found.errors)}" if found.errors else "2>&1"
    lines += [
        f"exec {shlex.join(words)} </dev/null >>{shlex.quote(log)} {errors} &",
        "pid=$!; sleep 2",
        f"log={shlex.quote(log)}",
        'if kill -0 $pid 2>/dev/null; then echo "the original starts as pid $pid; its log: $log"; exit 0; fi',
        'echo "the original ended at once; see $log" >&2; exit 1',
    ]
    return "\n".join(lines) + "\n"


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
        env, cwd = dict(saved["env"]), str(saved["cwd"])
        log = Path(saved["log"]) if saved["log"] else folder / "logs" / "original.log"
        errors = Path(saved["errors"]) if saved["errors"] else None
        conditions = Conditions.model_validate(saved["conditions"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise TrialError(f"{folder / SAVED} cannot be read ({reason}); start the service by hand") from None
    return launch(observed.command, env, cwd, log, "", errors=errors, conditions=conditions)


def launch(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    log: Path,
    mark: str,
    *,
    errors: Path | None = None,
    conditions: Conditions | None = None,
) -> Running:
    """Start a process in a session of its own with its output appended to a log.

    Args:
        command: its argv.
        env: its whole environment.
        cwd: its folder.
        log: gets its standard output.
        mark: the mark in `env`, or nothing.
        errors: gets its standard error; None: `log` does.
        conditions: what it runs under; what the tool may not set is left out, except for the user: a service never
            comes back as another user than it had. None: what the tool itself runs under.

    Raises:
        ServerStartError: it cannot be executed.
    """
    conditions = conditions or Conditions()
    try:
        # A thread of its own: the processors and the nice value it takes on are gone with it.
        with ThreadPoolExecutor(1) as thread:
            child = thread.submit(_spawn, command, env, cwd, (log, errors), conditions).result()
    except FileNotFoundError as error:
        missing = cwd if error.filename == cwd else command[0]
        raise ServerStartError(f"{missing}: no such file; is the engine installed, and the path right?") from None
    except (OSError, ValueError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise ServerStartError(f"{command[0]}: cannot be started: {reason}") from None
    conditions.apply(child.pid)
    # Not reaped yet, so its pid is its own even where it has ended already.
    leader = born(child.pid) or ProcessId(pid=child.pid, started=0, boot="")
    # The subprocess module would warn that the child is still running when the object goes away.
    child.returncode = 0
    account = conditions.account()
    return Running(leader=leader, session=child.pid, mark=mark, log=log, uid=account[0] if account else None)


def _spawn(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    files: tuple[Path, Path | None],
    conditions: Conditions,
) -> "subprocess.Popen[bytes]":
    conditions.enter()
    log, errors = files
    user, group, groups = conditions.account() or (None, None, None)
    log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as open_files:
        output = open_files.enter_context(log.open("ab"))
        separate = None
        if errors is not None:
            with suppress(OSError):  # its folder is gone: the log takes both
                separate = open_files.enter_context(errors.open("ab"))

        def popen(*, as_other: bool) -> "subprocess.Popen[bytes]":
            # Not a context manager: the server outlives this function, and may outlive the tool.
            return subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=separate or subprocess.STDOUT,
                start_new_session=True,
                user=user if as_other else None,
                group=group if as_other else None,
                extra_groups=groups if as_other else None,
                umask=-1 if conditions.umask is None else conditions.umask,
            )

        try:
            return popen(as_other=True)
        except PermissionError:
            # Groups alone (a container without CAP_SETGID) are worth less than a running service.
            if user is None or user != os.geteuid():
                raise
            return popen(as_other=False)


def _write_private(path: Path, text: str, mode: int) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IMODE(mode))
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.fsencode(text))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
