"""Trials driven on this machine."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from draftworth.errors import RefusedError, UsageError
from draftworth.hosts.local import LocalHost
from draftworth.services.systemd.bus import exec_commands, properties
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver import attach
from draftworth.trials.driver.drive import REQUEST
from draftworth.trials.driver.events import events_in
from draftworth.trials.driver.launch import launch
from draftworth.trials.driver.station import PlanShown
from draftworth.trials.home import find_trial

RELEASE = "release"
"""A file in the trial's folder that ends the time a variant is held."""
_UNITS = ("draftworth-trial-*.service", "draftworth-restore-*.service")


class LocalStation:
    """See `Station`."""

    name = "this machine"

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._host = LocalHost()

    def plan(self, config: SystemdTrial, *, files: bool = False) -> PlanShown:
        """Return what a run would do."""
        from draftworth.trials.driver.shown import shown  # noqa: PLC0415 - lazy: scipy
        from draftworth.trials.lock import dead  # noqa: PLC0415 - lazy
        from draftworth.trials.prepare import prepare_loaded  # noqa: PLC0415 - lazy
        from draftworth.trials.recover import refuse_unfinished  # noqa: PLC0415 - lazy

        need_root()
        refuse_at_work(self._host, config.service.unit)
        ready = prepare_loaded(config)
        refuse_unfinished(ready.config.service.port, dict(dead()).get(ready.config.service.port))
        return shown(ready, files=files)

    def start(self, config: SystemdTrial, shown: PlanShown) -> str:
        """Start the driver."""
        need_root()
        refuse_at_work(self._host, config.service.unit)
        names = [config.service.api_key_env, *config.service.headers_env.values()]
        variables = {name: os.environ[name] for name in names if name and name in os.environ}
        done = launch(self._host, config, port=shown.port, plan=shown.fingerprint, variables=variables)
        return done.folder.name

    def events(self, trial: str, offset: int = 0) -> Iterator[dict[str, Any]]:
        """Yield what a trial says, from an offset in its log."""
        folder = self._folder(trial)
        yield {"kind": "trial", "id": folder.name, "own": True}
        yield from events_in(attach.follow(self._host, folder, offset))

    def end(self, trial: str) -> bool:
        """Ask a trial to end."""
        return attach.end_trial(self._host, self._folder(trial))

    def release(self, trial: str) -> bool:
        """End the time a variant is held."""
        folder = self._folder(trial)
        attach.names_of(folder)
        held = (folder / "held").exists()
        if held:
            (folder / RELEASE).touch()
        return held

    def status(self, trial: str | None) -> Sequence[dict[str, Any]]:
        """Return where a trial stands, or every one at work."""
        folders = at_work(self._host) if trial is None else [self._folder(trial)]
        return [attach.status(self._host, folder) for folder in folders]

    def fetch(self, trial: str) -> Path:
        """Return the trial's folder."""
        return self._folder(trial)

    def adopt(self, trial: str, *, arm: str | None, restart: bool, say: Callable[[str], None]) -> dict[str, Any]:
        """Make an arm's command the unit's own."""
        from draftworth.trials.adopt import adopt  # noqa: PLC0415 - lazy

        need_root()
        return adopt(self._host, self._folder(trial), arm=arm, restart=restart, say=say).model_dump(mode="json")

    def unadopt(self, trial: str, *, restart: bool, say: Callable[[str], None]) -> dict[str, Any]:
        """Take that back."""
        from draftworth.trials.adopt import unadopt  # noqa: PLC0415 - lazy

        need_root()
        return unadopt(self._host, self._folder(trial), restart=restart, say=say).model_dump(mode="json")

    def _folder(self, trial: str) -> Path:
        """Return a trial's folder: in this home, or of a trial that is at work for another."""
        working: list[Path] = []
        with suppress(UsageError):  # no systemd here: what was fetched is there nevertheless
            working = at_work(self._host)
        if trial == "latest" and working:
            return working[-1]
        for folder in working:
            if folder.name == trial:
                return folder
        return find_trial(trial)


def need_root() -> None:
    """Refuse where units cannot be changed. Raises RefusedError."""
    if os.geteuid() != 0:
        raise RefusedError(
            "a trial on a systemd unit changes units of the system, which root may: run it with `sudo -E`"
        )


def refuse_at_work(host: LocalHost, unit: str) -> None:
    """Refuse where a trial is at work on a unit: it may be stopped now for that trial, and nobody should start it.

    Raises:
        RefusedError: one is, or the host puts the unit back after one.
    """
    wanted = _canonical(host, unit)
    for folder in at_work(host):
        with suppress(OSError, ValueError, KeyError, TypeError):
            other = str(json.loads((folder / REQUEST).read_text(encoding="utf-8"))["config"]["service"]["unit"])
            if _canonical(host, other) == wanted:
                raise RefusedError(
                    f"trial {folder.name} is at work on {wanted}: wait for it (`draftworth trial attach "
                    f"{folder.name}`), or end it with `draftworth trial stop {folder.name}`"
                )
    done = host.run(["systemctl", "list-units", "--plain", "--no-legend", "--no-pager", "--full", _UNITS[1]])
    for line in done.text.splitlines():
        if f": put {wanted} back " in line:
            raise RefusedError(f"the host puts {wanted} back after a trial that died ({line.split()[0]}); wait for it")


def _canonical(host: LocalHost, unit: str) -> str:
    return host.run(["systemctl", "show", "-p", "Id", "--value", "--", unit]).text.strip() or unit


def at_work(host: LocalHost) -> list[Path]:
    """Return the folders of the trials whose driver or restore unit is there, oldest first."""
    done = host.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", *_UNITS])
    if not done.ok:
        raise UsageError(f"systemd cannot be asked for trials here: {done.why}; name another machine with --host")
    found = []
    for line in done.text.splitlines():
        unit = line.split()[0] if line.split() else ""
        if unit.startswith("draftworth-trial-"):
            commands = exec_commands(properties(host, unit))
            if commands:
                found.append(Path(commands[0].argv[-1]))
    # While the host puts a service back after a driver that died, only this is left of the trial.
    for note in sorted(Path("/run/draftworth").glob("*/trial")):
        with suppress(OSError):
            found.append(Path(note.read_text(encoding="utf-8")))
    return sorted(set(found), key=lambda folder: folder.name)
