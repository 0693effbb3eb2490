"""A unit as it was found: everything a restore needs, and what is not as it was."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from draftworth.errors import UsageError
from draftworth.hosts.base import Host
from draftworth.models import Frozen
from draftworth.services.systemd import bus
from draftworth.services.systemd.bus import ExecCommand, UnitState
from draftworth.services.systemd.changes import changed
from draftworth.services.systemd.files import FileFact, facts, not_loaded, specifiers
from draftworth.services.systemd.properties import kept

__all__ = ["Dependent", "FileFact", "UnitSnapshot", "changed", "names_unit", "observe_unit", "unit_name"]


class Dependent(UnitState):
    """A unit that stops with the one looked at, or is in the way of stopping it."""

    relation: str
    """RequiredBy, RequisiteOf, BoundBy, ConsistsOf, PropagatesStopTo: stops too. UpheldBy: starts it again."""
    of: str
    """The unit it depends on: the one looked at, or one that stops with that."""


class UnitSnapshot(Frozen):
    """A unit as it was found."""

    asked: str
    """The name that was asked for."""
    unit: str
    """The canonical name (`Id`)."""
    names: tuple[str, ...]
    """Every name, aliases too."""
    description: str
    fragment: str | None
    """Path of the unit file, None where there is none."""
    drop_ins: tuple[str, ...]
    files: tuple[FileFact, ...]
    load: str
    active: str
    sub: str
    unit_file_state: str
    type: str
    restart: str
    kill_mode: str
    timeout_start_s: float | None
    """Seconds; None: no limit."""
    timeout_stop_s: float | None
    """Seconds; None: no limit."""
    main_pid: int | None
    invocation: str | None
    """InvocationID, 32 hex digits; None where it does not run."""
    n_restarts: int
    control_group: str | None
    """Below the root of the cgroup tree; None where there is none."""
    user: str | None
    """As set in the unit; None: root."""
    dynamic_user: bool
    working_directory: str | None
    standard_output: str
    """`journal`, `file:/path`, `append:/path`, `truncate:/path`, `null`, …; no path where it cannot be told."""
    exec_start: tuple[ExecCommand, ...]
    environment_files: tuple[str, ...]
    """Paths or patterns, `-` in front of those that may be missing."""
    dependents: tuple[Dependent, ...]
    triggers: tuple[UnitState, ...]
    """Sockets, timers and paths that start it."""
    specifiers: tuple[str, ...]
    """Specifiers in values of the unit's own files, such as `%n`."""
    specifier_uses: tuple[str, ...] = ()
    """Where: `setting=value` lines, secrets hidden."""
    state_directories: tuple[str, ...]
    """`StateDirectory=name` and the like for runtime, logs, cache and configuration."""
    properties: dict[str, Any]
    """The comparable properties, see `properties.kept`."""
    result: str = "success"
    """Result of the last run."""
    boot: str | None = None
    """The boot this was seen in."""
    started_s: float | None = None
    """When the main process was started, Unix seconds."""
    load_error: str = ""
    """What systemd says where it could not load the unit."""
    stale: tuple[str, ...] = ()
    """Why what is loaded is not what is on disk; one line each."""


_NAME = re.compile(
    r"[A-Za-z0-9:_.\\@-]{1,250}\.(?:service|socket|timer|path|target|slice|scope|mount|automount|swap|device)"
)
_STOPS = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
_DIRECTORIES = ("RuntimeDirectory", "StateDirectory", "CacheDirectory", "LogsDirectory", "ConfigurationDirectory")
_MICRO = 1e6
_LINK_TO_FILE = ("file", "append", "truncate")


def unit_name(asked: str) -> str:
    """Return the full name of a service: `.service` is added where there is no suffix, as systemctl does.

    Raises:
        UsageError: it cannot be a unit's name.
    """
    name = asked if _NAME.fullmatch(asked) else f"{asked}.service"
    if not _NAME.fullmatch(name) or name.startswith(("-", ".", "@")):
        raise UsageError(f"{asked!r} is no name of a systemd unit (example: vllm.service)")
    return name


