"""The unit files of a variant: a unit of its own beside the original, or a drop-in on the original itself.

Both begin from what systemd has loaded. Nothing of the original's is edited; what differs is a closed list, and every
other loaded property is compared before the original is touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftworth.errors import RefusedError
from draftworth.hosts.base import Host
from draftworth.services.systemd.bus import ExecCommand
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.quoting import exec_line
from draftworth.services.systemd.snapshot import UnitSnapshot

_TYPE_LEVEL = "/service.d/"


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant's place on the host.

    Attributes:
        arm: its name.
        unit: the unit that runs it.
        path: the file that makes it so.
        text: that file.
        expected: the command systemd has to have loaded.
        quiet: the same file without the hand-over to the original, for a planned stop; None for a drop-in.
    """

    arm: str
    unit: str
    path: str
    text: str
    expected: ExecCommand
    quiet: str | None = None


def command_of(original: ExecCommand, argv: Sequence[str]) -> ExecCommand:
    """Return the original's command with other words: program, prefixes and argv[0] stay."""
    return ExecCommand(path=original.path, argv=tuple(argv), flags=original.flags)


def parallel(
    host: Host, snapshot: UnitSnapshot, names: Names, arm: str, argv: Sequence[str], *, start_s: float
) -> Variant:
    """Return a unit of its own: the original's files one after the other, then the differences.

    Args:
        host: where the original's files are read.
        snapshot: the original.
        names: the trial's.
        arm: the variant's name.
        argv: its command, as D-Bus writes it.
        start_s: seconds its start may take.

    Raises:
        RefusedError: a file of the original's cannot be read.
    """
    text = "".join(_part(host, path) for path in _sources(snapshot))
    expected = command_of(snapshot.exec_start[0], argv)
    shared = [
        "[Unit]",
        f"Description={snapshot.description.replace('%', '%%')} (variant {arm} of trial {names.tag})",
        f"Conflicts={snapshot.unit}",
        f"After={snapshot.unit}",
    ]
    hand_over = [f"OnFailure={snapshot.unit} {names.restore}", f"OnSuccess={snapshot.unit} {names.restore}"]
    service = [*_service(expected, start_s), f"SyslogIdentifier={names.variant(arm).removesuffix('.service')}"]
    head = f"# Variant {arm} of {snapshot.unit}, made by Draftworth for trial {names.tag}; gone after it.\n"
    return Variant(
        arm=arm,
        unit=names.variant(arm),
        path=names.path(names.variant(arm)),
        text=head + text + _lines([*shared, *hand_over, *service]),
        expected=expected,
        quiet=head + text + _lines([*shared, *service]),
    )


def drop_in(snapshot: UnitSnapshot, names: Names, arm: str, argv: Sequence[str], *, start_s: float) -> Variant:
    """Return a drop-in in /run that gives the original's own unit another command; args as for `parallel`."""
    expected = command_of(snapshot.exec_start[0], argv)
    lines = [
        f"# Variant {arm}, by Draftworth for trial {names.tag}; gone after it, and after a reboot.",
        "[Unit]",
        f"Description={snapshot.description.replace('%', '%%')} (variant {arm} of trial {names.tag})",
        f"OnFailure={names.restore}",
        *_service(expected, start_s),
    ]
    return Variant(arm, snapshot.unit, names.drop_in(snapshot.unit), _lines(lines), expected)


def _service(command: ExecCommand, start_s: float) -> list[str]:
    line = exec_line(command.argv, path=command.path, flags=command.flags)
    # Restart= would stop the original again that OnFailure= has started: the two would take turns for ever.
    return ["[Service]", "ExecStart=", f"ExecStart={line}", "Restart=no", f"TimeoutStartSec={int(start_s)}"]


def _sources(snapshot: UnitSnapshot) -> list[str]:
    """Return the files a copy is made from, in systemd's order; drop-ins for every service apply to the copy anyway."""
    return [path for path in (snapshot.fragment, *snapshot.drop_ins) if path and _TYPE_LEVEL not in path]


def _part(host: Host, path: str) -> str:
    data = host.read(path)
    if data is None:
        raise RefusedError(f"{path}: the unit's file is gone since it was loaded; `systemctl daemon-reload` first")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise RefusedError(f'{path}: is not UTF-8 text, so it cannot be copied; set service.way = "drop-in"') from None
    # A file may end in the middle of a line that goes on: two newlines end it.
    return f"# from {path}\n{text}\n\n"


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
