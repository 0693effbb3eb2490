"""The way back, set up on the host before the first change, so that it needs nothing of ours to be alive.

A restore unit that retries until verified; a dead-man timer for the declared downtime; the end of the trial's own unit
and a failed variant start the restore unit too. Everything lies in /run: after a reboot an enabled original comes back
by itself. Only for one that runs and is not enabled a unit in /etc starts it at boot.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from draftworth.errors import RefusedError, TrialError
from draftworth.hosts.base import Host, HostError
from draftworth.services.systemd.names import LASTING, UNITS, Names
from draftworth.services.systemd.quoting import exec_line, literal
from draftworth.services.systemd.script import Recipe, ask_files, clean_script, restore_script

_RETRY_S = 5
_SLACK_S = 60.0
"""Seconds by which the timer waits longer than the driver, who comes first where it is alive."""
_RELOAD_S = 90.0
_KEPT = ("PYTHONPATH", "DRAFTWORTH_LOCKS")


def restore_unit(recipe: Recipe) -> str:
    """Return the unit that runs the script until it succeeds, however long the original loads."""
    names = recipe.names
    run = f"[ ! -e {names.script} ] || exec /bin/sh {names.script}"
    return _unit(
        [
            "[Unit]",
            f"Description=Draftworth: put {recipe.unit} back as it was before trial {names.tag}",
            "StartLimitIntervalSec=0",
            "[Service]",
            "Type=oneshot",
            f"ExecStart=/bin/sh -c '{run}'",
            "Restart=on-failure",
            f"RestartSec={_RETRY_S}",
            "TimeoutStartSec=infinity",
            "OOMScoreAdjust=-900",
            "SyslogIdentifier=draftworth-restore",
        ]
    )


def deadman_units(recipe: Recipe, seconds: float, systemctl: str) -> dict[str, str]:
    """Return the timer of the declared downtime, and what it starts.

    A driver that has not ended the trial by then hangs: it is killed first, so that it changes nothing any more.

    Args:
        recipe: what the restore does.
        seconds: from its start until it acts.
        systemctl: absolute path.
    """
    names = recipe.names
    timer = [
        "[Unit]",
        f"Description=Draftworth: the downtime declared for trial {names.tag} is over",
        "[Timer]",
        f"OnActiveSec={seconds:.0f}s",
        "AccuracySec=1s",
        f"Unit={names.deadman_service}",
    ]
    service = [
        "[Unit]",
        f"Description=Draftworth: end trial {names.tag}, which is over its downtime, and put {recipe.unit} back",
        "[Service]",
        "Type=oneshot",
        f"ExecStart=-{systemctl} kill --kill-who=main -s KILL {names.trial}",
        f"ExecStart={systemctl} start --no-block {names.restore}",
        "SyslogIdentifier=draftworth-deadman",
    ]
    return {names.deadman: _unit(timer), names.deadman_service: _unit(service)}


def boot_unit(recipe: Recipe, target: str, systemctl: str) -> str:
    """Return the lasting unit that starts an original which runs and is not enabled, and then removes itself."""
    names = recipe.names
    path = f"{LASTING}/{names.boot}"
    start = exec_line([systemctl, "start", *map(literal, (*recipe.triggers, recipe.unit, *recipe.dependents))])
    gone = exec_line(["/bin/rm", "-f", path, f"{LASTING}/{target}.wants/{names.boot}"])
    return _unit(
        [
            "[Unit]",
            f"Description=Draftworth: {recipe.unit} ran before trial {names.tag}, which the reboot has ended",
            f"ConditionPathExists=!{names.folder}",
            f"After={recipe.unit}",
            "[Service]",
            "Type=oneshot",
            # Where the original does not start, the unit stays for the next boot.
            f"ExecStart={start}",
            f"ExecStart={gone}",
            f"ExecStart={systemctl} daemon-reload --no-block",
            "[Install]",
            f"WantedBy={target}",
        ]
    )


def after_death(names: Names) -> str:
    """Return the script of the trial's own ExecStopPost=: the way back where it is still armed, else the last tidying.

    It only queues the job: what runs in ExecStopPost= is bounded by TimeoutStopSec=, which a load is longer than.
    A script, since systemd 252 does not read back the `;` of a transient unit's command after a daemon-reload.
    """
    tag = names.tag
    return f"""#!/bin/sh
