"""Which properties of a unit tell what it is, how two readings compare, and what a trial may change.

D-Bus gives about four hundred properties of a service. Those of its present run are left out, everything else is
compared: a setting nobody thought of shows too. A trial changes one flag; whatever else differs is either named here
with its reason, or it is a second difference and the comparison is void.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from draftworth import redact
from draftworth.models import Frozen
from draftworth.services.systemd.bus import ExecCommand


class Difference(Frozen):
    """One property that differs."""

    name: str
    before: Any
    """None: not there."""
    after: Any
    """None: not there."""

    def line(self) -> str:
        """Return it for a person; of lists, what came and what went."""
        if isinstance(self.before, list) and isinstance(self.after, list):
            gone = [item for item in self.before if item not in self.after]
            new = [item for item in self.after if item not in self.before]
            if gone or new:
                words = [f"without {_shown(item)}" for item in gone] + [f"with {_shown(item)}" for item in new]
                return f"{self.name}: {', '.join(words)}"
        return f"{self.name}: {_shown(self.before)} → {_shown(self.after)}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return " ".join(_shown(item) for item in value) or "nothing"
    return str(value) or "nothing"


# Found by reading one unit inactive, active, restarted, reloaded, failed, referred to by others, and after
# daemon-reload and daemon-reexec (systemd 252); counters that need cgroup controllers and names of later versions from
# org.freedesktop.systemd1(5).
_GROUPS: Mapping[str, str] = {
    "when something happened": (
        "ActiveEnterTimestamp ActiveEnterTimestampMonotonic ActiveExitTimestamp ActiveExitTimestampMonotonic"
        " AssertTimestamp AssertTimestampMonotonic ConditionTimestamp ConditionTimestampMonotonic"
        " ExecMainExitTimestamp ExecMainExitTimestampMonotonic ExecMainHandoffTimestamp"
        " ExecMainHandoffTimestampMonotonic ExecMainStartTimestamp ExecMainStartTimestampMonotonic"
        " InactiveEnterTimestamp InactiveEnterTimestampMonotonic InactiveExitTimestamp InactiveExitTimestampMonotonic"
        " StateChangeTimestamp StateChangeTimestampMonotonic WatchdogTimestamp WatchdogTimestampMonotonic"
    ),
    "which processes it has": "ControlPID ExecMainPID MainPID",
    "how the present or the last run goes": (
        "ActivationDetails ActiveState AssertResult CleanResult ConditionResult ExecMainCode ExecMainStatus"
        " FreezerState InvocationID Job LiveMountResult NRestarts ReloadResult Result StatusBusError StatusErrno"
        " StatusText StatusVarlinkError SubState"
    ),
    "whether checks of the last start passed, beside what they check": "Asserts Conditions",
    "what it has used": (
        "CPUUsageNSec IOReadBytes IOReadOperations IOWriteBytes IOWriteOperations IPEgressBytes IPEgressPackets"
        " IPIngressBytes IPIngressPackets MemoryAvailable MemoryCurrent MemoryPeak MemorySwapCurrent MemorySwapPeak"
        " MemoryZSwapCurrent NFileDescriptorStore TasksCurrent"
    ),
    "what the kernel grants it now, out of its own limits and those above it": (
        "EffectiveCPUs EffectiveMemoryHigh EffectiveMemoryMax EffectiveMemoryNodes EffectiveTasksMax"
    ),
    "where it runs; nothing while it does not": "ControlGroup ControlGroupId",
    "what can be done with it in its present state": "CanClean CanFreeze CanLiveMount",
    "whether files were edited since they were loaded; looked at by preflight": "NeedDaemonReload",
    "who holds a reference to it, and marks set for a later job": "Markers Refs",
}

VOLATILE: Mapping[str, str] = {name: reason for reason, names in _GROUPS.items() for name in names.split()}
"""Properties of the present run → why they are not compared. Conditions are kept without their results."""

RUNNING_ONLY = frozenset({"GID", "UID", "WatchdogUSec"})
"""Known while it runs; compared where both readings know them."""

_DEPENDENCIES_NAMES = (
    "After Before BindsTo BoundBy ConflictedBy Conflicts ConsistsOf JoinsNamespaceOf Names OnFailure "
    "OnFailureOf OnSuccess OnSuccessOf PartOf PropagatesReloadTo PropagatesStopTo ReloadPropagatedFrom "
    "RequiredBy Requires RequiresMountsFor Requisite RequisiteOf SliceOf StopPropagatedFrom TriggeredBy "
    "Triggers UpheldBy Upholds WantedBy Wants WantsMountsFor"
)
DEPENDENCIES = frozenset(_DEPENDENCIES_NAMES.split())
"""Lists without an order: systemd gives them in another one after a daemon-reload."""

_CHECKS = frozenset({"Asserts", "Conditions"})
_CREDENTIALS = frozenset({"SetCredential", "SetCredentialEncrypted"})
_BYTES = frozenset({"StandardInputData"})
_INFINITY = 2**64 - 1
_NOBODY = 2**32 - 1  # UID and GID while it does not run
_UNKNOWN = {"GID": (_NOBODY,), "UID": (_NOBODY,), "WatchdogUSec": (0, _INFINITY)}


def kept(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells what a unit is, fit for a record: sorted, and without secrets.

    Values of variables and credentials, and words of commands that may be secrets, are replaced by their SHA-256:
    what differs still differs.

    Args:
        properties: from `bus.properties`.
    """
    found: dict[str, Any] = {}
    for name in sorted(properties):
        value = properties[name]
        if name in _CHECKS:
            found[name] = [row[:-1] for row in value]  # the last field is the result
        elif name in VOLATILE or value in _UNKNOWN.get(name, ()):
            continue
        elif _is_exec(name, value):
            if f"{name}Ex" not in properties:
                found[name] = [_kept_row(row[0], row[1], row[2]) for row in value]
        elif name in DEPENDENCIES:
            found[name] = sorted(value)
        elif name == "Environment":
            found[name] = [_hashed_variable(entry) for entry in value]
        elif name in _CREDENTIALS:
            found[name] = [[row[0], _hash(bytes(row[1]))] for row in value]
        elif name in _BYTES:
            found[name] = _hash(bytes(value)) if value else ""
        else:
            found[name] = value
    return found


