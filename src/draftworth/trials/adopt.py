"""Adopting an arm that a trial found faster, and taking that back: acts of their own, never a part of a trial."""

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from draftworth.errors import DraftworthError, InterruptedTrial, NotRestoredError, RefusedError, ServerStartError
from draftworth.hosts.base import Host
from draftworth.models import Frozen
from draftworth.services.systemd import adoption as place
from draftworth.services.systemd import control
from draftworth.services.systemd.snapshot import UnitSnapshot, observe_unit
from draftworth.trials.adopted import Adoption, Tried, chosen, command_for, put_back, read_adoption, read_trial
from draftworth.trials.adopting import differences, put, refuse_unknown, standing, take_back, undo
from draftworth.trials.ask import access_of
from draftworth.trials.driver.restarting import Restarter
from draftworth.trials.interrupts import Interrupt, Interrupts
from draftworth.trials.lock import locked
from draftworth.trials.recover import refuse_unfinished

Say = Callable[[str], None]
Done = Literal["adopted", "adopted already", "taken back", "not adopted"]
_ROLE = "adopt"
_HELD = "what was begun is finished first"


class Told(Frozen):
    """What an adoption, or taking one back, has done."""

    schema_version: int = 1
    trial: str
    unit: str
    arm: str | None
    """The arm that it is about; None where none was ever adopted."""
    done: Done
    path: str | None
    """The drop-in."""
    restarted: bool = False
    """Whether the unit was restarted, and has generated a token since."""
    remarks: tuple[str, ...] = ()
    """What is not as it should be, by others' doing."""
    lines: tuple[str, ...] = ()
    """The whole for a person."""


def adopt(host: Host, folder: Path, *, arm: str | None, restart: bool, say: Say) -> Told:
    """Make an arm's command the unit's own, from its next start on. May be called any number of times.

    Args:
        host: this machine.
        folder: the trial's.
        arm: the arm's name; None: the best one.
        restart: restart the unit now; where it does not generate a token, everything is undone.
        say: takes what is happening.

    Raises:
        RefusedError: nothing was changed.
        UsageError: no such arm; or a key that `restart` needs is not set.
        ServerStartError, InterruptedTrial: undone, and the service generates as before.
        NotRestoredError: it could not be undone; carries the commands.
    """
    found, comparison = chosen(folder, arm)
    tried = read_trial(folder)
    command = command_for(tried, found, comparison.arm)
    restarter = _restarter(host, tried, say) if restart else None
    interrupts = Interrupts(say, held=True, first=_HELD)
    with locked(tried.config.service.port, folder, role=_ROLE) as died, interrupts.installed():
        refuse_unfinished(tried.config.service.port, died)
        now = observe_unit(host, tried.unit)
        if restart and now.active not in control.UP:
            raise RefusedError(f"{now.unit} is {now.active}, so there is nothing to restart; leave --restart out")
        known, already, remarks = standing(host, tried, now, comparison.arm, command)
        if known is None:
            known = put(host, tried, now, comparison, command)
        restarted = restarter is not None and _runs_otherwise(now, known)
        if restarter is not None and restarted:
            remarks += _restart_or_undo(host, restarter, now, known, folder=folder, say=say)
    return _told(tried, known, "adopted already" if already else "adopted", now, restarted=restarted, remarks=remarks)


def unadopt(host: Host, folder: Path, *, restart: bool, say: Say) -> Told:
    """Take the adoption of a trial back: the unit has its own command again, from its next start on.

    May be called any number of times. Args as for `adopt`.

    Raises:
        RefusedError: nothing was changed: the drop-in was edited by somebody, or cannot be removed.
        UsageError: a key that `restart` needs is not set.
        NotRestoredError: the unit has its own command and does not generate with it; carries the commands.
    """
    tried = read_trial(folder)
    restarter = _restarter(host, tried, say) if restart else None
    interrupts = Interrupts(say, held=True, first=_HELD)
    with locked(tried.config.service.port, folder, role=_ROLE) as died, interrupts.installed():
        refuse_unfinished(tried.config.service.port, died)
        known = read_adoption(folder)
        now = observe_unit(host, tried.unit)
        remarks: tuple[str, ...] = ()
        done: Done = "not adopted"
        if known is None or known.undone_unix is not None:
            refuse_unknown(host, tried)
        else:
            remarks = take_back(host, known, now)
            remarks += tuple(f"not as in the trial: {line}" for line in differences(host, tried))
            known = known.model_copy(update={"undone_unix": time.time()})
            put_back(folder, known)
            done = "taken back"
        restarted = known is not None and restarter is not None and _needs_own(now, known)
        if restarter is not None and restarted:
            remarks += _restart_own(restarter, now)
    return _told(tried, known, done, now, restarted=restarted, remarks=remarks)


