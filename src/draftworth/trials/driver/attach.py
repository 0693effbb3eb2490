"""Following a trial that its own driver runs: shows what happens until it is over, from wherever it stands."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.hosts.base import Host, HostError
from draftworth.services.systemd.control import UP
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.scene import TAG
from draftworth.trials.driver.drive import RESULT
from draftworth.trials.driver.events import NAME as EVENTS
from draftworth.trials.driver.events import EventReader

_POLL_S = 0.2
_LOOK_EVERY_S = 1.0
_ALIVE_EVERY_S = 10.0
ALIVE = json.dumps({"kind": "alive", "own": True})
"""Said while there is nothing to say: whoever follows learns that we are there, and we that it is."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trial ended.

    Attributes:
        code: exit code.
        text: what has to be said beyond the record; empty where the record says it all.
        commands: what puts the service back by hand, where it is not back.
    """

    code: int
    text: str = ""
    commands: tuple[str, ...] = ()


def names_of(folder: Path) -> Names:
    """Return what everything of a trial is called on its host.

    Raises:
        UsageError: it is no trial on a systemd unit.
    """
    try:
        return Names((folder / TAG).read_text(encoding="ascii").strip())
    except OSError:
        raise UsageError(
            f"trial {folder.name} is not on a systemd unit: it runs in the process that started it"
        ) from None


def state_of(host: Host, unit: str) -> str:
    """Return a unit's ActiveState, `inactive` where it is not there. Raises HostError where systemd does not answer."""
    done = host.run(["systemctl", "show", "-p", "ActiveState", "--value", "--", unit])
    if not done.ok:
        raise HostError(f"{unit}: its state cannot be asked: {done.why}")
    return done.text.strip() or "inactive"


def ended(folder: Path) -> Ended | None:
    """Return how a trial ended, or None where it has not, or died without saying so."""
    try:
        found = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Ended(int(found["exit"]), str(found.get("text", "")), tuple(found.get("commands", ())))


def follow(host: Host, folder: Path, offset: int = 0) -> Iterator[str]:
    """Yield what a trial says as lines of JSON, and at last one of kind `end`.

    A line of the trial's event log has `at`: the offset in bytes from which the log goes on behind it. Lines of kind
    `alive` come while there is nothing to say. Where the driver died, what the host does about it is told until the
    service is back and the record is written.

    Args:
        host: this machine.
        folder: the trial's.
        offset: where to begin in its event log, in bytes.
    """
    names = names_of(folder)
    reader = EventReader(folder / EVENTS, offset)
    looked, told = 0.0, time.monotonic()
    said = ""
    over = before = None
    while over is None:
        over = ended(folder)
        for line in reader.lines():
            told = time.monotonic()
            yield _placed(line, reader.offset)
        if over is None and time.monotonic() - looked >= _LOOK_EVERY_S:
            looked = time.monotonic()
            text, dead = _if_dead(host, folder, names)
            # Twice the same: between two units of the way back there is a moment in which none of them runs.
            over, before = (dead if dead == before else None), dead
            if text and text != said:
                said, told = text, looked
                yield json.dumps({"kind": "line", "text": text, "own": True})
        if time.monotonic() - told >= _ALIVE_EVERY_S:
            told = time.monotonic()
            yield ALIVE
        if over is None:
            time.sleep(_POLL_S)
    yield json.dumps({"kind": "end", "exit": over.code, "text": over.text, "commands": list(over.commands)})


def _placed(line: str, offset: int) -> str:
    """Return a line of the log with where the log goes on; one that is no object as it is."""
    text = line.rstrip()
    return f'{text[:-1]}, "at": {offset}}}' if text.startswith("{") and text.endswith("}") and text != "{}" else line


def _if_dead(host: Host, folder: Path, names: Names) -> tuple[str, Ended | None]:
    """Return what to say where a trial's driver is gone, and how the trial ended; nothing where it lives."""
    try:
        if state_of(host, names.trial) in {*UP, "deactivating"} or ended(folder) is not None:
            return "", None
        return _without_driver(host, folder, names)
    except HostError:  # systemd does not answer now: nothing can be said, and it is asked again
        return "", None


def _without_driver(host: Host, folder: Path, names: Names) -> tuple[str, Ended | None]:
    """Return what to say of a trial whose driver is gone, and how it ended, once that is known."""
    from draftworth.trials.record import NAME as RECORD  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy
    from draftworth.trials.recover import elsewhere, needs_restore  # noqa: PLC0415 - lazy

    working = [unit for unit in (names.restore, names.record) if state_of(host, unit) in {*UP, "deactivating"}]
    if working or host.read(names.armed) is not None:
        state = (host.read(names.state) or b"").decode(errors="replace").strip() or "writing the record"
        return f"the trial's driver died; the host puts the service back by itself ({state})", None
    if (folder / RECORD).is_file():
        found = read(folder)
        return "", Ended(found.exit_code, "" if found.restored else found.restore, found.restore_commands)
    if not needs_restore(folder):
        said = _last_words(host, names)
        return "", Ended(
            6, "the trial's driver died before it changed anything" + (f"; it said: {said}" if said else "")
        )
    text = f"the trial's driver died; run `{elsewhere(folder)}` to verify and record what is there"
    return "", Ended(6, text)


def _last_words(host: Host, names: Names) -> str:
    """Return the last line that a driver wrote to the journal."""
    argv = ["journalctl", "-u", names.trial, "-t", "draftworth-trial", "-o", "cat", "-n", "1", "-q", "--no-pager"]
    return host.run(argv).text.strip()


def end_trial(host: Host, folder: Path) -> bool:
    """Ask a trial to end: its driver puts the service back first. Returns whether it was running."""
    names = names_of(folder)
    if state_of(host, names.trial) not in UP:
        return False
    return host.run(["systemctl", "kill", "--kill-who=main", "--signal=INT", "--", names.trial]).ok


def status(host: Host, folder: Path) -> dict[str, Any]:
    """Return where a trial stands, for a person or a script."""
    names = names_of(folder)
    last: dict[str, Any] = {}
    number = total = 0
    for line in EventReader(folder / EVENTS).lines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.get("kind")
        total = len(event["kinds"]) if kind == "plan" else total
        number += kind in {"step", "skip"}
        if kind == "step":
            last = {"step": event["text"], "since": event["unix"]}
        elif kind in {"now", "count"}:
            last["now"] = (
                event.get("text") or f"{event.get('done')}/{event.get('total')} {event.get('note', '')}".strip()
            )
            last["now_unix"] = event["unix"]
    over = ended(folder)
    driver = state_of(host, names.trial)
    return {
        "id": folder.name,
        "folder": str(folder),
        "running": driver in {*UP, "deactivating"},
        "ended": None if over is None else over.code,
        "number": number,
        "steps": total,
        **last,
        "driver": {"unit": names.trial, "state": driver},
        "restore": {
            "armed": host.read(names.armed) is not None,
            "unit": names.restore,
            "state": state_of(host, names.restore),
            "progress": (host.read(names.state) or b"").decode(errors="replace").strip(),
        },
        "deadman": {"unit": names.deadman, "state": state_of(host, names.deadman)},
    }