def observe_unit(host: Host, asked: str) -> UnitSnapshot:
    """Return a unit as it is now. Reads only, and also says what is there where a trial would be refused.

    Args:
        host: where it runs.
        asked: its name; `.service` may be left out.

    Raises:
        UsageError: it cannot be a unit's name.
        HostError: the host or systemd there does not answer.
    """
    name = unit_name(asked)
    if "@." in name:  # a template has no state and no object
        return _template(asked, name)
    found = bus.properties(host, name)
    fragment = found["FragmentPath"] or None
    drop_ins = tuple(found["DropInPaths"])
    places = _unit_path(host)
    files = facts(host, found, places)
    text = {path: host.read(path) for path in (fragment, *drop_ins) if path}
    used, uses = specifiers(text)
    pid = found.get("MainPID") or None
    return UnitSnapshot(
        asked=asked,
        unit=found["Id"],
        names=tuple(found["Names"]),
        description=found["Description"],
        fragment=fragment,
        drop_ins=drop_ins,
        files=files,
        load=found["LoadState"],
        active=found["ActiveState"],
        sub=found["SubState"],
        unit_file_state=found["UnitFileState"],
        type=found.get("Type", ""),
        restart=found.get("Restart", ""),
        kill_mode=found.get("KillMode", ""),
        timeout_start_s=_seconds(found.get("TimeoutStartUSec", bus.INFINITY)),
        timeout_stop_s=_seconds(found.get("TimeoutStopUSec", bus.INFINITY)),
        main_pid=pid,
        invocation=bytes(found["InvocationID"]).hex() or None,
        n_restarts=found.get("NRestarts", 0),
        control_group=found.get("ControlGroup") or None,
        user=found.get("User") or None,
        dynamic_user=bool(found.get("DynamicUser")),
        working_directory=found.get("WorkingDirectory", "").removeprefix("!") or None,
        standard_output=_output(host, found, pid),
        exec_start=bus.exec_commands(found),
        environment_files=tuple(
            f"{'-' if optional else ''}{path}" for path, optional in found.get("EnvironmentFiles", ())
        ),
        dependents=_dependents(host, found),
        triggers=bus.states(host, sorted(found["TriggeredBy"])),
        specifiers=used,
        specifier_uses=uses,
        state_directories=tuple(f"{kind}={one}" for kind in _DIRECTORIES for one in found.get(kind, ())),
        properties=kept(found),
        result=found.get("Result", "success"),
        boot=(host.read("/proc/sys/kernel/random/boot_id") or b"").decode().strip() or None,
        started_s=found["ExecMainStartTimestamp"] / _MICRO if found.get("ExecMainStartTimestamp") else None,
        load_error=found["LoadError"][1],
        stale=not_loaded(host, found, places),
    )


def names_unit(host: Host, other: str, names: Collection[str]) -> bool:
    """Whether the files of another unit name a unit, as far as their text tells.

    Args:
        host: where.
        other: the unit whose files are read.
        names: the unit's names.

    Raises:
        HostError: the host or systemd there does not answer.
    """
    found = bus.properties(host, other)
    for path in (found["FragmentPath"], *found["DropInPaths"]):
        text = (host.read(path) or b"").decode(errors="replace") if path else ""
        if any(re.search(rf"(?<![\w.@\\:-]){re.escape(name)}(?![\w.@\\:-])", text) for name in names):
            return True
    return False


def _template(asked: str, name: str) -> UnitSnapshot:
    empty: dict[str, Any] = dict.fromkeys(("description", "sub", "unit_file_state", "type", "restart", "kill_mode"), "")
    empty |= dict.fromkeys(("drop_ins", "files", "exec_start", "environment_files", "dependents", "triggers"), ())
    empty |= dict.fromkeys(("specifiers", "state_directories"), ())
    empty |= dict.fromkeys(
        ("fragment", "timeout_start_s", "timeout_stop_s", "main_pid", "invocation", "control_group", "user"), None
    )
    return UnitSnapshot(
        asked=asked,
        unit=name,
        names=(name,),
        load="template",
        active="inactive",
        n_restarts=0,
        dynamic_user=False,
        working_directory=None,
        standard_output="",
        properties={},
        **empty,
    )


def _seconds(micro: int) -> float | None:
    return None if micro == bus.INFINITY else micro / _MICRO


def _unit_path(host: Host) -> tuple[str, ...]:
    """Return the folders that systemd reads unit files from, first wins."""
    (found,) = bus.call(host, bus.MANAGER_PATH, "org.freedesktop.DBus.Properties", "Get", "ss", bus.MANAGER, "UnitPath")
    return tuple(found)


def _output(host: Host, found: Mapping[str, Any], pid: int | None) -> str:
    """Return where standard output goes. D-Bus tells the kind and keeps the path; the running process has it open."""
    kind: str = found.get("StandardOutput", "")
    if kind not in _LINK_TO_FILE or pid is None:
        return kind
    link = host.run(["readlink", f"/proc/{pid}/fd/1"])
    path = link.text.removesuffix("\n")
    return f"{kind}:{path}" if link.ok and path.startswith("/") else kind


def _dependents(host: Host, found: Mapping[str, Any]) -> tuple[Dependent, ...]:
    """Return everything that stops with a unit, also through others, and what upholds it."""
    rows: list[tuple[str, str, str]] = [(name, "UpheldBy", found["Id"]) for name in sorted(found.get("UpheldBy", ()))]
    seen = set(found["Names"])
    waiting = [found]
    while waiting:
        looked_at = waiting.pop(0)
        for relation in _STOPS:
            for name in sorted(looked_at.get(relation, ())):
                if name in seen:
                    continue
                seen.add(name)
                rows.append((name, relation, looked_at["Id"]))
                waiting.append(bus.properties(host, name))
    states = bus.states(host, [name for name, _, _ in rows])
    return tuple(
        Dependent(**state.model_dump(), relation=relation, of=of)
        for state, (_, relation, of) in zip(states, rows, strict=True)
    )
