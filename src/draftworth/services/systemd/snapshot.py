"""A unit as it was found: everything a restore needs, and what is not as it was."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from draftworth import redact
from draftworth.errors import UsageError
from draftworth.hosts.base import Host, HostError
from draftworth.models import Frozen
from draftworth.services.systemd import bus
from draftworth.services.systemd.bus import ExecCommand, UnitState
from draftworth.services.systemd.properties import REVERSE, diff, kept


class FileFact(Frozen):
    """One file that makes the unit what it is."""

    path: str
    kind: str
    """fragment, drop-in, environment or enablement."""
    sha256: str | None
    """Of the content, hex, links followed; None where nothing is there, and for an enablement."""
    size: int | None = None
    """Bytes."""
    mode: int | None = None
    """Permission bits."""
    target: str | None = None
    """What a symbolic link points at, as written in it."""
    changed_s: float | None = None
    """When content or attributes changed last (ctime), Unix seconds."""


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
_OWN_PLACES = ("/etc/", "/run/")  # where enablement lies; a distribution's own links do not change
_SPECIFIER = re.compile(r"%(.)")
_MICRO = 1e6
_AT_WORK = frozenset({"active", "activating", "reloading"})
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
    files = _files(host, found, places)
    text = {path: host.read(path) for path in (fragment, *drop_ins) if path}
    specifiers, uses = _specifiers(text)
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
        specifiers=specifiers,
        specifier_uses=uses,
        state_directories=tuple(f"{kind}={one}" for kind in _DIRECTORIES for one in found.get(kind, ())),
        properties=kept(found),
        result=found.get("Result", "success"),
        boot=(host.read("/proc/sys/kernel/random/boot_id") or b"").decode().strip() or None,
        started_s=found["ExecMainStartTimestamp"] / _MICRO if found.get("ExecMainStartTimestamp") else None,
        load_error=found["LoadError"][1],
        stale=_stale(host, found, places),
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


def changed(before: UnitSnapshot, now: UnitSnapshot) -> tuple[str, ...]:
    """Return what is not as it was, one line each; nothing: everything is as it was.

    Compared are files, settings, enablement, the unit's state and the states of what depends on it or triggers it; not
    pids, times and counters.
    """
    lines = []
    for what in ("load", "active", "sub", "unit_file_state"):
        was, is_ = getattr(before, what), getattr(now, what)
        if was != is_:
            lines.append(f"{before.unit}: {what.replace('_', ' ')} was {was or 'nothing'}, is {is_ or 'nothing'}")
    lines += _changed_files(before, now)
    # What other units say about this one is seen only while they are loaded; their states are compared below.
    skipped = {"UnitFileState", *REVERSE}
    lines += [one.line() for one in diff(before.properties, now.properties) if one.name not in skipped]
    lines += _changed_states("depends on it", before.dependents, now.dependents)
    lines += _changed_states("triggers it", before.triggers, now.triggers)
    lines += [line for line in now.stale if line not in before.stale]
    return tuple(dict.fromkeys(lines))


def _changed_files(before: UnitSnapshot, now: UnitSnapshot) -> list[str]:
    old, new = ({(one.kind, one.path): one for one in snapshot.files} for snapshot in (before, now))
    lines = []
    for key in sorted(old.keys() | new.keys()):
        was, is_ = old.get(key), new.get(key)
        kind, path = key
        if was is None or is_ is None:
            lines.append(f"{path} ({kind}) {'is new' if was is None else 'is gone'}")
        elif (was.sha256, was.target) != (is_.sha256, is_.target):
            lines.append(f"{path} ({kind}) {'is gone' if is_.sha256 is None and is_.target is None else 'was edited'}")
        elif was.mode != is_.mode:
            lines.append(f"{path} ({kind}) had mode {was.mode or 0:o}, has {is_.mode or 0:o}")
    return lines


def _changed_states(how: str, before: Collection[UnitState], now: Collection[UnitState]) -> list[str]:
    old, new = ({one.name: one for one in states} for states in (before, now))
    lines = []
    for name in sorted(old.keys() | new.keys()):
        was, is_ = old.get(name), new.get(name)
        if was is None or is_ is None:
            # Not told of: a unit that does not run is forgotten by systemd, and with it that it depends on another.
            one = was or is_
            if one is not None and one.active in _AT_WORK:
                lines.append(f"{name}, which {how}: {'is new' if was is None else f'was {_state(one)}, is not'}")
        elif (was.active, was.file_state) != (is_.active, is_.file_state):
            lines.append(f"{name}, which {how}: was {_state(was)}, is {_state(is_)}")
    return lines


def _state(one: UnitState) -> str:
    return f"{one.active} ({one.sub}), {one.file_state or 'no file'}"


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


# One row a file: path, target of a link, mode, size, ctime, hash; each ended by a NUL, nothing there: empty fields.
_FACTS = r"""
for path do
  printf '%s\0' "$path"
  if [ -L "$path" ]; then readlink -n -- "$path"; fi
  printf '\0'
  if [ -f "$path" ]; then
    stat -L -c %a -- "$path" | tr -d '\n'; printf '\0'
    stat -L -c %s -- "$path" | tr -d '\n'; printf '\0'
    stat -L -c %.6Z -- "$path" | tr -d '\n'; printf '\0'
    sha256sum < "$path" | cut -c1-64 | tr -d '\n'; printf '\0'
  else printf '\0\0\0\0'; fi
