"""What systemd itself says about a unit, over D-Bus.

`systemctl show` joins the words of a command by blanks; the D-Bus property keeps them apart. So units are read through
`busctl --json=short`, which is wherever systemd is.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.hosts.base import CommandResult, Host, HostError
from draftworth.models import Frozen

DESTINATION = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
UNIT = "org.freedesktop.systemd1.Unit"
SERVICE = "org.freedesktop.systemd1.Service"
INFINITY = 2**64 - 1
"""What D-Bus says for `infinity` and for a number that is not known."""

_PROPERTIES = "org.freedesktop.DBus.Properties"
_NOT_FOUND = 127  # a shell's exit code for a program that is not there
_STATE = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState")


class ExecCommand(Frozen):
    """One command of an Exec setting, as systemd has parsed it."""

    path: str
    """The program that is executed."""
    argv: tuple[str, ...]
    """Its words, argv[0] first: specifiers expanded, `$VAR` not yet expanded, `$$` not yet collapsed."""
    flags: tuple[str, ...] = ()
    """systemd's names of the prefixes (`ignore-failure` for `-`, …), in systemd's order."""


class UnitState(Frozen):
    """What a unit is doing."""

    name: str
    load: str
    """LoadState: loaded, not-found, masked, bad-setting, error."""
    active: str
    """ActiveState: active, inactive, activating, deactivating, failed, reloading."""
    sub: str
    """SubState: running, exited, dead, start-pre, auto-restart, listening, …"""
    file_state: str
    """UnitFileState: enabled, enabled-runtime, disabled, static, masked, transient, …; "" where there is no file."""


class BusError(HostError):
    """systemd could not be asked, or did not answer.

    Attributes:
        denied: whether it was reached and would not do it for this user.
    """

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


def object_path(unit: str) -> str:
    """Return the D-Bus path of a unit; asking for it loads the unit, also one that does not run."""
    escaped = "".join(
        char
        if char.isascii() and char.isalpha()
        else (char if char.isdigit() and char.isascii() and at else _hex(char))
        for at, char in enumerate(unit)
    )
    return f"{MANAGER_PATH}/unit/{escaped or '_'}"


def _hex(char: str) -> str:
    return "".join(f"_{byte:02x}" for byte in char.encode())


def call(host: Host, path: str, interface: str, member: str, signature: str = "", *words: str) -> list[Any]:
    """Call a method of systemd and return what it answers.

    Args:
        host: where.
        path: the object, as from `object_path`.
        interface: such as `MANAGER`.
        member: the method.
        signature: D-Bus types of the arguments, such as `ss`.
        words: the arguments as busctl takes them (an array is its length and its items).

    Returns:
        The values of the answer, variants unwrapped.

    Raises:
        BusError: there is no systemd or no D-Bus there, this user may not do it, or systemd says no.
        HostError: the host cannot be reached.
    """
    argv = ["busctl", "--json=short", "--system", "--no-pager", "--", "call", DESTINATION, path, interface, member]
    if signature:
        argv += [signature, *words]
    result = host.run(argv)
    if not result.ok:
        raise _explain(result, host.name, member)
    if not result.out.strip():
        return []
    try:
        answer = json.loads(result.out)
        values = unwrap(answer["data"])
        if not isinstance(values, list):
            raise TypeError  # noqa: TRY301 - told like every other answer that is none
    except (ValueError, KeyError, TypeError) as error:
        raise BusError(f"busctl on {host.name} answered what is no JSON of D-Bus: {result.text[:80]!r}") from error
    return list(values)


def _explain(result: CommandResult, where: str, member: str) -> BusError:
    """Return the error for a busctl that failed, with what to do."""
    why = result.why
    said = result.err.decode(errors="replace")
    if result.code == _NOT_FOUND:
        return BusError(f"no busctl on {where}: it comes with systemd; a service without systemd is run with `command`")
    if "Host is down" in said or "not been booted with systemd" in said:
        return BusError(f"systemd is not the init system of {where} (a container?): run the trial where it is")
    if "Failed to connect to bus" in said or "Failed to set bus address" in said or "Failed to open system bus" in said:
        return BusError(
            f"D-Bus does not answer on {where} ({why}): is systemd the init system there, and dbus running?"
        )
    if any(text in said for text in ("Access denied", "authentication required", "Permission denied", "not permitted")):
        return BusError(f"systemd on {where} refused {member} for this user ({why}): run it as root", denied=True)
    return BusError(f"systemd on {where} did not do {member}: {why}")


def unwrap(value: Any) -> Any:
    """Return decoded busctl JSON with every variant replaced by what it holds."""
    if isinstance(value, dict):
        if set(value) == {"type", "data"} and isinstance(value["type"], str):
            return unwrap(value["data"])
        return {name: unwrap(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [unwrap(inner) for inner in value]
    return value


def properties(host: Host, unit: str) -> dict[str, Any]:
    """Return every property of a unit, of all its interfaces. A unit that is not there has LoadState `not-found`.

    Raises:
        BusError: see `call`.
    """
    try:
        (found,) = call(host, object_path(unit), _PROPERTIES, "GetAll", "s", "")
    except BusError as error:
        if str(error).endswith("Invalid argument"):  # D-Bus carries UTF-8 only, so nothing of such a unit is told
            raise BusError(f"{unit} on {host.name} cannot be read: a setting has bytes that are not UTF-8") from error
        raise
    result: dict[str, Any] = found
    return result


def property(host: Host, unit: str, interface: str, name: str) -> Any:  # noqa: A001 - D-Bus's own word
    """Return one property of a unit.

    Raises:
        BusError: see `call`; also where there is no such property.
    """
    (found,) = call(host, object_path(unit), _PROPERTIES, "Get", "ss", interface, name)
    return found


def exec_commands(found: Mapping[str, Any], setting: str = "ExecStart") -> tuple[ExecCommand, ...]:
    """Return the commands of an Exec setting out of a unit's properties.

    Args:
        found: from `properties`.
        setting: such as `ExecStart` or `ExecStartPre`.
    """
    if f"{setting}Ex" in found:
        return tuple(ExecCommand(path=row[0], argv=tuple(row[1]), flags=tuple(row[2])) for row in found[f"{setting}Ex"])
    # Before systemd 243 only `-` is told.
    return tuple(
        ExecCommand(path=row[0], argv=tuple(row[1]), flags=("ignore-failure",) if row[2] else ())
        for row in found.get(setting, ())
    )


def states(host: Host, units: Sequence[str]) -> tuple[UnitState, ...]:
    """Return what units are doing, in the order asked for, by one command.

    Raises:
        BusError: see `call`.
    """
    if not units:
        return ()
    result = host.run(["systemctl", "show", "--no-pager", f"--property={','.join(_STATE)}", "--", *units])
    if not result.ok:
        raise _explain(result, host.name, "systemctl show")
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in result.text.strip().split("\n\n")
    ]
    if len(blocks) != len(units):
        raise BusError(f"systemctl show on {host.name} told of {len(blocks)} units, asked for {len(units)}")
    return tuple(
        UnitState(
            name=name,
            load=block.get("LoadState", ""),
            active=block.get("ActiveState", ""),
            sub=block.get("SubState", ""),
            file_state=block.get("UnitFileState", ""),
        )
        for name, block in zip(units, blocks, strict=True)
    )
