"""Looking at a service before anything is changed: what holds its port, and whether that can be put back."""

import json
from collections.abc import Sequence
from pathlib import Path

import psutil

from draftworth.errors import RefusedError
from draftworth.redact import command as redacted
from draftworth.services.base import Observed, ProcessId
from draftworth.services.conditions import conditions_of, streams_of
from draftworth.services.launch import Found
from draftworth.services.places import ADVICE, obstacle
from draftworth.services.processes import (
    argv_of,
    describe,
    environment_hash,
    environment_of,
    family,
    is_alive,
    listeners,
    mark_of,
)
from draftworth.services.recognise import own_session, parents_of, started_with, twins_of, waiting_with


def look(port: int, host: str, command: Sequence[str]) -> tuple[Observed, Found | None]:
    """Return what holds the service's port, and what else puts it back where it is the running service.

    Args:
        port: the service's port.
        host: its address, as this machine reaches it.
        command: its own command.

    Raises:
        RefusedError: a stranger holds the port, the service is starting, systemd or a container runs it, or it cannot
            be read.
        OSError, psutil.Error: a process ended while it was looked at.
    """
    holders = listeners(port, host)
    if not holders:
        _refuse_waiting(port, command)
        return Observed(running=False), None
    visible = [holder for holder in holders if holder is not None]
    if len(visible) < len(holders):
        raise RefusedError(f"port {port} is taken by a process this user cannot see; run as its user, or as root")
    for holder in visible:
        _refuse_left(holder, f"port {port} is held by")
        _refuse_placed(holder)
    matches = (started_with(parents_of(holder), command) for holder in visible)
    original = next((found for found in matches if found), None)
    if original is None:
        raise RefusedError(f"port {port} is taken by {describe(visible[0])}; {_advice(visible[0])}")
    _refuse_placed(original)
    others = set(visible) - family(original, own_session(original), None, ())
    if others:
        raise RefusedError(
            f"port {port} is shared: {describe(original)} and {describe(min(others, key=lambda p: p.pid))} "
            "both listen on it, so a measurement could reach either; stop the one that is not the service"
        )
    return _read(port, original)


def _refuse_waiting(port: int, command: Sequence[str]) -> None:
    """Refuse where the service runs and does not listen yet: a server binds first and listens once it is loaded."""
    found = waiting_with(command)
    if found is None:
        return
    _refuse_left(found, "the service's command runs as")
    _refuse_placed(found)
    raise RefusedError(
        f"the service is starting ({describe(found)}) and does not listen on port {port} yet; "
        "wait until it serves, or stop it"
    )


def _read(port: int, original: ProcessId) -> tuple[Observed, Found]:
    """Read all that puts a running original back."""
    user = psutil.Process(original.pid).username()
    try:
        env = environment_of(original.pid)
        cwd = str(Path(f"/proc/{original.pid}/cwd").readlink())
    except PermissionError:
        raise RefusedError(
            f"{describe(original)} cannot be inspected by this user, so it could not be put back; "
            f"run as {user}, or as root"
        ) from None
    conditions, streams = conditions_of(original.pid), streams_of(original.pid)
    unread = conditions.unread()
    notes = [f"its {', '.join(unread)} cannot be read; the restore leaves them as the tool's own"] if unread else []
    argv = argv_of(original.pid)
    if any(not _is_text(word) for word in (*argv, cwd)):
        raise RefusedError(
            f"{describe(original)}: its command line or folder is not UTF-8, which a record cannot hold; "
            "start it with a UTF-8 command line in a folder with a UTF-8 name"
        )
    if not Path(cwd).is_dir():
        raise RefusedError(
            f"{describe(original)}: its folder {cwd} is gone, so it could not be put back; make it again"
        )
    twins = twins_of(original)
    if not is_alive(original):
        raise RefusedError(f"the service on port {port} ended while it was looked at; try again")
    found = Found(env=env, cwd=cwd, errors=streams.errors, conditions=conditions)
    observed = Observed(
        running=True,
        process=original,
        command=argv,
        cwd=cwd,
        log=streams.log,
        user=user,
        env_hash=environment_hash(env),
        twins=twins,
        notes=(*streams.notes, *notes),
    )
    return observed, found


def _refuse_left(process: ProcessId, what: str) -> None:
    if mark := mark_of(process.pid):
        trial = mark.split("/")[0]
        raise RefusedError(
            f"{what} what trial {trial} left behind ({describe(process)}); run `draftworth trial restore {trial}` first"
        )


def _refuse_placed(process: ProcessId) -> None:
    if why := obstacle(process.pid):
        raise RefusedError(f"{describe(process)} {why}; {ADVICE}")


def _advice(stranger: ProcessId) -> str:
    """Say how a stranger on the port is made the service; a secret in its command is not shown."""
    argv = argv_of(stranger.pid)
    shown = redacted(argv)
    text = json.dumps(list(shown))
    secrets = "" if shown == argv else " with what is hidden here written out"
    return (
        f"if that is the service, set service.command to exactly {text}{secrets}, "
        "otherwise stop it or choose another port"
    )


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
