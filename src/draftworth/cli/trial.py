"""`draftworth trial`: schema, plan, run, attach, status, stop, release, show, list, restore, adopt, unadopt."""

import json
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from draftworth.errors import EXIT_NOT_RESTORED, EXIT_REFUSED, DraftworthError, UsageError

if TYPE_CHECKING:
    from draftworth.trials.endpoints.config import EndpointsTrial
    from draftworth.trials.power import Power
    from draftworth.trials.prepare import Prepared

app = App(name="trial", help="Trials on a service: what they do, what they found.", help_format="markdown")

Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON document on standard output.")]
File = Annotated[Path, Parameter(help="The trial's TOML file; `draftworth trial schema` prints one to start from.")]


@app.command
def schema(
    *,
    endpoints: Annotated[
        bool, Parameter(negative="", help="The file of a trial between servers that run already.")
    ] = False,
    systemd: Annotated[bool, Parameter(negative="", help="The file of a trial on a systemd unit.")] = False,
    as_json: Json = False,
) -> int:
    """Print every field of a trial's file with its meaning and default, as TOML to start from."""
    from draftworth.trials.schema import Kind, json_schema, toml_schema  # noqa: PLC0415 - lazy: pydantic models

    if endpoints and systemd:
        raise UsageError("--endpoints and --systemd are two kinds of files; choose one")
    kind: Kind = "endpoints" if endpoints else "systemd" if systemd else "process"
    shown = json.dumps(json_schema(kind), indent=1) if as_json else toml_schema(kind)
    print(shown, end="" if not as_json else "\n")
    return 0