def kept_commands(commands: Sequence[ExecCommand]) -> list[Any]:
    """Return commands as `kept` has them under `ExecStartEx`."""
    return [_kept_row(command.path, command.argv, list(command.flags)) for command in commands]


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what differs between two results of `kept`, by name; `RUNNING_ONLY` counts where both have it."""
    return tuple(
        Difference(name=name, before=before.get(name), after=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
        and not (name in RUNNING_ONLY and (name not in before or name not in after))
    )


def _is_exec(name: str, value: Any) -> bool:
    """Whether it is a list of commands (ExecStart, ExecStartPreEx, …; not ExecMainPID or ExecPaths)."""
    fields = 10  # path, words, flags, four times, pid, code, status
    return (
        name.startswith("Exec")
        and isinstance(value, list)
        and all(isinstance(row, list) and len(row) == fields for row in value)
        and name.removesuffix("Ex") in _EXEC
    )


_EXEC_NAMES = "ExecCondition ExecReload ExecReloadPost ExecStart ExecStartPost ExecStartPre ExecStop ExecStopPost"
_EXEC = frozenset(_EXEC_NAMES.split())


def _kept_row(path: str, argv: Sequence[str], flags: Any) -> list[Any]:
    words = [
        word if word == shown else f"{shown} {_hash(word.encode(errors='surrogateescape'))}"
        for word, shown in zip(argv, redact.command(argv), strict=True)
    ]
    return [path, words, flags]


def _hashed_variable(entry: str) -> str:
    name, _, value = entry.partition("=")
    return f"{name}={_hash(value.encode(errors='surrogateescape'))}"


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


_REVERSE = "set by another unit, and seen only while that is loaded"
_BOTH_WAYS = "may be set by another unit, and is seen then only while that is loaded"
REVERSE: Mapping[str, str] = {
    **dict.fromkeys(("BoundBy", "ConflictedBy", "ConsistsOf", "OnFailureOf", "OnSuccessOf", "RequiredBy"), _REVERSE),
    **dict.fromkeys(("RequisiteOf", "SliceOf", "TriggeredBy", "UpheldBy", "WantedBy"), _REVERSE),
    **dict.fromkeys(("After", "Before", "JoinsNamespaceOf", "PropagatesReloadTo", "PropagatesStopTo"), _BOTH_WAYS),
    **dict.fromkeys(("ReloadPropagatedFrom", "StopPropagatedFrom"), _BOTH_WAYS),
}
"""Properties that other units have a part in → how."""

SAME_UNIT: Mapping[str, str] = {
    **REVERSE,
    "Description": "says that it is a trial",
    "SyslogIdentifier": "tells its lines in the journal apart",
    "ExecStart": "carries the flag that is tried",
    "ExecStartEx": "carries the flag that is tried",
    "Restart": "no: a variant that dies must not be started again under the restore",
    "TimeoutStartUSec": "the load of the variant has its own limit",
    "DropInPaths": "the drop-in that makes it the variant",
    "OnFailure": "something puts the service back",
    "OnSuccess": "something puts the service back",
}
"""What a drop-in on the unit itself may change → why."""

PARALLEL: Mapping[str, str] = {
    **SAME_UNIT,
    "Id": "its name",
    "Names": "its name",
    "FragmentPath": "its file",
    "UnitFileState": "is never enabled",
    "UnitFilePreset": "presets go by name",
    "Conflicts": "never runs beside the original",
    "After": "starts when the original has stopped",
}
"""What a unit beside the original may have otherwise → why."""

_ANY = frozenset(
    {"Description", "FragmentPath", "Id", "SyslogIdentifier", "TimeoutStartUSec", "UnitFilePreset", "UnitFileState"}
)
_OF_OTHERS = frozenset(name for name, reason in REVERSE.items() if reason == _REVERSE)
_RUN_DROP_IN = re.compile(r"/run/systemd/system/(?P<unit>[^/]+)\.d/[^/]+\.conf")


def unexpected(
    original: Mapping[str, Any],
    variant: Mapping[str, Any],
    *,
    expected_exec: Sequence[ExecCommand],
    hands_over: Collection[str] = (),
    names_original: Callable[[str], bool] | None = None,
) -> tuple[Difference, ...]:
    """Return every difference that a trial must not have; nothing: only the flag is tried.

    A difference that is allowed is still held to its value: lists gain the original's name and nothing else, the
    command is exactly the expected one, Restart is `no`.

    Args:
        original: the original's properties, from `properties.kept`.
        variant: the variant's; the same `Id` means a drop-in on the unit itself.
        expected_exec: the commands that the variant must have.
        hands_over: the trial's own units: OnFailure= and OnSuccess= may name them, and they may name the variant.
        names_original: whether the files of another unit name the original (`snapshot.names_unit`), asked where the
            variant lacks an order that such a unit may have declared; None: nobody does.
    """
    same = original.get("Id") == variant.get("Id")
    allowed = SAME_UNIT if same else PARALLEL
    judge = _Judge(original, variant, expected_exec, hands_over, names_original or (lambda _: False))
    found = [one for one in diff(original, variant) if one.name not in allowed or not judge.fits(one)]
    known = {one.name for one in found}
    # Equal to the original, though it has to be what the trial needs.
    for name, wanted in (("ExecStartEx", kept_commands(expected_exec)), ("Restart", "no")):
        if name not in known and name in variant and variant[name] != wanted:
            found.append(Difference(name=name, before=wanted, after=variant[name]))
    return tuple(found)


class _Judge:
    """Whether an allowed difference is of the allowed size."""

    def __init__(
        self,
        original: Mapping[str, Any],
        variant: Mapping[str, Any],
        expected_exec: Sequence[ExecCommand],
        hands_over: Collection[str],
        names_original: Callable[[str], bool],
    ) -> None:
        self._unit = str(variant.get("Id"))
        self._same = original.get("Id") == variant.get("Id")
        self._expected = kept_commands(expected_exec)
        self._names = set(original.get("Names", ())) | {original.get("Id")}
        self._ours = set(hands_over)
        self._referring = {name for key in _OF_OTHERS for one in (original, variant) for name in one.get(key, ())}
        self._names_original = names_original

    def fits(self, one: Difference) -> bool:
        exact = {
            "ExecStart": self._expected,
            "ExecStartEx": self._expected,
            "Restart": "no",
            "Names": [self._unit],
        }
        if one.name in exact:
            return bool(one.after == exact[one.name])
        if one.name in _ANY:
            return True
        before, after = set(one.before or ()), set(one.after or ())
        gained, lost = after - before, before - after
        if one.name == "DropInPaths":
            return self._drop_ins(gained, lost)
        if one.name in _OF_OTHERS:
            return self._same or gained <= self._ours
        if one.name in REVERSE:
            expected = self._ours | (set() if self._same or one.name != "After" else self._names)
            # What others declare is seen on the original alone, or on the unit itself at one time and not at another.
            from_others = lost | gained - expected if self._same else lost
            return all(map(self._from_other, from_others)) and (self._same or gained <= expected)
        # Conflicts, OnFailure, OnSuccess
        hand_over = set() if one.name == "Conflicts" else self._ours
        return not lost and gained <= hand_over | (set() if self._same else self._names)

    def _from_other(self, unit: str) -> bool:
        return unit in self._referring or self._names_original(unit)

    def _drop_ins(self, gained: set[str], lost: set[str]) -> bool:
        """Whether only drop-ins of the variant's own came, and, on the same unit, none went."""
        own = all((match := _RUN_DROP_IN.fullmatch(path)) and match["unit"] == self._unit for path in gained)
        if self._same:
            return own and len(gained) == 1 and not lost
        return own
