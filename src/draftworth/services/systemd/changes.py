"""What is not as it was between two looks at a unit."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from draftworth.services.systemd.bus import UnitState
from draftworth.services.systemd.properties import REVERSE, diff

if TYPE_CHECKING:
    from draftworth.services.systemd.snapshot import UnitSnapshot

_AT_WORK = frozenset({"active", "activating", "reloading"})


def changed(before: "UnitSnapshot", now: "UnitSnapshot") -> tuple[str, ...]:
    """Return what is not as it was, one line each; nothing: everything is as it was.

    Compared are files, settings, enablement, the unit's state and the states of what depends on it or triggers it; not
    pids, times and counters.
    """
    lines = []
    for what in ("load", "active", "sub", "unit_file_state"):
        was, is_ = getattr(before, what), getattr(now, what)
        if was != is_:
            lines.append(f"{before.unit}: {what.replace('_', ' ')} was {was or 'nothing'}, is {is_ or 'nothing'}")
    lines += changed_settings(before, now)
    lines += _changed_states("depends on it", before.dependents, now.dependents)
    lines += _changed_states("triggers it", before.triggers, now.triggers)
    lines += [line for line in now.stale if line not in before.stale]
    return tuple(dict.fromkeys(lines))


def changed_settings(before: "UnitSnapshot", now: "UnitSnapshot", *, enablement: bool = True) -> list[str]:
    """Return which files and settings are not as they were, one line each, whatever the unit is doing.

    Args:
        before: the unit as it was.
        now: as it is.
        enablement: compare the links that enable it, too.
    """
    lines = [line for kind, line in _changed_files(before, now) if enablement or kind != "enablement"]
    # What other units say about this one is seen only while they are loaded; their states are compared by `changed`.
    skipped = {"UnitFileState", *REVERSE}
    return lines + [one.line() for one in diff(before.properties, now.properties) if one.name not in skipped]


def _changed_files(before: "UnitSnapshot", now: "UnitSnapshot") -> list[tuple[str, str]]:
    """Return the kind of each file that is not as it was, and the line that says so."""
    old, new = ({(one.kind, one.path): one for one in snapshot.files} for snapshot in (before, now))
    lines = []
    for key in sorted(old.keys() | new.keys()):
        was, is_ = old.get(key), new.get(key)
        kind, path = key
        if was is None or is_ is None:
            lines.append((kind, f"{path} ({kind}) {'is new' if was is None else 'is gone'}"))
        elif (was.sha256, was.target) != (is_.sha256, is_.target):
            how = "is gone" if is_.sha256 is None and is_.target is None else "was edited"
            lines.append((kind, f"{path} ({kind}) {how}"))
        elif was.mode != is_.mode:
            lines.append((kind, f"{path} ({kind}) had mode {was.mode or 0:o}, has {is_.mode or 0:o}"))
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