@app.command
def plan(
    file: File,
    /,
    *,
    files: Annotated[
        bool, Parameter(negative="", help="systemd: print every unit and script a run would write, in full.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Print every step and command a run would execute; the same code makes both. Changes nothing."""
    from dataclasses import asdict  # noqa: PLC0415 - lazy

    from draftworth import redact  # noqa: PLC0415 - lazy
    from draftworth.trials.config import SystemdTrial  # noqa: PLC0415 - lazy
    from draftworth.trials.endpoints.config import EndpointsTrial  # noqa: PLC0415 - lazy
    from draftworth.trials.load import load  # noqa: PLC0415 - lazy
    from draftworth.trials.lock import dead  # noqa: PLC0415 - lazy
    from draftworth.trials.plan_text import lines  # noqa: PLC0415 - lazy
    from draftworth.trials.prepare import prepare  # noqa: PLC0415 - lazy
    from draftworth.trials.recover import refuse_unfinished  # noqa: PLC0415 - lazy

    config = load(file)
    if isinstance(config, EndpointsTrial):
        return _plan_endpoints(config, as_json=as_json)
    if isinstance(config, SystemdTrial):
        from draftworth.cli.unit import plan_unit  # noqa: PLC0415 - lazy

        return plan_unit(config, files=files, as_json=as_json)
    port = config.service.port
    refuse_unfinished(port, dict(dead()).get(port))
    ready = prepare(file)
    if not as_json:
        print("\n".join([*lines(ready.plan, ready.observed, ready.config), _power(ready).line]))
        return 0
    steps = [
        {**asdict(step), "command": redact.command(step.command), "env": redact.environment(step.env)}
        for step in ready.plan.steps
    ]
    found = {
        "schema_version": 1,
        "service_runs": ready.observed.running,
        "engine": ready.engine.name,
        "version": ready.version,
        "config": redact.config(ready.config),
        "steps": steps,
        "requests": ready.plan.requests,
        "starts": ready.plan.starts,
        "power": _power(ready).model_dump(),
        "notes": ready.plan.notes,
    }
    print(json.dumps(found, indent=1, default=str))
    return 0


def _power(ready: "Prepared") -> "Power":
    from draftworth.bench.machine import device_here  # noqa: PLC0415 - lazy
    from draftworth.trials.power import power_of  # noqa: PLC0415 - lazy: scipy

    config = ready.config
    starts = config.verdict.starts
    return power_of(
        config,
        prompts=len(ready.prompts),
        starts=(starts + 1, starts),
        looks=starts,
        variants=len(config.candidates),
        device=device_here(),
    )


def _plan_endpoints(config: "EndpointsTrial", *, as_json: bool) -> int:
    """Print the plan of a trial between servers that run already."""
    from draftworth import redact  # noqa: PLC0415 - lazy
    from draftworth.trials.endpoints.prepare import lines, prepare  # noqa: PLC0415 - lazy
    from draftworth.trials.power import power_of  # noqa: PLC0415 - lazy: scipy

    ready = prepare(config)
    power = power_of(
        config, prompts=len(ready.prompts), starts=(1, 1), looks=len(ready.segments), variants=len(config.arms)
    )
    if not as_json:
        print("\n".join([*lines(ready), power.line]))
        return 0
    found = {
        "schema_version": 1,
        "engine": ready.engine.name,
        "servers": [
            {"arm": arm.name, "url": arm.target.base_url, "model": arm.target.model, "version": arm.version}
            for arm in ready.arms
        ],
        "config": redact.endpoints(config),
        "steps": [{"id": step.id, "kind": step.kind, "about": step.about} for step in ready.plan.steps],
        "requests": ready.plan.requests,
        "starts": 0,
        "notes": ready.plan.notes,
        "power": power.model_dump(),
    }
    print(json.dumps(found, indent=1, default=str))
    return 0


@app.command
def run(
    file: File,
    /,
    *,
    yes: Annotated[bool, Parameter(negative="", help="systemd: do not ask; for scripts.")] = False,
    hold: Annotated[
        str | None,
        Parameter(help="systemd: leave the last variant running so long for a person to try, e.g. `30m`."),
    ] = None,
    detach: Annotated[
        bool, Parameter(negative="", help="systemd: start the trial, print its id, and do not watch it.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a trial: baseline, variants, baseline again; then the service is put back, whatever happened.

    On a systemd unit the trial is driven by a unit of its own on the machine that serves: it goes on when this command
    or its connection ends, and `draftworth trial attach` watches it again.

    Exits 0 with a verdict, 1 for a wrong file, 2 where it was refused and nothing changed, 3 where the verdict is
    inconclusive, 4 where the service is NOT restored, 6 where it could not be measured and the service is back.
    """
    from draftworth.trials.config import SystemdTrial  # noqa: PLC0415 - lazy
    from draftworth.trials.load import load  # noqa: PLC0415 - lazy

    config = load(file)
    if isinstance(config, SystemdTrial):
        from draftworth.cli.unit import run_unit  # noqa: PLC0415 - lazy

        if hold is not None:
            limits = config.limits.model_copy(update={"hold_s": _seconds(hold)})
            config = config.model_copy(update={"limits": limits})
        return run_unit(config, yes=yes, detach=detach, as_json=as_json)
    if hold is not None or detach:
        raise UsageError("--hold and --detach are for trials on a systemd unit; this one is driven by this process")
    return run_and_print(file, as_json=as_json)


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(text: str) -> float:
    """Return a duration like `90`, `90s`, `30m` or `1.5h` in seconds. Raises UsageError."""
    number, unit = (text[:-1], text[-1]) if text and text[-1] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(f"--hold: {text!r} is no duration; write 90s, 30m or 1h")
    return seconds


Host = Annotated[
    str | None,
    Parameter(help="The machine it is driven on, as `ssh` takes it; default: where it was started from here."),
]
Program = Annotated[
    str | None,
    Parameter(name="--draftworth", help="With --host: the program there; default: as in the last trial from here."),
]
Sudo = Annotated[
    bool, Parameter(negative="", help="With --host: become root there with `sudo -n`; default: as in the last trial.")
]
TrialId = Annotated[str, Parameter(name="ID", help="A trial's id, or `latest`.")]


@app.command
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


@app.command
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


@app.command
def stop(trial: TrialId, /, *, host: Host = None, program: Program = None, sudo: Sudo = False) -> int:
    """End a trial on a systemd unit: the service is put back first, and verified; `trial attach` shows it."""
    from draftworth.cli.unit import station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    name = str(station.status(trial)[0]["id"])  # `latest` by its name
    done = station.end(name)
    print(f"Trial {name} ends; the service is put back first." if done else f"Trial {name} is not at work.")
    return 0


@app.command
def release(trial: TrialId, /, *, host: Host = None, program: Program = None, sudo: Sudo = False) -> int:
    """End the time that `trial run --hold` leaves a variant running; the trial goes on with the restore."""
    from draftworth.cli.unit import station_of  # noqa: PLC0415 - lazy

    station = station_of(trial, host, program=program, sudo=sudo)
    name = str(station.status(trial)[0]["id"])
    if not station.release(name):
        raise UsageError(f"trial {name} holds no variant now")
    print(f"Trial {name} goes on.")
    return 0


def run_and_print(file: Path, *, as_json: bool) -> int:
    """Run a trial with progress on standard error, print its result, return its exit code."""
    from draftworth.cli.show import kept_lines, program, verdict_lines  # noqa: PLC0415 - lazy
    from draftworth.trials.history import typical_seconds  # noqa: PLC0415 - lazy
    from draftworth.trials.plan import Plan  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy
    from draftworth.trials.run import run_trial  # noqa: PLC0415 - lazy: heavy imports

    def show(plan: Plan) -> Progress:
        kinds = [str(step.kind) for step in plan.steps]
        return Progress(sys.stderr, kinds=kinds, known=typical_seconds(plan))

    finished = run_trial(file, show=show)
    with suppress(BrokenPipeError):  # whoever read the output has gone; the exit code still tells
        if as_json:
            print(finished.record.model_dump_json(indent=1))
        else:
            print("\n".join(verdict_lines(finished.record)))
            print("\n".join(kept_lines(finished.record, finished.folder, program())))
        sys.stdout.flush()
    if finished.crash is not None and finished.record.restored:
        raise finished.crash
    return finished.record.exit_code


@app.command
def show(
    trial: Annotated[str, Parameter(name="ID", help="A trial's id, or `latest`.")], /, *, as_json: Json = False
) -> int:
    """Print what a trial found."""
    from draftworth.cli.show import show_lines  # noqa: PLC0415 - lazy
    from draftworth.trials.home import find_trial  # noqa: PLC0415 - lazy
    from draftworth.trials.record import read  # noqa: PLC0415 - lazy

    folder = find_trial(trial)
    found = read(folder)
    print(found.model_dump_json(indent=1) if as_json else "\n".join(show_lines(found, folder)))
    return 0


@app.command(name="list")
def list_(*, as_json: Json = False) -> int:
    """List the trials here, oldest first."""
    from draftworth.cli.show import list_entries  # noqa: PLC0415 - lazy
    from draftworth.trials.home import trials_folder  # noqa: PLC0415 - lazy

    entries = list_entries()
    if as_json:
        print(json.dumps({"schema_version": 1, "trials": entries}, indent=1))
        return 0
    if not entries:
        print(f"No trials in {trials_folder()}; run one with `draftworth trial run FILE`")
    if entries:
        print(f"{'trial':<17}  {'service':<14}  {'verdict':<13}  ratio")
    for entry in entries:
        ratio = "" if entry["ratio"] is None else f"  {entry['ratio']:.3f} ({entry['metric']})"
        print(f"{entry['id']:<17}  {entry['state']:<14}  {entry['verdict'] or '-':<13}{ratio}")
    return 0


@app.command
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


def _say() -> Callable[[str], None]:
    """Return a function that prints each new line once on standard error."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(text, file=sys.stderr, flush=True)

    return say


Restart = Annotated[bool, Parameter(negative="", help="Restart the unit now, and wait until it has generated a token.")]


@app.command
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


@app.command
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