def _restarter(host: Host, tried: Tried, say: Say) -> Restarter:
    return Restarter(
        host,
        tried.folder,
        config=tried.config,
        engine=tried.engine,
        observed=tried.observed,
        access=access_of(tried.config.service),
        say=say,
    )


def _runs_otherwise(now: UnitSnapshot, known: Adoption) -> bool:
    """Whether the unit runs, with another command than it has by now."""
    if now.started_s is None or now.active not in control.UP:
        return False
    adopted = now.started_s >= known.adopted_unix
    return not adopted if known.undone_unix is None else adopted and now.started_s < known.undone_unix


def _needs_own(now: UnitSnapshot, known: Adoption) -> bool:
    """Whether a unit whose adoption was taken back does not run with its own command."""
    return now.active not in control.UP or _runs_otherwise(now, known)


def _restart_or_undo(
    host: Host, restarter: Restarter, now: UnitSnapshot, known: Adoption, *, folder: Path, say: Say
) -> tuple[str, ...]:
    """Restart the unit as the arm; undo everything where it does not generate a token. Returns remarks."""
    waiting = Interrupts(say, first=f"{known.unit} is put back first", what="the adoption")
    tail: tuple[str, ...] = ()
    try:
        with waiting.installed():
            remarks = restarter.drain()
            restarter.restart(now, "adopted")
            waiting.hold()
    except Interrupt as interrupt:
        why = f"interrupted by {interrupt}"
    except Exception as error:  # noqa: BLE001 - whatever it is, the service has to come back
        why = str(error) or repr(error)
        tail = error.tail if isinstance(error, ServerStartError) else ()
    else:
        return tuple(remarks)
    why = f"{known.unit} as arm {known.arm}: {why}"
    say(f"{why}; undoing")
    undo(host, known, why)
    put_back(folder, known.model_copy(update={"undone_unix": time.time()}))
    how = f"{known.unit} was not restarted"
    if restarter.ordered:
        try:
            how = restarter.restart(now, "unadopted")
        except Exception as error:  # noqa: BLE001 - told with the commands
            raise NotRestoredError(
                f"{why}; its own command is back, and {known.unit} does not generate with it: {error}",
                place.by_hand(known.unit, known.path, restart=True),
            ) from None
    text = f"{why}; undone: {how}"
    raise InterruptedTrial(text) if waiting.received else ServerStartError(text, tail)


def _restart_own(restarter: Restarter, now: UnitSnapshot) -> tuple[str, ...]:
    """Restart the unit with its own command. Returns remarks. Raises NotRestoredError where it does not generate."""
    unit = shlex.quote(now.unit)
    try:
        remarks = restarter.drain()
        restarter.restart(now, "unadopted")
    except DraftworthError as error:
        raise NotRestoredError(
            f"{now.unit} has its own command again, and does not generate with it: {error}",
            (f"journalctl -u {unit} -n 100", f"systemctl restart {unit}"),
        ) from None
    return tuple(remarks)


def _told(
    tried: Tried, known: Adoption | None, done: Done, now: UnitSnapshot, *, restarted: bool, remarks: tuple[str, ...]
) -> Told:
    unit, trial = tried.unit, tried.folder.name
    adopted = done in {"adopted", "adopted already"}
    if known is None or done == "not adopted":
        lines = [f"Trial {trial} has nothing adopted on {unit}; nothing to do."]
    else:
        lines = [f"{done.capitalize()}: arm {known.arm} of trial {trial} on {unit} ({known.path})."]
    if restarted:
        lines.append(f"{unit} was restarted and has generated a token.")
    elif known is not None and now.active not in control.UP:
        lines.append(f"{unit} is {now.active}; it has this command when it is started.")
    elif known is not None and _runs_otherwise(now, known):
        again = f"draftworth trial {'adopt' if adopted else 'unadopt'} {trial} --restart"
        lines.append(
            f"{unit} runs on as it was started: its command takes effect at its next restart, by `systemctl restart "
            f"{unit}`, or by `{again}`, which checks that it generates."
        )
    if adopted:
        lines.append(f"Undo: `draftworth trial unadopt {trial}`")
    lines += [f"  {one}" for one in remarks]
    return Told(
        trial=trial,
        unit=unit,
        arm=None if known is None else known.arm,
        done=done,
        path=None if known is None else known.path,
        restarted=restarted,
        remarks=remarks,
        lines=tuple(lines),
    )
