"""What is refused before anything is changed, and how a variant of a unit is run."""

import difflib
import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from draftworth.errors import RefusedError
from draftworth.hosts.base import Host, HostError
from draftworth.services.systemd import bus
from draftworth.services.systemd.snapshot import UnitSnapshot, unit_name

Way = Literal["parallel", "drop-in"]

RUNTIME_UNITS = "/run/systemd/system"
NAME_SPECIFIERS = frozenset({"%n", "%N", "%p", "%P", "%i", "%I", "%j", "%J", "%f", "%d", "%y", "%Y"})
"""Specifiers whose value follows from the unit's name or file: another unit would get another one."""

_PASSING = {
    "activating": "it serves",
    "deactivating": "it has stopped, and start it",
    "reloading": "that is done",
    "maintenance": "that is done",
}
_LIST = ("--no-legend", "--plain", "--no-pager")
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def refusals(snapshot: UnitSnapshot, host: Host) -> RefusedError | None:
    """Return why a trial on this unit is refused, or None. Reads only.

    Args:
        snapshot: from `observe_unit`.
        host: where it was observed; asked again for names, processes and rights.

    Raises:
        HostError: the host or systemd there does not answer.
    """
    checks: tuple[Callable[[], str | None], ...] = (
        lambda: _template(snapshot, host),
        lambda: _not_found(snapshot, host),
        lambda: _no_service(snapshot),
        lambda: _masked(snapshot),
        lambda: _alias(snapshot),
        lambda: _not_loaded(snapshot),
        lambda: _transient(snapshot),
        lambda: _kind(snapshot),
        lambda: _state(snapshot),
        lambda: _upheld(snapshot),
        lambda: _stale(snapshot),
        lambda: _edited(snapshot, host),
        lambda: _rights(snapshot, host),
    )
    why = next(filter(None, (check() for check in checks)), None)
    return None if why is None else RefusedError(why)


def way(snapshot: UnitSnapshot) -> tuple[Way, str]:
    """Return how a variant is run, and why, in one line.

    `parallel` is a unit of its own beside the original; systemd itself starts the original again when it ends. A
    `drop-in` on the same unit is needed where the unit's name, or what depends on it, would make another unit differ.
    """
    by_name = " ".join(sorted(NAME_SPECIFIERS & set(snapshot.specifiers)))
    directories = " ".join(snapshot.state_directories)
    triggers = ", ".join(one.name for one in snapshot.triggers)
    dependents = ", ".join(dict.fromkeys(one.name for one in snapshot.dependents))
    bus_name = snapshot.properties.get("BusName") or ("yes" if snapshot.type == "dbus" else "")
    pid_file = snapshot.properties.get("PIDFile")
    table = (
        (by_name, f"{by_name} in its files would stand for another name"),
        ("@" in snapshot.unit, "an instance of a template gets its settings by its name"),
        (snapshot.dynamic_user, "DynamicUser= would give another unit another user"),
        (directories, f"another unit would share {directories} and clear it"),
        (triggers, f"{triggers} would start the original meanwhile"),
        (dependents, f"{dependents} would stop with it, or be in the way"),
        (bus_name, f"its D-Bus name ({bus_name}) belongs to this unit"),
        (pid_file, f"PIDFile={pid_file} belongs to this unit"),
        (snapshot.properties.get("FileDescriptorStoreMax"), "its stored file descriptors belong to this unit"),
    )
    reasons = "; ".join(reason for applies, reason in table if applies)
    if reasons:
        return "drop-in", reasons
    return "parallel", "nothing about the unit depends on its name, and nothing depends on it"


# ---------------------------------------------------------------------- is it there, and is it a service


def _template(snapshot: UnitSnapshot, host: Host) -> str | None:
    if snapshot.load != "template":
        return None
    stem = snapshot.unit.removesuffix(".service")
    done = host.run(["systemctl", "list-units", *_LIST, "--all", "--", f"{stem}*.service"])
    found = [line.split()[0] for line in done.text.splitlines() if line.split()] if done.ok else []
    hint = f"such as {', '.join(found)}" if found else f"such as {stem}NAME.service"
    return f"{snapshot.unit} is a template, not a service that runs: name an instance, {hint}"