if [ -e {names.armed} ]; then exec systemctl start --no-block {names.restore}; fi
# Nothing was changed, or all of it is back.
found=$(find {UNITS} {LASTING} -name '*draftworth-*{tag}*' 2>/dev/null)
rm -rf {names.folder} {names.clean}
for one in $found; do
  rm -f "$one"
  case $one in *.d/*) rmdir "${{one%/*}}" 2>/dev/null ;; esac
done
rmdir /run/draftworth 2>/dev/null
[ -z "$found" ] || systemctl daemon-reload
exit 0
"""


class Net:
    """Sets the way back up, uses it, and takes it away."""

    def __init__(self, host: Host, recipe: Recipe, *, systemctl: str = "/usr/bin/systemctl") -> None:
        """Make one; changes nothing.

        Args:
            host: where the service runs.
            recipe: what a restore does.
            systemctl: absolute path there.
        """
        self.host = host
        self.recipe = recipe
        self.names = recipe.names
        self._systemctl = systemctl

    def arm(self, *, boot_target: str | None = None) -> None:
        """Set the way back up; `armed` is written last. A failure leaves what `disarm` removes.

        Args:
            boot_target: the target a lasting unit is wanted by; None: none is needed.

        Raises:
            HostError: a file cannot be written, or systemd did not take a unit.
        """
        names, recipe = self.names, self.recipe
        write = self.host.write
        for name, data in ask_files(recipe).items():
            write(f"{names.folder}/{name}", data, 0o600)
        if boot_target is not None:
            path = f"{LASTING}/{names.boot}"
            recipe = self.recipe = replace(recipe, lasting=(path, f"{LASTING}/{boot_target}.wants/{names.boot}"))
        write(names.clean, clean_script(recipe).encode(), 0o755)
        write(names.script, restore_script(recipe).encode(), 0o755)
        write(names.path(names.restore), restore_unit(recipe).encode())
        if boot_target is not None:
            write(f"{LASTING}/{names.boot}", boot_unit(recipe, boot_target, self._systemctl).encode())
        self.reload()
        if boot_target is not None:
            self._must("enable", "--no-reload", names.boot)
        loaded = self._show("LoadState")
        if loaded != "loaded":
            raise RefusedError(f"systemd does not load {names.path(names.restore)}: it is {loaded or 'not known'}")
        write(names.armed, b"")

    def is_armed(self) -> bool:
        """Whether the host would put the service back by itself now."""
        return self.host.read(self.names.armed) is not None

    def set_deadline(self, seconds: float) -> None:
        """Start the dead-man timer, anew where it runs."""
        for name, text in deadman_units(self.recipe, seconds + _SLACK_S, self._systemctl).items():
            self.host.write(self.names.path(name), text.encode())
        self.reload()
        self._must("restart", self.names.deadman)

    def clear_deadline(self) -> None:
        """Stop the timer: the original is on its way back. Raises HostError where it goes on."""
        if self.host.read(self.names.path(self.names.deadman)) is not None:
            self._must("stop", self.names.deadman)

    def trigger(self) -> None:
        """Start the restore, or join the one that runs. Raises TrialError where systemd does not take the job."""
        done = self.host.run(["systemctl", "start", "--no-block", self.names.restore])
        if not done.ok:
            raise TrialError(f"{self.names.restore} cannot be started: {done.why}")

    def state(self) -> str:
        """Return how far the restore is: clearing, cleared, starting, restored, `failing WHY`; empty: not begun."""
        return (self.host.read(self.names.state) or b"").decode(errors="replace").strip()

    def forget_state(self) -> None:
        """Begin anew: what an earlier restore of this trial has left says nothing of the next."""
        self.host.remove(self.names.state)

    def at_work(self) -> bool:
        """Whether the restore unit runs, or waits to be run again."""
        return self._show("ActiveState") in {"activating", "active", "reloading", "deactivating"}

    def _show(self, name: str) -> str:
        return self.host.run(["systemctl", "show", "-p", name, "--value", self.names.restore]).text.strip()

    def disarm(self) -> None:
        """Take everything away. May be called any number of times."""
        self.host.remove(self.names.armed)
        script = clean_script(replace(self.recipe, finisher=()))
        done = self.host.run(["/bin/sh", "-c", script], timeout_s=_RELOAD_S + 60)
        if not done.ok:
            raise TrialError(f"what the trial set up in {UNITS} cannot be removed: {done.why}")

    def reload(self) -> None:
        """Have systemd read unit files anew. Raises HostError."""
        self._must("daemon-reload")

    def by_hand(self) -> tuple[str, ...]:
        """Return the shell commands that put the service back, for a person."""
        names = self.names
        recipe = self.recipe
        return (
            f"systemctl status {names.restore}   # it goes on trying; or, by hand:",
            f"sh {names.script}",
            "# or, where that file is gone:",
            f"rm -f {shlex.join(recipe.files)}; systemctl daemon-reload",
            f"systemctl stop {shlex.join((*recipe.variants, *recipe.triggers, recipe.unit))}",
            f"systemctl reset-failed {shlex.quote(recipe.unit)}",
            f"systemctl start {shlex.join((*recipe.triggers, recipe.unit, *recipe.dependents))}",
        )

    def _must(self, verb: str, *words: str) -> None:
        done = self.host.run(["systemctl", verb, *words], timeout_s=_RELOAD_S)
        if not done.ok:
            raise HostError(f"systemctl {' '.join((verb, *words))}: {done.why}")


def finisher(folder: Path) -> tuple[str, ...]:
    """Return the argv that writes the record of a trial whose driver died."""
    kept = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
    return (
        *("env", *kept),
        sys.executable,
        "-P",
        "-m",
        "draftworth.trials.driver.drive",
        "--record",
        str(folder),
    )


def _unit(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