done
"""
_FIELDS = 6
_EXPAND = r"""IFS=; for pattern do for path in $pattern; do printf '%s\0' "$path"; done; done"""


def _files(host: Host, found: Mapping[str, Any], places: Collection[str]) -> tuple[FileFact, ...]:
    kinds: dict[str, str] = {}
    if found["FragmentPath"]:
        kinds[found["FragmentPath"]] = "fragment"
    kinds |= dict.fromkeys(found["DropInPaths"], "drop-in")
    patterns = [path for path, _ in found.get("EnvironmentFiles", ())]
    if patterns:
        done = host.run(["sh", "-c", _EXPAND, "sh", *patterns])
        kinds |= dict.fromkeys(_split(done.out), "environment")
    own = [place for place in places if f"{place}/".startswith(_OWN_PLACES)]
    if own:
        names = [word for name in found["Names"] for word in ("-o", "-name", name.replace("\\", "\\\\"))][1:]
        # A place that is not there is said on standard error, which does not matter.
        done = host.run(
            ["find", *own, "-maxdepth", "2", "-type", "l", "(", *names, ")", "-print0"]  # links of .wants, aliases
        )
        for path in sorted(_split(done.out)):
            kinds.setdefault(path, "enablement")
    if not kinds:
        return ()
    done = host.run(["sh", "-c", _FACTS, "sh", *kinds])
    fields = done.out.split(b"\0")[:-1]
    if not done.ok or len(fields) != _FIELDS * len(kinds):
        raise HostError(f"the files of {found['Id']} on {host.name} cannot be read: {done.why}")
    rows = [
        [field.decode(errors="surrogateescape") for field in fields[at : at + _FIELDS]]
        for at in range(0, len(fields), _FIELDS)
    ]
    return tuple(_fact(row, kinds[row[0]]) for row in rows)


def _split(data: bytes) -> list[str]:
    return [one.decode(errors="surrogateescape") for one in data.split(b"\0") if one]


def _fact(row: list[str], kind: str) -> FileFact:
    path, target, mode, size, ctime, digest = row
    if kind == "enablement":
        return FileFact(path=path, kind=kind, sha256=None, target=target or None)
    return FileFact(
        path=path,
        kind=kind,
        sha256=digest or None,
        size=int(size) if size else None,
        mode=int(mode, 8) if mode else None,
        target=target or None,
        changed_s=float(ctime) if ctime else None,
    )


def _specifiers(texts: Mapping[str, bytes | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the specifiers in values, and the lines they stand in; comments do not count, inside a line neither."""
    found: set[str] = set()
    uses: list[str] = []
    for data in texts.values():
        joined = ""
        for line in (data or b"").decode(errors="replace").splitlines():
            if line.lstrip().startswith(("#", ";")):
                continue
            if line.endswith("\\"):
                joined += line[:-1] + " "
                continue
            joined, whole = "", joined + line
            _, equals, value = whole.partition("=")
            here = {f"%{char}" for char in _SPECIFIER.findall(value) if char != "%"} if equals else set()
            if here:
                found |= here
                uses.append(redact.text(" ".join(whole.split())))
    return tuple(sorted(found)), tuple(uses)


def _stale(host: Host, found: Mapping[str, Any], places: Collection[str]) -> tuple[str, ...]:
    """Return why what is loaded is not what is on disk.

    NeedDaemonReload does not tell of a drop-in that is new, so the folders are looked at too.
    """
    if found["LoadState"] != "loaded":
        return ()
    lines = []
    if found.get("NeedDaemonReload"):
        lines.append("its files were edited since they were loaded")
    folders = [f"{place}/{folder}" for place in places for name in found["Names"] for folder in _drop_in_folders(name)]
    # -L: a link to /dev/null switches a drop-in off and is never loaded.
    done = host.run(["find", "-L", *folders, "-maxdepth", "1", "-name", "*.conf", "-type", "f", "-print0"])
    loaded = {path.rpartition("/")[2] for path in found["DropInPaths"]}
    new = [path for path in _split(done.out) if path.rpartition("/")[2] not in loaded]
    lines += [f"{path} is there and not loaded" for path in sorted(new)]
    return tuple(lines)


def _drop_in_folders(unit: str) -> list[str]:
    """Return the names of the folders whose drop-ins apply to a unit: its own, its template's, of its prefixes."""
    stem, _, kind = unit.rpartition(".")
    prefix, at, instance = stem.partition("@")
    words = prefix.split("-")
    prefixes = [prefix, *("-".join(words[:count]) + "-" for count in range(1, len(words)))]
    stems = [f"{one}{end}" for one in prefixes for end in ((f"@{instance}", "@") if at else ("",))]
    return [*(f"{one}.{kind}.d" for one in stems), f"{kind}.d"]
