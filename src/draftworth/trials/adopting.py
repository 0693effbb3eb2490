"""The drop-in of an adoption: there whole and verified by what systemd has loaded, or not at all."""

import hashlib
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.errors import NotRestoredError, RefusedError, TrialError
from draftworth.hosts.base import Host, HostError
from draftworth.reports.words import METRICS, interval, judged
from draftworth.services.systemd import adoption as place
from draftworth.services.systemd.snapshot import UnitSnapshot, observe_unit
from draftworth.trials.adopted import Adoption, Tried, keep, put_back, read_adoption
from draftworth.trials.outcome import iso

if TYPE_CHECKING:
    from draftworth.services.systemd.bus import ExecCommand
    from draftworth.trials.record import ArmComparison

_MOST_SHOWN = 5


def standing(
    host: Host, tried: Tried, now: UnitSnapshot, arm: str, command: "ExecCommand"
) -> tuple[Adoption | None, bool, tuple[str, ...]]:
    """Look whether something is adopted already. Returns it, whether it is loaded, and remarks.

    Raises:
        RefusedError: by another trial, another arm of this one, or edited by somebody.
    """
    there = place.standing(host, now.unit)
    known = read_adoption(tried.folder)
    if there is None:
        return None, False, ()
    path, data = there
    _refuse_other(path, data, tried, known)
    assert known is not None, "refused above"
    if known.arm != arm:
        raise RefusedError(
            f"arm {known.arm} of trial {known.trial} is adopted: `draftworth trial unadopt {known.trial}` first"
        )
    if path in now.drop_ins:
        remarks = place.differences(tried.snapshot, now, path=path, command=command)
        return known, True, tuple(f"not as in the trial: {line}" for line in remarks)
    # Written, and killed before systemd was told.
    _load(host, tried, known, command, None)
    return known, False, ()


def _refuse_other(path: str, data: bytes, tried: Tried, known: Adoption | None) -> None:
    """Refuse a drop-in that is not exactly what this trial has written."""
    by = place.trial_in(data)
    if by is not None and by != tried.folder.name:
        raise RefusedError(f"{tried.unit} is adopted from trial {by} ({path}): `draftworth trial unadopt {by}` first")
    if by is None or known is None or known.path != path or known.sha256 != hashlib.sha256(data).hexdigest():
        commands = "`, `".join(place.by_hand(tried.unit, path, restart=False))
        why = "was edited since it was adopted" if known is not None else "is not known to this trial's folder"
        raise RefusedError(f"{path} {why}: look at it, and take it away by hand if it shall go: `{commands}`")


def put(host: Host, tried: Tried, now: UnitSnapshot, judged_arm: "ArmComparison", command: "ExecCommand") -> Adoption:
    """Write the drop-in, have systemd load it, and verify that exactly the command has changed."""
    folder = tried.folder
    if now.load != "loaded":
        raise RefusedError(f"{now.unit} is {now.load} here: {now.load_error or 'systemd has no such unit'}")
    differs = place.differences(tried.snapshot, now)
    if differs:
        raise RefusedError(
            f"{now.unit} is not as it was in trial {folder.name}, whose verdict is not about what is there now: "
            f"{_shown(differs)}; run the trial again"
        )
    unix = time.time()
    before = read_adoption(folder)
    try:
        path = place.path_for(host, now.unit, now.drop_ins)
        text = place.text_of(folder.name, command, _about(tried, judged_arm, unix))
        known = Adoption(
            trial=folder.name,
            unit=now.unit,
            arm=judged_arm.arm,
            command=redact.command(command.argv),
            path=path,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            new_folder=place.needs_folder(host, path),
            drop_ins=now.drop_ins,
            adopted_unix=unix,
        )
        keep(folder, known)  # first: a drop-in that no folder tells of could not be taken away
        place.put(host, path, text, place.mode_for(now))
    except HostError as error:
        put_back(folder, before)
        raise RefusedError(f"nothing was changed: {error}") from None
    _load(host, tried, known, command, before)
    known = known.model_copy(update={"adopted_unix": time.time()})
    with suppress(RefusedError):
        keep(folder, known)
    return known


