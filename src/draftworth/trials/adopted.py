"""What may be adopted: a trial's arm with everything that has to be true of it, and the record that it was adopted."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from draftworth import redact
from draftworth.engines import engine as engine_named
from draftworth.engines.placing import PLACEHOLDER
from draftworth.errors import RefusedError, UsageError
from draftworth.findings import Code
from draftworth.models import Frozen
from draftworth.services.base import Observed
from draftworth.services.systemd.scene import TAG
from draftworth.services.systemd.snapshot import UnitSnapshot
from draftworth.services.systemd.variant import command_of
from draftworth.trials import record as records
from draftworth.trials.config import ArmConfig, SystemdTrial
from draftworth.trials.driver.drive import REQUEST
from draftworth.trials.driver.fetched import NAME as FETCHED
from draftworth.trials.home import all_trials, find_trial
from draftworth.trials.journal import NAME as JOURNAL
from draftworth.trials.journal import Event, Journal
from draftworth.trials.plan import arm_command
from draftworth.trials.record import ArmComparison, TrialRecord, write_text
from draftworth.trials.recover import begin_of
from draftworth.verdicts.base import Verdict

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.systemd.bus import ExecCommand

NAME = "adopted.json"
"""The file in a trial's folder that says that one of its arms was adopted."""


class Adoption(Frozen):
    """That an arm was adopted: what has to be known to take it back."""

    schema_version: int = 1
    trial: str
    unit: str
    arm: str
    command: tuple[str, ...]
    """Secrets hidden."""
    path: str
    """The drop-in."""
    sha256: str
    """Of the drop-in, hex."""
    new_folder: bool
    """Whether its folder was made for it."""
    drop_ins: tuple[str, ...]
    """Paths of the unit's drop-ins before."""
    adopted_unix: float
    undone_unix: float | None = None
    """When it was taken back."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial on a unit, as it was.

    Attributes:
        folder: its folder.
        config: its file, with unit and port filled in.
        engine: the service's.
        observed: the service before the trial changed anything.
        events: its journal.
    """

    folder: Path
    config: SystemdTrial
    engine: "Engine"
    observed: Observed
    events: tuple[Event, ...]

    @property
    def snapshot(self) -> UnitSnapshot:
        """The unit before the trial changed anything."""
        assert self.observed.unit is not None, "a unit was not observed"
        return self.observed.unit.snapshot

    @property
    def unit(self) -> str:
        """The unit's canonical name."""
        return self.snapshot.unit