def _not_found(snapshot: UnitSnapshot, host: Host) -> str | None:
    if snapshot.load != "not-found":
        return None
    if snapshot.active not in {"inactive", "failed"}:
        return f"{snapshot.unit} runs and its unit file is gone: put the file back, then `systemctl daemon-reload`"
    user = host.run(["systemctl", "--user", "show", "--property=LoadState", "--value", "--", snapshot.unit])
    if user.ok and user.text.strip() == "loaded":
        return f"{snapshot.unit} is a unit of a user's own manager; only system units can be tried: use `command`"
    done = host.run(["systemctl", "list-unit-files", *_LIST, "--type=service"])
    known = [line.split()[0] for line in done.text.splitlines() if line.split()] if done.ok else []
    near = difflib.get_close_matches(snapshot.unit, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "`systemctl list-unit-files --type=service` lists them"
    return f"there is no unit {snapshot.unit} on {host.name}: {hint}"


def _no_service(snapshot: UnitSnapshot) -> str | None:
    if snapshot.unit.endswith(".service"):
        return None
    kind = snapshot.unit.rpartition(".")[2]
    starts = [name for name in snapshot.properties.get("Triggers", ()) if name.endswith(".service")]
    hint = f"; it starts {', '.join(starts)}: name that" if starts else ""
    return f"{snapshot.unit} is a {kind}, not a service{hint}"


def _alias(snapshot: UnitSnapshot) -> str | None:
    asked = unit_name(snapshot.asked)
    if asked == snapshot.unit or snapshot.load in {"masked", "template"}:
        return None
    return f'{asked} is another name of {snapshot.unit}: write unit = "{snapshot.unit}"'


def _masked(snapshot: UnitSnapshot) -> str | None:
    if snapshot.load != "masked":
        return None
    fragment = next((one for one in snapshot.files if one.kind == "fragment"), None)
    if fragment is not None and fragment.size == 0 and fragment.target is None:
        return f"{fragment.path} is empty, which systemd takes for masked (a disk that was full?): put the file back"
    runtime = snapshot.unit_file_state == "masked-runtime"
    return f"{snapshot.unit} is masked: `systemctl unmask {'--runtime ' if runtime else ''}{snapshot.unit}` first"


def _not_loaded(snapshot: UnitSnapshot) -> str | None:
    if snapshot.load == "loaded":
        return None
    why = snapshot.load_error or snapshot.load
    return f"systemd could not load {snapshot.unit} ({why}): `systemd-analyze verify {snapshot.unit}` says where"


def _transient(snapshot: UnitSnapshot) -> str | None:
    if not snapshot.properties.get("Transient"):
        return None
    return f"{snapshot.unit} was made by systemd-run and is gone once stopped: give it a unit file first"


# ---------------------------------------------------------------------- can a trial on it be undone


def _kind(snapshot: UnitSnapshot) -> str | None:
    unit = snapshot.unit
    if snapshot.type == "oneshot":
        return f"{unit} is Type=oneshot: it runs something and ends; only a service that stays can be tried"
    if snapshot.properties.get("RemainAfterExit"):
        return f"{unit} has RemainAfterExit=yes: systemd calls it active without a process; name the unit that serves"
    if len(snapshot.exec_start) != 1:
        count = len(snapshot.exec_start) or "no"
        return f"{unit} has {count} ExecStart= commands; exactly one is needed"
    for setting in ("RefuseManualStop", "RefuseManualStart"):
        if snapshot.properties.get(setting):
            return f"{unit} has {setting}=yes, so a trial could not {setting[12:].lower()} it: remove that line first"
    return None


def _state(snapshot: UnitSnapshot) -> str | None:
    unit, sub = snapshot.unit, snapshot.sub
    if sub == "auto-restart":
        return (
            f"{unit} keeps ending and being restarted ({snapshot.n_restarts} times, last result {snapshot.result}): "
            f"`journalctl -u {unit}` says why"
        )
    if snapshot.active == "failed":
        return f"{unit} is failed (result {snapshot.result}): `journalctl -u {unit}` says why; it has to serve first"
    if snapshot.active in _PASSING:
        return f"{unit} is {snapshot.active} ({sub}): wait until {_PASSING[snapshot.active]}"
    if snapshot.active != "active":
        return f"{unit} is not running: `systemctl start {unit}`, wait until it serves, and try again"
    if snapshot.main_pid is None:
        return f"{unit} is active ({sub}) and systemd knows no main process of it: set Type= so that it does"
    return None


def _upheld(snapshot: UnitSnapshot) -> str | None:
    keepers = [one.name for one in snapshot.dependents if one.relation == "UpheldBy" and one.active == "active"]
    if not keepers:
        return None
    return (
        f"{keepers[0]} has Upholds={snapshot.unit}: systemd would start it again as soon as it is stopped; "
        f"`systemctl stop {keepers[0]}` for the time of the trial"
    )


def _stale(snapshot: UnitSnapshot) -> str | None:
    if not snapshot.stale:
        return None
    unit = snapshot.unit
    return (
        f"{unit} as loaded is not what is on disk ({'; '.join(snapshot.stale)}): "
        f"`systemctl daemon-reload` and `systemctl restart {unit}` first"
    )


def _edited(snapshot: UnitSnapshot, host: Host) -> str | None:
    """Say where the running process was started by files that have been edited since.

    That the process looks different is no proof: it may have executed another program, or given itself a title. That a
    file is younger is none either: it may have been touched.
    """
    if snapshot.started_s is None or snapshot.main_pid is None:
        return None
    young = [one for one in snapshot.files if one.changed_s is not None and one.changed_s >= snapshot.started_s]
    if not young:
        return None
    try:
        cmdline = host.read(f"/proc/{snapshot.main_pid}/cmdline")
        environ = host.read(f"/proc/{snapshot.main_pid}/environ")
    except HostError:  # another user's process, or gone: nothing can be compared
        return None
    env = dict(entry.partition("=")[::2] for entry in _words(environ))
    # A process that is just starting still has systemd's own command line.
    what = "" if _same_command(snapshot, _words(cmdline), env) else "command"
    what = what or _other_variable(snapshot, env) or _other_file(host, [one.path for one in young], env, snapshot)
    if not what:
        return None
    return (
        f"{young[0].path} was edited after {snapshot.unit} was started, and the running process has another {what}: "
        f"`systemctl restart {snapshot.unit}` first, so that what is measured is what a restart brings back"
    )


def _words(data: bytes | None) -> list[str]:
    return [one.decode(errors="surrogateescape") for one in (data or b"").removesuffix(b"\0").split(b"\0")]


def _same_command(snapshot: UnitSnapshot, running: Sequence[str], env: Mapping[str, str]) -> bool:
    command = snapshot.exec_start[0]
    wanted = expanded(command.argv, env) if "no-env-expand" not in command.flags else list(command.argv)
    if list(running) == wanted:
        return True
    # A script has its interpreter in front, and its own path instead of argv[0].
    rest = wanted[1:]
    return (
        len(running) > len(wanted)
        and list(running[len(running) - len(rest) :]) == rest
        and (running[len(running) - len(rest) - 1] == command.path)
    )


def expanded(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return words as systemd hands them to the process: `$A` is split into words, `${A}` replaced, `$$` is a `$`."""
    words: list[str] = []
    for word in argv:
        if word.startswith("$") and word[1:2] not in {"{", "$"}:  # the whole rest is the name
            value = env.get(word[1:], "")
            try:
                words += shlex.split(value)
            except ValueError:
                words += value.split()
        else:
            words.append(_VARIABLE.sub(lambda match: env.get(match[1], "") if match[1] else "$", word))
    return words


def _other_variable(snapshot: UnitSnapshot, env: Mapping[str, str]) -> str:
    """Return which variable of Environment= the process has otherwise; the last assignment counts."""
    wanted = dict(entry.partition("=")[::2] for entry in snapshot.properties.get("Environment", ()))
    if snapshot.environment_files:  # they come later and may override
        wanted = {name: digest for name, digest in wanted.items() if name not in env}
    for name, digest in wanted.items():
        value = env.get(name)
        found = None if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
        if digest != f"sha256:{found}":
            return f"value of {name}"
    return ""


def _other_file(host: Host, young: Sequence[str], env: Mapping[str, str], snapshot: UnitSnapshot) -> str:
    """Return which variable of a young EnvironmentFile= the process has otherwise, as far as simple lines tell."""
    paths = [one.path for one in snapshot.files if one.kind == "environment" and one.path in young]
    for path in paths:
        for line in (host.read(path) or b"").decode(errors="surrogateescape").splitlines():
            match = _ASSIGNMENT.fullmatch(line)
            if match is None:
                continue
            value = match[2].strip()
            if value[:1] in {"'", '"'} and value[-1:] == value[:1] and len(value) > 1:
                value = value[1:-1]
            if "\\" not in value and env.get(match[1]) != value:
                return f"value of {match[1]}"
    return ""


# ---------------------------------------------------------------------- may this user do it


def _rights(snapshot: UnitSnapshot, host: Host) -> str | None:
    """Say where this user may not do it: systemd is asked to set no property at all, which needs the same right."""
    need = "run it as root (`sudo draftworth …`, or log in as root over SSH)"
    try:
        bus.call(host, bus.object_path(snapshot.unit), bus.UNIT, "SetProperties", "ba(sv)", "true", "0")
    except bus.BusError as error:
        if not error.denied:
            raise
        return f"this user may not stop and start {snapshot.unit} on {host.name}: {need}"
    if not host.run(["test", "-w", RUNTIME_UNITS]).ok:
        return f"this user may not write to {RUNTIME_UNITS} on {host.name}: {need}"
    return None
