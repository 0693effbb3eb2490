"""`draftworth trial`: schema, run, and the registry of its other verbs, each in a file beside this one."""

import json
import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from draftworth.cli.trial_back import adopt, restore, unadopt
from draftworth.cli.trial_driven import attach, release, status, stop
from draftworth.cli.trial_kept import list_, show
from draftworth.cli.trial_plan import plan
from draftworth.cli.trial_words import File, Json
from draftworth.errors import UsageError

app = App(name="trial", help="Trials on a service: what they do, what they found.", help_format="markdown")
app.command(plan)
app.command(attach)
app.command(status)
app.command(stop)
app.command(release)
app.command(show)
app.command(list_, name="list")
app.command(restore)
app.command(adopt)
app.command(unadopt)


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
    if getattr(config, "search", None) is not None:
        raise UsageError(
            f"{file}: has a [search]: `draftworth trial search {file}` runs it; for a trial of its [[arms]] alone take "
            "[search] out"
        )
    if isinstance(config, SystemdTrial):
        from draftworth.cli.unit import run_unit  # noqa: PLC0415 - lazy

        if hold is not None:
            limits = config.limits.model_copy(update={"hold_s": _seconds(hold)})
            config = config.model_copy(update={"limits": limits})
        return run_unit(config, yes=yes, detach=detach, as_json=as_json)
    if hold is not None or detach:
        raise UsageError("--hold and --detach are for trials on a systemd unit; this one is driven by this process")
    return run_and_print(file, as_json=as_json)


@app.command
def search(
    file: File,
    /,
    *,
    again: Annotated[
        bool, Parameter(negative="", help="Start anew where an earlier search of this file did not come to its end.")
    ] = False,
    yes: Annotated[bool, Parameter(negative="", help="systemd: do not ask; for scripts.")] = False,
    detach: Annotated[
        bool, Parameter(negative="", help="systemd: start the search, print its id, and do not watch it.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Find the best of many settings with the fewest starts: a trial with a `[search]` in its file.

    Every setting is predicted from the baseline's own answers where its drafts can be replayed; the most promising a
    minute is started first, one that cannot beat the best any more is left, and the search ends where no further start
    is worth its time. What was not tried, and why, is told. A search that was cut short goes on where it stopped.

    Exits as `draftworth trial run` does.
    """
    from draftworth.trials.config import SystemdTrial, TrialConfig  # noqa: PLC0415 - lazy
    from draftworth.trials.load import load  # noqa: PLC0415 - lazy

    config = load(file)
    if not isinstance(config, TrialConfig) or config.search is None:
        raise UsageError(
            f'{file}: has no [search]; add one, e.g. grid = [{{ method = "ngram", k = [2, 3, 5] }}] (docs/search.md)'
        )
    if isinstance(config, SystemdTrial):
        from draftworth.cli.unit import run_unit  # noqa: PLC0415 - lazy

        unit = config.anew() if again else config
        assert isinstance(unit, SystemdTrial), "a copy of one"
        return run_unit(unit, yes=yes, detach=detach, as_json=as_json)
    if detach:
        raise UsageError("--detach is for a search on a systemd unit; this one is driven by this process")
    return run_and_print(file, as_json=as_json, again=again)


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


def run_and_print(file: Path, *, as_json: bool, again: bool = False) -> int:
    """Run a trial with progress on standard error, print its result, return its exit code."""
    from draftworth.cli.show import kept_lines, program, verdict_lines  # noqa: PLC0415 - lazy
    from draftworth.trials.history import typical_seconds  # noqa: PLC0415 - lazy
    from draftworth.trials.progress import Progress  # noqa: PLC0415 - lazy
    from draftworth.trials.run import run_trial  # noqa: PLC0415 - lazy: heavy imports
    from draftworth.trials.steps import Plan  # noqa: PLC0415 - lazy

    def show(plan: Plan) -> Progress:
        kinds = [str(step.kind) for step in plan.steps]
        return Progress(sys.stderr, kinds=kinds, known=typical_seconds(plan))

    finished = run_trial(file, show=show, again=again)
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