def read_trial(folder: Path) -> Tried:
    """Read what a trial was.

    Raises:
        RefusedError: it is not on a unit, or of another machine, or never began, or is damaged.
    """
    if not (folder / TAG).is_file():
        raise RefusedError(
            f"trial {folder.name} is not on a systemd unit, and only a unit can be given another command; put the "
            "arm's flags into your service's command yourself"
        )
    if (folder / FETCHED).is_file():
        raise RefusedError(f"trial {folder.name} is here as a copy of another machine's: name that machine with --host")
    try:
        with Journal(folder / JOURNAL) as journal:
            events = tuple(journal.events())
        begin = begin_of(list(events)).data
        asked: dict[str, Any] = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        config = SystemdTrial.model_validate_json(json.dumps(asked["config"]))
        observed = Observed.model_validate(begin["observed"])
        same = redact.config(config)["arms"] == [_of_now(one) for one in begin["config"]["arms"]]
        port = int(begin["config"]["service"]["port"])
    except UsageError as error:
        raise RefusedError(f"trial {folder.name}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        why = " ".join(str(error).split())[:200]
        raise RefusedError(f"trial {folder.name}: damaged, what it ran cannot be told: {why}") from None
    if observed.unit is None or not same:
        raise RefusedError(f"trial {folder.name}: {REQUEST} and {JOURNAL} do not tell of the same arms on a unit")
    update = {"unit": observed.unit.snapshot.unit, "port": port}
    config = config.model_copy(update={"service": config.service.model_copy(update=update)})
    return Tried(folder, config, engine_named(config.service.engine), observed, events)


def _of_now(arm: object) -> dict[str, Any]:
    """Return an arm of a journal with the fields that were added since it was written."""
    return ArmConfig.model_validate_json(json.dumps(arm)).model_dump(mode="json")


def chosen(folder: Path, arm: str | None) -> tuple[TrialRecord, ArmComparison]:
    """Return a trial's record, and the comparison of the arm that is to be adopted.

    Args:
        folder: the trial's.
        arm: its name; None: the best one.

    Raises:
        RefusedError: the trial is not complete, the service is not restored, the arm is not faster, or its output is
            not known to be the same.
        UsageError: no such arm, or the record is damaged.
    """
    if not (folder / records.NAME).is_file():
        raise RefusedError(
            f"trial {folder.name} has no record: it is still at work, or was killed (`draftworth trial status "
            f"{folder.name}`)"
        )
    found = records.read(folder)
    if not found.restored:
        raise RefusedError(
            f"trial {found.id}: the service is not verified to be as it was before it: `draftworth trial restore "
            f"{found.id}` first"
        )
    if found.error is not None or found.finished is None:
        raise RefusedError(f"trial {found.id} could not be measured to its end: {found.error or found.reason}")
    name = arm or found.best
    compared = (*found.comparisons, *found.earlier)
    one = next((one for one in compared if one.arm == name), None)
    if one is None:
        known = ", ".join(one.arm for one in compared) or "none was compared"
        if arm is None:
            raise RefusedError(f"trial {found.id} has no verdict on any arm: {found.reason}")
        raise UsageError(f"--arm {arm}: trial {found.id} has no such arm; its arms: {known}")
    if one.verdict is not Verdict.FASTER:
        raise RefusedError(f"arm {one.arm} of trial {found.id} is {_words(one.verdict)}, not faster: {one.reason}")
    check = one.output_check
    if check is None or check.status != "same":
        state = "was not checked" if check is None else f"is {check.status}: {check.reason}"
        raise RefusedError(
            f"arm {one.arm} of trial {found.id} is faster, and its output {state}; adopted is only what was checked: "
            "run the trial with verdict.output_check = true"
        )
    if any(finding.code is Code.SYNTHETIC_ACCEPTANCE and finding.arm in {None, one.arm} for finding in found.findings):
        raise RefusedError(f"arm {one.arm} of trial {found.id} accepts drafts by a configured rate: its text is none")
    return found, one


def _words(verdict: Verdict) -> str:
    return "not measured" if verdict is Verdict.ERROR else str(verdict)


def command_for(tried: Tried, found: TrialRecord, arm: str) -> "ExecCommand":
    """Return the command that an arm ran, without what only measuring needs.

    It is made anew from the unit and the arm's configuration, since the journal hides secrets, and is compared with
    what the journal says was started.

    Raises:
        RefusedError: it cannot be made, or is not what was started.
        UsageError: the earlier trial of a search that started it is gone, or damaged.
    """
    before = next((one.trial for one in found.search.tried if one.name == arm), None) if found.search else None
    if before is not None:
        folder = find_trial(before)
        return command_for(read_trial(folder), records.read(folder), arm)
    config, engine = tried.config, tried.engine
    asked = next((one for one in config.variants if one.name == arm), None)
    if asked is None:
        raise RefusedError(f"trial {tried.folder.name}: its file has no arm {arm}")
    original = tried.snapshot.exec_start[0]
    base = (*original.argv, PLACEHOLDER) if config.service.append_args else original.argv
    # No release known: no arguments that make it tell per-request figures.
    plain = arm_command(engine, base, asked, None)
    release = next((one.version for one in found.arms if one.name == arm), None)
    releases = dict.fromkeys([None, release, engine.version_of(original.argv, {})])
    possible = [list(redact.command(arm_command(engine, base, asked, one))) for one in releases]
    ran = _started(tried.events, arm)
    if ran is None or ran not in possible:
        raise RefusedError(
            f"arm {arm} of trial {tried.folder.name} was started with a command that this Draftworth would not write "
            f"({' '.join(ran or ['none'])[:200]}); run the trial again"
        )
    return command_of(original, plain)


def _started(events: Sequence[Event], arm: str) -> list[str] | None:
    """Return the command that an arm was started with, secrets hidden; None where it was not."""
    step = re.compile(rf"\d+-start-{re.escape(arm)}")
    starts = [event for event in events if event.kind == "intent" and step.fullmatch(event.step)]
    return [str(word) for word in starts[-1].data.get("command", ())] if starts else None


def read_adoption(folder: Path) -> Adoption | None:
    """Return what a trial's folder says of its adoption, or None.

    Raises:
        RefusedError: it is damaged.
    """
    path = folder / NAME
    try:
        return Adoption.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RefusedError(f"{path}: damaged: {' '.join(str(error).split())[:200]}") from None


def still_running(now: UnitSnapshot) -> str | None:
    """Return the trial whose arm a unit still runs although that was taken back, or None: it was not restarted since.

    systemd has the unit's own command loaded then, and no file is younger than the process, so nothing else tells.
    """
    for folder in reversed(all_trials()):
        with suppress(RefusedError):
            known = read_adoption(folder)
            if known is None or known.unit != now.unit or known.undone_unix is None or now.started_s is None:
                continue
            if known.adopted_unix <= now.started_s < known.undone_unix:
                return known.trial
    return None


def keep(folder: Path, adoption: Adoption) -> None:
    """Write the adoption down. Raises RefusedError where that is not possible."""
    try:
        write_text(folder / NAME, adoption.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise RefusedError(f"{folder / NAME}: cannot be written: {error.strerror or error}") from None


def put_back(folder: Path, before: Adoption | None) -> None:
    """Write down what a folder shall say, as far as possible: a file that stays does no harm without its drop-in."""
    with suppress(RefusedError, OSError):
        if before is None:
            (folder / NAME).unlink(missing_ok=True)
        else:
            keep(folder, before)
