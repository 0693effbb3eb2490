"""`draftworth trial`: restore, adopt, unadopt: what changes a service outside of a run."""

import json
import sys
from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.trial_words import Host, Json, Program, Sudo, TrialId
from draftworth.errors import EXIT_NOT_RESTORED, EXIT_REFUSED, DraftworthError

Restart = Annotated[bool, Parameter(negative="", help="Restart the unit now, and wait until it has generated a token.")]


def restore(
    trial: Annotated[
        str | None, Parameter(name="ID", help="A trial's id; default: every one not restored yet.")
    ] = None,
    /,
) -> int:
    """Finish what a killed trial left: end what it started, start the original, check that it generates."""
    from draftworth.trials.home import all_trials, find_trial, trials_folder  # noqa: PLC0415 - lazy
    from draftworth.trials.recover import elsewhere, left_elsewhere, recover, unfinished  # noqa: PLC0415 - lazy

    folders = [find_trial(trial)] if trial else unfinished()
    if not folders:
        found = len(all_trials())
        print(
            f"{found} trials in {trials_folder()}, every one restored; nothing to do."
            if found
            else f"No trials in {trials_folder()}."
        )
    worst = 0
    for port, folder in left_elsewhere():
        # The lock is the machine's, the home is not: a trial of another folder may have died holding a service.
        if trial is None:
            print(f"draftworth: port {port}: {folder.name} was killed: `{elsewhere(folder)}`", file=sys.stderr)
            worst = EXIT_REFUSED
    for folder in folders:
        # One that cannot be restored must not keep the others waiting.
        try:
            print(recover(folder, _say(), wait_s=0.0, by="`draftworth trial restore`"))
        except DraftworthError as error:
            lines = [f"draftworth: {error}", *(f"  {command}" for command in getattr(error, "commands", ()))]
            print("\n".join(lines), file=sys.stderr)
            worst = EXIT_NOT_RESTORED if EXIT_NOT_RESTORED in {worst, error.exit_code} else max(worst, error.exit_code)
    return worst


def adopt(
    trial: TrialId,
    /,
    *,
    arm: Annotated[str | None, Parameter(help="Another arm than the best one; it has to be faster, too.")] = None,
    restart: Restart = False,
    host: Host = None,
    program: Program = None,
    sudo: Sudo = False,
    as_json: Json = False,
) -> int:
    """Make the arm that a trial found faster the unit's own command, by a lasting drop-in; `trial unadopt` undoes it.

    Refused where the trial is not complete, the arm is not faster, its output was not checked, or the unit is not as it
    was in the trial. Takes effect at the unit's next start. With --restart it is restarted now; where it then does not
    generate a token within limits.start_timeout_s, everything is undone and the exit code is 6.
    """
    from draftworth.cli.unit import station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    told = station.adopt(trial, arm=arm, restart=restart, say=_say())
    print(json.dumps(told, indent=1) if as_json else "\n".join(told["lines"]))
    return 0


def unadopt(
    trial: TrialId,
    /,
    *,
    restart: Restart = False,
    host: Host = None,
    program: Program = None,
    sudo: Sudo = False,
    as_json: Json = False,
) -> int:
    """Take the adoption of a trial back: the unit has its own command again, from its next start on."""
    from draftworth.cli.unit import station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    told = station.unadopt(trial, restart=restart, say=_say())
    print(json.dumps(told, indent=1) if as_json else "\n".join(told["lines"]))
    return 0


def _say() -> Callable[[str], None]:
    """Return a function that prints each new line once on standard error."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(text, file=sys.stderr, flush=True)

    return say
