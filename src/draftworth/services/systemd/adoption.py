"""The lasting drop-in that makes a variant's command the unit's own: its name and text, put there and taken away."""

import posixpath
import re
import shlex
from collections.abc import Sequence

from draftworth.errors import TrialError
from draftworth.hosts.base import Host, HostError
from draftworth.services.systemd import control
from draftworth.services.systemd.bus import ExecCommand
from draftworth.services.systemd.changes import changed_settings
from draftworth.services.systemd.names import LASTING
from draftworth.services.systemd.properties import kept_commands
from draftworth.services.systemd.quoting import exec_line
from draftworth.services.systemd.snapshot import UnitSnapshot

_NAME = "50-draftworth-adopted.conf"
# Drop-ins apply in the order of their names, and `systemctl edit` writes override.conf. Before the `zz-` of a trial.
_LATE_NAME = "z-draftworth-adopted.conf"
_SETS_COMMAND = re.compile(rb"(?m)^[ \t]*ExecStart[ \t]*=")
_HEAD = re.compile(rb"\A# Adopted by Draftworth from trial (\S+)$", re.MULTILINE)


def path_for(host: Host, unit: str, drop_ins: Sequence[str]) -> str:
    """Return where the drop-in of a unit belongs: behind every one that sets the command, where a name can do that.

    Args:
        host: where.
        unit: its canonical name.
        drop_ins: paths of those it has.

    Raises:
        HostError: one cannot be read.
    """
    later = [path for path in drop_ins if posixpath.basename(path) > _NAME]
    name = _LATE_NAME if any(_SETS_COMMAND.search(host.read(path) or b"") for path in later) else _NAME
    return f"{LASTING}/{unit}.d/{name}"


def text_of(trial: str, command: ExecCommand, about: Sequence[str]) -> str:
    """Return the drop-in's text.

    Args:
        trial: the trial's id.
        command: what the unit shall execute.
        about: further lines of its comment.

    Raises:
        UsageError: systemd cannot represent the command.
    """
    lines = [f"# Adopted by Draftworth from trial {trial}", *(f"# {' '.join(line.split())}" for line in about)]
    line = exec_line(command.argv, path=command.path, flags=command.flags)
    return "\n".join([*lines, "[Service]", "ExecStart=", f"ExecStart={line}", ""])


def standing(host: Host, unit: str) -> tuple[str, bytes] | None:
    """Return path and content of the drop-in that a unit has, or None. Raises HostError."""
    for name in (_NAME, _LATE_NAME):
        path = f"{LASTING}/{unit}.d/{name}"
        data = host.read(path)
        if data is not None:
            return path, data
    return None


def trial_in(data: bytes) -> str | None:
    """Return the trial that a drop-in says it is from; None where it does not say it."""
    match = _HEAD.search(data)
    return match[1].decode(errors="replace") if match else None


def adopted_trial(host: Host, drop_ins: Sequence[str]) -> str | None:
    """Return the trial that a unit is adopted from, by its drop-ins, or None. Raises HostError."""
    ours = [path for path in drop_ins if posixpath.basename(path) in {_NAME, _LATE_NAME}]
    return next((trial for path in ours if (trial := trial_in(host.read(path) or b""))), None)


def mode_for(snapshot: UnitSnapshot) -> int:
    """Return the permissions of the drop-in: the command may hold a key, so nobody reads it who cannot read it now."""
    mode = 0o644
    for one in snapshot.files:
        if one.kind in {"fragment", "drop-in"} and one.mode is not None:
            mode &= one.mode
    return mode | 0o600


def needs_folder(host: Host, path: str) -> bool:
    """Whether the folder of a drop-in is not there yet. Raises HostError."""
    return not host.run(["test", "-d", posixpath.dirname(path)]).ok


def put(host: Host, path: str, text: str, mode: int) -> None:
    """Write the drop-in whole, or leave everything as it was. Raises HostError."""
    new = needs_folder(host, path)
    try:
        host.write(path, text.encode(), mode)
    except HostError:
        if new:
            host.run(["rmdir", posixpath.dirname(path)])
        raise


def take_away(host: Host, path: str, *, folder: bool) -> None:
    """Remove the drop-in.

    Args:
        host: where.
        path: the drop-in.
        folder: also remove its folder, where nothing else is in it: it was made for the drop-in.

    Raises:
        HostError: it cannot be removed.
    """
    host.remove(path)
    if folder:
        host.run(["rmdir", posixpath.dirname(path)])  # refuses where something is in it


def reload(host: Host) -> None:
    """Have systemd read unit files anew. Raises TrialError or HostError where it does not."""
    control.order(host, "daemon-reload")


def differences(
    before: UnitSnapshot, now: UnitSnapshot, *, path: str | None = None, command: ExecCommand | None = None
) -> tuple[str, ...]:
    """Return in what a unit's files and settings are not as they were in the trial, one line each.

    Args:
        before: the unit in the trial.
        now: as it is.
        path: the drop-in that it has now and had not then; None: it shall have none.
        command: with `path`: the command that it shall have instead of its own.
    """
    lines = list(now.stale)
    if path is not None and command is not None:
        if path not in now.drop_ins:
            lines.append(f"{path} is not loaded")
        if now.exec_start != (command,):
            lines.append("ExecStart is not the variant's command: another drop-in, read later, sets it too")
        settings = dict(now.properties)
        settings["DropInPaths"] = [one for one in settings.get("DropInPaths", ()) if one != path]
        if settings.get("ExecStartEx") == kept_commands([command]):
            settings["ExecStartEx"] = before.properties.get("ExecStartEx")
        files = tuple(one for one in now.files if one.path != path)
        now = now.model_copy(update={"properties": settings, "files": files, "exec_start": before.exec_start})
    elif now.exec_start != before.exec_start:
        lines.append("ExecStart is another command")
    lines += changed_settings(before, now, enablement=False)
    return tuple(dict.fromkeys(lines))


def undo(host: Host, path: str, *, folder: bool) -> None:
    """Remove the drop-in and have systemd forget it. Raises TrialError where that cannot be done."""
    try:
        take_away(host, path, folder=folder)
        reload(host)
    except HostError as error:
        raise TrialError(str(error)) from None


def by_hand(unit: str, path: str, *, restart: bool) -> tuple[str, ...]:
    """Return the shell commands that remove the drop-in without Draftworth."""
    commands = (f"rm -f {shlex.quote(path)}", "systemctl daemon-reload")
    name = shlex.quote(unit)
    return (*commands, f"systemctl reset-failed {name}", f"systemctl restart {name}") if restart else commands