def _load(host: Host, tried: Tried, known: Adoption, command: "ExecCommand", before: Adoption | None) -> None:
    """Have systemd load the drop-in and verify it; else remove it again.

    Raises:
        RefusedError: it is not what was meant, and is gone again.
        NotRestoredError: and it cannot be removed.
    """
    try:
        place.reload(host)
        after = observe_unit(host, known.unit)
        wrong = place.differences(tried.snapshot, after, path=known.path, command=command)
    except (TrialError, HostError) as error:
        wrong = (str(error),)
    if not wrong:
        return
    undo(host, known, f"{known.unit} would differ in more than its command, or not in it: {_shown(wrong)}")
    put_back(tried.folder, before)
    raise RefusedError(
        f"{known.unit} would not be arm {known.arm} with {known.path}: {_shown(wrong)}; it was removed again"
    )


def undo(host: Host, known: Adoption, why: str) -> None:
    """Take the drop-in away again. Raises NotRestoredError with the commands."""
    try:
        place.undo(host, known.path, folder=known.new_folder)
    except (TrialError, HostError) as error:
        commands = place.by_hand(known.unit, known.path, restart=False)
        raise NotRestoredError(f"{why}; and {known.path} cannot be taken away: {error}", commands) from None


def _about(tried: Tried, judged_arm: "ArmComparison", unix: float) -> list[str]:
    """Return the comment of the drop-in."""
    ratio, metric = judged(judged_arm), METRICS[judged_arm.metric]
    sure = "" if ratio is None else f", {100 * ratio.confidence:.4g} % interval"
    trial = tried.folder.name
    return [
        f"Arm {judged_arm.arm}: {judged_arm.verdict}; {metric} ratio to the unit's command {interval(ratio)}{sure}.",
        f"Adopted {iso(unix)}. Undo: draftworth trial unadopt {trial}",
        f"(or remove this file; then systemctl daemon-reload and systemctl restart {tried.unit}).",
    ]


def take_back(host: Host, known: Adoption, now: UnitSnapshot) -> tuple[str, ...]:
    """Remove the drop-in where it is what was written. Returns remarks."""
    try:
        data = host.read(known.path)
        if data is None:
            if known.path in now.drop_ins:
                place.reload(host)
            return (f"{known.path} was gone already: somebody has removed it",)
        if hashlib.sha256(data).hexdigest() != known.sha256:
            commands = "`, `".join(place.by_hand(known.unit, known.path, restart=False))
            raise RefusedError(
                f"{known.path} was edited since it was adopted: look at it, and take it away by hand: `{commands}`"
            )
        place.take_away(host, known.path, folder=known.new_folder)
    except (HostError, TrialError) as error:
        raise RefusedError(f"nothing was changed: {error}") from None
    try:
        place.reload(host)
    except (HostError, TrialError) as error:
        with suppress(HostError):
            host.write(known.path, data, place.mode_for(now))
        raise RefusedError(f"systemd does not read its files anew, so {known.path} stays: {error}") from None
    return ()


def refuse_unknown(host: Host, tried: Tried) -> None:
    """Refuse to call a unit not adopted while a drop-in says that it is, from this trial."""
    there = place.standing(host, tried.unit)
    if there is not None and place.trial_in(there[1]) == tried.folder.name:
        _refuse_other(*there, tried, None)


def differences(host: Host, tried: Tried) -> tuple[str, ...]:
    """Return in what a unit is not as it was in the trial, one line each."""
    try:
        return place.differences(tried.snapshot, observe_unit(host, tried.unit))
    except HostError as error:
        return (f"cannot be told: {error}",)


def _shown(lines: tuple[str, ...]) -> str:
    more = f" (and {len(lines) - _MOST_SHOWN} more)" if len(lines) > _MOST_SHOWN else ""
    return "; ".join(lines[:_MOST_SHOWN]) + more
