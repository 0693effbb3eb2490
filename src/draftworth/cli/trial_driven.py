"""`draftworth trial`: attach, status, stop, release: trials on a systemd unit while their drivers are at work."""

import json
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.trial_words import Host, Json, Program, Sudo, TrialId
from draftworth.errors import UsageError


def attach(
    trial: TrialId = "latest",
    /,
    *,
    host: Host = None,
    program: Program = None,
    sudo: Sudo = False,
    as_json: Json = False,
) -> int:
    """Watch a trial on a systemd unit that is at work, from anywhere; Ctrl-C ends the watching, not the trial."""
    from draftworth.cli.unit import attach, station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    return attach(station, trial, where=f" --host {host}" if host else "", as_json=as_json)


def status(
    trial: Annotated[str | None, Parameter(name="ID")] = None,
    /,
    *,
    host: Host = None,
    program: Program = None,
    sudo: Sudo = False,
    as_json: Json = False,
) -> int:
    """Say where a trial on a systemd unit stands; without ID, every one that is at work on the machine."""
    from draftworth.cli.unit import station_of, status_lines  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    found = station.status(trial)
    if as_json:
        print(json.dumps({"schema_version": 1, "trials": list(found)}, indent=1, default=str))
        return 0
    if not found:
        print(f"No trial is at work on a systemd unit of {station.name}.")
    print("\n".join(line for one in found for line in status_lines(one)), end="\n" if found else "")
    return 0


def stop(trial: TrialId, /, *, host: Host = None, program: Program = None, sudo: Sudo = False) -> int:
    """End a trial on a systemd unit: the service is put back first, and verified; `trial attach` shows it."""
    from draftworth.cli.unit import station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    name = str(station.status(trial)[0]["id"])  # `latest` by its name
    done = station.end(name)
    print(f"Trial {name} ends; the service is put back first." if done else f"Trial {name} is not at work.")
    return 0


def release(trial: TrialId, /, *, host: Host = None, program: Program = None, sudo: Sudo = False) -> int:
    """End the time that `trial run --hold` leaves a variant running; the trial goes on with the restore."""
    from draftworth.cli.unit import station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    name = str(station.status(trial)[0]["id"])
    if not station.release(name):
        raise UsageError(f"trial {name} holds no variant now")
    print(f"Trial {name} goes on.")
    return 0
